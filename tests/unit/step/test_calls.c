/*
 * test_calls.c - steps, evaluation and prediction: what they compute, and that a failure leaves the
 * weights as they were.
 */
#include "net/net.h"
#include "step/step_support.h"

#include <dunlin/tools.h>
#include <dunlin/trainer_experimental.h>

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t first_eight[] = {0, 1, 2, 3, 4, 5, 6, 7};

Test(calls, the_loss_falls)
{
    dunlin_model *model = test_small_model(true);
    const dunlin_trainer_options options = test_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    test_source source;
    test_source_init(&source, model, 64, DUNLIN_U8);
    dunlin_metrics before;
    dunlin_metrics after;
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 8;
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 64, &before), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 64, &after), DUNLIN_OK);
    cr_expect_lt(after.loss, before.loss / 2);
    cr_expect_gt(after.accuracy, 0.9);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* One dense layer is small enough to compute steps by hand, in double. */
typedef struct one_layer {
    double w[15]; /* 3 x 4 weights, then 3 biases */
    double momentum[15];
} one_layer;

static dunlin_status read_four(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                               int32_t *out_y)
{
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < 4; k++) {
            ((float *)out_x)[i * 4 + k] = (float)(((int)indices[i] * 7 + k * 3) % 5) - 2.0F;
        }
        out_y[i] = (int32_t)(indices[i] % 3);
    }
    return DUNLIN_OK;
}

/* The gradient of the mean loss over examples 0 and 1; returns that loss. */
static double gradient_by_hand(const one_layer *layer, double *grad)
{
    double loss = 0.0;
    memset(grad, 0, sizeof layer->w);
    for (int64_t i = 0; i < 2; i++) {
        float x[4];
        int32_t label = 0;
        double z[3];
        double sum = 0.0;
        cr_assert_eq(read_four(NULL, &i, 1, x, &label), DUNLIN_OK);
        for (int o = 0; o < 3; o++) {
            z[o] = layer->w[12 + o];
            for (int k = 0; k < 4; k++) {
                z[o] += layer->w[o * 4 + k] * (double)x[k];
            }
            sum += exp(z[o]);
        }
        loss += (log(sum) - z[label]) / 2.0;
        for (int o = 0; o < 3; o++) {
            const double d = (exp(z[o]) / sum - (o == label ? 1.0 : 0.0)) / 2.0;
            grad[12 + o] += d;
            for (int k = 0; k < 4; k++) {
                grad[o * 4 + k] += d * (double)x[k];
            }
        }
    }
    return loss;
}

/* SGD as PyTorch defines it. */
static double step_by_hand(one_layer *layer, const dunlin_trainer_options *options)
{
    double grad[15];
    const double loss = gradient_by_hand(layer, grad);
    for (int i = 0; i < 15; i++) {
        const double g = grad[i] + (double)options->weight_decay * layer->w[i];
        layer->momentum[i] = (double)options->momentum * layer->momentum[i] + g;
        const double direction = options->is_nesterov
                                     ? g + (double)options->momentum * layer->momentum[i]
                                     : layer->momentum[i];
        layer->w[i] -= (double)options->lr * direction;
    }
    return loss;
}

static void check_by_hand(float momentum, bool is_nesterov)
{
    dunlin_model *model = NULL;
    dunlin_builder *builder = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value end = dunlin_builder_input(builder, "x", &(dunlin_shape){1, {4}});
    end = dunlin_builder_dense(builder, "fc", end, 3);
    cr_assert_eq(dunlin_builder_finish(builder, end, &model, NULL), DUNLIN_OK);
    dunlin_trainer_options options = test_options(2);
    options.momentum = momentum;
    options.is_nesterov = is_nesterov;
    options.weight_decay = 0.01F;
    options.lr = 0.2F;
    dunlin_trainer *trainer = test_create(model, &options);
    int64_t n = 0;
    float *weights = test_weights(trainer, &n);
    cr_assert_eq(n, 15);
    one_layer layer = {.w = {0.0}};
    for (int i = 0; i < 15; i++) {
        layer.w[i] = (double)weights[i];
    }
    free(weights);
    const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                  .read_fn = read_four,
                                  .n_examples = 2,
                                  .dtype = DUNLIN_F32};
    for (int step = 0; step < 4; step++) {
        dunlin_metrics metrics;
        cr_assert_eq(dunlin_trainer_step(trainer, &source, first_eight, 2, &metrics), DUNLIN_OK);
        const double loss = step_by_hand(&layer, &options);
        cr_expect_float_eq(metrics.loss, loss, 1e-5);
    }
    weights = test_weights(trainer, NULL);
    for (int i = 0; i < 15; i++) {
        cr_expect_float_eq((double)weights[i], layer.w[i], 1e-5);
    }
    free(weights);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(calls, steps_by_hand)
{
    check_by_hand(0.0F, false);
    check_by_hand(0.9F, false);
    check_by_hand(0.9F, true);
}

static double loss_at(dunlin_trainer *trainer, const dunlin_source *source, float *weights,
                      int64_t n, int64_t index, float value)
{
    const float before = weights[index];
    dunlin_metrics metrics;
    weights[index] = value;
    cr_assert_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, n, weights), DUNLIN_OK);
    weights[index] = before;
    cr_assert_eq(dunlin_trainer_evaluate(trainer, source, 0, 8, &metrics), DUNLIN_OK);
    return metrics.loss;
}

/*
 * A value with two readers, and a weight with two: gradients are sums. One step with rate 1 gives
 * the gradient, central differences of the evaluation the truth.
 */
Test(calls, gradients_of_what_is_shared_are_sums)
{
    dunlin_builder *builder = NULL;
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &(dunlin_shape){1, {6}});
    x = dunlin_builder_dense(builder, "first", x, 5);
    dunlin_value y = dunlin_builder_dense(builder, "second", x, 5);
    y = dunlin_builder_dense(builder, "third", y, 5);
    y = dunlin_builder_add(builder, x, y);
    y = dunlin_builder_dense(builder, "last", y, 3);
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_builder_finish(builder, y, &model, NULL), DUNLIN_OK);
    dunlin_net *net = &model->net;
    memcpy(net->nodes[2].params, net->nodes[1].params, sizeof net->nodes[2].params);
    dunlin_trainer_options options = test_options(8);
    options.momentum = 0.0F;
    options.weight_decay = 0.0F;
    options.lr = 1.0F;
    test_source source;
    test_source_init(&source, model, 8, DUNLIN_U8);
    dunlin_trainer *trainer = test_create(model, &options);
    int64_t n = 0;
    float *weights = test_weights(trainer, &n);
    cr_assert_eq(dunlin_trainer_step(trainer, &source.source, first_eight, 8, NULL), DUNLIN_OK);
    float *stepped = test_weights(trainer, NULL);
    for (int64_t i = 0; i < n; i++) {
        const double up = loss_at(trainer, &source.source, weights, n, i, weights[i] + 0.01F);
        const double down = loss_at(trainer, &source.source, weights, n, i, weights[i] - 0.01F);
        const double expected = (up - down) / 0.02;
        const double gradient = (double)weights[i] - (double)stepped[i];
        cr_expect(fabs(gradient - expected) < 1e-3 + 5e-3 * fabs(expected),
                  "element %lld: %g, by differences %g", (long long)i, gradient, expected);
    }
    free(weights);
    free(stepped);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* Runs one step that must fail so, and checks that not a bit of the weights has changed. */
static void expect_step_fails(const dunlin_model *model, const dunlin_trainer_options *options,
                              test_source *source, dunlin_status status, const char *text)
{
    dunlin_trainer *trainer = test_create(model, options);
    int64_t n = 0;
    float *before = test_weights(trainer, &n);
    cr_expect_eq(dunlin_trainer_step(trainer, &source->source, first_eight, 8, NULL), status);
    const dunlin_error *error = dunlin_trainer_last_error(trainer);
    cr_expect_eq(error->status, status);
    cr_expect_not_null(strstr(error->text, text), "\"%s\" lacks \"%s\"", error->text, text);
    float *after = test_weights(trainer, NULL);
    cr_expect(test_same_bits(before, after, n), "%s: the weights have changed", text);
    /* And the next step works. */
    source->fail_at_read = -1;
    source->nan_index = -1;
    source->bad_label = -1;
    cr_expect_eq(dunlin_trainer_step(trainer, &source->source, first_eight, 8, NULL), DUNLIN_OK);
    free(before);
    free(after);
    dunlin_trainer_destroy(trainer);
}

/* For the whole batch, and in slices where there is no batch norm. */
static void check_failures(bool has_batch_norm, int64_t micro_batch)
{
    dunlin_model *model = test_small_model(has_batch_norm);
    dunlin_trainer_options options = test_options(8);
    if (micro_batch > 0) {
        options.policy = DUNLIN_POLICY_MICROBATCH;
        options.micro_batch = micro_batch;
    }
    test_source source;
    test_source_init(&source, model, 8, DUNLIN_F32);
    source.nan_index = 7;
    expect_step_fails(model, &options, &source, DUNLIN_NUMERIC, "not finite");
    test_source_init(&source, model, 8, DUNLIN_F32);
    source.fail_at_read = 6;
    expect_step_fails(model, &options, &source, DUNLIN_CALLBACK, "IO");
    test_source_init(&source, model, 8, DUNLIN_U8);
    source.bad_label = 4;
    expect_step_fails(model, &options, &source, DUNLIN_DATA, "label 4");
    dunlin_model_destroy(model);
}

Test(calls, a_failed_step_leaves_the_weights_alone)
{
    check_failures(false, 0);
    check_failures(false, 3);
    check_failures(true, 0);
}

/* At the least budget too, where examples might be asked for again: wherever the source fails, the
 * weights are as they were, and if it does not, the step is done. */
Test(calls, a_source_that_fails_late_changes_nothing)
{
    dunlin_model *model = NULL;
    cr_assert_eq(dunlin_model_from_zoo("cnn_bn", NULL, NULL, &model, NULL), DUNLIN_OK);
    dunlin_trainer_options options = test_options(16);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    options.budget_bytes = report.least_budget_bytes;
    int64_t indices[16];
    for (int64_t i = 0; i < 16; i++) {
        indices[i] = i;
    }
    for (int64_t n_good = 0; n_good <= 64; n_good += 8) {
        dunlin_trainer *trainer = test_create(model, &options);
        test_source source;
        test_source_init(&source, model, 16, DUNLIN_U8);
        source.fail_at_read = n_good;
        int64_t n = 0;
        float *before = test_weights(trainer, &n);
        const dunlin_status status =
            dunlin_trainer_step(trainer, &source.source, indices, 16, NULL);
        float *after = test_weights(trainer, &n);
        cr_expect(status == DUNLIN_OK || status == DUNLIN_CALLBACK);
        cr_expect_eq(test_same_bits(before, after, n), status != DUNLIN_OK,
                     "the source fails after %lld examples", (long long)n_good);
        free(before);
        free(after);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

Test(calls, predictions_match_the_evaluation)
{
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = test_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    test_source source;
    test_source_init(&source, model, 30, DUNLIN_U8);
    float logits[25 * 4];
    dunlin_metrics metrics;
    cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 5, 25, logits), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 5, 25, &metrics), DUNLIN_OK);
    double loss = 0.0;
    int n_right = 0;
    for (int64_t i = 0; i < 25; i++) {
        uint8_t x[2 * 9 * 9];
        int32_t label = 0;
        const int64_t index = 5 + i;
        cr_assert_eq(source.source.read_fn(source.source.ctx, &index, 1, x, &label), DUNLIN_OK);
        double sum = 0.0;
        int best = 0;
        for (int c = 0; c < 4; c++) {
            sum += exp((double)logits[i * 4 + c]);
            best = logits[i * 4 + c] > logits[i * 4 + best] ? c : best;
        }
        loss += log(sum) - (double)logits[i * 4 + label];
        n_right += best == label ? 1 : 0;
    }
    cr_expect_float_eq(metrics.loss, loss / 25, 1e-5);
    cr_expect_float_eq(metrics.accuracy, n_right / 25.0, 1e-12);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(calls, labels_do_not_matter_to_predictions)
{
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = test_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    test_source source;
    test_source_init(&source, model, 8, DUNLIN_U8);
    source.bad_label = 1 << 30;
    float logits[8 * 4];
    cr_expect_eq(dunlin_trainer_predict(trainer, &source.source, 0, 8, logits), DUNLIN_OK);
    cr_expect_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 8, NULL), DUNLIN_DATA);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* u8 and f32 sources with a scale, a mean and a deviation per channel give the same steps. */
Test(calls, normalisation_of_the_input)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = test_options(4);
    static const float mean[] = {0.25F, 0.5F};
    static const float deviation[] = {0.5F, 2.0F};
    float logits[3][4 * 4];
    for (int i = 0; i < 3; i++) {
        test_source source;
        test_source_init(&source, model, 4, i == 0 ? DUNLIN_U8 : DUNLIN_F32);
        if (i < 2) {
            source.source.mean = mean;
            source.source.std = deviation;
        }
        dunlin_trainer *trainer = test_create(model, &options);
        cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, 4, logits[i]), DUNLIN_OK);
        dunlin_trainer_destroy(trainer);
    }
    cr_expect(test_same_bits(logits[0], logits[1], 16));
    cr_expect_not(test_same_bits(logits[1], logits[2], 16));
    dunlin_model_destroy(model);
}

Test(calls, wrong_arguments)
{
    dunlin_model *model = test_small_model(false);
    const dunlin_trainer_options options = test_options(8);
    dunlin_trainer *trainer = test_create(model, &options);
    test_source source;
    test_source_init(&source, model, 8, DUNLIN_U8);
    const int64_t outside[] = {8};
    float logits[4];
    cr_expect_eq(dunlin_trainer_step(trainer, NULL, first_eight, 8, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_step(trainer, &source.source, first_eight, 0, NULL),
                 DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_step(trainer, &source.source, first_eight, 9, NULL),
                 DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_step(trainer, &source.source, outside, 1, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_evaluate(trainer, &source.source, 1, 8, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_predict(trainer, &source.source, -1, 1, logits), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_predict(trainer, &source.source, 0, 1, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_set_lr(trainer, -1.0F), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_set_lr(trainer, NAN), DUNLIN_ARGUMENT);
    source.source.dtype = DUNLIN_I64;
    cr_expect_eq(dunlin_trainer_step(trainer, &source.source, first_eight, 8, NULL),
                 DUNLIN_ARGUMENT);
    cr_expect_eq(source.n_calls, 0);
    dunlin_trainer_destroy(trainer);
    dunlin_trainer_destroy(NULL);
    dunlin_model_destroy(model);
}

typedef struct wrong_options {
    const char *text;
    dunlin_trainer_options options;
    dunlin_status status;
} wrong_options;

Test(calls, wrong_options)
{
    dunlin_model *model = test_small_model(false);
    const size_t size = sizeof(dunlin_trainer_options);
    const wrong_options cases[] = {
        {"size", {.batch = 4}, DUNLIN_ARGUMENT},
        {"batch", {.struct_size = size, .batch = -1}, DUNLIN_ARGUMENT},
        {"micro_batch", {.struct_size = size, .micro_batch = -1}, DUNLIN_ARGUMENT},
        {"n_threads", {.struct_size = size, .n_threads = -1}, DUNLIN_ARGUMENT},
        {"lr", {.struct_size = size, .lr = -0.1F}, DUNLIN_ARGUMENT},
        {"momentum", {.struct_size = size, .momentum = 1.0F}, DUNLIN_ARGUMENT},
        {"weight_decay", {.struct_size = size, .weight_decay = INFINITY}, DUNLIN_ARGUMENT},
        {"is_nesterov", {.struct_size = size, .is_nesterov = true}, DUNLIN_ARGUMENT},
        {"policy",
         {.struct_size = size, .policy = (dunlin_policy)(DUNLIN_POLICY_CAPUCHIN + 1)},
         DUNLIN_ARGUMENT},
        {"n_gradient_slots", {.struct_size = size, .n_gradient_slots = 2}, DUNLIN_ARGUMENT},
        {"instruction set", {.struct_size = size, .isa = "mmx"}, DUNLIN_UNSUPPORTED},
        {"no parameter", {.struct_size = size, .frozen_prefixes = "body.,typo"}, DUNLIN_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_trainer *trainer = NULL;
        dunlin_error error = {.status = DUNLIN_OK};
        cr_expect_eq(dunlin_trainer_create(model, &cases[i].options, &trainer, &error),
                     cases[i].status, "%s: %s", cases[i].text, error.text);
        cr_expect_null(trainer);
        cr_expect_not_null(strstr(error.text, cases[i].text), "\"%s\" lacks \"%s\"", error.text,
                           cases[i].text);
    }
    /* An older program knows a shorter struct. */
    dunlin_trainer_options old = test_options(4);
    old.struct_size = offsetof(dunlin_trainer_options, gradient_fn);
    old.n_gradient_slots = 99;
    dunlin_trainer_destroy(test_create(model, &old));
    dunlin_model_destroy(model);
}

static void keep_line(void *ctx, const char *text)
{
    *(size_t *)ctx += strlen(text);
}

Test(calls, the_plan_as_text_and_drawing)
{
    dunlin_model *model = test_small_model(true);
    const dunlin_trainer_options options = test_options(4);
    dunlin_trainer *trainer = test_create(model, &options);
    size_t n_text = 0;
    size_t n_drawing = 0;
    dunlin_trainer_dump_plan(trainer, keep_line, &n_text);
    dunlin_trainer_draw_plan(trainer, NULL, keep_line, &n_drawing);
    cr_expect_gt(n_text, 1000);
    cr_expect_gt(n_drawing, 1000);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* --- subnormal numbers --- */

typedef struct tiny_source {
    dunlin_source source;
    bool was_zero; /* half of the smallest normal number, while the trainer computes */
} tiny_source;

static dunlin_status read_tiny(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                               int32_t *out_y)
{
    tiny_source *tiny = ctx;
    volatile float smallest = FLT_MIN;
    tiny->was_zero = smallest / 2.0F == 0.0F;
    return read_four(NULL, indices, n, out_x, out_y);
}

/* The caller's own arithmetic is as it was after every call, also a failed one. */
Test(calls, subnormals_are_zero_within)
{
    dunlin_model *model = test_dense_model(4, 3);
    const dunlin_trainer_options options = test_options(2);
    dunlin_trainer *trainer = test_create(model, &options);
    tiny_source tiny = {.source = DUNLIN_SOURCE_INIT};
    tiny.source.read_fn = read_tiny;
    tiny.source.n_examples = 2;
    tiny.source.dtype = DUNLIN_F32;
    tiny.source.ctx = &tiny;
    volatile float smallest = FLT_MIN;
    dunlin_metrics metrics;
    cr_assert_eq(dunlin_trainer_step(trainer, &tiny.source, first_eight, 2, &metrics), DUNLIN_OK);
    cr_expect(tiny.was_zero);
    cr_expect_gt(smallest / 2.0F, 0.0F);
    tiny.was_zero = false;
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &tiny.source, 0, 2, &metrics), DUNLIN_OK);
    cr_expect(tiny.was_zero);
    cr_expect_gt(smallest / 2.0F, 0.0F);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}
