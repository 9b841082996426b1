/*
 * test_onnx_nets.c - small transformers and norms of groups as PyTorch exports them, and forms of
 * later opsets: what was written out is joined, and logits, losses and changes of the weights are
 * PyTorch's.
 */
#include "net_expect.h"
#include "net_support.h"

#include <dunlin/trainer.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(onnx_nets, .timeout = 900);

static void check(const char *name)
{
    char model[512];
    char expect[512];
    char ours[512];
    char file[64];
    char text[NET_EXPECT_TEXT];
    (void)snprintf(file, sizeof file, "%s.onnx", name);
    net_onnx_path(file, model);
    net_temp_path(file, ours);
    (void)snprintf(file, sizeof file, "%s.expect", name);
    net_onnx_path(file, expect);
    bool is_good = net_expect_check(model, expect, ours, text);
    (void)unlink(ours);
    cr_assert(is_good, "%s: %s", name, text);
}

/* Layer norm written out; one input; no dropout. */
Test(onnx_nets, bert_of_opset_13)
{
    check("bert13");
}

Test(onnx_nets, bert_of_opset_17)
{
    check("bert17");
}

/* Ids, mask and types in one example. */
Test(onnx_nets, bert_of_three_inputs)
{
    check("bert_inputs");
}

/* Group norm of three and of one group, instance norm, the mean over the pixels. */
Test(onnx_nets, norms_of_groups)
{
    check("groups13");
    check("groups17");
}

/* Arithmetic of images with what is broadcast; channel shuffle; (H, W, C) and back; blocks, parts
 * and joints. */
Test(onnx_nets, images_that_are_joined_and_moved)
{
    check("gates");
    check("shuffle");
    check("permuted");
    check("pieces");
    check("channels_last");
    check("channel_norm");
}

Test(onnx_nets, reductions)
{
    check("reduced");
}

/* Networks over (N, C, L): sensors, words over time, causal convolutions. */
Test(onnx_nets, signals)
{
    check("signal_sensors");
    check("signal_words");
    check("signal_causal");
}

Test(onnx_nets, padding)
{
    check("pads");
    check("pads_signals");
}

/* As the exporter writes them out, and by ONNX's own operators. */
Test(onnx_nets, pooling)
{
    check("pools");
    check("pools_signals");
    check("named_pools");
    check("extremes");
}

/* Transposed convolutions, images of another size, a loss for each pixel. */
Test(onnx_nets, outputs_per_pixel)
{
    check("pixels_unet");
    check("pixels_fcn");
    check("pixels_fcn11");
}

/* Signals that become longer; what older opsets call Upsample, or Resize by other rules. */
Test(onnx_nets, images_and_signals_become_larger)
{
    check("pixels_signals");
    check("upsampled9");
    check("upsampled10");
    check("upsampled11");
}

Test(onnx_nets, forms_of_later_opsets)
{
    check("forms18");
    check("forms20");
    check("forms21");
}

/* Attributes that are inputs today, a softmax over all from its axis on; exports of PyTorch. */
Test(onnx_nets, files_of_older_opsets)
{
    check("worded9");
    check("worded10");
    check("worded11");
    check("worded12");
    check("aged9");
    check("aged11");
}

/* By the exporter's metadata, by our list, by Constant nodes. */
Test(onnx_nets, roles)
{
    check("positions");
    check("scales");
}

/* One parameter with the sum of its gradients. */
Test(onnx_nets, shared_parameters)
{
    check("reused");
    check("norms");
    check("siamese");
}

/* A table of tokens that is the head's weight too: one parameter with the sum of both gradients. */
Test(onnx_nets, tied_heads)
{
    check("tied");
    check("tied_rows");
}

/* A decoder that uses the encoder's matrices transposed. */
Test(onnx_nets, mirrored_layers)
{
    check("mirrored");
    check("mirrored_rows");
}

/* Two images and a number in one example. */
Test(onnx_nets, several_images)
{
    check("pair");
}

/* A user and an item: two inputs of one number a sample. */
Test(onnx_nets, ids_of_rank_1)
{
    check("recommender");
}

/* Cross-entropy over what is before the end; predictions through it. */
Test(onnx_nets, functions_at_the_end)
{
    check("end_softmax");
    check("end_log_softmax");
}

enum { TIED_N = 4, TIED_T = 5, TIED_TABLE = 66, MIRRORED_X = 21, MIRRORED_WEIGHT = 35 };

static dunlin_status read_tokens(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_labels)
{
    float *x = out_x;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < TIED_T; k++) {
            x[i * TIED_T + k] = (float)((3 * indices[i] + k) % 11);
        }
        out_labels[i] = (int32_t)(2 * indices[i]);
    }
    return DUNLIN_OK;
}

static dunlin_status read_rows(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                               int32_t *out_labels)
{
    float *x = out_x;
    const int64_t *width = ctx;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < *width; k++) {
            x[i * *width + k] = (float)((5 * indices[i] + 3 * k) % 13) * 0.125F - 0.75F;
        }
        out_labels[i] = (int32_t)indices[i];
    }
    return DUNLIN_OK;
}

/* Three steps; `out` gets the parameter. */
static void train_tied(const char *file, const dunlin_source *source, int64_t micro_batch,
                       int32_t threads, const char *parameter, float *out, int64_t n)
{
    char path[512];
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    const int64_t indices[TIED_N] = {0, 1, 2, 3};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = TIED_N;
    options.micro_batch = micro_batch;
    options.n_threads = threads;
    options.lr = 0.1F;
    cr_assert_eq(dunlin_model_open(net_onnx_path(file, path), NULL, &model, &error), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    for (int step = 0; step < 3; step++) {
        dunlin_metrics metrics;
        cr_assert_eq(dunlin_trainer_step(trainer, source, indices, TIED_N, &metrics), DUNLIN_OK);
    }
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, parameter, out, n), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* Both gradients are exact sums, whatever the slices and threads. */
Test(onnx_nets, tied_heads_in_slices)
{
    const char *files[] = {"tied.onnx", "tied_rows.onnx"};
    const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                  .read_fn = read_tokens,
                                  .n_examples = TIED_N,
                                  .dtype = DUNLIN_F32};
    for (size_t f = 0; f < 2; f++) {
        float whole[TIED_TABLE];
        train_tied(files[f], &source, 0, 1, "table.weight", whole, TIED_TABLE);
        for (int64_t micro_batch = 1; micro_batch < TIED_N; micro_batch++) {
            float sliced[TIED_TABLE];
            train_tied(files[f], &source, micro_batch, 2, "table.weight", sliced, TIED_TABLE);
            cr_assert_arr_eq(sliced, whole, sizeof whole, "%s", files[f]);
        }
    }
}

Test(onnx_nets, mirrored_layers_in_slices)
{
    const char *files[] = {"mirrored.onnx", "mirrored_rows.onnx"};
    for (int64_t f = 0; f < 2; f++) {
        int64_t width = f == 0 ? MIRRORED_X / 3 : MIRRORED_X;
        const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                      .read_fn = read_rows,
                                      .ctx = &width,
                                      .n_examples = TIED_N,
                                      .dtype = DUNLIN_F32};
        float whole[MIRRORED_WEIGHT];
        train_tied(files[f], &source, 0, 1, "encode.0.weight", whole, MIRRORED_WEIGHT);
        for (int64_t micro_batch = 1; micro_batch < TIED_N; micro_batch++) {
            float sliced[MIRRORED_WEIGHT];
            train_tied(files[f], &source, micro_batch, 2, "encode.0.weight", sliced,
                       MIRRORED_WEIGHT);
            cr_assert_arr_eq(sliced, whole, sizeof whole, "%s", files[f]);
        }
    }
}

static bool is_in(const char *name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strcmp(*names, name) == 0) {
            return true;
        }
    }
    return false;
}

Test(onnx_nets, what_the_file_fixes)
{
    const struct {
        const char *file;
        const char *fixed[8];
    } cases[] = {
        {"positions.onnx", {"pe"}},
        {"scales.onnx",
         {"/norm/Constant_output_0", "/norm/Constant_1_output_0", "body.weight", "body.bias", "k"}},
        {"reused.onnx", {NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        dunlin_model *model = NULL;
        cr_assert_eq(dunlin_model_open(net_onnx_path(cases[i].file, path), NULL, &model, NULL),
                     DUNLIN_OK);
        const dunlin_net *net = &model->net;
        size_t n_fixed = 0;
        for (uint32_t k = 0; k < net->n_params; k++) {
            const bool is_fixed = dunlin__param_is_fixed(net, k);
            n_fixed += is_fixed ? 1 : 0;
            cr_expect_eq(is_fixed, is_in(net->params[k].name, cases[i].fixed), "%s: %s",
                         cases[i].file, net->params[k].name);
        }
        size_t n_wanted = 0;
        while (cases[i].fixed[n_wanted] != NULL) {
            n_wanted++;
        }
        cr_expect_eq(n_fixed, n_wanted, "%s", cases[i].file);
        cr_expect_null(dunlin_model_warning(model), "%s", cases[i].file);
        dunlin_model_destroy(model);
    }
}

Test(onnx_nets, a_warning_names_what_is_only_added)
{
    char path[512];
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_open(net_onnx_path("doubtful.onnx", path), NULL, &model, NULL),
                 DUNLIN_OK);
    const char *warning = dunlin_model_warning(model);
    cr_assert_not_null(warning);
    cr_expect_eq(strncmp(warning, "'pe' is trained though only added or multiplied", 47), 0, "%s",
                 warning);
    cr_expect_null(strstr(warning, "'w'"));
    dunlin_model_destroy(model);
}

static size_t count(const dunlin_net *net, dunlin_op_kind kind)
{
    size_t n = 0;
    for (size_t i = 0; i < net->n_nodes; i++) {
        n += net->nodes[i].kind == kind ? 1 : 0;
    }
    return n;
}

/* Dropout between softmax and product keeps attention in its parts. */
Test(onnx_nets, what_was_written_out_is_joined)
{
    const struct {
        const char *file;
        size_t n_attention, n_softmax;
    } cases[] = {{"bert13.onnx", 1, 0}, {"bert17.onnx", 0, 1}, {"bert_inputs.onnx", 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        dunlin_model *model = NULL;
        cr_assert_eq(dunlin_model_open(net_onnx_path(cases[i].file, path), NULL, &model, NULL),
                     DUNLIN_OK);
        const dunlin_net *net = &model->net;
        cr_assert_eq(count(net, DUNLIN_OP_ATTENTION), cases[i].n_attention, "%s", cases[i].file);
        cr_assert_eq(count(net, DUNLIN_OP_SOFTMAX), cases[i].n_softmax, "%s", cases[i].file);
        cr_assert_eq(count(net, DUNLIN_OP_LAYER_NORM), 3, "%s", cases[i].file);
        cr_assert_eq(count(net, DUNLIN_OP_DENSE), 8, "%s", cases[i].file);
        size_t n_gelu = 0;
        for (size_t k = 0; k < net->n_nodes; k++) {
            const dunlin_net_node *node = &net->nodes[k];
            n_gelu += node->kind == DUNLIN_OP_UNARY && node->u.unary.fn == DUNLIN_UNARY_GELU;
        }
        cr_assert_eq(n_gelu, 1, "%s", cases[i].file);
        dunlin_model_destroy(model);
    }
}

Test(onnx_nets, norms_are_joined)
{
    const struct {
        const char *file;
        size_t n_norms, n_nodes;
    } cases[] = {{"groups13.onnx", 3, 10},
                 {"groups17.onnx", 3, 10},
                 {"forms18.onnx", 1, 0},
                 {"forms20.onnx", 1, 0},
                 {"forms21.onnx", 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        dunlin_model *model = NULL;
        cr_assert_eq(dunlin_model_open(net_onnx_path(cases[i].file, path), NULL, &model, NULL),
                     DUNLIN_OK);
        cr_assert_eq(count(&model->net, DUNLIN_OP_GROUP_NORM), cases[i].n_norms, "%s",
                     cases[i].file);
        cr_assert_eq(count(&model->net, DUNLIN_OP_GLOBAL_AVERAGE_POOL), 1, "%s", cases[i].file);
        if (cases[i].n_nodes > 0) {
            cr_assert_eq(model->net.n_nodes, cases[i].n_nodes, "%s: %zu", cases[i].file,
                         model->net.n_nodes);
        }
        dunlin_model_destroy(model);
    }
}

/* What the exporter writes out is one layer again, and zeros are nobody's. */
Test(onnx_nets, pools_are_joined)
{
    static const struct {
        const char *file;
        int n_norms, n_lp, n_max, n_averages, n_nodes;
    } cases[] = {{"pools.onnx", 1, 1, 1, 1, 10},
                 {"pools_signals.onnx", 1, 0, 4, 0, 12},
                 {"named_pools.onnx", 1, 2, 1, 0, 14}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        net_onnx_path(cases[i].file, path);
        cr_assert_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_OK, "%s", error.text);
        cr_expect_eq(count(&model->net, DUNLIN_OP_RESPONSE_NORM), (size_t)cases[i].n_norms);
        cr_expect_eq(count(&model->net, DUNLIN_OP_LP_POOL), (size_t)cases[i].n_lp);
        cr_expect_eq(count(&model->net, DUNLIN_OP_MAX_POOL), (size_t)cases[i].n_max);
        cr_expect_eq(count(&model->net, DUNLIN_OP_AVERAGE_POOL), (size_t)cases[i].n_averages);
        cr_expect_eq(count(&model->net, DUNLIN_OP_PAD), 0, "%s", cases[i].file);
        cr_expect_eq(model->net.n_nodes, (size_t)cases[i].n_nodes, "%s: %zu nodes", cases[i].file,
                     model->net.n_nodes);
        dunlin_model_destroy(model);
    }
}

static void count_issue(void *ctx, const dunlin_model_issue *issue)
{
    *(int *)ctx += strcmp(issue->op, "If") == 0 &&
                           strstr(issue->reason, "control flow is not supported") != NULL
                       ? 1
                       : 0;
}

/* Of a choice by a constant the branch that is taken is read, the other one is not looked at; one
 * by a value is refused by name. */
Test(onnx_nets, choices)
{
    char path[512];
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    int32_t n = 0;
    int n_choices = 0;
    net_onnx_path("choice.onnx", path);
    cr_assert_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(count(&model->net, DUNLIN_OP_CLIP), 1);
    cr_assert_eq(count(&model->net, DUNLIN_OP_ADD), 1);
    cr_assert_eq(model->net.n_nodes, 5);
    dunlin_model_destroy(model);
    net_onnx_path("choice_unknown.onnx", path);
    cr_assert_eq(dunlin_model_check(path, NULL, count_issue, &n_choices, &n, &error), DUNLIN_OK);
    cr_assert(n == 2 && n_choices == 1, "%d, %d", n, n_choices);
}
