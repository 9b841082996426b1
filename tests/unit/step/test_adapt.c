/*
 * test_adapt.c - the budget changes in the middle of a step, and no bit of the weights does.
 */
#include "random.h"
#include "step/adapt_support.h"

#include <dunlin/trainer_experimental.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

static void check_random_nets(int n_nets, bool has_batch_norm, uint64_t seed)
{
    uint64_t rng = test_seed(seed);
    for (int i = 0; i < n_nets; i++) {
        const uint64_t net_seed = rng;
        dunlin_model *model = test_random_model(&rng, has_batch_norm);
        dunlin_trainer_options options = test_options(3 + (int64_t)test_random_below(&rng, 5));
        options.no_fuse = i % 4 == 3;
        options.n_threads = 1 + i % 2;
        test_adapt_check(model, has_batch_norm ? "a net with batch norm" : "a net", &options, 0,
                         net_seed);
        dunlin_model_destroy(model);
    }
}

Test(adapt, at_every_op_of_random_nets, .timeout = 900)
{
    check_random_nets(test_cases(5), false, 61);
}

Test(adapt, at_every_op_of_random_nets_with_batch_norm, .timeout = 900)
{
    check_random_nets(test_cases(5), true, 62);
}

Test(adapt, two_hundred_changes_in_fifty_steps, .timeout = 900)
{
    uint64_t rng = test_seed(65);
    for (int i = 0; i < 2; i++) {
        const uint64_t net_seed = rng;
        dunlin_model *model = test_random_model(&rng, i == 0);
        const dunlin_trainer_options options = test_options(6);
        test_adapt_trace(model, "a random net", &options, 50, 200, net_seed);
        dunlin_model_destroy(model);
    }
}

/* An op takes one wish: those for the last moment of the last step are all obeyed after it, in
 * their order, and so is one for the beginning of the step that would be next. */
Test(adapt, wishes_for_the_last_moment, .timeout = 900)
{
    uint64_t rng = test_seed(67);
    dunlin_model *model = test_random_model(&rng, true);
    dunlin_trainer_options options = test_options(6);
    options.least_budget_bytes = 1;
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_error refused = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin_trainer_set_budget(trainer, 1, &refused), DUNLIN_BUDGET);
    const uint64_t least = refused.needed_bytes;
    enum { N_WISHES = 20 };
    for (int64_t i = 0; i < N_WISHES; i++) {
        const double percent = i % 2 == 0 ? 99.9 : 100.0;
        cr_assert_eq(dunlin_trainer_set_budget_at(trainer, 1, percent, least + (uint64_t)i),
                     DUNLIN_OK);
    }
    cr_assert_eq(dunlin_trainer_set_budget_at(trainer, 2, 0.0, least + N_WISHES), DUNLIN_OK);
    test_source source;
    test_source_init(&source, model, 12, DUNLIN_F32);
    const int64_t indices[6] = {0, 1, 2, 3, 4, 5};
    for (int64_t step = 0; step < 2; step++) {
        cr_assert_eq(dunlin_trainer_step(trainer, &source.source, indices, 6, NULL), DUNLIN_OK);
    }
    cr_expect_eq(dunlin_trainer_n_budget_changes(trainer), N_WISHES + 1);
    dunlin_budget_change last = DUNLIN_BUDGET_CHANGE_INIT;
    cr_assert_eq(dunlin_trainer_budget_change(trainer, N_WISHES, &last), DUNLIN_OK);
    cr_expect_eq(last.to_bytes, least + N_WISHES);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
}

/* The lowest budget that was asked for can be had, for inference too, wherever it can be planned.
 */
Test(adapt, down_to_what_was_asked_for, .timeout = 900)
{
    dunlin_model *model = NULL;
    const dunlin_zoo_options sizes = {
        .struct_size = sizeof(dunlin_zoo_options), .image = 64, .classes = 10};
    cr_assert_eq(dunlin_model_from_zoo("squeezenet1_1", &sizes, NULL, &model, NULL), DUNLIN_OK);
    dunlin_trainer_options options = test_options(512);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    const uint64_t high = report.planned_bytes;
    options.least_budget_bytes = 1;
    dunlin_trainer *trainer = test_create(model, &options);
    dunlin_error refused = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin_trainer_set_budget(trainer, 1, &refused), DUNLIN_BUDGET);
    const uint64_t least = refused.needed_bytes;
    cr_assert(least > 0 && least < high);
    dunlin_trainer_destroy(trainer);
    test_source source;
    test_source_init(&source, model, 20, DUNLIN_F32);
    const int n_budgets = test_cases(24);
    for (int i = 1; i < n_budgets; i++) {
        dunlin_error error = {.status = DUNLIN_OK};
        options.budget_bytes = high;
        options.least_budget_bytes = least + (uint64_t)i * (high - least) / (uint64_t)n_budgets;
        trainer = test_create(model, &options);
        cr_assert_eq(dunlin_trainer_set_budget(trainer, options.least_budget_bytes, &error),
                     DUNLIN_OK, "%s", error.text);
        dunlin_metrics metrics = {.n_examples = 0};
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &source.source, 0, 20, &metrics), DUNLIN_OK);
        dunlin_trainer_destroy(trainer);
    }
    dunlin_model_destroy(model);
}

/* What the trainer says it needs no more is spoiled at once. */
typedef struct trimmed {
    unsigned char *slab;
    uint64_t slab_bytes;
    uint64_t most_bytes;
} trimmed;

static void spoil(void *ctx, void *memory, size_t bytes)
{
    trimmed *all = ctx;
    const unsigned char *at = memory;
    cr_assert(at >= all->slab && at + bytes <= all->slab + all->slab_bytes);
    memset(memory, 0xff, bytes);
    all->most_bytes = bytes > all->most_bytes ? bytes : all->most_bytes;
}

Test(adapt, a_slab_is_trimmed, .timeout = 900)
{
    uint64_t rng = test_seed(66);
    dunlin_model *model = test_random_model(&rng, true);
    dunlin_trainer_options options = test_options(6);
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    options.least_budget_bytes = 1;
    cr_assert_eq(dunlin_trainer_estimate(model, &options, &report, NULL), DUNLIN_OK);
    trimmed all = {.slab_bytes = (report.planned_bytes + 63) / 64 * 64};
    all.slab = aligned_alloc(64, all.slab_bytes);
    cr_assert_not_null(all.slab);
    options.slab = all.slab;
    options.slab_bytes = all.slab_bytes;
    dunlin_trainer *trainer = NULL;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, NULL), DUNLIN_UNSUPPORTED);
    options.trim_fn = spoil;
    options.trim_ctx = &all;
    test_adapt_trace(model, "in a slab", &options, 12, 40, rng);
    cr_expect_gt(all.most_bytes, 0);
    free(all.slab);
    dunlin_model_destroy(model);
}

Test(adapt, at_every_op_of_an_evaluation, .timeout = 900)
{
    uint64_t rng = test_seed(67);
    for (int i = 0; i < 4; i++) {
        dunlin_model *model = test_random_model(&rng, i % 2 == 0);
        dunlin_trainer_options options = test_options(5);
        options.n_threads = 1 + i / 2;
        test_adapt_infer(model, &options);
        dunlin_model_destroy(model);
    }
}
