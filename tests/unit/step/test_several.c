/*
 * test_several.c - models with several inputs: what is asked of them, arrays against one array,
 * plans, bad sources. Gradients against double are in unit/ops.
 */
#include "step/several.h"
#include "step/step_support.h"

#include <dunlin/baselines.h>
#include <dunlin/predictor.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(several, .timeout = 300);

static several_data data;

static void expect_input(const dunlin_model *model, int32_t index, const char *name, int64_t first,
                         int64_t n, int64_t vocabulary)
{
    dunlin_model_input input = DUNLIN_MODEL_INPUT_INIT;
    cr_assert_eq(dunlin_model_get_input(model, index, &input), DUNLIN_OK);
    cr_expect_str_eq(input.name, name);
    cr_expect_eq(input.first, first, "%s", name);
    cr_expect_eq(input.n_elements, n, "%s", name);
    cr_expect_eq(input.vocabulary, vocabulary, "%s", name);
}

static void expect_inputs(const dunlin_model *model)
{
    dunlin_model_input input = DUNLIN_MODEL_INPUT_INIT;
    cr_assert_eq(dunlin_model_n_inputs(model), 4);
    expect_input(model, 0, "left", 0, SEVERAL_PIXELS, 0);
    expect_input(model, 1, "right", SEVERAL_PIXELS, SEVERAL_PIXELS, 0);
    expect_input(model, 2, "words", 2 * SEVERAL_PIXELS, SEVERAL_IDS, SEVERAL_VOCABULARY);
    expect_input(model, 3, "extra", 2 * SEVERAL_PIXELS + SEVERAL_IDS, SEVERAL_FEATURES, 0);
    cr_assert_eq(dunlin_model_get_input(model, 1, &input), DUNLIN_OK);
    cr_expect_eq(input.shape.n_dims, 3);
    cr_expect_eq(input.shape.dims[0], 2);
    cr_expect_eq(dunlin_model_get_input(model, 4, &input), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_model_get_input(model, -1, &input), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_model_get_input(NULL, 0, &input), DUNLIN_ARGUMENT);
    input.struct_size = 0;
    cr_expect_eq(dunlin_model_get_input(model, 0, &input), DUNLIN_ARGUMENT);
}

Test(several, a_model_tells_its_inputs)
{
    dunlin_model *model = several_model(false);
    expect_inputs(model);
    const dunlin_shape all = dunlin_model_input_shape(model);
    cr_expect_eq(all.n_dims, 1);
    cr_expect_eq(all.dims[0], SEVERAL_ALL);
    dunlin_model_destroy(model);
    model = test_small_model(false);
    cr_assert_eq(dunlin_model_n_inputs(model), 1);
    expect_input(model, 0, "x", 0, 2 * 9 * 9, 0);
    dunlin_model_destroy(model);
}

/* The plain plan, and others that slice, recompute and share bytes. */
Test(several, no_plan_and_no_form_of_the_data_changes_a_bit)
{
    several_open(&data);
    for (int has_batch_norm = 0; has_batch_norm < 2; has_batch_norm++) {
        dunlin_model *model = several_model(has_batch_norm == 1);
        static const char *const sets[] = {"sse2", "avx2", "avx512", "neon", "generic"};
        int n_sets = 0;
        for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
            dunlin_trainer_options options = test_options(8);
            dunlin_trainer *trainer = NULL;
            int64_t n = 0;
            options.isa = sets[s];
            if (dunlin_trainer_create(model, &options, &trainer, NULL) != DUNLIN_OK) {
                continue;
            }
            dunlin_trainer_destroy(trainer);
            n_sets++;
            float *plain = several_fit(model, &options, &data.arrays, &n);
            float *joined = several_fit(model, &options, &data.one, &n);
            cr_expect(test_same_bits(plain, joined, n), "%s: one array", sets[s]);
            free(joined);
            options.policy = DUNLIN_POLICY_MICROBATCH;
            for (int64_t slice = 1; has_batch_norm == 0 && slice <= 5; slice += 2) {
                options.micro_batch = slice;
                float *sliced = several_fit(model, &options, &data.arrays, &n);
                cr_expect(test_same_bits(plain, sliced, n), "%s: slices of %d", sets[s],
                          (int)slice);
                free(sliced);
            }
            options.micro_batch = 0;
            options.policy = DUNLIN_POLICY_AUTO;
            dunlin_error error = {0};
            options.budget_bytes = 1;
            cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_BUDGET);
            options.budget_bytes = error.needed_bytes;
            float *least = several_fit(model, &options, &data.one, &n);
            cr_expect(test_same_bits(plain, least, n), "%s: the least budget", sets[s]);
            free(least);
            least = several_fit(model, &options, &data.arrays, &n);
            cr_expect(test_same_bits(plain, least, n), "%s: the least budget, arrays", sets[s]);
            free(least);
            free(plain);
        }
        cr_assert_geq(n_sets, 1);
        dunlin_model_destroy(model);
    }
}

Test(several, each_array_has_its_own_scale_mean_and_deviation)
{
    static const float mean[2] = {1.5F, 2.5F};
    static const float std[2] = {0.5F, 2.0F};
    several_open(&data);
    dunlin_model *model = several_model(false);
    const dunlin_trainer_options options = test_options(8);
    int64_t n = 0;
    float *plain = several_fit(model, &options, &data.arrays, &n);
    data.inputs[0].mean = mean;
    data.inputs[0].std = std;
    data.inputs[0].scale = 2.0F;
    float *normalised = several_fit(model, &options, &data.arrays, &n);
    cr_expect(!test_same_bits(plain, normalised, n));
    for (int i = 0; i < SEVERAL_N; i++) {
        for (int k = 0; k < SEVERAL_PIXELS; k++) {
            const int c = k / (SEVERAL_SIDE * SEVERAL_SIDE);
            data.joined[i][k] = (data.joined[i][k] * 2.0F - mean[c]) / std[c];
        }
    }
    float *by_hand = several_fit(model, &options, &data.one, &n);
    cr_expect(test_same_bits(normalised, by_hand, n)); /* powers of two round nothing */
    free(plain);
    free(normalised);
    free(by_hand);
    dunlin_model_destroy(model);
}

Test(several, evaluations_and_predictions_take_arrays)
{
    several_open(&data);
    dunlin_model *model = several_model(true);
    const dunlin_trainer_options options = test_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_metrics metrics[2];
    float logits[2][SEVERAL_N][SEVERAL_CLASSES];
    for (int i = 0; i < 2; i++) {
        const dunlin_source *source = i == 0 ? &data.arrays : &data.one;
        cr_assert_eq(dunlin_trainer_evaluate(trainer, source, 0, SEVERAL_N, &metrics[i]),
                     DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_predict(trainer, source, 0, SEVERAL_N, logits[i][0]),
                     DUNLIN_OK);
    }
    cr_expect_eq(metrics[0].loss, metrics[1].loss);
    cr_expect_eq(metrics[0].accuracy, metrics[1].accuracy);
    cr_expect(memcmp(logits[0], logits[1], sizeof logits[0]) == 0);

    dunlin_predictor *predictor = NULL;
    dunlin_error error = {0};
    int64_t n = 0;
    float *weights = test_weights(trainer, &n);
    cr_assert_eq(dunlin_predictor_create(model, NULL, &predictor, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin_predictor_set_weights(predictor, DUNLIN_WEIGHTS_ALL, 0, n, weights, &error),
                 DUNLIN_OK);
    cr_assert_eq(
        dunlin_predictor_predict(predictor, &data.arrays, 0, SEVERAL_N, logits[1][0], &error),
        DUNLIN_OK, "%s", error.text);
    cr_expect(memcmp(logits[0], logits[1], sizeof logits[0]) == 0);
    data.arrays.n_inputs = 3;
    cr_expect_eq(
        dunlin_predictor_predict(predictor, &data.arrays, 0, SEVERAL_N, logits[1][0], &error),
        DUNLIN_MISMATCH);
    free(weights);
    dunlin_predictor_destroy(predictor);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* Labels that are ignored are read before the first slice. */
Test(several, labels_of_arrays_are_read_beforehand)
{
    several_open(&data);
    dunlin_model *model = several_model(false);
    dunlin_trainer_options options = test_options(8);
    int64_t n = 0;
    options.has_ignore_label = true;
    options.ignore_label = 2;
    float *arrays = several_fit(model, &options, &data.arrays, &n);
    float *one = several_fit(model, &options, &data.one, &n);
    cr_expect(test_same_bits(arrays, one, n));
    options.has_ignore_label = false;
    float *all = several_fit(model, &options, &data.arrays, &n);
    cr_expect(!test_same_bits(arrays, all, n));
    free(all);
    free(arrays);
    free(one);
    dunlin_model_destroy(model);
}

/* Written and read again it has the same inputs, and gives the same outputs. */
Test(several, an_exported_file_has_the_inputs)
{
    several_open(&data);
    dunlin_model *model = several_model(false);
    const dunlin_trainer_options options = test_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    float logits[2][SEVERAL_N][SEVERAL_CLASSES];
    char *path = test_temp_path("several.onnx");
    cr_assert_eq(dunlin_trainer_predict(trainer, &data.arrays, 0, SEVERAL_N, logits[0][0]),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_export_onnx(trainer, path), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    dunlin_model *again = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_model_open(path, NULL, &again, &error), DUNLIN_OK, "%s", error.text);
    expect_inputs(again);
    dunlin_trainer *second = test_create(again, &options);
    cr_assert_eq(dunlin_trainer_predict(second, &data.arrays, 0, SEVERAL_N, logits[1][0]),
                 DUNLIN_OK, "%s", dunlin_trainer_last_error(second)->text);
    cr_expect(memcmp(logits[0], logits[1], sizeof logits[0]) == 0);
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(second);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(again);
    dunlin_model_destroy(model);
}

static void expect_refused(dunlin_trainer *trainer, const dunlin_source *source,
                           dunlin_status status, const char *text)
{
    const int64_t indices[3] = {0, 1, 2};
    cr_expect_eq(dunlin_trainer_step(trainer, source, indices, 3, NULL), status, "%s: %s", text,
                 dunlin_trainer_last_error(trainer)->text);
    test_expect_text(trainer, text);
}

Test(several, arrays_that_are_not_the_inputs_are_refused)
{
    several_open(&data);
    dunlin_model *model = several_model(false);
    const dunlin_trainer_options options = test_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_source source = data.arrays;
    source.n_inputs = 3;
    expect_refused(trainer, &source, DUNLIN_MISMATCH,
                   "the source has 3 arrays an example; the model has 4 inputs");
    source = data.arrays;
    source.inputs = NULL;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "0 arrays");
    source = data.arrays;
    data.inputs[1].name = "left";
    expect_refused(trainer, &source, DUNLIN_MISMATCH,
                   "array 1 of the source is called \"left\"; that input of the model is called "
                   "\"right\"");
    data.inputs[1].name = NULL;
    data.inputs[1].n_elements--;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "71 elements an example");
    data.inputs[1].n_elements++;
    data.inputs[3].dtype = DUNLIN_I64;
    expect_refused(trainer, &source, DUNLIN_ARGUMENT, "none of u8, f32 and i32");
    data.inputs[3].dtype = DUNLIN_F32;
    source.n_targets = 4;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "the loss is over labels");
    source.n_targets = 0;
    data.features[1][2] = NAN;
    expect_refused(trainer, &source, DUNLIN_NUMERIC, "input element 2 of example 1");
    data.features[1][2] = 0.0F;
    data.ids[2][0] = SEVERAL_VOCABULARY;
    expect_refused(trainer, &source, DUNLIN_DATA, "table");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

static dunlin_status fail_arrays(void *ctx, const int64_t *indices, int64_t n,
                                 void *const *out_inputs, void *const *out_answers)
{
    (void)ctx;
    (void)indices;
    (void)n;
    (void)out_inputs;
    (void)out_answers;
    return DUNLIN_IO;
}

Test(several, a_source_that_fails_is_told)
{
    several_open(&data);
    dunlin_model *model = several_model(false);
    const dunlin_trainer_options options = test_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    data.arrays.read_arrays_fn = fail_arrays;
    expect_refused(trainer, &data.arrays, DUNLIN_CALLBACK, "3 examples from index 0");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

static void expect_arrays_refused(const dunlin_arrays *arrays, dunlin_status status,
                                  const char *text)
{
    dunlin_arrays_view view;
    dunlin_source source;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_source_from_arrays(arrays, &view, &source, &error), status, "%s", text);
    cr_expect(strstr(error.text, text) != NULL, "%s: %s", text, error.text);
}

Test(several, bad_arrays_are_refused)
{
    several_open(&data);
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.n = SEVERAL_N;
    arrays.labels = data.labels;
    arrays.inputs = data.inputs;
    expect_arrays_refused(&arrays, DUNLIN_LIMIT, "0 inputs: the limits are 1 and 64");
    arrays.n_inputs = 65;
    expect_arrays_refused(&arrays, DUNLIN_LIMIT, "65 inputs");
    arrays.n_inputs = 4;
    data.inputs[2].values = NULL;
    expect_arrays_refused(&arrays, DUNLIN_ARGUMENT, "input 2");
    data.inputs[2].values = data.ids;
    data.inputs[2].n_elements = 0;
    expect_arrays_refused(&arrays, DUNLIN_ARGUMENT, "input 2 has 0 elements");
    data.inputs[2].n_elements = INT64_MAX;
    expect_arrays_refused(&arrays, DUNLIN_OVERFLOW, "address space");
    data.inputs[2].n_elements = SEVERAL_IDS;
    data.inputs[2].dtype = DUNLIN_F64;
    expect_arrays_refused(&arrays, DUNLIN_UNSUPPORTED, "dtype");
    data.inputs[2].dtype = DUNLIN_I32;
    arrays.n = 0;
    expect_arrays_refused(&arrays, DUNLIN_ARGUMENT, "0 examples");
}

static void expect_builder_refused(dunlin_builder *b, dunlin_value output, dunlin_status status,
                                   const char *text)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_builder_finish(b, output, &model, &error), status, "%s: %s", text,
                 error.text);
    cr_expect(strstr(error.text, text) != NULL, "%s: %s", text, error.text);
    cr_expect_null(model);
}

Test(several, the_builder_refuses_inputs_that_cannot_be)
{
    const dunlin_shape row = {1, {3}};
    const dunlin_shape empty = {1, {0}};
    const dunlin_shape large = {2, {1 << 15, 1 << 15}};
    dunlin_builder *b = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    dunlin_value x = dunlin_builder_relu(b, dunlin_builder_input(b, "x", &row));
    expect_builder_refused(b, dunlin_builder_input(b, "y", &row), DUNLIN_STATE, "layers already");
    (void)x;

    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    for (int i = 0; i <= DUNLIN_MODEL_MAX_INPUTS; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "x%d", i);
        x = dunlin_builder_input(b, name, &row);
    }
    expect_builder_refused(b, x, DUNLIN_LIMIT, "64 inputs already");

    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    (void)dunlin_builder_input(b, "x", &row);
    x = dunlin_builder_relu(b, dunlin_builder_input(b, "y", &empty));
    expect_builder_refused(b, x, DUNLIN_MODEL, "input 'y' is empty");

    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    (void)dunlin_builder_input(b, "x", &large);
    (void)dunlin_builder_input(b, "z", &large);
    x = dunlin_builder_relu(b, dunlin_builder_input(b, "y", &row));
    expect_builder_refused(b, x, DUNLIN_MODEL, "more than 2147483647 elements");

    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    (void)dunlin_builder_input(b, "x", &row);
    x = dunlin_builder_relu(b, dunlin_builder_input(b, "x", &row));
    expect_builder_refused(b, x, DUNLIN_MODEL, "x");

    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    (void)dunlin_builder_input(b, "unread", &row);
    x = dunlin_builder_relu(b, dunlin_builder_input(b, "x", &row));
    expect_builder_refused(b, x, DUNLIN_MODEL, "unread");

    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    x = dunlin_builder_input(b, "x", &row);
    expect_builder_refused(b, dunlin_builder_share(b, x, x), DUNLIN_ARGUMENT,
                           "not made by a layer with parameters");

    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    x = dunlin_builder_input(b, "x", &row);
    const dunlin_value wide = dunlin_builder_dense(b, "fc", x, 5);
    expect_builder_refused(b, dunlin_builder_share(b, wide, wide), DUNLIN_MODEL, "shared");
}
