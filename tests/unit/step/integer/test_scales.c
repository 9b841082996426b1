/*
 * test_scales.c - what a trainer in integers tells of its scales, and takes of them; its QDQ model,
 * held against its own predictions by the rules of ONNX.
 */
#include "integer_support.h"
#include "qdq_check.h"

#include <dunlin/bytes.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(scales, a_float_trainer_has_none)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = integer_options(8);
    options.precision = NULL;
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_scale_info info = DUNLIN_SCALE_INFO_INIT;
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    float unit = 9.0F;
    cr_expect_eq(dunlin_trainer_n_scales(trainer), 0);
    cr_expect_eq(dunlin_trainer_scale(trainer, 0, &info), DUNLIN_ARGUMENT);
    test_expect_text(trainer, "there is no scale 0 among 0");
    cr_expect_eq(dunlin_trainer_begin_parameter(trainer, 0, 1.0F, &unit), DUNLIN_OK);
    cr_expect(unit == 0.0F);
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    cr_expect_str_eq(report.precision, "fp32");
    cr_expect_eq(report.n_clipped, 0);
    cr_expect_eq(dunlin_trainer_export_qdq(trainer, "/tmp/none.onnx"), DUNLIN_UNSUPPORTED);
    test_expect_text(trainer, "precision fp32 has no scales");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(scales, are_told_by_name_and_add_up)
{
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = integer_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    int64_t n_clipped = 0;
    int n_of[5] = {0};
    test_fit_epochs(trainer, model, 2);
    for (int32_t i = 0; i < dunlin_trainer_n_scales(trainer); i++) {
        dunlin_scale_info info = DUNLIN_SCALE_INFO_INIT;
        dunlin_parameter_info parameter;
        cr_assert_eq(dunlin_trainer_scale(trainer, i, &info), DUNLIN_OK);
        cr_assert_not_null(info.name);
        n_of[info.kind] += info.is_known ? 1 : 0;
        n_clipped += info.n_clipped;
        if (i < dunlin_trainer_n_parameters(trainer)) {
            cr_assert_eq(dunlin_trainer_parameter(trainer, i, &parameter), DUNLIN_OK);
            cr_expect_eq(info.kind, DUNLIN_SCALE_PARAMETER);
            cr_expect_str_eq(info.name, parameter.name);
            cr_expect(info.is_known);
        }
    }
    cr_expect_eq(n_of[DUNLIN_SCALE_PARAMETER], dunlin_trainer_n_parameters(trainer));
    cr_expect_geq(n_of[DUNLIN_SCALE_VALUE], 3, "input, convolution, dense");
    cr_expect_geq(n_of[DUNLIN_SCALE_ERROR], 1);
    cr_expect_eq(n_of[DUNLIN_SCALE_LOSS], 1);
    cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
    cr_expect_str_eq(report.precision, "niti");
    cr_expect_eq(report.n_clipped, n_clipped);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* Piece by piece the same as all at once, whatever the parameter had before. */
static void check_begun(const char *precision, double expected_unit)
{
    dunlin_model *model = test_dense_model(6, 4);
    dunlin_trainer_options options = integer_options(8);
    options.precision = precision;
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_parameter_info info;
    float values[1024];
    float once[1024];
    float pieces[1024];
    float unit = 0.0F;
    cr_assert_eq(dunlin_trainer_parameter(trainer, 0, &info), DUNLIN_OK);
    cr_assert_leq(info.n_elements, 1024);
    for (int64_t i = 0; i < info.n_elements; i++) {
        values[i] = (float)(i % 11 - 5) * 0.07F;
        once[i] = 90.0F; /* an exponent far too high */
    }
    cr_assert_eq(dunlin_trainer_set_parameter(trainer, info.name, once, info.n_elements),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_begin_parameter(trainer, 0, 0.35F, &unit), DUNLIN_OK);
    cr_expect_eq((double)unit, expected_unit);
    for (int64_t i = 0; i < info.n_elements; i++) {
        cr_assert_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, i, 1, &values[i]),
                     DUNLIN_OK);
    }
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, info.name, pieces, info.n_elements),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_set_parameter(trainer, info.name, values, info.n_elements),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, info.name, once, info.n_elements),
                 DUNLIN_OK);
    cr_expect(test_same_bits(once, pieces, info.n_elements));
    cr_expect_eq(dunlin_trainer_begin_parameter(trainer, 99, 1.0F, &unit), DUNLIN_ARGUMENT);
    test_expect_text(trainer, "there is no parameter 99");
    cr_expect_eq(dunlin_trainer_begin_parameter(trainer, 0, -1.0F, &unit), DUNLIN_NUMERIC);
    cr_expect_eq(dunlin_trainer_begin_parameter(trainer, 0, NAN, &unit), DUNLIN_NUMERIC);
    cr_expect_eq(dunlin_trainer_begin_parameter(trainer, 0, INFINITY, &unit), DUNLIN_NUMERIC);
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, info.name, pieces, info.n_elements),
                 DUNLIN_OK);
    cr_expect(test_same_bits(once, pieces, info.n_elements), "a refusal has changed something");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(scales, a_parameter_is_begun_anew)
{
    check_begun("niti", 0x1p-8);
    check_begun("niti16", 0x1p-16);
}

Test(scales, a_model_is_checked_without_a_trainer)
{
    dunlin_model *model = test_small_model(false);
    dunlin_model *normed = test_small_model(true);
    dunlin_error error = {0};
    cr_expect_eq(dunlin_model_check_precision(model, "niti", &error), DUNLIN_OK);
    cr_expect_eq(dunlin_model_check_precision(normed, NULL, &error), DUNLIN_OK);
    cr_expect_eq(dunlin_model_check_precision(normed, "fp32", &error), DUNLIN_OK);
    cr_expect_eq(dunlin_model_check_precision(model, "int4", &error), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "precision \"int4\" is not in this build"));
    cr_expect_eq(dunlin_model_check_precision(normed, "niti", &error), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "cannot be trained in precision niti"), "%s", error.text);
    cr_expect_eq(dunlin_model_check_precision(NULL, "niti", &error), DUNLIN_ARGUMENT);
    dunlin_model_destroy(model);
    dunlin_model_destroy(normed);
}

/* ---- the QDQ model ---- */

#define N_EXAMPLES 24

typedef enum net_kind { CONV, RELU6, AVERAGE, GLOBAL, ADDED, JOINED, CHAIN, BRANCHED } net_kind;

static dunlin_model *make_net(net_kind kind)
{
    dunlin_builder *builder = NULL;
    const dunlin_shape shape = {.n_dims = 3, .dims = {2, 6, 6}};
    const dunlin_conv_options padded = {.struct_size = sizeof padded, .padding = 1};
    if (kind == BRANCHED) {
        return integer_branched_model();
    }
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    const dunlin_value x = dunlin_builder_input(builder, "x", &shape);
    dunlin_value y = kind != CHAIN ? dunlin_builder_conv(builder, "only", x, 2, 3, &padded) : x;
    const dunlin_value both[] = {y, x};
    if (kind == RELU6) {
        y = dunlin_builder_relu6(builder, y);
    } else if (kind == AVERAGE) {
        y = dunlin_builder_average_pool(builder, y, 3, 1, 1);
    } else if (kind == GLOBAL) {
        y = dunlin_builder_global_average_pool(builder, y);
    } else if (kind == ADDED) {
        y = dunlin_builder_add(builder, y, x);
    } else if (kind == JOINED) {
        y = dunlin_builder_concat(builder, both, 2);
    } else if (kind == CHAIN) {
        y = dunlin_builder_relu(builder, dunlin_builder_conv(builder, "c1", x, 6, 3, &padded));
        y = dunlin_builder_max_pool(builder, y, 2, 2, 0);
        y = dunlin_builder_dense(builder, "d1", dunlin_builder_flatten(builder, y), 12);
        y = dunlin_builder_dense(builder, "d2", dunlin_builder_relu(builder, y), 4);
    }
    return integer_finish(builder, kind == CHAIN ? y : dunlin_builder_flatten(builder, y));
}

/* Trains a little, then writes model, inputs and predictions as PREFIX.onnx, .x, .y. */
static void write_case(const char *prefix, dunlin_model *model, const char *precision)
{
    char path[256];
    dunlin_trainer_options options = integer_options(8);
    options.precision = precision;
    dunlin_trainer *trainer = test_create(model, &options);
    test_source examples;
    test_source_init(&examples, model, N_EXAMPLES, DUNLIN_F32);
    examples.source.scale = 1.0F / 131.0F; /* no input lies half-way between two whole numbers */
    (void)snprintf(path, sizeof path, "%s.onnx", prefix);
    cr_expect_eq(dunlin_trainer_export_qdq(trainer, path), DUNLIN_STATE);
    test_expect_text(trainer, "has no scale yet");
    test_fit_epochs(trainer, model, 2);
    qdq_write(trainer, &examples.source, N_EXAMPLES, examples.n_elements,
              dunlin_model_n_outputs(model), prefix);
    dunlin_trainer_destroy(trainer);
}

/* A model as an app gets it: an ONNX file, whose weights are kept. */
static dunlin_model *read_net(const char *path)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_model_open(path, NULL, &model, &error), DUNLIN_OK, "%s", error.text);
    return model;
}

/* The same network by way of a float32 file, which it reads its weights from. */
static dunlin_model *reread_net(dunlin_model *model, const char *path)
{
    const dunlin_trainer_options options = integer_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_export_onnx(trainer, path), DUNLIN_OK);
    dunlin_model *again = read_net(path);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
    return again;
}

typedef struct qdq_case {
    net_kind kind;
    const char *file; /* of tests/golden/onnx, or NULL: made by calls */
    bool is_reread;
    int units, ours; /* check_qdq.py */
    bool is_wide;    /* weights of 16 bits */
} qdq_case;

static void check_cases(const qdq_case *cases, int n_cases)
{
    char folder[] = "/tmp/dunlin-qdq-XXXXXX";
    char prefix[64];
    char arguments[4096] = "";
    if (!qdq_is_checkable()) {
        cr_skip_test("python3-onnx is not installed");
    }
    cr_assert_not_null(mkdtemp(folder));
    for (int i = 0; i < n_cases; i++) {
        char path[512];
        char floats[80];
        const size_t used = strlen(arguments);
        (void)snprintf(path, sizeof path, "%s/%s", DUNLIN_ONNX_FOLDER,
                       cases[i].file == NULL ? "" : cases[i].file);
        dunlin_model *model = cases[i].file == NULL ? make_net(cases[i].kind) : read_net(path);
        (void)snprintf(prefix, sizeof prefix, "%s/%d", folder, i);
        (void)snprintf(floats, sizeof floats, "%s.float.onnx", prefix);
        model = cases[i].is_reread ? reread_net(model, floats) : model;
        write_case(prefix, model, cases[i].is_wide ? "niti16" : "niti");
        dunlin_model_destroy(model);
        (void)unlink(floats);
        (void)snprintf(arguments + used, sizeof arguments - used, " %s.onnx %s.x %s.y %d %d",
                       prefix, prefix, prefix, cases[i].units, cases[i].ours);
    }
    cr_expect_eq(qdq_check(arguments), 0, "%s", arguments);
    for (int i = 0; i < n_cases; i++) {
        (void)snprintf(prefix, sizeof prefix, "%s/%d", folder, i);
        qdq_remove(prefix);
    }
    (void)rmdir(folder);
}

/* One rounding is one unit at most; where two follow each other, two; of networks what was measured
 * and a margin. By the trainer's own rounding it is the same bits but for sums. */
Test(qdq, a_model_predicts_what_the_trainer_does)
{
    static const qdq_case cases[] = {
        {.kind = CONV, .units = 1},
        {.kind = RELU6, .units = 1},
        {.kind = AVERAGE, .units = 2},
        {.kind = GLOBAL, .units = 2},
        {.kind = ADDED, .units = 2, .ours = 1},
        {.kind = JOINED, .units = 2},
        {.kind = CHAIN, .units = 4},
        {.kind = BRANCHED, .units = 8, .ours = 2},
        {.kind = CONV, .is_wide = true, .units = 1},
        {.kind = CHAIN, .is_wide = true, .units = 4},
    };
    check_cases(cases, (int)(sizeof cases / sizeof cases[0]));
}

/* Names, layouts and forms of weights that are other programs' own: Gemm with and without transB,
 * MatMul and Add, weights in files beside, nodes out of order, views before a dense layer. */
Test(qdq, a_model_that_was_a_file_is_one_too)
{
    static const qdq_case cases[] = {
        {.kind = CHAIN, .is_reread = true, .units = 4},
        {.kind = BRANCHED, .is_reread = true, .units = 8, .ours = 2},
        {.file = "choice.onnx", .units = 4, .ours = 2},
        {.file = "disorder.onnx", .units = 4},
        {.file = "external.onnx", .units = 1},
        {.file = "float_data.onnx", .units = 1},
        {.file = "identity.onnx", .units = 4},
        {.file = "trans_b0.onnx", .units = 1},
        {.file = "trans_b1.onnx", .units = 1},
        {.file = "view13.onnx", .units = 4},
        {.file = "view17.onnx", .units = 4},
    };
    check_cases(cases, (int)(sizeof cases / sizeof cases[0]));
}

/* In a file: each `from` becomes `to`, which is as long. */
static void rename_in_file(const char *path, const char *from, const char *to)
{
    static char bytes[65536];
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file, "%s", path);
    const size_t n = fread(bytes, 1, sizeof bytes, file);
    cr_assert(n < sizeof bytes && strlen(from) == strlen(to));
    for (size_t i = 0; i + strlen(from) <= n; i++) {
        if (memcmp(bytes + i, from, strlen(from)) == 0) {
            memcpy(bytes + i, to, strlen(to));
        }
    }
    rewind(file);
    cr_assert_eq(fwrite(bytes, 1, n, file), n);
    cr_assert_eq(fclose(file), 0);
}

/* A file with a tensor whose name is that of another one's scale. */
Test(qdq, a_name_that_the_file_makes_up_is_refused)
{
    dunlin_builder *builder = NULL;
    const dunlin_shape shape = {.n_dims = 1, .dims = {6}};
    const dunlin_trainer_options options = integer_options(8);
    char *path = test_temp_path("taken.onnx");
    char *out = test_temp_path("taken.qdq.onnx");
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value y =
        dunlin_builder_dense(builder, "a", dunlin_builder_input(builder, "x", &shape), 5);
    y = dunlin_builder_dense(builder, "b123456", dunlin_builder_relu(builder, y), 4);
    y = dunlin_builder_dense(builder, "c", dunlin_builder_relu(builder, y), 4);
    dunlin_model *made = integer_finish(builder, y);
    dunlin_trainer *trainer = test_create(made, &options);
    cr_assert_eq(dunlin_trainer_export_onnx(trainer, path), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(made);
    rename_in_file(path, "b123456/out", "a/out/scale");
    dunlin_model *model = read_net(path);
    trainer = test_create(model, &options);
    test_fit_epochs(trainer, model, 1);
    cr_expect_eq(dunlin_trainer_export_qdq(trainer, out), DUNLIN_UNSUPPORTED);
    test_expect_text(trainer, "'a/out/scale' has a name that a QDQ model gives");
    cr_expect_neq(access(out, F_OK), 0, "a file is there");
    cr_expect_eq(dunlin_trainer_export_onnx(trainer, out), DUNLIN_OK);
    (void)unlink(path);
    (void)unlink(out);
    free(path);
    free(out);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

static dunlin_status count_bytes(void *ctx, const void *bytes, size_t n)
{
    (void)bytes;
    *(size_t *)ctx += n;
    return DUNLIN_OK;
}

/* A quarter of the weights' bytes; and it is not read back, by name. */
Test(qdq, a_model_is_small_and_refused_as_an_input)
{
    dunlin_model *model = test_dense_model(400, 4);
    const dunlin_trainer_options options = integer_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_model *again = NULL;
    dunlin_error error = {0};
    char *path = test_temp_path("small.onnx");
    size_t n_qdq = 0;
    size_t n_float = 0;
    test_fit_epochs(trainer, model, 1);
    cr_assert_eq(dunlin_trainer_write_qdq(trainer, count_bytes, &n_qdq), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_write_onnx(trainer, count_bytes, &n_float), DUNLIN_OK);
    const int64_t n_weights = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL);
    cr_expect_lt((double)n_qdq, (double)n_float - 2.5 * (double)n_weights, "%zu of %zu bytes",
                 n_qdq, n_float);
    cr_assert_eq(dunlin_trainer_export_qdq(trainer, path), DUNLIN_OK);
    cr_expect_eq(dunlin_model_open(path, NULL, &again, &error), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(error.text, "DequantizeLinear"), "%s", error.text);
    cr_expect_null(again);
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}
