/*
 * test_outputs.c - models with several outputs, each with a loss and a weight: gradients against
 * differences of the loss, plans, metrics, predictions, sources and options that do not fit.
 */
#include "random.h"
#include "step/outputs.h"
#include "step/step_support.h"

#include <dunlin/arrays.h>
#include <dunlin/predictor.h>
#include <dunlin/several.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(outputs, .timeout = 300);

static outputs_data data;
static dunlin_output_loss all_losses[3];

static float *fit(const dunlin_model *model, const dunlin_trainer_options *options,
                  const dunlin_source *source, int64_t *out_n)
{
    dunlin_trainer *trainer = test_create(model, options);
    dunlin_fit_options epochs = DUNLIN_FIT_OPTIONS_INIT;
    epochs.epochs = 2;
    cr_assert_eq(dunlin_trainer_fit(trainer, source, &epochs, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

/* --- gradients --- */

#define MAX_PARAMETERS 8
#define MAX_ELEMENTS 64

typedef struct seen_gradients {
    float of[MAX_PARAMETERS][MAX_ELEMENTS];
} seen_gradients;

static void keep_gradient(void *ctx, int32_t parameter_index, int64_t n, const float *weights,
                          float *gradient, float *const *slots)
{
    seen_gradients *seen = ctx;
    (void)weights;
    (void)slots;
    cr_assert(parameter_index < MAX_PARAMETERS && n <= MAX_ELEMENTS);
    memcpy(seen->of[parameter_index], gradient, (size_t)n * sizeof *gradient);
}

static double loss_at(dunlin_trainer *trainer)
{
    dunlin_metrics metrics;
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &data.source, 0, OUTPUTS_N, &metrics), DUNLIN_OK,
                 "%s", dunlin_trainer_last_error(trainer)->text);
    return metrics.loss;
}

/* The slope of the loss over one element, which lies elsewhere inside: (out, in) as (in, out). */
static void check_element(dunlin_trainer *trainer, const dunlin_parameter_info *info, int32_t index,
                          int64_t at, const seen_gradients *seen)
{
    float values[MAX_ELEMENTS];
    const float step = 1.0F / 64.0F;
    double losses[2];
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, info->name, values, info->n_elements),
                 DUNLIN_OK);
    const float before = values[at];
    for (int side = 0; side < 2; side++) {
        values[at] = before + (side == 0 ? step : -step);
        cr_assert_eq(dunlin_trainer_set_parameter(trainer, info->name, values, info->n_elements),
                     DUNLIN_OK);
        losses[side] = loss_at(trainer);
    }
    values[at] = before;
    cr_assert_eq(dunlin_trainer_set_parameter(trainer, info->name, values, info->n_elements),
                 DUNLIN_OK);
    const int64_t n_out = info->shape.dims[0];
    const int64_t n_in = info->n_elements / n_out;
    const int64_t inner = at % n_in * n_out + at / n_in;
    cr_expect_float_eq(seen->of[index][inner], (losses[0] - losses[1]) / (2.0 * (double)step), 2e-4,
                       "%s, element %d", info->name, (int)at);
}

Test(outputs, gradients_are_slopes_of_the_weighted_sum)
{
    for (int form = 0; form < 4; form++) {
        static seen_gradients seen;
        outputs_open(&data, form % 2 == 1);
        dunlin_model *model = outputs_model(form >= 2, 3);
        dunlin_trainer_options options = outputs_options(all_losses);
        options.batch = OUTPUTS_N;
        options.lr = 0.0F;
        options.momentum = 0.0F;
        options.weight_decay = 0.0F;
        options.gradient_fn = keep_gradient;
        options.gradient_ctx = &seen;
        dunlin_trainer *trainer = test_create(model, &options);
        int64_t indices[OUTPUTS_N];
        for (int64_t i = 0; i < OUTPUTS_N; i++) {
            indices[i] = i;
        }
        dunlin_metrics metrics;
        cr_assert_eq(dunlin_trainer_step(trainer, &data.source, indices, OUTPUTS_N, &metrics),
                     DUNLIN_OK, "%s", dunlin_trainer_last_error(trainer)->text);
        cr_expect_float_eq(metrics.loss, loss_at(trainer), 1e-6);
        for (int32_t p = 0; p < dunlin_trainer_n_parameters(trainer); p++) {
            dunlin_parameter_info info;
            cr_assert_eq(dunlin_trainer_parameter(trainer, p, &info), DUNLIN_OK);
            for (int64_t i = 0; i < info.n_elements; i += 3) {
                check_element(trainer, &info, p, i, &seen);
            }
        }
        dunlin_trainer_destroy(trainer);
        dunlin_model_destroy(model);
    }
}

/* --- plans --- */

Test(outputs, no_plan_changes_a_bit)
{
    static const char *const sets[] = {"sse2", "avx2", "avx512", "neon", "generic"};
    int n_sets = 0;
    outputs_open(&data, true);
    dunlin_model *model = outputs_model(true, 3);
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        dunlin_trainer_options options = outputs_options(all_losses);
        dunlin_trainer *trainer = NULL;
        int64_t n = 0;
        options.isa = sets[s];
        if (dunlin_trainer_create(model, &options, &trainer, NULL) != DUNLIN_OK) {
            continue;
        }
        dunlin_trainer_destroy(trainer);
        n_sets++;
        float *plain = fit(model, &options, &data.source, &n);
        options.n_threads = 3;
        float *threaded = fit(model, &options, &data.source, &n);
        cr_expect(test_same_bits(plain, threaded, n), "%s: threads", sets[s]);
        options.n_threads = 1;
        options.policy = DUNLIN_POLICY_MICROBATCH;
        for (int64_t slice = 1; slice <= 5; slice += 2) {
            options.micro_batch = slice;
            float *sliced = fit(model, &options, &data.source, &n);
            cr_expect(test_same_bits(plain, sliced, n), "%s: slices of %d", sets[s], (int)slice);
            free(sliced);
        }
        dunlin_error error = {0};
        options.micro_batch = 0;
        options.policy = DUNLIN_POLICY_AUTO;
        options.budget_bytes = 1;
        cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_BUDGET);
        options.budget_bytes = error.needed_bytes;
        float *least = fit(model, &options, &data.source, &n);
        cr_expect(test_same_bits(plain, least, n), "%s: the least budget", sets[s]);
        free(least);
        free(threaded);
        free(plain);
    }
    cr_assert_geq(n_sets, 1);
    dunlin_model_destroy(model);
}

static void get(const dunlin_trainer *trainer, const char *name, float *out, int64_t n)
{
    cr_assert_eq(dunlin_trainer_get_parameter(trainer, name, out, n), DUNLIN_OK, "%s", name);
}

/* Outputs of weight 0 leave what they alone read as it was, and all else as without them. */
Test(outputs, a_weight_of_zero_trains_nothing)
{
    outputs_open(&data, false);
    dunlin_model *three = outputs_model(false, 3);
    dunlin_model *one = outputs_model(false, 1);
    dunlin_trainer_options options = outputs_options(all_losses);
    outputs_losses(all_losses, 1.0F, 0.0F, 0.0F);
    options.weight_decay = 0.0F;
    dunlin_trainer *a = test_create(three, &options);
    options.n_outputs = 1;
    dunlin_trainer *b = test_create(one, &options);
    float before[OUTPUTS_VALUES * 8];
    float after[OUTPUTS_VALUES * 8];
    float trunks[3][8 * OUTPUTS_FEATURES];
    get(a, "trunk.weight", trunks[0], 8 * OUTPUTS_FEATURES);
    get(a, "to_value.weight", before, OUTPUTS_VALUES * 8);
    const int64_t indices[6] = {5, 4, 3, 2, 1, 0};
    cr_assert_eq(dunlin_trainer_step(a, &data.source, indices, 6, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(a)->text);
    cr_assert_eq(dunlin_trainer_step(b, &data.source, indices, 6, NULL), DUNLIN_MISMATCH);
    test_expect_text(b, "the source has answers for 3 outputs; the model has 1");
    data.source.n_answers = 1;
    data.view.n_answers = 1;
    cr_assert_eq(dunlin_trainer_step(b, &data.source, indices, 6, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(b)->text);
    get(a, "to_value.weight", after, OUTPUTS_VALUES * 8);
    cr_expect(memcmp(before, after, sizeof before) == 0);
    get(a, "trunk.weight", trunks[1], 8 * OUTPUTS_FEATURES);
    get(b, "trunk.weight", trunks[2], 8 * OUTPUTS_FEATURES);
    cr_expect(memcmp(trunks[0], trunks[1], sizeof trunks[0]) != 0);
    cr_expect(memcmp(trunks[2], trunks[1], sizeof trunks[0]) == 0);
    dunlin_trainer_destroy(a);
    dunlin_trainer_destroy(b);
    dunlin_model_destroy(three);
    dunlin_model_destroy(one);
}

/* --- metrics and predictions --- */

Test(outputs, each_output_has_its_metrics)
{
    outputs_open(&data, true);
    dunlin_model *model = outputs_model(false, 3);
    const dunlin_trainer_options options = outputs_options(all_losses);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_metrics all;
    dunlin_metrics each[3];
    cr_assert_eq(dunlin_trainer_get_output_metrics(trainer, 2, &each[2]), DUNLIN_OK);
    cr_expect_eq(each[2].n_examples, 0);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &data.source, 0, OUTPUTS_N, &all), DUNLIN_OK);
    float values[OUTPUTS_N * OUTPUTS_VALUES];
    float tags[OUTPUTS_N * OUTPUTS_TAGS];
    cr_assert_eq(dunlin_trainer_predict_output(trainer, &data.source, 1, 0, OUTPUTS_N, values),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_predict_output(trainer, &data.source, 2, 0, OUTPUTS_N, tags),
                 DUNLIN_OK);
    for (int32_t i = 0; i < 3; i++) {
        cr_assert_eq(dunlin_trainer_get_output_metrics(trainer, i, &each[i]), DUNLIN_OK);
        cr_expect_eq(each[i].n_examples, OUTPUTS_N);
        cr_expect_eq(each[i].n_counted, OUTPUTS_N - (OUTPUTS_N + 3) / 4);
    }
    cr_expect_float_eq(all.loss, each[0].loss + 0.5 * each[1].loss + 2.0 * each[2].loss, 1e-9);
    cr_expect_eq(all.accuracy, each[0].accuracy);
    cr_expect_gt(each[0].top5_accuracy, 0.0);
    double squares = 0.0;
    double right = 0.0;
    double weight = 0.0;
    double entropy = 0.0;
    for (int i = 0; i < OUTPUTS_N; i++) {
        const double w = (double)data.weights[i];
        weight += w;
        for (int k = 0; k < OUTPUTS_VALUES; k++) {
            const double d = (double)values[i * OUTPUTS_VALUES + k] - (double)data.values[i][k];
            squares += w * d * d / OUTPUTS_VALUES;
        }
        for (int k = 0; k < OUTPUTS_TAGS; k++) {
            const double y = (double)tags[i * OUTPUTS_TAGS + k];
            const double t = (double)data.tags[i][k];
            entropy += w * (log1p(exp(y)) - t * y) / OUTPUTS_TAGS;
            right += w > 0.0 && (y > 0.0) == (t > 0.5) ? 1.0 : 0.0;
        }
    }
    cr_expect_float_eq(each[1].loss, squares / weight, 1e-6);
    cr_expect_float_eq(each[2].loss, entropy / weight, 1e-6);
    cr_expect_float_eq(each[2].accuracy, right / (double)(each[2].n_counted * OUTPUTS_TAGS), 1e-9);
    cr_expect_eq(dunlin_trainer_get_output_metrics(trainer, 3, &all), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_get_output_metrics(trainer, -1, &all), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_get_output_metrics(trainer, 0, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_predict_output(trainer, &data.source, 3, 0, OUTPUTS_N, values),
                 DUNLIN_ARGUMENT);
    test_expect_text(trainer, "output 3 is not one of the model's 3");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

static void expect_outputs_of(const dunlin_model *model)
{
    static const char *const names[3] = {"class", "value", "tags"};
    static const int64_t widths[3] = {OUTPUTS_CLASSES, OUTPUTS_VALUES, OUTPUTS_TAGS};
    cr_assert_eq(dunlin_model_count_outputs(model), 3);
    for (int32_t i = 0; i < 3; i++) {
        dunlin_model_output output = DUNLIN_MODEL_OUTPUT_INIT;
        cr_assert_eq(dunlin_model_get_output(model, i, &output), DUNLIN_OK);
        cr_expect_str_eq(output.name, names[i]);
        cr_expect_eq(output.n_numbers, widths[i]);
        cr_expect_eq(output.n_labels, 1);
        cr_expect_eq(output.shape.dims[0], widths[i]);
    }
    dunlin_model_output output = DUNLIN_MODEL_OUTPUT_INIT;
    cr_expect_eq(dunlin_model_get_output(model, 3, &output), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_model_n_outputs(model), OUTPUTS_CLASSES);
}

/* What is written has all outputs, and each may be chosen. */
Test(outputs, a_file_has_them_by_name)
{
    outputs_open(&data, false);
    dunlin_model *model = outputs_model(true, 3);
    expect_outputs_of(model);
    const dunlin_trainer_options options = outputs_options(all_losses);
    dunlin_trainer *trainer = test_create(model, &options);
    char *path = test_temp_path("outputs.onnx");
    float written[2][OUTPUTS_N * OUTPUTS_TAGS];
    cr_assert_eq(dunlin_trainer_predict_output(trainer, &data.source, 2, 0, OUTPUTS_N, written[0]),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_export_onnx(trainer, path), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    dunlin_model *again = NULL;
    dunlin_error error = {0};
    dunlin_model_sizes sizes = DUNLIN_MODEL_SIZES_INIT;
    cr_expect_eq(dunlin_model_open(path, NULL, &again, &error), DUNLIN_UNSUPPORTED);
    cr_expect(strstr(error.text, "3 outputs, not 1 (the logits), and none is named") != NULL, "%s",
              error.text);
    static const char *const bad[] = {"class,none", "class,class", "", "class,", "clas"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        sizes.outputs = bad[i];
        cr_expect_eq(dunlin_model_open_sized(path, &sizes, NULL, &again, &error),
                     DUNLIN_UNSUPPORTED, "'%s'", bad[i]);
        cr_expect(strstr(error.text, i == 1 ? "named twice" : "none of the graph's 3") != NULL,
                  "'%s': %s", bad[i], error.text);
    }
    sizes.outputs = "class,value,tags";
    cr_assert_eq(dunlin_model_open_sized(path, &sizes, NULL, &again, &error), DUNLIN_OK, "%s",
                 error.text);
    expect_outputs_of(again);
    dunlin_trainer *second = test_create(again, &options);
    cr_assert_eq(dunlin_trainer_predict_output(second, &data.source, 2, 0, OUTPUTS_N, written[1]),
                 DUNLIN_OK);
    cr_expect(memcmp(written[0], written[1], sizeof written[0]) == 0);
    dunlin_trainer_destroy(second);
    dunlin_model_destroy(again);
    sizes.outputs = "tags";
    cr_assert_eq(dunlin_model_open_sized(path, &sizes, NULL, &again, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_eq(dunlin_model_count_outputs(again), 1);
    cr_expect_eq(dunlin_model_n_outputs(again), OUTPUTS_TAGS);
    cr_expect_eq(dunlin_model_n_parameters(again), 6); /* trunk, to_value, to_tags */
    dunlin_model_destroy(again);
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(outputs, a_predictor_gives_the_first)
{
    outputs_open(&data, false);
    dunlin_model *model = outputs_model(true, 3);
    const dunlin_trainer_options options = outputs_options(all_losses);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_predictor *predictor = NULL;
    dunlin_error error = {0};
    float rows[2][OUTPUTS_N * OUTPUTS_CLASSES];
    int64_t n = 0;
    float *weights = test_weights(trainer, &n);
    cr_assert_eq(dunlin_trainer_predict(trainer, &data.source, 0, OUTPUTS_N, rows[0]), DUNLIN_OK);
    cr_assert_eq(dunlin_predictor_create(model, NULL, &predictor, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin_predictor_set_weights(predictor, DUNLIN_WEIGHTS_ALL, 0, n, weights, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin_predictor_predict(predictor, &data.source, 0, OUTPUTS_N, rows[1], &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect(memcmp(rows[0], rows[1], sizeof rows[0]) == 0);
    free(weights);
    dunlin_predictor_destroy(predictor);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* --- one answer for all: auxiliary heads --- */

static dunlin_model *auxiliary(int32_t n)
{
    const dunlin_shape image = {3, {2, 8, 8}};
    dunlin_builder *b = NULL;
    dunlin_model *model = NULL;
    dunlin_value ends[2] = {-1, -1};
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(b, "x", &image);
    x = dunlin_builder_batch_norm(b, "bn1", dunlin_builder_conv(b, "conv1", x, 4, 3, NULL));
    x = dunlin_builder_relu(b, x);
    const dunlin_value middle = x;
    x = dunlin_builder_batch_norm(b, "bn2", dunlin_builder_conv(b, "conv2", x, 6, 3, NULL));
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, dunlin_builder_relu(b, x)));
    ends[0] = dunlin_builder_dense(b, "head", x, 4);
    if (n > 1) {
        x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, middle));
        ends[1] = dunlin_builder_dense(b, "aux", x, 4);
    }
    cr_assert_eq(dunlin_builder_finish_outputs(b, ends, NULL, n, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    return model;
}

Test(outputs, auxiliary_heads_take_the_same_label)
{
    dunlin_model *model = auxiliary(2);
    dunlin_trainer_options options = test_options(8);
    dunlin_output_loss aux = DUNLIN_OUTPUT_LOSS_INIT;
    aux.name = "aux/out";
    aux.weight = 0.3F;
    options.outputs = &aux;
    options.n_outputs = 1;
    int64_t n = 0;
    float *with = test_train(model, &options, 3, &n);
    options.budget_bytes = 1;
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_BUDGET);
    options.budget_bytes = error.needed_bytes;
    float *least = test_train(model, &options, 3, &n);
    cr_expect(test_same_bits(with, least, n));
    options.budget_bytes = 0;
    aux.weight = 0.0F;
    float *without = test_train(model, &options, 3, &n);
    cr_expect(!test_same_bits(with, without, n));
    free(least);
    free(without);
    free(with);
    dunlin_model_destroy(model);
}
