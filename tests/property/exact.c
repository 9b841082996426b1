/*
 * exact.c - see exact.h. A slab is filled with NaN before it is handed over: what is read before it
 * was written shows.
 */
#include "exact.h"

#include "random.h"
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_ALIGN 64
/*
 * Fusing changes the rounding and nothing else, but what a network makes of a rounding has no bound
 * in units of the last place: batch norm over few values makes much of it, and a ReLU or a maximum
 * at a near tie turns the other way. Most stay below SMALL_ERROR of the weights' norm. The others
 * are measured against themselves: with first weights moved by one unit in the last place, they may
 * not end much closer.
 */
#define SMALL_ERROR 1e-6
#define MOST_OF_MOVED 64.0

const exact_policy exact_policies[] = {
    {"auto", DUNLIN_POLICY_AUTO, true, false, true},
    {"none", DUNLIN_POLICY_NONE, false, false, false},
    {"pool", DUNLIN_POLICY_POOL, true, false, true},
    {"microbatch", DUNLIN_POLICY_MICROBATCH, true, true, true},
    {"microbatch, largest", DUNLIN_POLICY_MICROBATCH, true, false, true},
    {"ideal", DUNLIN_POLICY_IDEAL, true, false, true},
    {"recompute", DUNLIN_POLICY_RECOMPUTE, true, false, true},
    {"sgc", DUNLIN_POLICY_SGC, true, false, true},
    {"sage", DUNLIN_POLICY_SAGE, true, false, true},
    {"melon", DUNLIN_POLICY_MELON, true, false, true},
    {"sublinear", DUNLIN_POLICY_SUBLINEAR, true, false, true},
    {"whole", DUNLIN_POLICY_WHOLE, true, false, true},
    {"vdnn", DUNLIN_POLICY_VDNN, true, false, false},
    {"capuchin", DUNLIN_POLICY_CAPUCHIN, true, false, false},
};
const int exact_n_policies = (int)(sizeof exact_policies / sizeof exact_policies[0]);

#define CASE "seed %" PRIu64 " (%s), %s, arena of %" PRIu64 ", slices of %lld, %d thread(s)"
#define CASE_ARGS(at, what, options)                                                               \
    (at)->seed, (at)->name, (what), (options)->slab_bytes, (long long)(options)->micro_batch,      \
        (int)(options)->n_threads

typedef struct run {
    float *weights;
    int64_t n;
    double loss; /* of the last step */
    dunlin_trainer_report report;
} run;

/* Each weight to a neighbouring float, up or down; statistics stay. */
static void move_weights(dunlin_trainer *trainer)
{
    const int64_t n = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_TRAINABLE);
    float *weights = malloc((size_t)n * sizeof *weights);
    cr_assert_not_null(weights);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_TRAINABLE, 0, n, weights),
                 DUNLIN_OK);
    uint64_t rng = 3;
    for (int64_t k = 0; k < n; k++) {
        weights[k] = nextafterf(weights[k], test_random_below(&rng, 2) == 0 ? -INFINITY : INFINITY);
    }
    cr_assert_eq(dunlin_trainer_set_weights(trainer, DUNLIN_WEIGHTS_TRAINABLE, 0, n, weights),
                 DUNLIN_OK);
    free(weights);
}

static run train_from(const exact_case *at, const dunlin_trainer_options *options, const char *what,
                      bool is_moved)
{
    run made = {.report = DUNLIN_TRAINER_REPORT_INIT};
    test_source source;
    test_source_init(&source, at->model, options->batch * EXACT_STEPS, DUNLIN_U8);
    dunlin_trainer *trainer = NULL;
    dunlin_error error = {.status = DUNLIN_OK};
    const dunlin_status created = dunlin_trainer_create(at->model, options, &trainer, &error);
    cr_assert_eq(created, DUNLIN_OK, CASE ": %s", CASE_ARGS(at, what, options), error.text);
    if (is_moved) {
        move_weights(trainer);
    }
    int64_t indices[EXACT_MAX_BATCH];
    dunlin_metrics metrics = {.n_examples = 0};
    for (int step = 0; step < EXACT_STEPS; step++) {
        for (int64_t i = 0; i < options->batch; i++) {
            indices[i] = step * options->batch + i;
        }
        const bool is_short = step + 1 == EXACT_STEPS && options->batch > 1;
        const dunlin_status status = dunlin_trainer_step(
            trainer, &source.source, indices, options->batch - (is_short ? 1 : 0), &metrics);
        cr_assert_eq(status, DUNLIN_OK, CASE ", step %d: %s", CASE_ARGS(at, what, options), step,
                     dunlin_trainer_last_error(trainer)->text);
    }
    made.loss = metrics.loss;
    made.weights = test_weights(trainer, &made.n);
    cr_assert_eq(dunlin_trainer_get_report(trainer, &made.report), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    return made;
}

static run train(const exact_case *at, const dunlin_trainer_options *options, const char *what)
{
    return train_from(at, options, what, false);
}

static run train_plain(const exact_case *at, bool is_fused)
{
    dunlin_trainer_options options = at->options;
    options.policy = DUNLIN_POLICY_POOL;
    options.no_fuse = options.no_fuse || !is_fused;
    options.n_threads = 1;
    const run made = train(at, &options, "plain");
    for (int64_t k = 0; k < made.n; k++) {
        cr_assert(isfinite(made.weights[k]), "seed %" PRIu64 " (%s): weight %lld is not finite",
                  at->seed, at->name, (long long)k);
    }
    return made;
}

void exact_open(exact_case *at)
{
    cr_assert_leq(at->options.batch, EXACT_MAX_BATCH);
    const run made = train_plain(at, true);
    at->fused = made.weights;
    at->fused_loss = made.loss;
    at->n = made.n;
    at->arena_bytes = made.report.planned_bytes - made.report.by_class.tables;
    at->unfused = NULL;
}

void exact_close(exact_case *at)
{
    free(at->fused);
    free(at->unfused);
}

static double relative_error(const exact_case *at, const float *weights)
{
    double error = 0.0;
    double norm = 0.0;
    for (int64_t k = 0; k < at->n; k++) {
        const double difference = (double)weights[k] - (double)at->fused[k];
        error += difference * difference;
        norm += (double)at->fused[k] * (double)at->fused[k];
    }
    return norm > 0.0 ? sqrt(error / norm) : 0.0;
}

static void need_unfused(exact_case *at)
{
    if (at->unfused != NULL) {
        return;
    }
    const run made = train_plain(at, false);
    at->unfused = made.weights;
    at->unfused_loss = made.loss;
    const double error = relative_error(at, made.weights);
    if (error > SMALL_ERROR) {
        dunlin_trainer_options options = at->options;
        options.policy = DUNLIN_POLICY_POOL;
        const run moved = train_from(at, &options, "moved", true);
        const double most = MOST_OF_MOVED * relative_error(at, moved.weights);
        free(moved.weights);
        cr_expect_leq(error, most,
                      "seed %" PRIu64 " (%s): unfused weights are %g of their norm away from fused "
                      "ones, first weights moved by a rounding account for %g",
                      at->seed, at->name, error, most);
    }
    at->counts->max_error = error > at->counts->max_error ? error : at->counts->max_error;
}

static void count(exact_counts *counts, const dunlin_trainer_report *report)
{
    const bool is_recomputed = report->n_recomputed > 0;
    const bool is_sliced = report->micro_batch < report->batch;
    counts->n_runs++;
    counts->n_recompute_ops += is_recomputed;
    counts->n_sliced += is_sliced && !is_recomputed;
    counts->n_both += is_sliced && is_recomputed;
    counts->n_cut += report->n_regions > 1;
    counts->n_swapped += report->n_swapped > 0;
    counts->n_mixed += report->n_swapped > 0 && is_recomputed;
}

static int64_t first_difference(const float *a, const float *b, int64_t n)
{
    int64_t k = 0;
    while (k < n && test_same_bits(&a[k], &b[k], 1)) {
        k++;
    }
    return k;
}

/* Trains with these options and compares. `what` names the policy. */
static void check_run(exact_case *at, const dunlin_trainer_options *options, bool is_fused,
                      const char *what)
{
    if (!is_fused) {
        need_unfused(at);
    }
    const run made = train(at, options, what);
    const float *expected = is_fused ? at->fused : at->unfused;
    const double loss = is_fused ? at->fused_loss : at->unfused_loss;
    cr_assert_eq(made.n, at->n);
    if (!test_same_bits(made.weights, expected, at->n)) {
        const int64_t k = first_difference(made.weights, expected, at->n);
        cr_expect(false, CASE ", batch %lld, %d recomputed: element %lld of %lld is %a, not %a",
                  CASE_ARGS(at, what, options), (long long)options->batch, made.report.n_recomputed,
                  (long long)k, (long long)at->n, (double)made.weights[k], (double)expected[k]);
    }
    cr_expect(made.loss == loss, CASE ": loss %a, not %a", CASE_ARGS(at, what, options), made.loss,
              loss);
    count(at->counts, &made.report);
    free(made.weights);
}

/* With a slab of exactly so many bytes; 0: without. */
static void check_slab(exact_case *at, dunlin_trainer_options *options, const exact_policy *policy,
                       uint64_t bytes)
{
    void *slab = NULL;
    if (bytes != 0) {
        cr_assert_eq(posix_memalign(&slab, SLAB_ALIGN, bytes), 0);
        memset(slab, 0xff, bytes);
    }
    options->slab = slab;
    options->slab_bytes = bytes;
    check_run(at, options, policy->is_fused, policy->name);
    free(slab);
}

/* The least arena that works. */
static uint64_t least_arena(const exact_case *at, const dunlin_trainer_options *options,
                            const exact_policy *policy)
{
    dunlin_trainer_options small = *options;
    void *slab = NULL;
    cr_assert_eq(posix_memalign(&slab, SLAB_ALIGN, SLAB_ALIGN), 0);
    small.slab = slab;
    small.slab_bytes = SLAB_ALIGN;
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    const dunlin_status status = dunlin_trainer_estimate(at->model, &small, &report, &error);
    cr_assert_eq(status, DUNLIN_BUDGET, "seed %" PRIu64 " (%s), %s: %s %s", at->seed, at->name,
                 policy->name, dunlin_status_name(status), error.text);
    free(slab);
    return error.needed_bytes;
}

/* Mostly one: a second one waits by spinning, and may have no core of its own. */
static int32_t random_threads(exact_case *at)
{
    return test_random_below(&at->rng, 4) == 0 ? 2 : 1;
}

static uint64_t between(exact_case *at, uint64_t least, uint64_t most)
{
    return most <= least ? least : least + test_random_below(&at->rng, most - least);
}

void exact_check_policy(exact_case *at, const exact_policy *policy, int n_between,
                        bool is_unlimited)
{
    dunlin_trainer_options options = at->options;
    options.policy = policy->policy;
    options.baselines = dunlin_baselines_published();
    options.n_threads = random_threads(at);
    /* Slices of ghosts are part of what is computed, under every policy. */
    if (policy->has_slices && !options.ghost_statistics) {
        const int64_t batch = options.batch;
        const int64_t size = 1 + (int64_t)test_random_below(&at->rng, (uint64_t)batch);
        options.micro_batch = at->may_slice ? size : batch;
    }
    const uint64_t least = least_arena(at, &options, policy);
    at->counts->n_at_least++;
    check_slab(at, &options, policy, least);
    for (int i = 0; i < n_between; i++) {
        check_slab(at, &options, policy, between(at, least, at->arena_bytes));
    }
    if (is_unlimited) {
        check_slab(at, &options, policy, 0);
    }
}

void exact_check_budgets(exact_case *at)
{
    dunlin_trainer_options options = at->options;
    options.policy = DUNLIN_POLICY_AUTO;
    options.n_threads = random_threads(at);
    options.budget_bytes = 1;
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    const dunlin_status status = dunlin_trainer_estimate(at->model, &options, &report, &error);
    cr_assert_eq(status, DUNLIN_BUDGET, "seed %" PRIu64 " (%s): %s %s", at->seed, at->name,
                 dunlin_status_name(status), error.text);
    const uint64_t least = error.needed_bytes;
    options.budget_bytes = 0;
    cr_assert_eq(dunlin_trainer_estimate(at->model, &options, &report, &error), DUNLIN_OK);
    for (int i = 0; i < 2; i++) {
        options.budget_bytes = i == 0 ? least : between(at, least, report.planned_bytes);
        check_run(at, &options, true, i == 0 ? "the least budget" : "a budget");
    }
}

void exact_check_slices(exact_case *at)
{
    static const int64_t sizes[] = {1, 2, 3, 5};
    dunlin_trainer_options options = at->options;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && sizes[i] < options.batch; i++) {
        options.micro_batch = sizes[i];
        options.n_threads = 1 + (int32_t)(i % 2);
        if (sizes[i] == 3) {
            check_slab(at, &options, &exact_policies[0], 0);
        }
        const uint64_t least = least_arena(at, &options, &exact_policies[0]);
        check_slab(at, &options, &exact_policies[0], between(at, least, at->arena_bytes));
    }
}
