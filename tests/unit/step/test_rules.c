/*
 * test_rules.c - what a step computes from the outputs and the gradients: losses and their targets,
 * shares of right answers, optimisers, clipping. Numbers against PyTorch are golden.
 */
#include "random.h"
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_STEPS 3
#define MAX_OUTPUTS 16

/* Labels of a made-up source as targets: 1 for the class, 0 for the others. */
typedef struct target_source {
    test_source labels;
    dunlin_source source; /* its ctx is this struct, which must not move */
    int32_t n_outputs;
    float class_target;
} target_source;

static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    target_source *source = ctx;
    int32_t labels[64];
    cr_assert_leq(n, 64);
    const dunlin_status status =
        source->labels.source.read_fn(&source->labels, indices, n, out_x, labels);
    for (int64_t i = 0; i < n * source->n_outputs; i++) {
        const bool is_class = i % source->n_outputs == labels[i / source->n_outputs];
        out_targets[i] = is_class ? source->class_target : 0.0F;
    }
    return status;
}

static void target_source_init(target_source *source, const dunlin_model *model, int64_t n)
{
    test_source_init(&source->labels, model, n, DUNLIN_U8);
    source->n_outputs = (int32_t)dunlin_model_n_outputs(model);
    source->class_target = 1.0F;
    source->source = source->labels.source;
    source->source.ctx = source;
    source->source.read_fn = NULL;
    source->source.read_targets_fn = read_targets;
    source->source.n_targets = source->n_outputs;
}

static const char *error_of(const dunlin_trainer *trainer)
{
    return dunlin_trainer_last_error(trainer)->text;
}

static void expect_text(const dunlin_trainer *trainer, const char *text)
{
    cr_expect_not_null(strstr(error_of(trainer), text), "\"%s\" lacks \"%s\"", error_of(trainer),
                       text);
}

static dunlin_trainer_options rule_options(int64_t batch, dunlin_optimizer optimizer)
{
    dunlin_trainer_options options = test_options(batch);
    options.optimizer = optimizer;
    options.momentum = optimizer == DUNLIN_OPTIMIZER_SGD ? 0.9F : 0.0F;
    options.lr = optimizer == DUNLIN_OPTIMIZER_SGD ? 0.05F : 0.002F;
    options.weight_decay = 0.01F;
    return options;
}

/* --- bits --- */

static float *train(const dunlin_model *model, const dunlin_trainer_options *options,
                    int64_t *out_n)
{
    if (options->loss == DUNLIN_LOSS_CROSS_ENTROPY) {
        return test_train(model, options, N_STEPS, out_n);
    }
    target_source source;
    target_source_init(&source, model, options->batch * N_STEPS);
    dunlin_trainer *trainer = test_create(model, options);
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK, "%s",
                 error_of(trainer));
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

static void expect_same(const dunlin_model *model, const dunlin_trainer_options *options,
                        const float *expected, const char *what, int net)
{
    int64_t n = 0;
    float *weights = train(model, options, &n);
    cr_expect(test_same_bits(weights, expected, n), "net %d: %s changes bits", net, what);
    free(weights);
}

static void check_plans(const dunlin_model *model, const dunlin_trainer_options *base,
                        bool may_slice, int net)
{
    int64_t n = 0;
    float *expected = train(model, base, &n);
    for (int64_t i = 0; i < n; i++) {
        cr_assert(isfinite(expected[i]));
    }
    dunlin_trainer_options options = *base;
    options.n_threads = 3;
    expect_same(model, &options, expected, "three threads", net);
    options = *base;
    options.policy = DUNLIN_POLICY_POOL;
    expect_same(model, &options, expected, "policy pool", net);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, base, &report, NULL), DUNLIN_OK);
    options = *base;
    options.budget_bytes = report.least_budget_bytes;
    expect_same(model, &options, expected, "the least budget", net);
    if (may_slice) {
        options = *base;
        options.policy = DUNLIN_POLICY_MICROBATCH;
        options.micro_batch = 2;
        options.n_threads = 2;
        expect_same(model, &options, expected, "slices of 2", net);
    }
    free(expected);
}

Test(rules, plans_change_no_bit, .timeout = 900)
{
    uint64_t rng = test_seed(20240701);
    for (int i = 0; i < test_cases(18); i++) {
        const bool has_batch_norm = i % 4 == 0;
        dunlin_model *model = test_random_model(&rng, has_batch_norm);
        dunlin_trainer_options options =
            rule_options(3 + (int64_t)test_random_below(&rng, 4), (dunlin_optimizer)(i % 3));
        options.loss = (dunlin_loss)(i / 3 % 3);
        options.label_smoothing = options.loss == DUNLIN_LOSS_CROSS_ENTROPY ? 0.1F : 0.0F;
        options.clip_norm = i % 2 == 0 ? 0.1F : 0.0F;
        options.clip_value = i % 5 == 0 ? 0.05F : 0.0F;
        const dunlin_schedule schedule = {.struct_size = sizeof schedule,
                                          .kind = DUNLIN_SCHEDULE_COSINE,
                                          .warmup_steps = 1,
                                          .total_steps = 9};
        options.schedule = &schedule;
        check_plans(model, &options, !has_batch_norm, i);
        dunlin_model_destroy(model);
    }
}

/* Parameters so large that threads share one update, and one norm. */
Test(rules, large_parameters_on_threads)
{
    dunlin_model *model = test_dense_model(9000, 8);
    for (int kind = 0; kind < 3; kind++) {
        dunlin_trainer_options options = rule_options(4, (dunlin_optimizer)kind);
        options.clip_norm = 0.5F;
        check_plans(model, &options, true, kind);
    }
    dunlin_model_destroy(model);
}

/* --- memory --- */

Test(rules, state_and_kept_gradients_are_counted)
{
    dunlin_model *model = test_dense_model(1000, 4);
    const uint64_t n_bytes = (uint64_t)dunlin_model_n_trainable_elements(model) * sizeof(float);
    for (int kind = 0; kind < 6; kind++) {
        dunlin_trainer_options options = rule_options(4, (dunlin_optimizer)(kind % 3));
        options.clip_norm = kind >= 3 ? 1.0F : 0.0F;
        const uint64_t n_states = options.optimizer == DUNLIN_OPTIMIZER_SGD ? 1 : 2;
        dunlin_trainer *trainer = test_create(model, &options);
        test_source source;
        test_source_init(&source, model, 4, DUNLIN_U8);
        cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK);
        dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
        cr_assert_eq(dunlin_trainer_get_report(trainer, &report), DUNLIN_OK);
        cr_expect_eq(report.planned_bytes, report.peak_bytes);
        cr_expect_geq(report.by_class.optimizer, n_states * n_bytes);
        cr_expect_lt(report.by_class.optimizer, n_states * n_bytes + 2048);
        if (options.clip_norm > 0.0F) {
            cr_expect_geq(report.by_class.accumulators, n_bytes);
        }
        dunlin_trainer_destroy(trainer);
        cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
        options.budget_bytes = report.least_budget_bytes - 1;
        dunlin_error error = {.status = DUNLIN_OK};
        cr_expect_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_BUDGET);
        cr_expect_eq(error.needed_bytes, report.least_budget_bytes);
        options.budget_bytes++;
        dunlin_trainer_destroy(test_create(model, &options));
    }
    dunlin_model_destroy(model);
}

/* --- clipping --- */

static void set_gradient(void *ctx, int32_t parameter_index, int64_t n, const float *weights,
                         float *gradient, float *const *slots)
{
    (void)parameter_index;
    (void)weights;
    (void)slots;
    for (int64_t i = 0; i < n; i++) {
        gradient[i] = *(const float *)ctx;
    }
}

/* One step of rate 1 with all gradients set to 3; how far the weights went. */
static double moved_by(const dunlin_model *model, float clip_value, float clip_norm, float gradient)
{
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 4;
    options.lr = 1.0F;
    options.clip_value = clip_value;
    options.clip_norm = clip_norm;
    options.gradient_fn = set_gradient;
    options.gradient_ctx = &gradient;
    dunlin_trainer *trainer = test_create(model, &options);
    int64_t n = 0;
    float *before = test_weights(trainer, &n);
    test_source source;
    test_source_init(&source, model, 4, DUNLIN_U8);
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK, "%s",
                 error_of(trainer));
    float *after = test_weights(trainer, NULL);
    const double moved = (double)before[0] - (double)after[0];
    for (int64_t i = 0; i < n; i++) {
        cr_expect_float_eq((double)before[i] - (double)after[i], moved, 1e-6);
    }
    free(before);
    free(after);
    dunlin_trainer_destroy(trainer);
    return moved;
}

Test(rules, clipping_comes_after_the_hook)
{
    dunlin_model *model = test_dense_model(10, 4);
    const double root = sqrt((double)dunlin_model_n_trainable_elements(model));
    cr_expect_float_eq(moved_by(model, 0.0F, 0.0F, 3.0F), 3.0, 1e-6);
    cr_expect_float_eq(moved_by(model, 0.5F, 0.0F, 3.0F), 0.5, 1e-6);
    cr_expect_float_eq(moved_by(model, 0.5F, 0.0F, -3.0F), -0.5, 1e-6);
    cr_expect_float_eq(moved_by(model, 0.0F, 2.0F, 3.0F), 2.0 / root, 1e-6);
    cr_expect_float_eq(moved_by(model, 0.0F, 1000.0F, 3.0F), 3.0, 1e-6);
    /* By value first, then by norm. */
    cr_expect_float_eq(moved_by(model, 0.5F, 2.0F, 3.0F), 2.0 / root, 1e-6);
    cr_expect_float_eq(moved_by(model, 0.01F, 2.0F, 3.0F), 0.01, 1e-6);
    dunlin_model_destroy(model);
}

Test(rules, a_norm_that_is_not_finite_changes_no_weight)
{
    dunlin_model *model = test_small_model(true);
    const float wrong[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        float gradient = wrong[i];
        dunlin_trainer_options options = test_options(4);
        options.clip_norm = 1.0F;
        options.gradient_fn = set_gradient;
        options.gradient_ctx = &gradient;
        dunlin_trainer *trainer = test_create(model, &options);
        int64_t n = 0;
        float *before = test_weights(trainer, &n);
        test_source source;
        test_source_init(&source, model, 4, DUNLIN_U8);
        cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_NUMERIC);
        expect_text(trainer, "step 0: the gradient of");
        float *after = test_weights(trainer, NULL);
        cr_expect(test_same_bits(before, after, n));
        cr_expect_eq(dunlin_trainer_n_steps(trainer), 0);
        /* The next step is a step again. */
        gradient = 1.0F;
        cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK);
        free(before);
        free(after);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

/* The rate of a step is the schedule's: the weights move by it. */
Test(rules, the_rate_moves_the_weights)
{
    dunlin_model *model = test_dense_model(6, 3);
    float gradient = 1.0F;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 4;
    options.lr = 0.5F;
    options.gradient_fn = set_gradient;
    options.gradient_ctx = &gradient;
    const dunlin_schedule schedule = {
        .struct_size = sizeof schedule, .kind = DUNLIN_SCHEDULE_STEP, .gamma = 0.5};
    options.schedule = &schedule;
    dunlin_trainer *trainer = test_create(model, &options);
    test_source source;
    test_source_init(&source, model, 12, DUNLIN_U8);
    float *before = test_weights(trainer, NULL);
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK);
    float *after = test_weights(trainer, NULL);
    cr_expect_float_eq(before[0] - after[0], 0.5F + 0.25F + 0.125F, 1e-6);
    free(before);
    free(after);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* --- targets --- */

Test(rules, targets_are_checked)
{
    dunlin_model *model = test_dense_model(6, 3);
    dunlin_trainer_options options = test_options(4);
    options.loss = DUNLIN_LOSS_BCE;
    dunlin_trainer *trainer = test_create(model, &options);
    target_source source;
    target_source_init(&source, model, 8);
    int64_t n = 0;
    float *before = test_weights(trainer, &n);
    source.class_target = 1.5F;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_DATA);
    expect_text(trainer, "is 1.5; it must be in [0, 1]");
    source.class_target = 1.0F;
    source.source.n_targets = 4;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_MISMATCH);
    expect_text(trainer, "4 targets");
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.labels.source, NULL, NULL, NULL),
                 DUNLIN_ARGUMENT);
    expect_text(trainer, "read_targets_fn");
    float *after = test_weights(trainer, NULL);
    cr_expect(test_same_bits(before, after, n));
    /* A prediction needs neither. */
    float logits[8 * 3];
    cr_expect_eq(dunlin_trainer_predict(trainer, &source.labels.source, 0, 8, logits), DUNLIN_OK);
    free(before);
    free(after);
    dunlin_trainer_destroy(trainer);
    options.loss = DUNLIN_LOSS_MSE;
    trainer = test_create(model, &options);
    target_source_init(&source, model, 8);
    source.class_target = INFINITY;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_DATA);
    expect_text(trainer, "finite");
    source.labels.fail_at_read = 3;
    source.class_target = 1.0F;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_CALLBACK);
    dunlin_trainer_destroy(trainer);
    options.loss = DUNLIN_LOSS_CROSS_ENTROPY;
    trainer = test_create(model, &options);
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_ARGUMENT);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* --- metrics --- */

static float weight_by_index(void *ctx, int64_t index)
{
    (void)ctx;
    return 0.5F + (float)(index % 3);
}

static int64_t rank_of(const float *logits, int32_t n, int32_t label)
{
    int64_t rank = 0;
    for (int32_t c = 0; c < n; c++) {
        rank += logits[c] > logits[label] || (logits[c] == logits[label] && c < label) ? 1 : 0;
    }
    return rank;
}

/* Some scores are equal: the last layer has no weights and few biases. */
static void level_scores(dunlin_trainer *trainer, int32_t n_outputs)
{
    float zero[16 * MAX_OUTPUTS] = {0.0F};
    float biases[MAX_OUTPUTS];
    for (int32_t c = 0; c < n_outputs; c++) {
        biases[c] = (float)(c % 3);
    }
    cr_assert_eq(dunlin_trainer_set_parameter(trainer, "fc2.weight", zero, 16 * n_outputs),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_set_parameter(trainer, "fc2.bias", biases, n_outputs), DUNLIN_OK);
}

static void check_top5(int32_t n_outputs, bool is_level)
{
    enum { N = 40 };
    dunlin_model *model = test_dense_model(6, n_outputs);
    const dunlin_trainer_options options = test_options(16);
    dunlin_trainer *trainer = test_create(model, &options);
    if (is_level) {
        level_scores(trainer, n_outputs);
    }
    test_source source;
    test_source_init(&source, model, N, DUNLIN_F32);
    float logits[N * MAX_OUTPUTS];
    float x[N * 6];
    int32_t labels[N];
    int64_t indices[N];
    double right = 0.0;
    double right5 = 0.0;
    for (int64_t i = 0; i < N; i++) {
        indices[i] = i;
    }
    cr_assert_eq(source.source.read_fn(&source, indices, N, x, labels), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, N, logits), DUNLIN_OK);
    for (int64_t i = 0; i < N; i++) {
        const int64_t rank = rank_of(logits + i * n_outputs, n_outputs, labels[i]);
        right += rank == 0 ? 1.0 : 0.0;
        right5 += rank < 5 ? 1.0 : 0.0;
    }
    dunlin_metrics metrics;
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, N, &metrics), DUNLIN_OK);
    cr_expect_eq(metrics.accuracy, right / N);
    cr_expect_eq(metrics.top5_accuracy, n_outputs >= 6 ? right5 / N : 0.0, "%d outputs", n_outputs);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(rules, right_answers_and_the_first_five)
{
    check_top5(5, false);
    check_top5(6, false);
    check_top5(13, false);
    check_top5(13, true);
}

Test(rules, metrics_of_targets_and_weights)
{
    enum { N = 30, OUTPUTS = 4 };
    dunlin_model *model = test_dense_model(6, OUTPUTS);
    for (int kind = DUNLIN_LOSS_MSE; kind <= DUNLIN_LOSS_BCE; kind++) {
        dunlin_trainer_options options = test_options(7);
        options.loss = (dunlin_loss)kind;
        dunlin_trainer *trainer = test_create(model, &options);
        target_source source;
        target_source_init(&source, model, N);
        source.source.weight_fn = weight_by_index;
        float logits[N * OUTPUTS];
        float targets[N * OUTPUTS];
        uint8_t x[N * 6];
        int64_t indices[N];
        for (int64_t i = 0; i < N; i++) {
            indices[i] = i;
        }
        cr_assert_eq(read_targets(&source, indices, N, x, targets), DUNLIN_OK);
        cr_assert_eq(dunlin_trainer_predict(trainer, &source.source, 0, N, logits), DUNLIN_OK);
        double loss = 0.0;
        double weights = 0.0;
        double right = 0.0;
        for (int64_t i = 0; i < N * OUTPUTS; i++) {
            const double y = (double)logits[i];
            const double t = (double)targets[i];
            const double w = (double)weight_by_index(NULL, i / OUTPUTS);
            const double s = 1.0 / (1.0 + exp(-y));
            loss += w * (kind == DUNLIN_LOSS_MSE ? (y - t) * (y - t)
                                                 : -t * log(s) - (1.0 - t) * log(1.0 - s));
            weights += w;
            right += (y > 0.0) == (t > 0.5) ? 1.0 : 0.0;
        }
        dunlin_metrics metrics;
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, N, &metrics), DUNLIN_OK);
        cr_expect_float_eq(metrics.loss, loss / weights, 1e-6);
        cr_expect_float_eq(metrics.accuracy, kind == DUNLIN_LOSS_BCE ? right / (N * OUTPUTS) : 0.0,
                           1e-12);
        cr_expect_eq(metrics.top5_accuracy, 0.0);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}
