/*
 * test_onnx_windows.c - windows of an image, masks of padding that are made or given, attention
 * between two sequences: the numbers of PyTorch (onnx_windows.py), and what stands there in the
 * end.
 */
#include "net_expect.h"
#include "net_support.h"

#include <criterion/criterion.h>

#include <ops/shape/atoms.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

TestSuite(onnx_windows, .timeout = 900);

static void check_golden(const char *name)
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

/* Windows are rows of a sample; shifted ones have a mask of regions; biases of relative positions
 * are rows of a table that is trained. */
Test(onnx_windows, shifted_windows)
{
    check_golden("swin");
}

/* PyTorch's own encoder: ids that are compared, with and without a mask of what lies ahead, and a
 * mask of bools that is an input. */
Test(onnx_windows, padding_of_an_encoder)
{
    check_golden("pad_encoder");
    check_golden("pad_causal");
    check_golden("pad_given");
}

/* As networks for sentences write it: added, chosen, repeated for each query or head. */
Test(onnx_windows, padding_that_is_written_out)
{
    check_golden("pad_sum");
    check_golden("pad_expanded");
    check_golden("pad_own");
    check_golden("pad_filled");
    check_golden("pad_repeated");
    check_golden("pad_soft");
    check_golden("pad_chosen");
}

/* Rows of one weight for q, others for k and v. */
Test(onnx_windows, attention_between_two_sequences)
{
    check_golden("cross_heads");
    check_golden("cross_unbiased");
    check_golden("cross_three");
    check_golden("cross_tokens_first");
}

Test(onnx_windows, encoders_with_decoders)
{
    check_golden("cross_decoder");
    check_golden("cross_translator");
}

/* What was written out is one operator where all that it adds hides keys, or is a number a key. */
Test(onnx_windows, masks_become_an_input_of_attention)
{
    const struct {
        const char *file;
        size_t n_attention, n_masked;
    } cases[] = {
        {"pad_encoder.onnx", 1, 1},   {"pad_causal.onnx", 1, 1},      {"pad_given.onnx", 1, 1},
        {"pad_sum.onnx", 1, 1},       {"pad_expanded.onnx", 1, 1},    {"pad_own.onnx", 1, 1},
        {"pad_filled.onnx", 1, 1},    {"pad_repeated.onnx", 1, 1},    {"pad_soft.onnx", 1, 1},
        {"pad_chosen.onnx", 0, 0},    {"cross_heads.onnx", 1, 0},     {"cross_three.onnx", 1, 0},
        {"cross_decoder.onnx", 2, 0}, {"cross_translator.onnx", 3, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        size_t n_attention = 0;
        size_t n_masked = 0;
        cr_assert_eq(dunlin_model_open(net_onnx_path(cases[i].file, path), NULL, &model, &error),
                     DUNLIN_OK, "%s: %s", cases[i].file, error.text);
        for (size_t k = 0; k < model->net.n_nodes; k++) {
            const dunlin_net_node *node = &model->net.nodes[k];
            const bool is_one = node->kind == DUNLIN_OP_ATTENTION;
            /* Of what a file asks the shape alone, nothing is computed. */
            cr_expect_gt(model->net.values[node->output].n_consumers, 0, "%s: nobody reads '%s'",
                         cases[i].file, node->name);
            n_attention += is_one ? 1 : 0;
            n_masked += is_one && node->u.attention.has_mask ? 1 : 0;
        }
        cr_expect_eq(n_attention, cases[i].n_attention, "%s: %zu", cases[i].file, n_attention);
        cr_expect_eq(n_masked, cases[i].n_masked, "%s: %zu", cases[i].file, n_masked);
        dunlin_model_destroy(model);
    }
}

/* The weight of which two layers read rows is one parameter, under its own name and shape. */
Test(onnx_windows, a_weight_that_is_read_in_parts_is_one_parameter)
{
    char path[512];
    dunlin_model *model = NULL;
    size_t n_found = 0;
    cr_assert_eq(dunlin_model_open(net_onnx_path("cross_heads.onnx", path), NULL, &model, NULL),
                 DUNLIN_OK);
    for (size_t i = 0; i < model->net.n_params; i++) {
        const dunlin_net_param *param = &model->net.params[i];
        const bool is_weight = strcmp(param->name, "attention.in_proj_weight") == 0;
        const bool is_bias = strcmp(param->name, "attention.in_proj_bias") == 0;
        n_found += is_weight || is_bias ? 1 : 0;
        if (is_weight || is_bias) {
            cr_expect_eq(param->shape.dims[0], 24);
            cr_expect(!param->is_fixed_by_file);
        }
    }
    cr_expect_eq(n_found, 2);
    dunlin_model_destroy(model);
}

/* As tf2onnx writes it: images as (N, H, W, C), scaled before they are transposed; nothing is
 * copied for it. */
Test(onnx_windows, layouts_of_tensorflow)
{
    char path[512];
    dunlin_model *model = NULL;
    check_golden("tensorflow");
    cr_assert_eq(dunlin_model_open(net_onnx_path("tensorflow.onnx", path), NULL, &model, NULL),
                 DUNLIN_OK);
    cr_expect_eq(model->net.values[model->net.input].layout, DUNLIN_LAYOUT_PLAIN);
    for (size_t i = 0; i < model->net.n_nodes; i++) {
        const dunlin_net_node *node = &model->net.nodes[i];
        dunlin_atoms atoms;
        cr_expect_neq(node->kind, DUNLIN_OP_TRANSPOSE);
        if (node->kind == DUNLIN_OP_REARRANGE) {
            cr_expect(dunlin__atoms_of(&model->net.values[node->inputs[0]],
                                       model->net.values[node->output].layout,
                                       &node->u.rearrange.to, &atoms) &&
                          dunlin__atoms_are_still(&atoms),
                      "'%s' is copied", node->name);
        }
    }
    dunlin_model_destroy(model);
}

Test(onnx_windows, faults_are_named)
{
    static const struct {
        const char *file, *text;
    } cases[] = {{"scatter_outside", "'scatter'"},
                 {"scatter_shape", "'scatter'"},
                 {"nothing", "'add'"},
                 {"too_many", "'many'"},
                 {"rows_outside", "stored row 3 is 3; the table has 3"},
                 {"rows_shape", "'add'"},
                 {"rows_batch", "'add'"},
                 {"compared", "'compare'"},
                 {"chosen", "'choose'"},
                 {"split", "make up its 5 rows"},
                 {"apart", "'apart'"},
                 {"turned", "'fc': input 2 is neither an activation nor stored"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char file[64];
        char path[512];
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        (void)snprintf(file, sizeof file, "windows_bad_%s.onnx", cases[i].file);
        cr_expect_eq(dunlin_model_open(net_onnx_path(file, path), NULL, &model, &error),
                     DUNLIN_UNSUPPORTED, "%s: %s", file, error.text);
        cr_expect_not_null(strstr(error.text, cases[i].text), "%s: %s", file, error.text);
        net_expect_line(&error, DUNLIN_UNSUPPORTED, file);
        cr_expect_null(model);
    }
}
