/*
 * test_remainder.c - what is done with the examples that whole batches leave over: the same weights
 * as the batches written down by hand, one step each.
 */
#include "graph/shuffle.h"
#include "random.h"
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define BATCH 8
#define EPOCHS 2
#define SEED 77
#define MOST_STEPS 6

/* The batches of an epoch, by hand; a 0 ends them. */
typedef struct cut {
    int64_t n_examples;
    dunlin_remainder remainder;
    int64_t sizes[MOST_STEPS];
} cut;

static const cut cuts[] = {
    {16, DUNLIN_REMAINDER_JOIN, {8, 8}},    {17, DUNLIN_REMAINDER_JOIN, {8, 9}},
    {19, DUNLIN_REMAINDER_JOIN, {8, 11}},   {20, DUNLIN_REMAINDER_JOIN, {8, 8, 4}},
    {23, DUNLIN_REMAINDER_JOIN, {8, 8, 7}}, {9, DUNLIN_REMAINDER_JOIN, {9}},
    {8, DUNLIN_REMAINDER_JOIN, {8}},        {3, DUNLIN_REMAINDER_JOIN, {3}},
    {19, DUNLIN_REMAINDER_KEEP, {8, 8, 3}}, {3, DUNLIN_REMAINDER_KEEP, {3}},
    {19, DUNLIN_REMAINDER_DROP, {8, 8}},    {24, DUNLIN_REMAINDER_DROP, {8, 8, 8}},
};
#define N_CUTS (sizeof cuts / sizeof cuts[0])

/* Every step on its own, its examples named one by one. */
static float *step_by_hand(const dunlin_model *model, const dunlin_source *source, const cut *c,
                           int64_t *out_n)
{
    dunlin_trainer_options options = test_options(2 * BATCH);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer_set_seed(trainer, SEED);
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        dunlin_shuffle shuffle;
        dunlin__shuffle_init(&shuffle, c->n_examples, SEED, epoch);
        int64_t at = 0;
        for (int s = 0; s < MOST_STEPS && c->sizes[s] > 0; s++) {
            int64_t indices[2 * BATCH];
            for (int64_t i = 0; i < c->sizes[s]; i++) {
                indices[i] = dunlin__shuffle_at(&shuffle, at + i);
            }
            dunlin_metrics metrics;
            cr_assert_eq(dunlin_trainer_step(trainer, source, indices, c->sizes[s], &metrics),
                         DUNLIN_OK);
            at += c->sizes[s];
        }
    }
    float *weights = test_weights(trainer, out_n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

static bool note_sizes(void *ctx, const dunlin_progress *progress)
{
    int64_t *seen = ctx; /* how many steps, then examples after each of them */
    cr_assert_lt(seen[0], EPOCHS * MOST_STEPS);
    seen[0]++;
    seen[seen[0]] = progress->n_seen;
    seen[EPOCHS * MOST_STEPS + 1] = progress->n_total;
    return true;
}

/* The fit, cut by the trainer; in calls of max_steps steps where that is not 0. */
static float *fit_cut(const dunlin_model *model, const dunlin_source *source, const cut *c,
                      uint64_t budget_bytes, int64_t max_steps)
{
    int64_t seen[EPOCHS * MOST_STEPS + 2] = {0};
    dunlin_trainer_options options = test_options(dunlin_joined_batch(c->n_examples, BATCH));
    options.budget_bytes = budget_bytes;
    options.progress_fn = note_sizes;
    options.progress_ctx = seen;
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_trainer_set_seed(trainer, SEED);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = EPOCHS;
    fit.batch = BATCH;
    fit.remainder = c->remainder;
    fit.max_steps = max_steps;
    dunlin_fit_cursor cursor = {0};
    int64_t n_steps = 0;
    int64_t n_wanted = 0;
    while (!cursor.is_done) {
        memset(seen, 0, sizeof seen);
        cr_assert_eq(dunlin_trainer_fit(trainer, source, &fit, &cursor, NULL), DUNLIN_OK, "%s",
                     dunlin_trainer_last_error(trainer)->text);
        cr_expect_eq(seen[seen[0]], seen[EPOCHS * MOST_STEPS + 1],
                     "%lld examples: %lld seen of %lld that were to come", (long long)c->n_examples,
                     (long long)seen[seen[0]], (long long)seen[EPOCHS * MOST_STEPS + 1]);
        n_steps += seen[0];
    }
    while (n_wanted < MOST_STEPS && c->sizes[n_wanted] > 0) {
        n_wanted++;
    }
    cr_expect_eq(n_steps, EPOCHS * n_wanted);
    cr_expect_eq(dunlin_epoch_steps(c->n_examples, BATCH, c->remainder), n_wanted);
    int64_t n = 0;
    float *weights = test_weights(trainer, &n);
    dunlin_trainer_destroy(trainer);
    return weights;
}

static void check_cut(const dunlin_model *model, const cut *c)
{
    test_source source;
    int64_t n = 0;
    test_source_init(&source, model, c->n_examples, DUNLIN_F32);
    float *wanted = step_by_hand(model, &source.source, c, &n);
    dunlin_trainer_options options = test_options(dunlin_joined_batch(c->n_examples, BATCH));
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    const uint64_t budgets[] = {0, report.least_budget_bytes};
    for (size_t b = 0; b < 2; b++) {
        for (int64_t max_steps = 0; max_steps < 3; max_steps += 2) {
            float *found = fit_cut(model, &source.source, c, budgets[b], max_steps);
            cr_expect(test_same_bits(wanted, found, n),
                      "%lld examples, remainder %d, budget %llu, calls of %lld steps",
                      (long long)c->n_examples, (int)c->remainder, (unsigned long long)budgets[b],
                      (long long)max_steps);
            free(found);
        }
    }
    free(wanted);
}

Test(remainder, gives_the_weights_of_batches_written_down)
{
    dunlin_model *plain = test_small_model(false);
    dunlin_model *norms = test_small_model(true);
    for (size_t i = 0; i < N_CUTS; i++) {
        check_cut(plain, &cuts[i]);
        check_cut(norms, &cuts[i]);
    }
    dunlin_model_destroy(plain);
    dunlin_model_destroy(norms);
}

Test(remainder, the_joined_batch_is_at_most_half_as_much_again)
{
    cr_expect_eq(dunlin_joined_batch(1250, 32), 34);
    cr_expect_eq(dunlin_joined_batch(1248, 32), 32);
    cr_expect_eq(dunlin_joined_batch(47, 32), 47);
    cr_expect_eq(dunlin_joined_batch(48, 32), 32);
    cr_expect_eq(dunlin_joined_batch(31, 32), 32);
    cr_expect_eq(dunlin_joined_batch(100, 1), 1);
    for (int64_t batch = 1; batch < 40; batch++) {
        for (int64_t n = 1; n < 200; n++) {
            const int64_t most = dunlin_joined_batch(n, batch);
            cr_assert(most >= batch && 2 * most < 3 * batch + (batch == most ? 1 : 0));
        }
    }
}

Test(remainder, what_does_not_fit_is_named)
{
    dunlin_model *model = test_dense_model(12, 3);
    dunlin_trainer_options options = test_options(BATCH);
    test_source source;
    test_source_init(&source, model, 19, DUNLIN_F32);
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.remainder = DUNLIN_REMAINDER_JOIN;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(dunlin_trainer_last_error(trainer)->text, "11"));
    fit.batch = BATCH + 1;
    fit.remainder = DUNLIN_REMAINDER_KEEP;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_ARGUMENT);
    fit.batch = -1;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_ARGUMENT);
    fit.batch = 0;
    fit.remainder = (dunlin_remainder)3;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_ARGUMENT);
    fit.remainder = DUNLIN_REMAINDER_JOIN;
    fit.drop_last = true;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_ARGUMENT);
    /* A caller that knows the struct's first version only. */
    fit.struct_size = offsetof(dunlin_fit_options, batch);
    fit.drop_last = false;
    fit.batch = -1;
    cr_expect_eq(dunlin_trainer_fit(trainer, &source.source, &fit, NULL, NULL), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}
