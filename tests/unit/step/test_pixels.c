/*
 * test_pixels.c - outputs with a row of numbers for each pixel or token: labels that are ignored,
 * weights of classes, predictions, answers class by class. Gradients against double are in
 * unit/ops and unit/kernels.
 */
#include "random.h"
#include "step/step_support.h"

#include <dunlin/pixels.h>
#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 10
#define SIDE 6
#define PIXELS (SIDE * SIDE)
#define CLASSES 4
#define IGNORED 255

/* Images, and labels or targets, drawn from an example's number. */
typedef struct pixel_source {
    dunlin_source source;
    bool has_gaps;     /* every third label is ignored */
    int32_t bad_label; /* of example 3, pixel 7; -1: its own */
    bool is_weighted;
} pixel_source;

static int32_t label_of(const pixel_source *of, int64_t index, int64_t pixel)
{
    uint64_t state = (uint64_t)(index * PIXELS + pixel) + 99;
    const int32_t label = (int32_t)test_random_below(&state, CLASSES);
    if (of->bad_label >= 0 && index == 3 && pixel == 7) {
        return of->bad_label;
    }
    return of->has_gaps && (index + pixel) % 3 == 0 ? IGNORED : label;
}

/* In the order of the output: class, row, column. */
static float target_of(int64_t index, int64_t i)
{
    uint64_t state = (uint64_t)(index * PIXELS * CLASSES + i) + 7;
    return (float)test_random_below(&state, 3) * 0.5F;
}

static float weight_of(void *ctx, int64_t index)
{
    (void)ctx;
    return index % 4 == 0 ? 0.0F : 0.5F * (float)(index % 4);
}

static void fill_x(const int64_t *indices, int64_t n, float *out_x)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t state = (uint64_t)indices[i] + 5;
        test_random_fill(out_x + i * 2 * PIXELS, 2 * PIXELS, -1.0, 1.0, &state);
    }
}

static dunlin_status read_pixels(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    fill_x(indices, n, out_x);
    for (int64_t i = 0; i < n * PIXELS; i++) {
        out_y[i] = label_of(ctx, indices[i / PIXELS], i % PIXELS);
    }
    return DUNLIN_OK;
}

static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    (void)ctx;
    fill_x(indices, n, out_x);
    for (int64_t i = 0; i < n * PIXELS * CLASSES; i++) {
        out_targets[i] = target_of(indices[i / (PIXELS * CLASSES)], i % (PIXELS * CLASSES));
    }
    return DUNLIN_OK;
}

static void open_source(pixel_source *of, bool has_gaps, bool is_weighted)
{
    *of = (pixel_source){.has_gaps = has_gaps, .bad_label = -1, .is_weighted = is_weighted};
    of->source = (dunlin_source)DUNLIN_SOURCE_INIT;
    of->source.ctx = of;
    of->source.read_fn = read_pixels;
    of->source.n_examples = N;
    of->source.dtype = DUNLIN_F32;
    of->source.n_labels = PIXELS;
    of->source.weight_fn = is_weighted ? weight_of : NULL;
}

/* Half as large, back again, and what was there before beside it. */
static dunlin_model *pixel_model(bool has_batch_norm, bool has_softmax)
{
    const dunlin_shape image = {.n_dims = 3, .dims = {2, SIDE, SIDE}};
    const dunlin_conv_options same = {.struct_size = sizeof same, .padding = 1};
    dunlin_conv_transposed_options twice = DUNLIN_CONV_TRANSPOSED_OPTIONS_INIT;
    twice.stride = 2;
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &image);
    x = dunlin_builder_conv(builder, "first", x, 5, 3, &same);
    x = has_batch_norm ? dunlin_builder_batch_norm(builder, "bn", x) : x;
    const dunlin_value first = dunlin_builder_relu(builder, x);
    x = dunlin_builder_max_pool(builder, first, 2, 2, 0);
    x = dunlin_builder_relu(builder, dunlin_builder_conv(builder, "low", x, 6, 3, &same));
    const dunlin_value both[3] = {
        first, dunlin_builder_conv_transposed(builder, "up", x, 3, 2, &twice),
        dunlin_builder_resize(builder, x, SIDE, SIDE, DUNLIN_INTERPOLATION_LINEAR)};
    x = dunlin_builder_concat(builder, both, 3);
    x = dunlin_builder_conv(builder, "head", x, CLASSES, 1, NULL);
    x = has_softmax ? dunlin_builder_softmax(builder, x) : x;
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin_model_n_labels(model), PIXELS);
    cr_assert_eq(dunlin_model_n_outputs(model), CLASSES);
    return model;
}

static const float class_weights[CLASSES] = {0.5F, 2.0F, 0.0F, 1.25F};

static dunlin_trainer_options pixel_options(void)
{
    dunlin_trainer_options options = test_options(5);
    options.has_ignore_label = true;
    options.ignore_label = IGNORED;
    options.class_weights = class_weights;
    options.n_class_weights = CLASSES;
    options.label_smoothing = 0.125F;
    return options;
}

static float *train(const dunlin_model *model, const dunlin_trainer_options *options,
                    bool is_weighted, int64_t *out_n)
{
    pixel_source source;
    open_source(&source, true, is_weighted);
    dunlin_trainer *trainer = test_create(model, options);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 2;
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

/* The divisor is that of the whole batch, whatever lies in a slice. */
Test(pixels, slices_and_budgets_give_the_same_bits)
{
    for (int kind = 0; kind < 4; kind++) {
        dunlin_model *model = pixel_model(kind % 2 == 1, false);
        const dunlin_trainer_options base = pixel_options();
        int64_t n = 0;
        float *expected = train(model, &base, kind >= 2, &n);
        for (int way = 0; way < 4; way++) {
            dunlin_trainer_options options = base;
            dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
            options.micro_batch = way < 2 ? way + 1 : 0;
            options.n_threads = way == 3 ? 3 : 1;
            if (way == 2) {
                cr_assert_eq(dunlin_trainer_estimate(model, &base, &report, NULL), DUNLIN_OK);
                options.budget_bytes = report.least_budget_bytes;
            }
            float *weights = train(model, &options, kind >= 2, &n);
            cr_expect(test_same_bits(expected, weights, n), "kind %d, way %d", kind, way);
            free(weights);
        }
        free(expected);
        dunlin_model_destroy(model);
    }
}

/* What a prediction (channels first) says of pixel p: -log of the class's share. */
static double loss_at(const float *outputs, int64_t pixel, int32_t c)
{
    double sum = 0.0;
    for (int32_t k = 0; k < CLASSES; k++) {
        sum += exp((double)outputs[k * PIXELS + pixel] - (double)outputs[c * PIXELS + pixel]);
    }
    return log(sum);
}

static int32_t best_at(const float *outputs, int64_t pixel)
{
    int32_t best = 0;
    for (int32_t c = 1; c < CLASSES; c++) {
        best = outputs[c * PIXELS + pixel] > outputs[best * PIXELS + pixel] ? c : best;
    }
    return best;
}

/* PyTorch's formulas over predictions: weights of classes, smoothing, ignored labels. */
Test(pixels, an_evaluation_is_what_predictions_say)
{
    static float outputs[N * CLASSES * PIXELS];
    dunlin_model *model = pixel_model(true, false);
    const dunlin_trainer_options options = pixel_options();
    for (int is_weighted = 0; is_weighted < 2; is_weighted++) {
        pixel_source source;
        open_source(&source, true, is_weighted == 1);
        dunlin_trainer *trainer = test_create(model, &options);
        dunlin_metrics metrics;
        int64_t counts[CLASSES * CLASSES];
        cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, N, outputs), DUNLIN_OK);
        cr_assert_eq(
            dunlin_trainer_confusion(trainer, &source.source, 0, N, CLASSES, counts, &metrics),
            DUNLIN_OK, "%s", dunlin_trainer_last_error(trainer)->text);
        double loss = 0.0;
        double divisor = 0.0;
        int64_t right = 0;
        int64_t counted = 0;
        int64_t wanted[CLASSES * CLASSES] = {0};
        for (int64_t i = 0; i < N * PIXELS; i++) {
            const float *own = outputs + i / PIXELS * CLASSES * PIXELS;
            const int32_t label = label_of(&source, i / PIXELS, i % PIXELS);
            const double weight = is_weighted == 1 ? (double)weight_of(NULL, i / PIXELS) : 1.0;
            if (label == IGNORED || !(weight > 0.0)) {
                continue;
            }
            double smooth = 0.0;
            for (int32_t c = 0; c < CLASSES; c++) {
                smooth += (double)class_weights[c] * loss_at(own, i % PIXELS, c);
            }
            const double own_weight = (double)class_weights[label];
            loss += weight * (0.875 * own_weight * loss_at(own, i % PIXELS, label) +
                              0.125 / CLASSES * smooth);
            divisor += weight * own_weight;
            const int32_t best = best_at(own, i % PIXELS);
            wanted[label * CLASSES + best]++;
            right += own_weight > 0.0 && best == label ? 1 : 0;
            counted += own_weight > 0.0 ? 1 : 0;
        }
        cr_expect_float_eq(metrics.loss, loss / divisor, 2e-6 * loss / divisor, "%.9g, not %.9g",
                           metrics.loss, loss / divisor);
        cr_expect_float_eq(metrics.weight, divisor, 1e-9 * divisor);
        cr_expect_eq(metrics.n_counted, counted);
        cr_expect_eq(metrics.n_examples, N);
        cr_expect_float_eq(metrics.accuracy, (double)right / (double)counted, 1e-12);
        cr_expect_eq(memcmp(counts, wanted, sizeof counts), 0);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

/* Targets come in the order of the output; BCE weighs targets of 1 by class, MSE does not. */
Test(pixels, targets_for_each_pixel)
{
    static float outputs[N * CLASSES * PIXELS];
    dunlin_model *model = pixel_model(false, false);
    pixel_source source;
    open_source(&source, false, false);
    source.source.read_targets_fn = read_targets;
    source.source.n_targets = CLASSES * PIXELS;
    for (int kind = 0; kind < 4; kind++) {
        dunlin_trainer_options options = test_options(5);
        options.loss = kind < 2    ? DUNLIN_LOSS_BCE
                       : kind == 2 ? DUNLIN_LOSS_MSE
                                   : DUNLIN_LOSS_SOFT_CROSS_ENTROPY;
        options.class_weights = kind == 1 ? class_weights : NULL;
        options.n_class_weights = kind == 1 ? CLASSES : 0;
        dunlin_trainer *trainer = test_create(model, &options);
        dunlin_metrics metrics;
        cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, N, outputs), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, N, &metrics), DUNLIN_OK,
                     "%s", dunlin_trainer_last_error(trainer)->text);
        double loss = 0.0;
        for (int64_t i = 0; i < N * CLASSES * PIXELS; i++) {
            const double x = (double)outputs[i];
            const double t = (double)target_of(i / (CLASSES * PIXELS), i % (CLASSES * PIXELS));
            const int32_t c = (int32_t)(i / PIXELS % CLASSES);
            const double w = kind == 1 ? (double)class_weights[c] : 1.0;
            loss += kind == 2   ? (x - t) * (x - t)
                    : kind == 3 ? t *
                                      loss_at(outputs + i / (CLASSES * PIXELS) * CLASSES * PIXELS,
                                              i % PIXELS, c) *
                                      CLASSES
                                : w * t * log1p(exp(-x)) + (1.0 - t) * log1p(exp(x));
        }
        loss /= N * CLASSES * PIXELS;
        cr_expect_float_eq(metrics.loss, loss, 2e-6 * loss, "kind %d: %.9g, not %.9g", kind,
                           metrics.loss, loss);
        dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
        fit.epochs = 8;
        cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, N, &metrics), DUNLIN_OK);
        cr_expect_lt(metrics.loss, loss, "kind %d", kind);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

/* A softmax at the end is the loss's in training, and over the channels in predictions. */
Test(pixels, a_last_softmax_is_part_of_the_loss)
{
    static float logits[N * CLASSES * PIXELS];
    static float shares[N * CLASSES * PIXELS];
    dunlin_metrics metrics[2];
    for (int has_softmax = 0; has_softmax < 2; has_softmax++) {
        dunlin_model *model = pixel_model(false, has_softmax == 1);
        pixel_source source;
        open_source(&source, false, false);
        const dunlin_trainer_options options = test_options(5);
        dunlin_trainer *trainer = test_create(model, &options);
        cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, N,
                                            has_softmax == 1 ? shares : logits),
                     DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, N, &metrics[has_softmax]),
                     DUNLIN_OK);
        dunlin_trainer_destroy(trainer);
        dunlin_model_destroy(model);
    }
    cr_expect_float_eq(metrics[0].loss, metrics[1].loss, 0.0);
    for (int64_t i = 0; i < N * PIXELS; i++) {
        const int64_t at = i / PIXELS * CLASSES * PIXELS;
        for (int32_t c = 0; c < CLASSES; c++) {
            const double wanted = exp(-loss_at(logits + at, i % PIXELS, c));
            cr_assert_float_eq((double)shares[at + c * PIXELS + i % PIXELS], wanted, 1e-6);
        }
    }
}

/* Rows of (tokens, features), and of a signal: the classes are what lies together. */
Test(pixels, labels_of_tokens)
{
    dunlin_builder *builder = NULL;
    dunlin_model *model = NULL;
    const dunlin_shape tokens = {.n_dims = 2, .dims = {7, 3}};
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    dunlin_value x = dunlin_builder_input(builder, "x", &tokens);
    x = dunlin_builder_dense(builder, "fc", x, 5);
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, NULL), DUNLIN_OK);
    cr_expect_eq(dunlin_model_n_labels(model), 7);
    cr_expect_eq(dunlin_model_n_outputs(model), 5);
    dunlin_model_destroy(model);
    cr_assert_eq(dunlin_builder_create(NULL, &builder), DUNLIN_OK);
    x = dunlin_builder_input_signal(builder, "x", 3, 9);
    x = dunlin_builder_conv(builder, "conv", x, 4, 3, NULL);
    cr_assert_eq(dunlin_builder_finish(builder, x, &model, NULL), DUNLIN_OK);
    cr_expect_eq(dunlin_model_n_labels(model), 7);
    cr_expect_eq(dunlin_model_n_outputs(model), 4);
    dunlin_model_destroy(model);
}

Test(pixels, scores_of_classes)
{
    /* Class 2 is no label and was never taken; of class 1 one of four was right. */
    const int64_t counts[9] = {6, 2, 0, 3, 1, 0, 0, 0, 0};
    dunlin_class_scores one = DUNLIN_CLASS_SCORES_INIT;
    cr_assert_eq(dunlin_confusion_class(counts, 3, 1, &one), DUNLIN_OK);
    cr_expect_eq(one.n, 4);
    cr_expect_float_eq(one.precision, 1.0 / 3.0, 1e-15);
    cr_expect_float_eq(one.recall, 0.25, 1e-15);
    cr_expect_float_eq(one.f1, 2.0 / 7.0, 1e-15);
    cr_expect_float_eq(one.iou, 1.0 / 6.0, 1e-15);
    cr_assert_eq(dunlin_confusion_class(counts, 3, 2, &one), DUNLIN_OK);
    cr_expect(one.n == 0 && one.iou == 0.0 && one.f1 == 0.0);
    dunlin_class_scores all = DUNLIN_CLASS_SCORES_INIT;
    cr_assert_eq(dunlin_confusion_means(counts, 3, &all), DUNLIN_OK);
    cr_expect_eq(all.n, 12);
    cr_expect_float_eq(all.iou, (6.0 / 11.0 + 1.0 / 6.0) / 2.0, 1e-15);
    cr_expect_float_eq(all.recall, (0.75 + 0.25) / 2.0, 1e-15);
    const int64_t bad[1] = {-1};
    cr_expect_eq(dunlin_confusion_class(counts, 3, 3, &one), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_confusion_class(NULL, 3, 0, &one), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_confusion_means(bad, 1, &all), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_confusion_means(counts, 0, &all), DUNLIN_ARGUMENT);
    all.struct_size = 0;
    cr_expect_eq(dunlin_confusion_means(counts, 3, &all), DUNLIN_ARGUMENT);
}

static void expect_step(dunlin_trainer *trainer, const pixel_source *source, dunlin_status status,
                        const char *text)
{
    const int64_t indices[] = {1, 2, 3};
    int64_t n = 0;
    float *before = test_weights(trainer, &n);
    cr_expect_eq(dunlin_trainer_step(trainer, &source->source, indices, 3, NULL), status);
    test_expect_text(trainer, text);
    float *after = test_weights(trainer, &n);
    cr_expect(test_same_bits(before, after, n), "%s: the weights have changed", text);
    free(before);
    free(after);
}

Test(pixels, bad_labels_change_nothing)
{
    dunlin_model *model = pixel_model(false, false);
    for (int has_weights = 0; has_weights < 2; has_weights++) {
        dunlin_trainer_options options = pixel_options();
        options.class_weights = has_weights == 1 ? class_weights : NULL;
        options.n_class_weights = has_weights == 1 ? CLASSES : 0;
        dunlin_trainer *trainer = test_create(model, &options);
        pixel_source source;
        open_source(&source, true, false);
        source.source.n_labels = PIXELS - 1;
        expect_step(trainer, &source, DUNLIN_MISMATCH,
                    "the source has 35 labels an example; the model has 36 rows of outputs");
        open_source(&source, true, false);
        source.bad_label = CLASSES;
        expect_step(trainer, &source, DUNLIN_DATA,
                    "label 4 of example 3 is not one of the model's 4 classes");
        dunlin_trainer_destroy(trainer);
    }
    /* None counts: the class of all labels that are not ignored weighs nothing. */
    static const float none[CLASSES] = {0.0F, 0.0F, 0.0F, 0.0F};
    dunlin_trainer_options options = pixel_options();
    options.class_weights = none;
    dunlin_trainer *trainer = test_create(model, &options);
    pixel_source source;
    open_source(&source, true, false);
    expect_step(trainer, &source, DUNLIN_DATA, "none counts");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(pixels, bad_options)
{
    static const float bad[CLASSES] = {1.0F, -1.0F, 1.0F, 1.0F};
    static const struct {
        int32_t n;
        dunlin_loss loss;
        bool is_bad, has_none;
        dunlin_status status;
        const char *text;
    } cases[] = {
        {3, DUNLIN_LOSS_CROSS_ENTROPY, false, false, DUNLIN_MISMATCH,
         "there are 3 weights of classes; the model has 4 classes"},
        {4, DUNLIN_LOSS_CROSS_ENTROPY, true, false, DUNLIN_ARGUMENT, "class_weights"},
        {4, DUNLIN_LOSS_MSE, false, false, DUNLIN_ARGUMENT, "n_class_weights"},
        {4, DUNLIN_LOSS_CROSS_ENTROPY, false, true, DUNLIN_ARGUMENT, "n_class_weights"},
        {-1, DUNLIN_LOSS_CROSS_ENTROPY, false, false, DUNLIN_ARGUMENT, "n_class_weights"},
    };
    dunlin_model *model = pixel_model(false, false);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_trainer_options options = test_options(4);
        dunlin_trainer *trainer = NULL;
        dunlin_error error = {0};
        options.loss = cases[i].loss;
        options.class_weights = cases[i].has_none ? NULL : (cases[i].is_bad ? bad : class_weights);
        options.n_class_weights = cases[i].n;
        cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), cases[i].status,
                     "case %zu: %s", i, error.text);
        cr_expect_not_null(strstr(error.text, cases[i].text), "case %zu: %s", i, error.text);
    }
    const dunlin_trainer_options options = test_options(4);
    dunlin_trainer *trainer = test_create(model, &options);
    pixel_source source;
    open_source(&source, false, false);
    int64_t counts[CLASSES * CLASSES];
    cr_expect_eq(dunlin_trainer_confusion(trainer, &source.source, 0, N, 3, counts, NULL),
                 DUNLIN_MISMATCH);
    cr_expect_eq(dunlin_trainer_confusion(trainer, &source.source, 0, N, CLASSES, NULL, NULL),
                 DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_confusion(trainer, &source.source, 0, N + 1, CLASSES, counts, NULL),
                 DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_confusion(trainer, NULL, 0, N, CLASSES, counts, NULL),
                 DUNLIN_ARGUMENT);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}
