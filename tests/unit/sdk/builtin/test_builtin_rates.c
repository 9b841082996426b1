/*
 * test_builtin_rates.c - rates that the built-in learner refuses.
 */
#include "builtin_bench.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

Test(builtin_rates, a_training_without_a_rate_is_refused)
{
    static const float rates[] = {0.0F, -1.0F, NAN};
    builtin_bench b;
    bench_begin(&b, 1);
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        b.task.kind = DUNLIN_TASK_TRAIN;
        b.task.lr = rates[i];
        cr_expect_eq(bench_load(&b), DUNLIN_ARGUMENT);
        cr_expect_not_null(strstr(b.learner.ops->error_text(b.learner.self), "learning rate"));
    }
    b.task.kind = DUNLIN_TASK_EVALUATE; /* takes no steps */
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    b.learner.ops->unload(b.learner.self);
    b.task.kind = DUNLIN_TASK_TRAIN;
    b.task.lr = 0.1F;
    cr_assert_eq(bench_load(&b), DUNLIN_OK);
    b.learner.ops->unload(b.learner.self);
    bench_end(&b);
}

/* What SCAFFOLD's variates become is computed from one rate. */
Test(builtin_rates, scaffold_over_groups_is_refused)
{
    builtin_bench b;
    bench_begin(&b, 1);
    dunlin_parameter_group group = DUNLIN_PARAMETER_GROUP_INIT;
    group.patterns = "fc2.*";
    group.lr_factor = 2.0F;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.groups = &group;
    options.n_groups = 1;
    const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                  .read_fn = bench_read,
                                  .n_examples = BENCH_EXAMPLES,
                                  .dtype = DUNLIN_F32};
    dunlin_trainer_pool *pool = NULL;
    dunlin_builtin *builtin = NULL;
    dunlin_learner learner;
    cr_assert_eq(dunlin_trainer_pool_create(b.model, &options, 1, &pool, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_builtin_create(pool, &source, NULL, &builtin, &learner, NULL), DUNLIN_OK);
    cr_expect_eq(learner.ops->load(learner.self, &b.task, &b.reader), DUNLIN_OK);
    learner.ops->unload(learner.self);
    b.task.correction = &b.reader;
    cr_expect_eq(learner.ops->load(learner.self, &b.task, &b.reader), DUNLIN_UNSUPPORTED);
    cr_expect_not_null(strstr(learner.ops->error_text(learner.self), "groups"));
    dunlin_builtin_destroy(builtin);
    dunlin_trainer_pool_destroy(pool);
    bench_end(&b);
}
