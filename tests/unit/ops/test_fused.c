/*
 * test_fused.c - what a fused step of the ready-made networks consists of, and what it takes: no
 * pass over memory that could have been part of another, and bytes against PyTorch's.
 */
#include "graph/build.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <string.h>

static dunlin_model *open_zoo(const char *name)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert(dunlin_model_from_zoo(name, NULL, NULL, &model, &error) == DUNLIN_OK, "%s",
              error.text);
    return model;
}

static int count_ops(const dunlin_step_graph *graph, const char *kernel)
{
    int n = 0;
    for (size_t i = 0; i < graph->n_ops; i++) {
        n += strcmp(graph->ops[i].kernel->name, kernel) == 0;
    }
    return n;
}

static bool is_read_backward(const dunlin_step_graph *graph, uint32_t tensor)
{
    for (size_t i = 0; i < graph->n_ops; i++) {
        const dunlin_step_op *op = &graph->ops[i];
        for (uint32_t k = 0; op->is_backward && k < op->n_accesses; k++) {
            if (op->accesses[k].tensor == tensor) {
                return true;
            }
        }
    }
    return false;
}

/* Sums of two values, and those of them that have to be kept for the backward pass. */
static int count_sums(const dunlin_step_graph *graph, int *out_n_kept)
{
    int n = 0;
    *out_n_kept = 0;
    for (size_t i = 0; i < graph->n_ops; i++) {
        if (strcmp(graph->ops[i].kernel->name, "add") == 0) {
            n++;
            *out_n_kept += is_read_backward(graph, graph->ops[i].accesses[0].tensor);
        }
    }
    return n;
}

/* All of ResNet-18's batch norms. */
#define RESNET18_NORMS                                                                             \
    "bn1,layer1.0.bn,layer1.1.bn,layer2.0.bn,layer2.1.bn,layer3.0.bn,layer3.1.bn,layer4.0.bn,"     \
    "layer4.1.bn,layer2.0.downsample.1,layer3.0.downsample.1,layer4.0.downsample.1"

/* Of residual sums in a chain every second one is read through its terms; where batch norm is
 * frozen and untrained, so that nobody needs its raw tensor backward, none. Of a ResNet's last one,
 * which the global average alone reads, signs are kept. */
Test(fused, every_second_residual_sum_is_kept)
{
    static const struct {
        const char *name, *frozen;
        int n, n_kept;
    } cases[] = {{"mobilenet_v2", NULL, 10, 4},
                 {"resnet18", NULL, 8, 3},
                 {"resnet50", NULL, 16, 7},
                 {"resnet18", RESNET18_NORMS, 8, 7}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_model *model = open_zoo(cases[i].name);
        const dunlin_step_build_options options = {
            .mode = DUNLIN_EMIT_TRAIN, .is_fused = true, .frozen_prefixes = cases[i].frozen};
        dunlin_step_graph *graph = NULL;
        int n_kept = 0;
        cr_assert(dunlin__step_build(&model->net, &options, NULL, &graph, NULL) == DUNLIN_OK);
        cr_expect_eq(count_sums(graph, &n_kept), cases[i].n, "%s", cases[i].name);
        cr_expect_eq(n_kept, cases[i].n_kept, "%s: %d kept", cases[i].name, n_kept);
        dunlin__step_graph_destroy(graph);
        dunlin_model_destroy(model);
    }
}

/* One op forward and one backward a convolution; batch norm and clips are passes nowhere. */
Test(fused, nothing_takes_a_pass_of_its_own)
{
    static const struct {
        const char *name;
        int n_convs; /* and dense layers */
        int n_sums, n_closes;
    } cases[] = {
        {"mobilenet_v1", 28, 0, 0}, {"mobilenet_v2", 53, 0, 0}, {"resnet18", 21, 0, 0},
        {"resnet50", 54, 0, 0},     {"densenet121", 121, 4, 0}, /* a block's first input comes out
                                                                   of a pooling */
        {"squeezenet1_1", 26, 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_model *model = open_zoo(cases[i].name);
        const dunlin_step_build_options options = {.mode = DUNLIN_EMIT_TRAIN, .is_fused = true};
        dunlin_step_graph *graph = NULL;
        cr_assert(dunlin__step_build(&model->net, &options, NULL, &graph, NULL) == DUNLIN_OK);
        cr_expect_eq(count_ops(graph, "conv"), cases[i].n_convs, "%s", cases[i].name);
        cr_expect_eq(count_ops(graph, "conv_grad"), cases[i].n_convs, "%s", cases[i].name);
        cr_expect_eq(count_ops(graph, "sums"), cases[i].n_sums, "%s", cases[i].name);
        cr_expect_eq(count_ops(graph, "close"), cases[i].n_closes, "%s", cases[i].name);
        cr_expect_eq(count_ops(graph, "view"), 0, "%s", cases[i].name);
        cr_expect_eq(count_ops(graph, "sum"), 0, "%s", cases[i].name);
        cr_expect_eq(count_ops(graph, "clip") + count_ops(graph, "concat"), 0, "%s", cases[i].name);
        dunlin__step_graph_destroy(graph);
        dunlin_model_destroy(model);
    }
}

/* Functions behind a batch norm are in its view; what else is there belongs to gates, to a head
 * without batch norm and to stochastic depth, which reads and gives plain tensors. */
Test(fused, functions_behind_batch_norms_take_no_pass)
{
    static const struct {
        const char *name;
        int n_functions, n_gates, n_depths;
    } cases[] = {{"mobilenet_v3_small", 10, 9, 0},
                 {"mobilenet_v3_large", 9, 8, 0},
                 {"efficientnet_b0", 32, 16, 9}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_model *model = open_zoo(cases[i].name);
        const dunlin_step_build_options options = {.mode = DUNLIN_EMIT_TRAIN, .is_fused = true};
        dunlin_step_graph *graph = NULL;
        cr_assert(dunlin__step_build(&model->net, &options, NULL, &graph, NULL) == DUNLIN_OK);
        cr_expect_eq(count_ops(graph, "unary"), cases[i].n_functions, "%s", cases[i].name);
        cr_expect_eq(count_ops(graph, "unary_grad"), cases[i].n_functions, "%s", cases[i].name);
        cr_expect_eq(count_ops(graph, "view"), cases[i].n_gates + cases[i].n_depths, "%s",
                     cases[i].name);
        cr_expect_eq(count_ops(graph, "close"), cases[i].n_depths, "%s", cases[i].name);
        dunlin__step_graph_destroy(graph);
        dunlin_model_destroy(model);
    }
}

/* PyTorch 1.13, its allocator tuned: bytes above start, 224 x 224, 1000 classes. */
Test(fused, bytes_against_pytorch, .timeout = 900)
{
    static const struct {
        const char *name;
        int64_t batch;
        double pytorch_mib, share;
    } cases[] = {{"mobilenet_v2", 8, 690.0, 0.40},
                 {"mobilenet_v2", 32, 2966.0, 1.0 / 3.0},
                 {"resnet50", 8, 1081.0, 0.60},
                 {"densenet121", 8, 1212.0, 1.0 / 3.0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_model *model = open_zoo(cases[i].name);
        dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
        dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
        options.batch = cases[i].batch;
        options.momentum = 0.9F;
        cr_assert(dunlin_trainer_estimate(model, &options, &report, NULL) == DUNLIN_OK);
        const double mib = (double)report.planned_bytes / 1048576.0;
        cr_expect(mib <= cases[i].share * cases[i].pytorch_mib, "%s, batch %d: %.1f MiB",
                  cases[i].name, (int)cases[i].batch, mib);
        dunlin_model_destroy(model);
    }
}
