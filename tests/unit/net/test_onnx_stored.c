/*
 * test_onnx_stored.c - what is computed from weights before it meets an activation, samples joined
 * to a channel, softmax and norms over other dimensions, elements in a stored order: the numbers of
 * PyTorch (onnx_stored.py), and what is refused.
 */
#include "net_expect.h"
#include "net_support.h"

#include <dunlin/trainer.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(onnx_stored, .timeout = 900);

static void check_one(const char *name)
{
    char model[512];
    char expect[512];
    char ours[512];
    char file[64];
    char text[NET_EXPECT_TEXT];
    (void)snprintf(file, sizeof file, "stored_%s.onnx", name);
    net_onnx_path(file, model);
    net_temp_path(file, ours);
    (void)snprintf(file, sizeof file, "stored_%s.expect", name);
    net_onnx_path(file, expect);
    bool is_good = net_expect_check(model, expect, ours, text);
    (void)unlink(ours);
    cr_assert(is_good, "%s: %s", name, text);
}

/* A temperature, gates, a matrix that two weights make. */
Test(onnx_stored, functions_of_weights)
{
    check_one("scaled");
}

/* Weights that get dimensions of one; tokens and positions, whole and in parts. */
Test(onnx_stored, rows_and_parts_of_weights)
{
    check_one("columns");
    check_one("places");
}

/* Rows that are the same for each sample, on both sides of a product. */
Test(onnx_stored, rows_that_ask)
{
    check_one("asked");
}

Test(onnx_stored, softmax_and_norms_over_other_dimensions)
{
    check_one("branches");
}

/* Channels and lines as samples; elements in a stored order. */
Test(onnx_stored, channels_as_samples)
{
    check_one("windows");
    check_one("lines");
}

/* A trained exponent, and a weight's rows made unit vectors. */
Test(onnx_stored, trained_means_and_cosines)
{
    check_one("faces");
}

/* Einsum with weights and with what is computed from them; pairs of rows; an image turned round. */
Test(onnx_stored, graphs_and_pairs)
{
    check_one("graphs");
}

Test(onnx_stored, whole_numbers_added_to_ids)
{
    check_one("fields");
}

/* The weights stay parameters of the file, trained and under their own names and shapes. */
Test(onnx_stored, weights_keep_their_names)
{
    static const struct {
        const char *file, *param;
        int32_t n_dims;
        bool is_trained;
    } cases[] = {{"scaled", "scale", 0, true},        {"scaled", "matrix", 2, true},
                 {"columns", "token", 1, true},       {"places", "place", 3, true},
                 {"places", "biases", 2, true},       {"asked", "rows", 2, true},
                 {"branches", "norm.weight", 3, true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char file[64];
        char path[512];
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        size_t n_found = 0;
        (void)snprintf(file, sizeof file, "stored_%s.onnx", cases[i].file);
        cr_assert_eq(dunlin_model_open(net_onnx_path(file, path), NULL, &model, &error), DUNLIN_OK,
                     "%s: %s", file, error.text);
        for (size_t k = 0; k < model->net.n_params; k++) {
            const dunlin_net_param *param = &model->net.params[k];
            if (strcmp(param->name, cases[i].param) == 0) {
                n_found++;
                cr_expect_eq(param->shape.n_dims, cases[i].n_dims, "%s", param->name);
                cr_expect_eq(!param->is_fixed_by_file, cases[i].is_trained, "%s", param->name);
            }
        }
        cr_expect_eq(n_found, 1, "%s: '%s' %zu times", file, cases[i].param, n_found);
        dunlin_model_destroy(model);
    }
}

/* --- the same bits for budgets --- */

enum { BATCH = 12, STEPS = 3 };

typedef struct examples {
    int64_t n_inputs;
    bool are_ids;
} examples;

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    const examples *of = ctx;
    float *x = out_x;
    for (int64_t i = 0; i < n * of->n_inputs; i++) {
        const int64_t at = indices[i / of->n_inputs] * 31 + i % of->n_inputs * 7;
        x[i] = of->are_ids ? (float)(at % 5) : (float)(at % 23) / 11.0F - 1.0F;
    }
    for (int64_t i = 0; i < n; i++) {
        out_y[i] = (int32_t)(indices[i] % 3);
    }
    return DUNLIN_OK;
}

/* Trained within so many bytes (0: any); BUDGET tells the least in `error`. */
static dunlin_status train(const char *file, uint64_t budget, dunlin_trainer **out,
                           dunlin_error *error)
{
    char path[512];
    dunlin_model *model = NULL;
    int64_t indices[BATCH];
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = BATCH;
    options.lr = 0.05F;
    options.budget_bytes = budget;
    cr_assert_eq(dunlin_model_open(net_onnx_path(file, path), NULL, &model, error), DUNLIN_OK,
                 "%s: %s", file, error->text);
    const dunlin_shape shape = dunlin_model_input_shape(model);
    examples of = {.n_inputs = 1, .are_ids = strcmp(file, "stored_fields.onnx") == 0};
    for (int32_t d = 0; d < shape.n_dims; d++) {
        of.n_inputs *= shape.dims[d];
    }
    const dunlin_status status = dunlin_trainer_create(model, &options, out, error);
    dunlin_model_destroy(model);
    const dunlin_source source = {.struct_size = sizeof source,
                                  .ctx = &of,
                                  .read_fn = read_examples,
                                  .n_examples = BATCH,
                                  .dtype = DUNLIN_F32};
    for (int64_t i = 0; i < BATCH; i++) {
        indices[i] = i;
    }
    for (int step = 0; status == DUNLIN_OK && step < STEPS; step++) {
        dunlin_metrics metrics;
        cr_assert_eq(dunlin_trainer_step(*out, &source, indices, BATCH, &metrics), DUNLIN_OK,
                     "%s: %s", file, dunlin_trainer_last_error(*out)->text);
    }
    return status;
}

static void expect_same_bits(const char *file, dunlin_trainer *a, dunlin_trainer *b)
{
    for (int32_t i = 0; i < dunlin_trainer_n_parameters(a); i++) {
        dunlin_parameter_info info;
        cr_assert_eq(dunlin_trainer_parameter(a, i, &info), DUNLIN_OK);
        const size_t n = (size_t)info.n_elements;
        float *of_a = calloc(n, sizeof *of_a);
        float *of_b = calloc(n, sizeof *of_b);
        cr_assert(of_a != NULL && of_b != NULL);
        cr_assert_eq(dunlin_trainer_get_parameter(a, info.name, of_a, info.n_elements), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_get_parameter(b, info.name, of_b, info.n_elements), DUNLIN_OK);
        cr_expect_eq(memcmp(of_a, of_b, n * sizeof *of_a), 0, "%s: '%s'", file, info.name);
        free(of_a);
        free(of_b);
    }
}

/* Without a limit, and in the least that it can be done in: slices of the batch. */
Test(onnx_stored, same_bits_within_budgets)
{
    static const char *const names[] = {"scaled",  "columns", "places", "asked", "branches",
                                        "windows", "lines",   "fields", "faces", "graphs"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char file[64];
        dunlin_trainer *any = NULL;
        dunlin_trainer *least = NULL;
        dunlin_error error = {0};
        (void)snprintf(file, sizeof file, "stored_%s.onnx", names[i]);
        cr_assert_eq(train(file, 0, &any, &error), DUNLIN_OK, "%s: %s", file, error.text);
        cr_assert_eq(train(file, 1, &least, &error), DUNLIN_BUDGET, "%s: %s", file, error.text);
        cr_assert_eq(train(file, error.needed_bytes, &least, &error), DUNLIN_OK, "%s: %s", file,
                     error.text);
        expect_same_bits(file, any, least);
        dunlin_trainer_destroy(least);
        dunlin_trainer_destroy(any);
    }
}

/* Elements whose numbers follow each other are a part, which nothing is multiplied for. */
Test(onnx_stored, numbers_in_a_row_are_a_part)
{
    char path[512];
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    size_t n_parts = 0;
    cr_assert_eq(dunlin_model_open(net_onnx_path("stored_run.onnx", path), NULL, &model, &error),
                 DUNLIN_OK, "%s", error.text);
    for (size_t i = 0; i < model->net.n_nodes; i++) {
        const dunlin_net_node *node = &model->net.nodes[i];
        if (node->kind == DUNLIN_OP_SLICE) {
            n_parts++;
            cr_expect(node->u.slice.axis == 0 && node->u.slice.start == 2 &&
                      node->u.slice.end == 6);
        }
    }
    cr_expect_eq(n_parts, 1);
    cr_expect_eq(model->net.n_params, 1);
    dunlin_model_destroy(model);
}

Test(onnx_stored, faults_are_named)
{
    static const struct {
        const char *file, *text;
    } cases[] = {{"conv", "'conv': input 1 is computed from stored weights"},
                 {"gemm", "'fc': input 1 is computed from stored weights"},
                 {"outside", "index 1 is 4; the dimension has 4"},
                 {"norm", "'norm'"},
                 {"power", "Pow 'power'"},
                 {"size", "(-1, 3) is asked of samples of (2, 4)"},
                 {"batch", "'softmax'"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char file[64];
        char path[512];
        dunlin_model *model = NULL;
        dunlin_error error = {0};
        (void)snprintf(file, sizeof file, "stored_bad_%s.onnx", cases[i].file);
        cr_expect_eq(dunlin_model_open(net_onnx_path(file, path), NULL, &model, &error),
                     DUNLIN_UNSUPPORTED, "%s: %s", file, error.text);
        cr_expect_not_null(strstr(error.text, cases[i].text), "%s: %s", file, error.text);
        net_expect_line(&error, DUNLIN_UNSUPPORTED, file);
        cr_expect_null(model);
        dunlin_model_destroy(model);
    }
}
