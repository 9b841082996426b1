/*
 * test_ignored.c - examples that do not count: labels that are ignored, weights of zero. Numbers
 * against PyTorch are golden.
 */
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N 24
#define BATCH 8
#define IGNORED (-100)
#define MAX_CLASSES 16

/* A made-up source some of whose labels are replaced. */
typedef struct gaps {
    test_source labels;
    dunlin_source source; /* its ctx is this struct, which must not move */
    bool is_gap[N];
    int32_t gap_label;
    int64_t n_reads;
} gaps;

static dunlin_status read_gaps(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                               int32_t *out_y)
{
    gaps *of = ctx;
    of->n_reads += n;
    const dunlin_status status =
        of->labels.source.read_fn(of->labels.source.ctx, indices, n, out_x, out_y);
    for (int64_t i = 0; i < n; i++) {
        out_y[i] = of->is_gap[indices[i]] ? of->gap_label : out_y[i];
    }
    return status;
}

static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    gaps *of = ctx;
    int32_t labels[N];
    const int32_t width = (int32_t)of->source.n_targets;
    const dunlin_status status =
        of->labels.source.read_fn(of->labels.source.ctx, indices, n, out_x, labels);
    for (int64_t i = 0; i < n * width; i++) {
        const float target = i % width == labels[i / width] ? 1.0F : 0.0F;
        out_targets[i] = of->is_gap[indices[i / width]] ? NAN : target;
    }
    return status;
}

static float weight_of(void *ctx, int64_t index)
{
    const gaps *of = ctx;
    return of->is_gap[index] ? 0.0F : 1.0F;
}

/* Every third example is a gap, or those of a whole batch. */
static void gaps_init(gaps *of, const dunlin_model *model, bool of_a_batch)
{
    *of = (gaps){.gap_label = IGNORED};
    test_source_init(&of->labels, model, N, DUNLIN_U8);
    of->source = of->labels.source;
    of->source.ctx = of;
    of->source.read_fn = read_gaps;
    for (int i = 0; i < N; i++) {
        of->is_gap[i] = of_a_batch ? i / BATCH == 1 : i % 3 == 0;
    }
}

static dunlin_trainer_options ignoring(void)
{
    dunlin_trainer_options options = test_options(BATCH);
    options.lr = 0.05F;
    options.has_ignore_label = true;
    options.ignore_label = IGNORED;
    return options;
}

static float *train(const dunlin_model *model, const dunlin_trainer_options *options, gaps *source,
                    int64_t *out_n)
{
    dunlin_trainer *trainer = test_create(model, options);
    const dunlin_fit_options fit = {.struct_size = sizeof fit, .epochs = 2};
    cr_assert_eq(dunlin_trainer_fit(trainer, &source->source, &fit, NULL, NULL), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

/* An ignored label, a weight of zero with the same bad label, one with the right label: one and the
 * same weights, in every plan. */
Test(ignored, slices_and_ways_give_the_same_bits)
{
    for (int has_norm = 0; has_norm < 2; has_norm++) {
        dunlin_model *model = test_small_model(has_norm == 1);
        gaps source;
        gaps_init(&source, model, false);
        const dunlin_trainer_options base = ignoring();
        int64_t n = 0;
        float *expected = train(model, &base, &source, &n);
        for (int way = 0; way < 6; way++) {
            dunlin_trainer_options options = base;
            dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
            gaps_init(&source, model, false);
            if (way == 0) {
                options.n_threads = 3;
            } else if (way == 1) {
                cr_assert_eq(dunlin_trainer_estimate(model, &base, &report, NULL), DUNLIN_OK);
                options.budget_bytes = report.least_budget_bytes;
            } else if (way == 2) {
                options.micro_batch = 3;
            } else if (way == 3) {
                options.least_budget_bytes = 1;
            } else {
                options.has_ignore_label = false;
                source.source.weight_fn = weight_of;
                source.gap_label = way == 4 ? IGNORED : 1;
            }
            float *weights = train(model, &options, &source, &n);
            cr_expect(test_same_bits(weights, expected, n), "norm %d: way %d changes bits",
                      has_norm, way);
            free(weights);
        }
        free(expected);
        dunlin_model_destroy(model);
    }
}

/* The mean is over those that count; so are the shares of right answers. */
Test(ignored, metrics_are_of_those_that_count)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = ignoring();
    dunlin_trainer *trainer = test_create(model, &options);
    gaps source;
    gaps_init(&source, model, false);
    const int64_t classes = dunlin_model_n_outputs(model);
    cr_assert_leq(classes, MAX_CLASSES);
    float logits[N * MAX_CLASSES];
    cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, N, logits), DUNLIN_OK);
    double loss = 0.0;
    double right = 0.0;
    double n_counted = 0.0;
    for (int64_t i = 0; i < N; i++) {
        static unsigned char x[1 << 16];
        int32_t label = 0;
        cr_assert_eq(read_gaps(&source, &i, 1, x, &label), DUNLIN_OK);
        if (label == IGNORED) {
            continue;
        }
        double sum = 0.0;
        int64_t best = 0;
        for (int64_t c = 0; c < classes; c++) {
            sum += exp((double)logits[i * classes + c]);
            best = logits[i * classes + c] > logits[i * classes + best] ? c : best;
        }
        loss += log(sum) - (double)logits[i * classes + label];
        right += best == label ? 1.0 : 0.0;
        n_counted += 1.0;
    }
    cr_assert_eq(n_counted, 16.0);
    dunlin_metrics metrics;
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, N, &metrics), DUNLIN_OK);
    cr_expect_eq(metrics.n_examples, N);
    cr_expect_float_eq(metrics.loss, loss / n_counted, 1e-6);
    cr_expect_float_eq(metrics.accuracy, right / n_counted, 1e-12);
    /* A batch of an evaluation may be all gaps, the whole evaluation may not. */
    gaps_init(&source, model, true);
    cr_expect_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, N, &metrics), DUNLIN_OK);
    cr_expect(isfinite(metrics.loss));
    cr_expect_eq(dunlin_trainer_evaluate(trainer, &source.source, BATCH, BATCH, &metrics),
                 DUNLIN_DATA);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(ignored, a_step_in_which_none_counts_changes_nothing)
{
    dunlin_model *model = test_small_model(true);
    for (int way = 0; way < 2; way++) {
        dunlin_trainer_options options = ignoring();
        options.has_ignore_label = way == 0;
        dunlin_trainer *trainer = test_create(model, &options);
        gaps source;
        gaps_init(&source, model, true);
        source.source.weight_fn = way == 1 ? weight_of : NULL;
        int64_t indices[BATCH];
        for (int64_t i = 0; i < BATCH; i++) {
            indices[i] = BATCH + i;
        }
        int64_t n = 0;
        float *before = test_weights(trainer, &n);
        cr_expect_eq(dunlin_trainer_step(trainer, &source.source, indices, BATCH, NULL),
                     DUNLIN_DATA);
        cr_expect_not_null(
            strstr(dunlin_trainer_last_error(trainer)->text, "none counts: the weights of all 8"));
        float *after = test_weights(trainer, &n);
        cr_expect(test_same_bits(before, after, n));
        cr_expect_eq(dunlin_trainer_n_steps(trainer), 0);
        indices[0] = 0;
        cr_expect_eq(dunlin_trainer_step(trainer, &source.source, indices, BATCH, NULL), DUNLIN_OK);
        free(before);
        free(after);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

/* Labels that are no class stay errors where they count; targets of weight 0 may be anything. */
Test(ignored, other_labels_are_checked_as_before)
{
    dunlin_model *model = test_small_model(false);
    dunlin_trainer_options options = ignoring();
    gaps source;
    gaps_init(&source, model, false);
    source.gap_label = IGNORED + 1;
    dunlin_trainer *trainer = test_create(model, &options);
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_DATA);
    cr_expect_not_null(strstr(dunlin_trainer_last_error(trainer)->text, "label -99"));
    dunlin_trainer_destroy(trainer);
    for (int kind = DUNLIN_LOSS_MSE; kind <= DUNLIN_LOSS_BCE; kind++) {
        options = test_options(BATCH);
        options.loss = (dunlin_loss)kind;
        gaps_init(&source, model, false);
        source.source.read_targets_fn = read_targets;
        source.source.n_targets = dunlin_model_n_outputs(model);
        trainer = test_create(model, &options);
        cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_DATA);
        dunlin_trainer_destroy(trainer);
        source.source.weight_fn = weight_of;
        trainer = test_create(model, &options);
        cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK, "%s",
                     dunlin_trainer_last_error(trainer)->text);
        dunlin_trainer_destroy(trainer);
    }
    options.has_ignore_label = true;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "has_ignore_label"));
    dunlin_model_destroy(model);
}
