/*
 * test_outputs.c - models with several outputs, each with a loss and a weight: gradients against
 * differences of the loss, plans, metrics, predictions, sources and options that do not fit.
 */
#include "random.h"
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

#define N 21
#define FEATURES 6
#define CLASSES 7
#define VALUES 3
#define TAGS 5

/* A class, numbers that are read on, and tags of what reads them. */
static dunlin_model *three_outputs(bool has_softmax, int32_t n)
{
    static const char *const names[3] = {"class", "value", "tags"};
    const dunlin_shape row = {1, {FEATURES}};
    dunlin_builder *b = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(b, "x", &row);
    x = dunlin_builder_tanh(b, dunlin_builder_dense(b, "trunk", x, 8));
    dunlin_value ends[3];
    ends[0] = dunlin_builder_dense(b, "to_class", x, CLASSES);
    ends[0] = has_softmax ? dunlin_builder_softmax(b, ends[0]) : ends[0];
    if (n > 1) {
        ends[1] = dunlin_builder_dense(b, "to_value", x, VALUES);
        ends[2] = dunlin_builder_dense(b, "to_tags", dunlin_builder_tanh(b, ends[1]), TAGS);
        ends[2] = has_softmax ? dunlin_builder_sigmoid(b, ends[2]) : ends[2];
    }
    cr_assert_eq(dunlin_builder_finish_outputs(b, ends, names, n, &model, &error), DUNLIN_OK, "%s",
                 error.text);
    return model;
}

typedef struct answers_data {
    float x[N][FEATURES];
    int32_t labels[N];
    float values[N][VALUES];
    float tags[N][TAGS];
    float weights[N];
    dunlin_source_input input;
    dunlin_source_answer answers[3];
    dunlin_arrays_view view;
    dunlin_source source;
} answers_data;

static answers_data data;

static void open_data(bool has_weights)
{
    dunlin_error error = {0};
    uint64_t rng = 11;
    data = (answers_data){.labels = {0}};
    test_random_fill(data.x[0], N * FEATURES, -1.0, 1.0, &rng);
    test_random_fill(data.values[0], N * VALUES, -1.0, 1.0, &rng);
    for (int i = 0; i < N; i++) {
        data.labels[i] = (int32_t)test_random_below(&rng, CLASSES);
        data.weights[i] = i % 4 == 0 ? 0.0F : 0.5F * (float)(i % 4);
        for (int k = 0; k < TAGS; k++) {
            data.tags[i][k] = (float)test_random_below(&rng, 2);
        }
    }
    data.input = (dunlin_source_input){
        .name = "x", .values = data.x, .n_elements = FEATURES, .dtype = DUNLIN_F32};
    data.answers[0] = (dunlin_source_answer){.name = "class", .values = data.labels};
    data.answers[1] =
        (dunlin_source_answer){.name = "value", .values = data.values, .n_targets = VALUES};
    data.answers[2] = (dunlin_source_answer){.values = data.tags, .n_targets = TAGS};
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.n = N;
    arrays.inputs = &data.input;
    arrays.n_inputs = 1;
    arrays.answers = data.answers;
    arrays.n_answers = 3;
    arrays.weights = has_weights ? data.weights : NULL;
    cr_assert_eq(dunlin_source_from_arrays(&arrays, &data.view, &data.source, &error), DUNLIN_OK,
                 "%s", error.text);
}

/* Cross-entropy, squared error, binary cross-entropy. */
static void fill_losses(dunlin_output_loss losses[3], float first, float second, float third)
{
    const float weights[3] = {first, second, third};
    static const char *const names[3] = {"class", "value", "tags"};
    static const dunlin_loss kinds[3] = {DUNLIN_LOSS_CROSS_ENTROPY, DUNLIN_LOSS_MSE,
                                         DUNLIN_LOSS_BCE};
    for (int i = 0; i < 3; i++) {
        losses[i] = (dunlin_output_loss)DUNLIN_OUTPUT_LOSS_INIT;
        losses[i].name = names[i];
        losses[i].loss = kinds[i];
        losses[i].weight = weights[i];
    }
}

static dunlin_output_loss all_losses[3];

static dunlin_trainer_options three_options(void)
{
    dunlin_trainer_options options = test_options(8);
    fill_losses(all_losses, 1.0F, 0.5F, 2.0F);
    all_losses[0].label_smoothing = 0.125F;
    options.outputs = all_losses;
    options.n_outputs = 3;
    return options;
}

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
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &data.source, 0, N, &metrics), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
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
        open_data(form % 2 == 1);
        dunlin_model *model = three_outputs(form >= 2, 3);
        dunlin_trainer_options options = three_options();
        options.batch = N;
        options.lr = 0.0F;
        options.momentum = 0.0F;
        options.weight_decay = 0.0F;
        options.gradient_fn = keep_gradient;
        options.gradient_ctx = &seen;
        dunlin_trainer *trainer = test_create(model, &options);
        int64_t indices[N];
        for (int64_t i = 0; i < N; i++) {
            indices[i] = i;
        }
        dunlin_metrics metrics;
        cr_assert_eq(dunlin_trainer_step(trainer, &data.source, indices, N, &metrics), DUNLIN_OK,
                     "%s", dunlin_trainer_last_error(trainer)->text);
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
    open_data(true);
    dunlin_model *model = three_outputs(true, 3);
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        dunlin_trainer_options options = three_options();
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
    open_data(false);
    dunlin_model *three = three_outputs(false, 3);
    dunlin_model *one = three_outputs(false, 1);
    dunlin_trainer_options options = three_options();
    fill_losses(all_losses, 1.0F, 0.0F, 0.0F);
    options.weight_decay = 0.0F;
    dunlin_trainer *a = test_create(three, &options);
    options.n_outputs = 1;
    dunlin_trainer *b = test_create(one, &options);
    float before[VALUES * 8];
    float after[VALUES * 8];
    float trunks[3][8 * FEATURES];
    get(a, "trunk.weight", trunks[0], 8 * FEATURES);
    get(a, "to_value.weight", before, VALUES * 8);
    const int64_t indices[6] = {5, 4, 3, 2, 1, 0};
    cr_assert_eq(dunlin_trainer_step(a, &data.source, indices, 6, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(a)->text);
    cr_assert_eq(dunlin_trainer_step(b, &data.source, indices, 6, NULL), DUNLIN_MISMATCH);
    test_expect_text(b, "the source has answers for 3 outputs; the model has 1");
    data.source.n_answers = 1;
    data.view.n_answers = 1;
    cr_assert_eq(dunlin_trainer_step(b, &data.source, indices, 6, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(b)->text);
    get(a, "to_value.weight", after, VALUES * 8);
    cr_expect(memcmp(before, after, sizeof before) == 0);
    get(a, "trunk.weight", trunks[1], 8 * FEATURES);
    get(b, "trunk.weight", trunks[2], 8 * FEATURES);
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
    open_data(true);
    dunlin_model *model = three_outputs(false, 3);
    const dunlin_trainer_options options = three_options();
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_metrics all;
    dunlin_metrics each[3];
    cr_assert_eq(dunlin_trainer_get_output_metrics(trainer, 2, &each[2]), DUNLIN_OK);
    cr_expect_eq(each[2].n_examples, 0);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &data.source, 0, N, &all), DUNLIN_OK);
    float values[N * VALUES];
    float tags[N * TAGS];
    cr_assert_eq(dunlin_trainer_predict_output(trainer, &data.source, 1, 0, N, values), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_predict_output(trainer, &data.source, 2, 0, N, tags), DUNLIN_OK);
    for (int32_t i = 0; i < 3; i++) {
        cr_assert_eq(dunlin_trainer_get_output_metrics(trainer, i, &each[i]), DUNLIN_OK);
        cr_expect_eq(each[i].n_examples, N);
        cr_expect_eq(each[i].n_counted, N - (N + 3) / 4);
    }
    cr_expect_float_eq(all.loss, each[0].loss + 0.5 * each[1].loss + 2.0 * each[2].loss, 1e-9);
    cr_expect_eq(all.accuracy, each[0].accuracy);
    cr_expect_gt(each[0].top5_accuracy, 0.0);
    double squares = 0.0;
    double right = 0.0;
    double weight = 0.0;
    double entropy = 0.0;
    for (int i = 0; i < N; i++) {
        const double w = (double)data.weights[i];
        weight += w;
        for (int k = 0; k < VALUES; k++) {
            const double d = (double)values[i * VALUES + k] - (double)data.values[i][k];
            squares += w * d * d / VALUES;
        }
        for (int k = 0; k < TAGS; k++) {
            const double y = (double)tags[i * TAGS + k];
            const double t = (double)data.tags[i][k];
            entropy += w * (log1p(exp(y)) - t * y) / TAGS;
            right += w > 0.0 && (y > 0.0) == (t > 0.5) ? 1.0 : 0.0;
        }
    }
    cr_expect_float_eq(each[1].loss, squares / weight, 1e-6);
    cr_expect_float_eq(each[2].loss, entropy / weight, 1e-6);
    cr_expect_float_eq(each[2].accuracy, right / (double)(each[2].n_counted * TAGS), 1e-9);
    cr_expect_eq(dunlin_trainer_get_output_metrics(trainer, 3, &all), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_get_output_metrics(trainer, -1, &all), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_get_output_metrics(trainer, 0, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_predict_output(trainer, &data.source, 3, 0, N, values),
                 DUNLIN_ARGUMENT);
    test_expect_text(trainer, "output 3 is not one of the model's 3");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

static void expect_outputs_of(const dunlin_model *model)
{
    static const char *const names[3] = {"class", "value", "tags"};
    static const int64_t widths[3] = {CLASSES, VALUES, TAGS};
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
    cr_expect_eq(dunlin_model_n_outputs(model), CLASSES);
}

/* What is written has all outputs, and each may be chosen. */
Test(outputs, a_file_has_them_by_name)
{
    open_data(false);
    dunlin_model *model = three_outputs(true, 3);
    expect_outputs_of(model);
    const dunlin_trainer_options options = three_options();
    dunlin_trainer *trainer = test_create(model, &options);
    char *path = test_temp_path("outputs.onnx");
    float written[2][N * TAGS];
    cr_assert_eq(dunlin_trainer_predict_output(trainer, &data.source, 2, 0, N, written[0]),
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
    cr_assert_eq(dunlin_trainer_predict_output(second, &data.source, 2, 0, N, written[1]),
                 DUNLIN_OK);
    cr_expect(memcmp(written[0], written[1], sizeof written[0]) == 0);
    dunlin_trainer_destroy(second);
    dunlin_model_destroy(again);
    sizes.outputs = "tags";
    cr_assert_eq(dunlin_model_open_sized(path, &sizes, NULL, &again, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_eq(dunlin_model_count_outputs(again), 1);
    cr_expect_eq(dunlin_model_n_outputs(again), TAGS);
    cr_expect_eq(dunlin_model_n_parameters(again), 6); /* trunk, to_value, to_tags */
    dunlin_model_destroy(again);
    (void)unlink(path);
    free(path);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(outputs, a_predictor_gives_the_first)
{
    open_data(false);
    dunlin_model *model = three_outputs(true, 3);
    const dunlin_trainer_options options = three_options();
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_predictor *predictor = NULL;
    dunlin_error error = {0};
    float rows[2][N * CLASSES];
    int64_t n = 0;
    float *weights = test_weights(trainer, &n);
    cr_assert_eq(dunlin_trainer_predict(trainer, &data.source, 0, N, rows[0]), DUNLIN_OK);
    cr_assert_eq(dunlin_predictor_create(model, NULL, &predictor, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin_predictor_set_weights(predictor, DUNLIN_WEIGHTS_ALL, 0, n, weights, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin_predictor_predict(predictor, &data.source, 0, N, rows[1], &error),
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

/* --- what does not fit --- */

static void expect_options_refused(const dunlin_model *model, const dunlin_trainer_options *options,
                                   dunlin_status status, const char *text)
{
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_trainer_create(model, options, &trainer, &error), status, "%s: %s", text,
                 error.text);
    cr_expect(strstr(error.text, text) != NULL, "%s: %s", text, error.text);
}

Test(outputs, bad_losses_are_refused)
{
    dunlin_model *model = three_outputs(false, 3);
    dunlin_trainer_options options = three_options();
    all_losses[1].name = "valu";
    expect_options_refused(model, &options, DUNLIN_ARGUMENT,
                           "\"valu\" is none of the model's 3 outputs");
    all_losses[1].name = NULL;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "is none of");
    all_losses[1].name = "class";
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "named twice");
    all_losses[1].name = "value";
    all_losses[1].weight = -1.0F;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "\"value\": weight is -1");
    all_losses[1].weight = NAN;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "\"value\": weight is");
    all_losses[1].weight = 1.0F;
    all_losses[1].label_smoothing = 0.5F;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "label_smoothing is 0.5");
    all_losses[1].label_smoothing = 0.0F;
    all_losses[2].loss = (dunlin_loss)17;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "loss is 17");
    fill_losses(all_losses, 0.0F, 0.0F, 0.0F);
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "weights of all 3 outputs are 0");
    options = three_options();
    options.n_outputs = 0;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "n_outputs is 0");
    options.n_outputs = -1;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "n_outputs is -1");
    options = three_options();
    options.has_ignore_label = true;
    expect_options_refused(model, &options, DUNLIN_UNSUPPORTED, "has_ignore_label");
    all_losses[0].struct_size = 0;
    options.has_ignore_label = false;
    expect_options_refused(model, &options, DUNLIN_ARGUMENT, "dunlin_output_loss");
    options = test_options(8);
    options.precision = "int8";
    options.lr = 0.01F;
    options.momentum = 0.0F;
    options.weight_decay = 0.0F;
    dunlin_trainer *trainer = NULL;
    cr_expect_neq(dunlin_trainer_create(model, &options, &trainer, NULL), DUNLIN_OK);
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

Test(outputs, answers_that_do_not_fit_are_refused)
{
    open_data(false);
    dunlin_model *model = three_outputs(false, 3);
    const dunlin_trainer_options options = three_options();
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_source source = data.source;
    source.n_answers = 2;
    expect_refused(trainer, &source, DUNLIN_MISMATCH,
                   "the source has answers for 2 outputs; the model has 3");
    source = data.source;
    data.answers[1].name = "tags";
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "answer 1 of the source is called \"tags\"");
    data.answers[1].name = NULL;
    data.answers[1].n_targets = 4;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "output \"value\": the source has 4 targets");
    data.answers[1].n_targets = 0;
    expect_refused(trainer, &source, DUNLIN_ARGUMENT,
                   "output \"value\": the source has no targets");
    data.answers[1].n_targets = VALUES;
    data.answers[0].n_targets = CLASSES;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "the loss is over labels");
    data.answers[0].n_targets = 0;
    data.answers[0].n_labels = 2;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "output \"class\": the source has 2 labels");
    data.answers[0].n_labels = 0;
    source.answers = NULL;
    source.n_answers = 0;
    expect_refused(trainer, &source, DUNLIN_MISMATCH, "one answer for all outputs");
    source = data.source;
    source.read_arrays_fn = NULL;
    expect_refused(trainer, &source, DUNLIN_ARGUMENT, "no read_fn");
    data.labels[1] = CLASSES;
    expect_refused(trainer, &data.source, DUNLIN_DATA, "label 7 of example 1");
    data.labels[1] = 0;
    data.values[2][1] = NAN;
    expect_refused(trainer, &data.source, DUNLIN_DATA, "target 1 of example 2");
    data.values[2][1] = 0.0F;
    data.tags[0][4] = 1.5F;
    expect_refused(trainer, &data.source, DUNLIN_DATA, "target 4 of example 0 is 1.5");
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

Test(outputs, bad_arrays_of_answers_are_refused)
{
    open_data(false);
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.n = N;
    arrays.inputs = &data.input;
    arrays.n_inputs = 1;
    arrays.answers = data.answers;
    expect_arrays_refused(&arrays, DUNLIN_LIMIT, "0 answers: the limits are 1 and 16");
    arrays.n_answers = 3;
    arrays.labels = data.labels;
    expect_arrays_refused(&arrays, DUNLIN_ARGUMENT, "answers go with inputs");
    arrays.labels = NULL;
    data.answers[1].values = NULL;
    expect_arrays_refused(&arrays, DUNLIN_ARGUMENT, "answer 1");
    data.answers[1].values = data.values;
    data.answers[1].n_targets = INT64_MAX;
    expect_arrays_refused(&arrays, DUNLIN_OVERFLOW, "address space");
    data.answers[1].n_targets = -1;
    expect_arrays_refused(&arrays, DUNLIN_ARGUMENT, "-1 targets");
}

Test(outputs, the_builder_refuses_outputs_that_cannot_be)
{
    const dunlin_shape row = {1, {3}};
    dunlin_builder *b = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    const char *const empty[2] = {"", NULL};
    for (int form = 0; form < 5; form++) {
        cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
        const dunlin_value x = dunlin_builder_input(b, "x", &row);
        const dunlin_value y = dunlin_builder_dense(b, "fc", x, 4);
        const dunlin_value two[2] = {y, form == 1 ? 99 : y};
        const int32_t n = form == 2 ? 0 : form == 3 ? DUNLIN_MODEL_MAX_OUTPUTS + 1 : 2;
        const dunlin_status status =
            dunlin_builder_finish_outputs(b, two, form == 4 ? empty : NULL, n, &model, &error);
        cr_expect_eq(status, form == 0 ? DUNLIN_MODEL : DUNLIN_ARGUMENT, "%d: %s", form,
                     error.text);
        cr_expect_null(model);
    }
    cr_assert_eq(dunlin_builder_create(NULL, &b), DUNLIN_OK);
    cr_expect_eq(dunlin_builder_finish_outputs(b, NULL, NULL, 1, &model, &error), DUNLIN_ARGUMENT);
}
