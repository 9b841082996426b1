/*
 * test_kept.c - what the ready-made networks keep for the backward pass: how much of it is read for
 * a sign alone though it is stored whole, and how much are places and signs in bits.
 */
#include "graph/build.h"

#include <dunlin/model.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>

/* Of all tensors that share one piece of memory. */
typedef struct use {
    uint32_t n_reads, n_mask_reads; /* backward */
    bool is_made_forward;
} use;

static uint32_t whole_of(const dunlin_step_graph *graph, uint32_t tensor)
{
    while (graph->tensors[tensor].is_part) {
        tensor = graph->tensors[tensor].parent;
    }
    return tensor;
}

static use *list_uses(const dunlin_step_graph *graph)
{
    use *uses = calloc(graph->n_tensors, sizeof *uses);
    cr_assert_not_null(uses);
    for (size_t t = 0; t < graph->n_tensors; t++) {
        uses[whole_of(graph, (uint32_t)t)].n_mask_reads += graph->tensors[t].n_mask_reads;
    }
    for (size_t i = 0; i < graph->n_ops; i++) {
        const dunlin_step_op *op = &graph->ops[i];
        for (uint32_t k = 0; k < op->n_accesses; k++) {
            use *one = &uses[whole_of(graph, op->accesses[k].tensor)];
            const bool is_read = op->accesses[k].mode == DUNLIN_MEM_READ;
            one->n_reads += op->is_backward && is_read;
            one->is_made_forward = one->is_made_forward || (!op->is_backward && !is_read);
        }
    }
    return uses;
}

/* Percent of the bytes a sample that are kept: read for signs, and in bits. */
static void measure(const char *name, double *out_signs, double *out_bits)
{
    dunlin_model *model = NULL;
    dunlin_step_graph *graph = NULL;
    dunlin_error error = {0};
    const dunlin_step_build_options options = {.mode = DUNLIN_EMIT_TRAIN, .is_fused = true};
    cr_assert(dunlin_model_from_zoo(name, NULL, NULL, &model, &error) == DUNLIN_OK, "%s",
              error.text);
    cr_assert(dunlin__step_build(&model->net, &options, NULL, &graph, NULL) == DUNLIN_OK);
    use *uses = list_uses(graph);
    double kept = 0.0;
    *out_signs = 0.0;
    *out_bits = 0.0;
    for (size_t t = 0; t < graph->n_tensors; t++) {
        const dunlin_step_tensor *tensor = &graph->tensors[t];
        if (tensor->is_part || !tensor->is_batched || !uses[t].is_made_forward ||
            uses[t].n_reads == 0) {
            continue;
        }
        const bool is_bits = tensor->dtype == DUNLIN_U8;
        const double bytes = (double)tensor->n_elements * (is_bits ? 1.0 : 4.0);
        kept += bytes;
        *out_bits += is_bits ? bytes : 0.0;
        *out_signs += !is_bits && uses[t].n_reads == uses[t].n_mask_reads ? bytes : 0.0;
    }
    *out_signs *= 100.0 / kept;
    *out_bits *= 100.0 / kept;
    free(uses);
    dunlin__step_graph_destroy(graph);
    dunlin_model_destroy(model);
}

/*
 * The list of trainer/DECISIONS.md, "Signs and places". Without mask_later() in
 * step/build/fuse.c LeNet-5 would have 69 % for signs here, VGG-11 65 %, SqueezeNet 50 %, without
 * keep_signs() SqueezeNet 9.4 %; with a byte a place LeNet-5 13.3 % for places, VGG-11 11.2 %.
 */
Test(kept, for_signs_and_places_alone)
{
    static const struct {
        const char *name;
        double signs, bits; /* percent of what is kept */
    } cases[] = {
        {"lenet5", 0, 4.56},
        {"cnn_bn", 0.0, 0.63},
        {"ds_cnn", 0.0, 0.0},
        {"har_fcn", 0.0, 0.0},
        {"mobilenet_v1", 0.0, 0.0},
        {"mobilenet_v2", 0.0, 0.0},
        {"shufflenet_v2_x1_0", 0, 0.70},
        {"resnet18", 0.0, 1.57},
        {"resnet50", 0.0, 0.39},
        {"densenet121", 0.0, 0.74},
        {"alexnet", 2.38, 5.70},
        {"vgg11", 0.81, 3.07},
        {"vgg16", 0.27, 1.04},
        {"vgg16_bn", 0, 0.62},
        {"squeezenet1_1", 0.0, 5.40},
        {"googlenet", 0.0, 5.99},
        {"inception_v3", 0.0, 1.24},
        {"bert_small", 0.0, 0.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double signs = 0.0;
        double bits = 0.0;
        measure(cases[i].name, &signs, &bits);
        cr_expect(fabs(signs - cases[i].signs) < 0.01, "%s: %.2f %% for signs", cases[i].name,
                  signs);
        cr_expect(fabs(bits - cases[i].bits) < 0.01, "%s: %.2f %% in bits", cases[i].name, bits);
    }
}
