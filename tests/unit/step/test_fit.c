/*
 * test_fit.c - whole fits: the order of an epoch, limits, cursors, progress, stopping.
 */
#include "graph/shuffle.h"
#include "random.h"
#include "step/step_support.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

Test(fit, an_order_is_a_permutation)
{
    uint64_t rng = test_seed(4242);
    for (int i = 0; i < test_cases(300); i++) {
        const int64_t n = i < 40 ? i + 1 : 1 + (int64_t)test_random_below(&rng, 5000);
        bool *seen = calloc((size_t)n, sizeof *seen);
        cr_assert_not_null(seen);
        dunlin_shuffle shuffle;
        const uint64_t seed = test_random_u64(&rng);
        dunlin__shuffle_init(&shuffle, n, seed, i);
        for (int64_t k = 0; k < n; k++) {
            const int64_t at = dunlin__shuffle_at(&shuffle, k);
            cr_assert(at >= 0 && at < n, "seed %llu, n %lld", (unsigned long long)seed,
                      (long long)n);
            cr_assert_not(seen[at], "seed %llu, n %lld: %lld comes twice", (unsigned long long)seed,
                          (long long)n, (long long)at);
            seen[at] = true;
        }
        free(seen);
    }
}

Test(fit, an_order_looks_drawn)
{
    enum { N = 60000 };
    dunlin_shuffle one;
    dunlin_shuffle two;
    dunlin__shuffle_init(&one, N, 1, 0);
    dunlin__shuffle_init(&two, N, 1, 1);
    int n_fixed = 0;
    int n_following = 0;
    int n_same = 0;
    int n_low_in_first_half = 0;
    for (int64_t i = 0; i + 1 < N; i++) {
        const int64_t at = dunlin__shuffle_at(&one, i);
        n_fixed += at == i ? 1 : 0;
        n_following += dunlin__shuffle_at(&one, i + 1) == at + 1 ? 1 : 0;
        n_same += dunlin__shuffle_at(&two, i) == at ? 1 : 0;
        n_low_in_first_half += i < N / 2 && at < N / 2 ? 1 : 0;
    }
    /* Each is about 1 in a drawn permutation. */
    cr_expect_lt(n_fixed, 12);
    cr_expect_lt(n_following, 12);
    cr_expect_lt(n_same, 12);
    /* 15,000 with a deviation of about 61. */
    cr_expect(n_low_in_first_half > 14600 && n_low_in_first_half < 15400, "%d",
              n_low_in_first_half);
    /* Sizes beyond 32 bits work the same way. */
    const int64_t huge = INT64_MAX - 5;
    dunlin__shuffle_init(&one, huge, 3, 0);
    cr_expect(dunlin__shuffle_at(&one, 0) != dunlin__shuffle_at(&one, huge - 1));
}

/* A fit in pieces of `n_steps` against the same fit in one go. */
static void check_resumed(const dunlin_model *model, int64_t n_steps, bool keep_order,
                          bool drop_last)
{
    const dunlin_trainer_options options = test_options(8);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 3;
    fit.keep_order = keep_order;
    fit.drop_last = drop_last;
    test_source source;
    test_source_init(&source, model, 29, DUNLIN_U8);
    dunlin_trainer *whole = test_create(model, &options);
    dunlin_trainer *pieces = test_create(model, &options);
    dunlin_metrics metrics;
    cr_assert_eq(dunlin_trainer_fit(whole, &source.source, &fit, NULL, &metrics), DUNLIN_OK);
    cr_expect_eq(metrics.n_examples, 3 * (drop_last ? 24 : 29));
    fit.max_steps = n_steps;
    dunlin_fit_cursor cursor = {.epoch = 0};
    int64_t n_seen = 0;
    int n_calls = 0;
    while (!cursor.is_done) {
        cr_assert_eq(dunlin_trainer_fit(pieces, &source.source, &fit, &cursor, &metrics),
                     DUNLIN_OK);
        n_seen += metrics.n_examples;
        cr_assert_lt(++n_calls, 100);
    }
    cr_expect_eq(n_seen, 3 * (drop_last ? 24 : 29));
    int64_t n = 0;
    float *one = test_weights(whole, &n);
    float *other = test_weights(pieces, &n);
    cr_expect(test_same_bits(one, other, n), "pieces of %lld steps", (long long)n_steps);
    /* A cursor at the end has nothing left to do. */
    cr_expect_eq(dunlin_trainer_fit(pieces, &source.source, &fit, &cursor, &metrics), DUNLIN_OK);
    cr_expect_eq(metrics.n_examples, 0);
    free(one);
    free(other);
    dunlin_trainer_destroy(whole);
    dunlin_trainer_destroy(pieces);
}

Test(fit, a_cursor_resumes)
{
    dunlin_model *model = test_small_model(false);
    check_resumed(model, 1, false, false);
    check_resumed(model, 3, false, false);
    check_resumed(model, 4, true, true);
    check_resumed(model, 5, false, true);
    dunlin_model_destroy(model);
}

Test(fit, the_order_matters_and_is_shuffled)
{
    dunlin_model *model = test_dense_model(20, 4);
    dunlin_trainer_options options = test_options(4);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    test_source source;
    test_source_init(&source, model, 32, DUNLIN_U8);
    float *weights[2];
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        fit.keep_order = i == 1;
        dunlin_trainer *trainer = test_create(model, &options);
        cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_OK);
        weights[i] = test_weights(trainer, &n);
        dunlin_trainer_destroy(trainer);
    }
    cr_expect_not(test_same_bits(weights[0], weights[1], n));
    free(weights[0]);
    free(weights[1]);
    dunlin_model_destroy(model);
}

typedef struct progress_log {
    dunlin_trainer *trainer;
    int64_t n_calls;
    int64_t stop_at_call; /* from within, by returning false; 0: never */
    int64_t flag_at_call; /* through dunlin_trainer_stop(); 0: never */
    dunlin_progress last;
} progress_log;

static bool log_progress(void *ctx, const dunlin_progress *progress)
{
    progress_log *log = ctx;
    cr_expect(progress->n_seen > log->last.n_seen || log->n_calls == 0);
    log->last = *progress;
    log->n_calls++;
    if (log->n_calls == log->flag_at_call) {
        dunlin_trainer_stop(log->trainer);
    }
    return log->n_calls != log->stop_at_call;
}

/* Stops after two of four steps, then goes on to the same end as without a stop. */
static void check_stop(bool by_flag)
{
    dunlin_model *model = test_small_model(false);
    progress_log log = {.stop_at_call = by_flag ? 0 : 2, .flag_at_call = by_flag ? 2 : 0};
    dunlin_trainer_options options = test_options(8);
    test_source source;
    test_source_init(&source, model, 30, DUNLIN_U8);
    dunlin_trainer *plain = test_create(model, &options);
    options.progress_fn = log_progress;
    options.progress_ctx = &log;
    log.trainer = test_create(model, &options);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    dunlin_fit_cursor cursor = {.epoch = 0};
    cr_expect_eq(dunlin_trainer_fit(log.trainer, &source.source, &fit, &cursor, NULL),
                 DUNLIN_STOPPED);
    cr_expect_eq(log.n_calls, 2);
    cr_expect_eq(log.last.step, 2);
    cr_expect_eq(log.last.n_seen, 16);
    cr_expect_eq(log.last.n_total, 30);
    cr_expect_gt(log.last.loss, 0.0);
    cr_expect_eq(cursor.position, 16);
    log.n_calls = 0;
    log.stop_at_call = 0;
    log.flag_at_call = 0;
    cr_expect_eq(dunlin_trainer_fit(log.trainer, &source.source, &fit, &cursor, NULL), DUNLIN_OK);
    cr_expect_eq(log.n_calls, 2);
    cr_expect_eq(log.last.n_total, 14);
    cr_assert_eq(dunlin_trainer_fit(plain, &source.source, &fit, NULL, NULL), DUNLIN_OK);
    int64_t n = 0;
    float *one = test_weights(plain, &n);
    float *other = test_weights(log.trainer, &n);
    cr_expect(test_same_bits(one, other, n));
    free(one);
    free(other);
    dunlin_trainer_destroy(plain);
    dunlin_trainer_destroy(log.trainer);
    dunlin_model_destroy(model);
}

Test(fit, stops_when_asked_and_goes_on)
{
    check_stop(false);
    check_stop(true);
}

Test(fit, evaluation_stops_too)
{
    dunlin_model *model = test_small_model(false);
    progress_log log = {.stop_at_call = 1};
    dunlin_trainer_options options = test_options(8);
    options.progress_fn = log_progress;
    options.progress_ctx = &log;
    test_source source;
    test_source_init(&source, model, 30, DUNLIN_U8);
    log.trainer = test_create(model, &options);
    dunlin_metrics metrics;
    cr_expect_eq(dunlin_trainer_evaluate(log.trainer, &source.source, 0, 30, &metrics),
                 DUNLIN_STOPPED);
    cr_expect_eq(metrics.n_examples, 8);
    dunlin_trainer_destroy(log.trainer);
    dunlin_model_destroy(model);
}

Test(fit, limits_and_totals)
{
    dunlin_model *model = test_dense_model(12, 3);
    progress_log log = {.n_calls = 0};
    dunlin_trainer_options options = test_options(8);
    options.progress_fn = log_progress;
    options.progress_ctx = &log;
    test_source source;
    test_source_init(&source, model, 20, DUNLIN_F32);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 4;
    fit.max_steps = 5;
    dunlin_metrics metrics;
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, &metrics), DUNLIN_OK);
    /* Three steps of the first epoch, 20 examples; two of the second. */
    cr_expect_eq(metrics.n_examples, 36);
    cr_expect_eq(log.last.n_total, 36);
    cr_expect_eq(log.last.epoch, 1);
    cr_expect_eq(log.n_calls, 5);
    /* A limit in time ends after the first step that is over it. */
    memset(&log, 0, sizeof log);
    fit.max_steps = 0;
    fit.epochs = 1000000;
    fit.max_ms = 30;
    cr_assert_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, &metrics), DUNLIN_OK);
    cr_expect_gt(metrics.n_examples, 0);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

Test(fit, wrong_arguments)
{
    dunlin_model *model = test_dense_model(12, 3);
    const dunlin_trainer_options options = test_options(8);
    test_source source;
    test_source_init(&source, model, 5, DUNLIN_F32);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.drop_last = true;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_ARGUMENT);
    fit.drop_last = false;
    fit.epochs = -1;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_ARGUMENT);
    fit.epochs = 1;
    dunlin_fit_cursor cursor = {.position = 6};
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, &fit, &cursor, NULL), DUNLIN_ARGUMENT);
    fit.struct_size = 0;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, NULL, NULL, NULL), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}
