/*
 * adapt_support.c - a trainer whose budget changes in every step, compared with one whose does not.
 */
#include "adapt_support.h"

#include "random.h"
#include "step/context/context.h"
#include "step/context/rungs.h"

#include <dunlin/trainer_experimental.h>

#include <criterion/criterion.h>

#include <stdlib.h>

#define MAX_MOMENTS 4

/* Budgets by the number of the op of a step before which they are asked for. */
typedef struct moments {
    dunlin_trainer *trainer;
    int64_t op; /* of the step in progress */
    int32_t n;
    struct {
        int64_t op;
        uint64_t budget_bytes;
    } at[MAX_MOMENTS];
} moments;

/* An op is asked for at the end of the one before it: it is obeyed before the next. */
static void watch_op(void *ctx, const dunlin_step_op *op, int64_t first, int64_t n_samples,
                     bool is_done)
{
    moments *all = ctx;
    (void)op;
    (void)first;
    (void)n_samples;
    if (!is_done) {
        const dunlin_trainer *trainer = all->trainer;
        const uint64_t budget = trainer->ladder->budget_bytes;
        cr_assert(budget == 0 ||
                  trainer->arena.committed_bytes + trainer->ladder->table_bytes <= budget);
        return;
    }
    for (int32_t i = 0; i < all->n; i++) {
        if (all->at[i].op == all->op) {
            cr_assert_eq(dunlin_trainer_set_budget(all->trainer, all->at[i].budget_bytes, NULL),
                         DUNLIN_OK);
        }
    }
    all->op++;
}

/* One step on the examples of its number; how many ops ran. */
static int64_t run_step(dunlin_trainer *trainer, const test_source *source, int64_t step, int64_t n,
                        moments *all)
{
    int64_t indices[64];
    cr_assert(n <= 64);
    for (int64_t i = 0; i < n; i++) {
        indices[i] = (step * n + i) % source->source.n_examples;
    }
    const dunlin_step_watch watch = {.op_fn = watch_op, .ctx = all};
    if (all != NULL) {
        all->trainer = trainer;
        all->op = 0;
        trainer->watch = &watch;
    }
    const dunlin_status status = dunlin_trainer_step(trainer, &source->source, indices, n, NULL);
    trainer->watch = NULL;
    cr_assert_eq(status, DUNLIN_OK, "step %lld: %s", (long long)step,
                 dunlin_trainer_last_error(trainer)->text);
    return all != NULL ? all->op : 0;
}

static void expect_same_weights(const dunlin_trainer *a, const dunlin_trainer *b, const char *net,
                                int64_t op, uint64_t seed)
{
    int64_t n_a = 0;
    int64_t n_b = 0;
    float *weights_a = test_weights(a, &n_a);
    float *weights_b = test_weights(b, &n_b);
    cr_assert_eq(n_a, n_b);
    cr_assert(test_same_bits(weights_a, weights_b, n_a),
              "%s, seed %llu: a change before op %lld changes the weights", net,
              (unsigned long long)seed, (long long)op);
    free(weights_a);
    free(weights_b);
}

static uint64_t lowest_of(const dunlin_trainer *trainer)
{
    const dunlin_ladder *ladder = trainer->ladder;
    return ladder->table_bytes + ladder->fallbacks[ladder->n_fallbacks - 1].arena_bytes;
}

void test_adapt_check(const dunlin_model *model, const char *net,
                      const dunlin_trainer_options *options, int64_t n_steps, uint64_t seed)
{
    dunlin_trainer_options changing = *options;
    changing.least_budget_bytes = 1;
    dunlin_trainer *plain = test_create(model, options);
    dunlin_trainer *trainer = test_create(model, &changing);
    test_source source;
    test_source_init(&source, model, 3 * options->batch + 1, DUNLIN_F32);
    uint64_t rng = seed;
    moments none = {.n = 0};
    const uint64_t low = lowest_of(trainer);
    const uint64_t high = trainer->ladder->table_bytes + trainer->ladder->fallbacks[0].arena_bytes;
    (void)run_step(plain, &source, 0, options->batch, NULL);
    const int64_t n_ops = run_step(trainer, &source, 0, options->batch, &none);
    expect_same_weights(plain, trainer, net, -1, seed);
    const int64_t n = n_steps == 0 ? n_ops : n_steps;
    for (int64_t i = 0; i < n; i++) {
        const int64_t op = n_steps == 0 ? i : (int64_t)test_random_below(&rng, (uint64_t)n_ops);
        const int64_t n_batch =
            i % 5 == 4 && options->batch > 1 ? options->batch - 1 : options->batch;
        moments all = {.n = 3};
        all.at[0].op = op;
        all.at[0].budget_bytes = low + test_random_below(&rng, 3) * (high - low) / 3;
        all.at[1].op = op + 1 + (int64_t)test_random_below(&rng, 12);
        all.at[1].budget_bytes =
            i % 3 == 0 ? low : low + test_random_below(&rng, 5) * (high - low) / 4;
        all.at[2].op = i % 2 == 0 ? -1 : op + 3 + (int64_t)test_random_below(&rng, 30);
        all.at[2].budget_bytes = high;
        (void)run_step(plain, &source, i + 1, n_batch, NULL);
        (void)run_step(trainer, &source, i + 1, n_batch, &all);
        expect_same_weights(plain, trainer, net, op, seed);
        /* Every second step begins with all there is again. */
        if (i % 2 == 0) {
            cr_assert_eq(dunlin_trainer_set_budget(trainer, high, NULL), DUNLIN_OK);
        }
    }
    cr_expect_gt(dunlin_trainer_n_budget_changes(trainer), 0);
    dunlin_trainer_destroy(trainer);
    dunlin_trainer_destroy(plain);
}

void test_adapt_trace(const dunlin_model *model, const char *net,
                      const dunlin_trainer_options *options, int64_t n_steps, int64_t n_changes,
                      uint64_t seed)
{
    dunlin_trainer_options changing = *options;
    changing.least_budget_bytes = 1;
    dunlin_trainer_options fixed = *options;
    fixed.least_budget_bytes = 0;
    fixed.slab = NULL;
    dunlin_trainer *plain = test_create(model, &fixed);
    dunlin_trainer *trainer = test_create(model, &changing);
    test_source source;
    test_source_init(&source, model, 3 * options->batch + 1, DUNLIN_F32);
    uint64_t rng = seed;
    const uint64_t low = lowest_of(trainer);
    const uint64_t high = trainer->ladder->table_bytes + trainer->ladder->fallbacks[0].arena_bytes;
    /* No two wishes are the same, for one that is what there is already is no change. */
    const uint64_t width = (high - low) / (uint64_t)n_changes;
    cr_assert_gt(width, 0, "%s: plans of %llu to %llu bytes", net, (unsigned long long)low,
                 (unsigned long long)high);
    for (int64_t i = 0; i < n_changes; i++) {
        const int64_t step = (int64_t)test_random_below(&rng, (uint64_t)n_steps);
        const double percent = (double)test_random_below(&rng, 1000) / 10.0;
        const uint64_t bytes = low + (uint64_t)i * width + test_random_below(&rng, width);
        cr_assert_eq(dunlin_trainer_set_budget_at(trainer, step, percent, bytes), DUNLIN_OK);
    }
    const uint64_t tables = trainer->counter.now_bytes;
    for (int64_t step = 0; step < n_steps; step++) {
        (void)run_step(plain, &source, step, options->batch, NULL);
        (void)run_step(trainer, &source, step, options->batch, NULL);
        expect_same_weights(plain, trainer, net, step, seed);
        cr_assert(trainer->ladder->budget_bytes == 0 ||
                  trainer->arena.committed_bytes + tables <= trainer->ladder->budget_bytes);
    }
    /* A wish for the very last moment of a step is obeyed after it. */
    cr_assert_eq(dunlin_trainer_n_steps(trainer), n_steps);
    cr_expect_eq(trainer->ladder->n_wishes, 0);
    cr_expect_eq(dunlin_trainer_n_budget_changes(trainer), n_changes);
    cr_expect_eq(trainer->counter.now_bytes, tables, "%s: memory is not given back", net);
    dunlin_trainer_destroy(trainer);
    dunlin_trainer_destroy(plain);
}

void test_adapt_infer(const dunlin_model *model, const dunlin_trainer_options *options)
{
    dunlin_trainer_options changing = *options;
    changing.least_budget_bytes = 1;
    dunlin_trainer *trainer = test_create(model, &changing);
    const int64_t n_examples = 2 * options->batch + 1;
    test_source source;
    test_source_init(&source, model, n_examples, DUNLIN_F32);
    dunlin_metrics plain = {.n_examples = 0};
    moments all = {.n = 0, .trainer = trainer};
    const dunlin_step_watch watch = {.op_fn = watch_op, .ctx = &all};
    trainer->watch = &watch;
    cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, n_examples, &plain),
                 DUNLIN_OK);
    const int64_t n_ops = all.op;
    cr_assert_gt(n_ops, 4);
    const uint64_t low = lowest_of(trainer);
    const uint64_t high = trainer->ladder->table_bytes + trainer->ladder->fallbacks[0].arena_bytes;
    for (int64_t op = 0; op + 1 < n_ops; op++) {
        all.n = 2;
        all.op = 0;
        all.at[0].op = op;
        all.at[0].budget_bytes = low;
        all.at[1].op = op + 2;
        all.at[1].budget_bytes = high - (high - low) / 3;
        dunlin_metrics found = {.n_examples = 0};
        const int64_t n_before = dunlin_trainer_n_budget_changes(trainer);
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, n_examples, &found),
                     DUNLIN_OK);
        cr_assert_eq(found.n_examples, plain.n_examples);
        cr_assert(found.loss == plain.loss && found.accuracy == plain.accuracy,
                  "a change after op %lld: loss %a, not %a", (long long)op, found.loss, plain.loss);
        cr_assert_gt(dunlin_trainer_n_budget_changes(trainer), n_before);
        cr_assert_leq(trainer->arena.committed_bytes, high);
        cr_assert_eq(dunlin_trainer_set_budget(trainer, high, NULL), DUNLIN_OK);
    }
    dunlin_trainer_destroy(trainer);
}
