/*
 * test_state.c - what a trainer keeps and hands over: weights, checkpoints, properties, ONNX files;
 * frozen parameters, replaced heads.
 */
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Test(state, weights_by_pieces_and_by_name)
{
    dunlin_model *model = test_small_model(true);
    const dunlin_trainer_options options = test_options(4);
    dunlin_trainer *from = test_create(model, &options);
    test_fit_epochs(from, model, 1);
    dunlin_trainer *to = test_create(model, &options);
    test_expect_same_weights(from, to, false);
    const int64_t n_statistics = dunlin_trainer_n_weights(from, DUNLIN_WEIGHTS_STATISTIC);
    const int64_t n_trainable = dunlin_trainer_n_weights(from, DUNLIN_WEIGHTS_TRAINABLE);
    cr_expect_eq(n_statistics, 10);
    cr_expect_eq(n_trainable, dunlin_model_n_trainable_elements(model));
    /* Pieces of 7 cross parameters at all places. */
    const dunlin_weights_kind kinds[] = {DUNLIN_WEIGHTS_TRAINABLE, DUNLIN_WEIGHTS_STATISTIC};
    for (int k = 0; k < 2; k++) {
        const int64_t n = dunlin_trainer_n_weights(from, kinds[k]);
        for (int64_t first = 0; first < n; first += 7) {
            float piece[7];
            const int64_t n_piece = n - first < 7 ? n - first : 7;
            cr_assert_eq(dunlin_trainer_get_weights(from, kinds[k], first, n_piece, piece),
                         DUNLIN_OK);
            cr_assert_eq(dunlin_trainer_set_weights(to, kinds[k], first, n_piece, piece),
                         DUNLIN_OK);
        }
    }
    test_expect_same_weights(from, to, true);
    /* By name: the same numbers, in ONNX's order. */
    int64_t n_all = 0;
    float *all = test_weights(from, &n_all);
    int64_t at = 0;
    for (int32_t i = 0; i < dunlin_trainer_n_parameters(from); i++) {
        dunlin_parameter_info info;
        cr_assert_eq(dunlin_trainer_parameter(from, i, &info), DUNLIN_OK);
        float *values = malloc((size_t)info.n_elements * sizeof *values);
        cr_assert_eq(dunlin_trainer_get_parameter(from, info.name, values, info.n_elements),
                     DUNLIN_OK);
        cr_expect(test_same_bits(values, all + at, info.n_elements), "%s", info.name);
        at += info.n_elements;
        free(values);
    }
    cr_expect_eq(at, n_all);
    free(all);
    dunlin_trainer_destroy(from);
    dunlin_trainer_destroy(to);
    dunlin_model_destroy(model);
}

/* A convolution's weight set in ONNX's order does what ONNX's order means. */
Test(state, layouts_mean_what_onnx_means)
{
    dunlin_builder *builder = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value end = dunlin_builder_input(builder, "x", &(dunlin_shape){3, {2, 3, 4}});
    end = dunlin_builder_conv(
        builder, "conv", end, 3, 3,
        &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .padding = 1});
    end = dunlin_builder_flatten(builder, end);
    end = dunlin_builder_dense(builder, "fc", end, 2);
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_finish(builder, end, &model, NULL), DUNLIN_OK);
    const dunlin_trainer_options options = test_options(2);
    dunlin_trainer *trainer = test_create(model, &options);
    float w[3 * 2 * 3 * 3];
    float b[3];
    float fw[2 * 36];
    float fb[2];
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, "conv.weight", w, 54), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, "conv.bias", b, 3), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, "fc.weight", fw, 72), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, "fc.bias", fb, 2), DUNLIN_OK);
    test_source source;
    test_source_init(&source, model, 1, DUNLIN_F32);
    float logits[2];
    cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, 1, logits), DUNLIN_OK);
    float x[2 * 3 * 4];
    int32_t label = 0;
    const int64_t index = 0;
    cr_assert_eq(source.source.read_fn(&source, &index, 1, x, &label), DUNLIN_OK);
    double expected[2] = {(double)fb[0], (double)fb[1]};
    for (int i = 0; i < 36; i++) {
        const int o = i / 12;
        const int y = i / 4 % 3;
        const int column = i % 4;
        double sum = (double)b[o];
        for (int k = 0; k < 18; k++) {
            const int c = k / 9;
            const int iy = y + k / 3 % 3 - 1;
            const int ix = column + k % 3 - 1;
            if (iy >= 0 && iy < 3 && ix >= 0 && ix < 4) {
                sum += (double)w[o * 18 + k] * (double)x[c * 12 + iy * 4 + ix] / 128.0;
            }
        }
        expected[0] += (double)fw[i] * sum;
        expected[1] += (double)fw[36 + i] * sum;
    }
    cr_expect_float_eq((double)logits[0], expected[0], 1e-5);
    cr_expect_float_eq((double)logits[1], expected[1], 1e-5);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(state, wrong_weights_change_nothing)
{
    dunlin_model *model = test_small_model(true);
    const dunlin_trainer_options options = test_options(4);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer *same = test_create(model, &options);
    const int64_t n = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL);
    float *values = calloc((size_t)n, sizeof *values);
    cr_assert_not_null(values);
    values[n - 1] = NAN;
    cr_expect_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, n, values),
                 DUNLIN_NUMERIC);
    cr_expect_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, 1, n, values),
                 DUNLIN_MISMATCH);
    cr_expect_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, -1, 2, values),
                 DUNLIN_MISMATCH);
    cr_expect_eq(dunlin_trainer_set_weights(trainer, (dunlin_weights_kind)0, 0, 0, values),
                 DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_set_parameter(trainer, "head.bias", values, 3), DUNLIN_MISMATCH);
    cr_expect_eq(dunlin_trainer_set_parameter(trainer, "tail.bias", values, 4), DUNLIN_ARGUMENT);
    values[3] = INFINITY;
    cr_expect_eq(dunlin_trainer_set_parameter(trainer, "head.bias", values, 4), DUNLIN_NUMERIC);
    test_expect_same_weights(trainer, same, true);
    free(values);
    dunlin_trainer_destroy(trainer);
    dunlin_trainer_destroy(same);
    dunlin_model_destroy(model);
}

/* --- checkpoints --- */

Test(state, a_checkpoint_resumes_bit_for_bit)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(8);
    char *path = test_temp_path("resume");
    dunlin_trainer *whole = test_create(model, &options);
    test_fit_epochs(whole, model, 1);
    cr_assert_eq(dunlin_trainer_set_property(whole, "round", "17"), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_set_property(whole, "note", ""), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_save_checkpoint(whole, path), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(whole)->text);
    test_fit_epochs(whole, model, 2);
    /* Another seed: the checkpoint brings its own. */
    options.seed = 999;
    dunlin_trainer *resumed = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_set_property(resumed, "old", "gone afterwards"), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_load_checkpoint(resumed, path), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(resumed)->text);
    cr_expect_str_eq(dunlin_trainer_property(resumed, "round"), "17");
    cr_expect_str_eq(dunlin_trainer_property(resumed, "note"), "");
    cr_expect_null(dunlin_trainer_property(resumed, "old"));
    test_fit_epochs(resumed, model, 2);
    test_expect_same_weights(whole, resumed, true);
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(whole);
    dunlin_trainer_destroy(resumed);
    dunlin_model_destroy(model);
}

static unsigned char *read_file(const char *path, size_t *out_n)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    const long n = ftell(file);
    cr_assert_eq(fseek(file, 0, SEEK_SET), 0);
    unsigned char *bytes = malloc((size_t)n);
    cr_assert_eq(fread(bytes, 1, (size_t)n, file), (size_t)n);
    (void)fclose(file);
    *out_n = (size_t)n;
    return bytes;
}

static void write_file(const char *path, const unsigned char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, n, file), n);
    cr_assert_eq(fclose(file), 0);
}

static void expect_refused(dunlin_trainer *trainer, const char *path, const float *before,
                           int64_t n, const char *what, size_t at)
{
    cr_expect_neq(dunlin_trainer_load_checkpoint(trainer, path), DUNLIN_OK, "%s at %zu", what, at);
    const char *text = dunlin_trainer_last_error(trainer)->text;
    cr_expect_gt(strlen(text), 10);
    cr_expect(strcmp(what, "cut") != 0 || strstr(text, "short") != NULL ||
                  strstr(text, "the file's size is not the one it names") != NULL,
              "cut at %zu: %s", at, text);
    float *after = test_weights(trainer, NULL);
    cr_assert(test_same_bits(before, after, n), "%s at %zu changes weights", what, at);
    cr_assert_str_eq(dunlin_trainer_property(trainer, "mine"), "stays");
    free(after);
}

/* Every cut is said to be one, every change is found; what is whole is taken. */
static void check_damage(const dunlin_model *model, const dunlin_trainer_options *options)
{
    char *path = test_temp_path("damaged");
    dunlin_trainer *trainer = test_create(model, options);
    test_fit_epochs(trainer, model, 1); /* ranges and scales are known */
    cr_assert_eq(dunlin_trainer_set_property(trainer, "name", "text"), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    size_t n_bytes = 0;
    unsigned char *bytes = read_file(path, &n_bytes);
    trainer = test_create(model, options);
    test_fit_epochs(trainer, model, 2);
    cr_assert_eq(dunlin_trainer_set_property(trainer, "mine", "stays"), DUNLIN_OK);
    int64_t n = 0;
    float *before = test_weights(trainer, &n);
    for (size_t at = 0; at < n_bytes; at += at < 90 || n_bytes - at < 200 ? 1 : 97) {
        write_file(path, bytes, at);
        expect_refused(trainer, path, before, n, "cut", at);
        bytes[at] ^= 0x41;
        write_file(path, bytes, n_bytes);
        expect_refused(trainer, path, before, n, "damaged", at);
        bytes[at] ^= 0x41;
    }
    (void)unlink(path);
    expect_refused(trainer, path, before, n, "missing", 0);
    write_file(path, bytes, n_bytes);
    cr_expect_eq(dunlin_trainer_load_checkpoint(trainer, path), DUNLIN_OK);
    (void)unlink(path);
    free(path);
    free(bytes);
    free(before);
    dunlin_trainer_destroy(trainer);
}

Test(state, damaged_checkpoints_change_nothing)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(8);
    check_damage(model, &options);
    options.precision = "adaptive-int8";
    check_damage(model, &options);
    options.precision = NULL;
    options.storage = DUNLIN_STORAGE_INT8;
    check_damage(model, &options);
    dunlin_model_destroy(model);
}

Test(state, damaged_checkpoints_of_integers_change_nothing)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 8;
    options.precision = "niti";
    check_damage(model, &options);
    options.precision = "niti16";
    check_damage(model, &options);
    dunlin_model_destroy(model);
}

Test(state, checkpoints_of_others_are_refused)
{
    dunlin_model *model = test_small_model(true);
    dunlin_model *other_model = test_small_model(false);
    dunlin_trainer_options options = test_options(8);
    char *path = test_temp_path("others");
    dunlin_trainer *trainer = test_create(model, &options);
    cr_assert_eq(dunlin_trainer_save_checkpoint(trainer, path), DUNLIN_OK);
    cr_expect_eq(dunlin_trainer_save_checkpoint(trainer, "/nowhere/at/all"), DUNLIN_IO);
    dunlin_trainer_destroy(trainer);
    trainer = test_create(other_model, &options);
    cr_expect_eq(dunlin_trainer_load_checkpoint(trainer, path), DUNLIN_MISMATCH);
    dunlin_trainer_destroy(trainer);
    options.momentum = 0.0F;
    trainer = test_create(model, &options);
    cr_expect_eq(dunlin_trainer_load_checkpoint(trainer, path), DUNLIN_MISMATCH);
    dunlin_trainer_destroy(trainer);
    (void)unlink(path);
    free(path);
    dunlin_model_destroy(model);
    dunlin_model_destroy(other_model);
}

Test(state, properties_have_limits)
{
    dunlin_model *model = test_dense_model(4, 2);
    const dunlin_trainer_options options = test_options(2);
    dunlin_trainer *trainer = test_create(model, &options);
    char longest[258];
    memset(longest, 'a', sizeof longest);
    longest[257] = '\0';
    cr_expect_eq(dunlin_trainer_set_property(trainer, "", "x"), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_set_property(trainer, "long", longest), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_set_property(trainer, "long", longest + 1), DUNLIN_OK);
    cr_expect_eq(dunlin_trainer_set_property(trainer, longest + 192, "x"), DUNLIN_ARGUMENT);
    for (int i = 1; i < 64; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "p%d", i);
        cr_expect_eq(dunlin_trainer_set_property(trainer, name, "1"), DUNLIN_OK);
    }
    cr_expect_eq(dunlin_trainer_set_property(trainer, "one more", "1"), DUNLIN_LIMIT);
    cr_expect_eq(dunlin_trainer_set_property(trainer, "p63", "2"), DUNLIN_OK);
    cr_expect_str_eq(dunlin_trainer_property(trainer, "p63"), "2");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* --- ONNX --- */

static void check_export(dunlin_model *model, dunlin_trainer_options options)
{
    char *path = test_temp_path("export.onnx");
    dunlin_trainer *trainer = test_create(model, &options);
    test_fit_epochs(trainer, model, 1);
    cr_assert_eq(dunlin_trainer_export_onnx(trainer, path), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    dunlin_model *read = NULL;
    dunlin_error error;
    cr_assert_eq(dunlin_model_open(path, NULL, &read, &error), DUNLIN_OK, "%s", error.text);
    options.budget_bytes = 0;
    options.seed = 31337;
    dunlin_trainer *again = test_create(read, &options);
    test_expect_same_weights(trainer, again, true);
    test_source source;
    test_source_init(&source, model, 10, DUNLIN_U8);
    float one[10 * 4];
    float other[10 * 4];
    cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, 10, one), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_predict(again, &source.source, 0, 10, other), DUNLIN_OK);
    cr_expect(test_same_bits(one, other, 40));
    /* And the trainer goes on as if nothing had been. */
    test_fit_epochs(trainer, model, 1);
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(trainer);
    dunlin_trainer_destroy(again);
    dunlin_model_destroy(read);
}

Test(state, an_exported_model_predicts_the_same)
{
    for (int has_batch_norm = 0; has_batch_norm < 2; has_batch_norm++) {
        dunlin_model *model = test_small_model(has_batch_norm == 1);
        dunlin_trainer_options options = test_options(32);
        check_export(model, options);
        dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
        cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
        options.budget_bytes = report.planned_bytes;
        check_export(model, options);
        dunlin_model_destroy(model);
    }
}

/* --- what is trained --- */

/* One of two prefixes, each may be NULL. */
typedef struct frozen_names {
    const char *first;
    const char *second;
} frozen_names;

static bool begins_with(const char *text, const char *prefix)
{
    return prefix != NULL && strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Trains, and tells of each parameter whether it has changed as it should. */
static void check_changes(const dunlin_model *model, const dunlin_trainer_options *options,
                          frozen_names frozen, bool has_frozen_statistics)
{
    dunlin_trainer *before = test_create(model, options);
    dunlin_trainer *after = test_create(model, options);
    test_fit_epochs(after, model, 1);
    for (int32_t i = 0; i < dunlin_trainer_n_parameters(after); i++) {
        dunlin_parameter_info info;
        cr_assert_eq(dunlin_trainer_parameter(after, i, &info), DUNLIN_OK);
        float values[2][512];
        cr_assert_leq(info.n_elements, 512);
        cr_assert_eq(dunlin_trainer_get_parameter(before, info.name, values[0], info.n_elements),
                     DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_get_parameter(after, info.name, values[1], info.n_elements),
                     DUNLIN_OK);
        const bool is_fixed = begins_with(info.name, frozen.first) ||
                              begins_with(info.name, frozen.second) ||
                              (has_frozen_statistics && info.role == DUNLIN_PARAMETER_STATISTIC);
        cr_expect_eq(test_same_bits(values[0], values[1], info.n_elements), is_fixed, "%s",
                     info.name);
    }
    dunlin_trainer_destroy(before);
    dunlin_trainer_destroy(after);
}

Test(state, frozen_things_stay)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(8);
    check_changes(model, &options, (frozen_names){NULL, NULL}, false);
    options.freeze_batch_norm = true;
    check_changes(model, &options, (frozen_names){NULL, NULL}, true);
    options.freeze_batch_norm = false;
    options.frozen_prefixes = "body.conv2.bias,body.conv1";
    check_changes(model, &options, (frozen_names){"body.conv2.bias", "body.conv1"}, false);
    dunlin_model_destroy(model);
}

Test(state, a_frozen_body_stays_with_its_statistics)
{
    dunlin_model *model = test_small_model(true);
    dunlin_trainer_options options = test_options(8);
    options.frozen_prefixes = "body.";
    check_changes(model, &options, (frozen_names){"body.", NULL}, false);
    /* Without a barrier left, and with little to keep, the step fits in far less. */
    dunlin_trainer_report frozen = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_trainer_report all = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &frozen, NULL), DUNLIN_OK);
    options.frozen_prefixes = NULL;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &all, NULL), DUNLIN_OK);
    cr_expect_lt(frozen.planned_bytes, all.planned_bytes);
    cr_expect_lt(frozen.n_ops, all.n_ops);
    dunlin_model_destroy(model);
}

Test(state, a_replaced_head_is_trained)
{
    dunlin_model *model = test_small_model(true);
    dunlin_model *head = NULL;
    dunlin_error error;
    cr_assert_eq(dunlin_model_replace_head(model, 3, NULL, &head, &error), DUNLIN_OK, "%s",
                 error.text);
    dunlin_trainer_options options = test_options(8);
    options.frozen_prefixes = "body.";
    cr_expect_eq(dunlin_model_n_outputs(head), 3);
    check_changes(head, &options, (frozen_names){"body.", NULL}, false);
    dunlin_model_destroy(head);
    dunlin_model_destroy(model);
}
