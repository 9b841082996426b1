/*
 * test_orders.c - what a plan orders reaches the learner in its own words, and nothing where
 * nothing was ordered.
 */
#include "round/task_orders.h"

#include <criterion/criterion.h>

#include <string.h>

Test(orders, a_plain_plan_orders_nothing)
{
    const dunlin__training_plan plan = {.n_epochs = 1, .learning_rate = 0.1F};
    dunlin__task_orders orders;
    dunlin_task task = {.epochs = 1};
    dunlin_task same = task;
    dunlin__task_take_orders(&plan, &orders, &task);
    cr_expect_null(task.parameters);
    cr_expect_null(task.schedule);
    cr_expect_eq(memcmp(&task, &same, sizeof task), 0);
}

Test(orders, storage_is_told_in_the_learners_words)
{
    static const dunlin_task_storage told[] = {[DUNLIN_V1_STORAGE_EXACT] =
                                                   DUNLIN_TASK_STORAGE_EXACT,
                                               [DUNLIN_V1_STORAGE_BF16] = DUNLIN_TASK_STORAGE_BF16,
                                               [DUNLIN_V1_STORAGE_INT8] = DUNLIN_TASK_STORAGE_INT8};
    for (int i = 0; i < 3; i++) {
        const dunlin__training_plan plan = {.n_epochs = 1, .storage = (dunlin_v1_storage_t)i};
        dunlin__task_orders orders;
        dunlin_task task = {.epochs = 1};
        dunlin__task_take_orders(&plan, &orders, &task);
        cr_expect_eq(task.storage, told[i]);
    }
}

Test(orders, each_is_told_in_the_learners_words)
{
    dunlin__training_plan plan = {.has_parameters = true,
                                  .has_schedule = true,
                                  .has_augmentation = true,
                                  .augmentation = {.flips = true,
                                                   .crop_padding = 3,
                                                   .cutout = 5,
                                                   .shift = 6,
                                                   .mixup = 0.5F,
                                                   .noise = 0.25F},
                                  .gradient_clip_norm = 2.0F,
                                  .gradient_clip_value = 3.0F,
                                  .ignores_label = true,
                                  .ignored_label = -100};
    dunlin_v1_parameter_choice_t *choice = &plan.parameters;
    choice->trained = DUNLIN_V1_TRAINED_BIASES_AND_NORMS;
    choice->no_norm_decay = true;
    strcpy(choice->trained_prefixes, "a,b");
    strcpy(choice->frozen_prefixes, "c");
    choice->groups_count = 2;
    strcpy(choice->groups[1].name, "top");
    strcpy(choice->groups[1].patterns, "fc.*");
    choice->groups[1].roles = 1U << DUNLIN_V1_ROLE_BIAS | 1U << DUNLIN_V1_ROLE_FACTOR;
    choice->groups[1].lr_factor = 0.5F;
    choice->groups[1].decay_factor = 4.0F;
    plan.schedule = (dunlin_v1_schedule_t){.kind = DUNLIN_V1_SCHEDULE_KIND_EXPONENTIAL,
                                           .warmup_steps = 5,
                                           .period_steps = 7,
                                           .gamma = 0.25,
                                           .min_lr = 0.125,
                                           .n_rounds = 9};
    dunlin__task_orders orders;
    dunlin_task task = {.epochs = 1};
    dunlin__task_take_orders(&plan, &orders, &task);
    const dunlin_task_parameters *parameters = task.parameters;
    cr_assert_not_null(parameters);
    cr_expect_eq(parameters->trained, DUNLIN_TASK_TRAINED_BIASES_AND_NORMS);
    cr_expect(parameters->no_norm_decay);
    cr_expect_str_eq(parameters->trained_prefixes, "a,b");
    cr_expect_str_eq(parameters->frozen_prefixes, "c");
    cr_assert_eq(parameters->n_groups, 2);
    const dunlin_task_group *group = &parameters->groups[1];
    cr_expect_str_eq(group->name, "top");
    cr_expect_str_eq(group->patterns, "fc.*");
    cr_expect_eq(group->roles, (uint32_t)(DUNLIN_TASK_ROLE_BIAS | DUNLIN_TASK_ROLE_FACTOR));
    cr_expect(group->lr_factor == 0.5F && group->decay_factor == 4.0F);
    cr_assert_not_null(task.schedule);
    cr_expect_eq(task.schedule->kind, DUNLIN_TASK_SCHEDULE_EXPONENTIAL);
    cr_expect(task.schedule->warmup_steps == 5 && task.schedule->period_steps == 7);
    cr_expect(task.schedule->gamma == 0.25 && task.schedule->min_lr == 0.125);
    cr_expect_eq(task.schedule->n_rounds, 9);
    cr_expect(task.flips && !task.crops && task.crop_padding == 3);
    cr_expect(task.cutout == 5 && task.shift == 6 && task.mixup == 0.5F && task.noise == 0.25F);
    cr_expect(task.gradient_clip_norm == 2.0F && task.gradient_clip_value == 3.0F);
    cr_expect(task.has_ignored_label && task.ignored_label == -100);
}

Test(orders, remainders_and_trained_parts_keep_their_meaning)
{
    static const dunlin_task_remainder remainders[] = {
        DUNLIN_TASK_REMAINDER_KEEP, DUNLIN_TASK_REMAINDER_KEEP, DUNLIN_TASK_REMAINDER_DROP,
        DUNLIN_TASK_REMAINDER_JOIN};
    static const dunlin_task_trained trained[] = {DUNLIN_TASK_TRAINED_ALL, DUNLIN_TASK_TRAINED_HEAD,
                                                  DUNLIN_TASK_TRAINED_BIASES_AND_NORMS};
    static const dunlin_task_optimizer optimizers[] = {
        DUNLIN_TASK_OPTIMIZER_SGD, DUNLIN_TASK_OPTIMIZER_SGD, DUNLIN_TASK_OPTIMIZER_ADAM,
        DUNLIN_TASK_OPTIMIZER_ADAMW};
    dunlin__task_orders orders;
    dunlin_task task = {0};
    dunlin__training_plan plan = {.has_parameters = true};
    for (unsigned i = 0; i < 4; i++) {
        plan.remainder = (dunlin_v1_remainder_t)i;
        plan.parameters.trained = (dunlin_v1_trained_t)(i % 3);
        plan.optimizer = (dunlin_v1_optimizer_t)i;
        dunlin__task_take_orders(&plan, &orders, &task);
        cr_expect_eq(task.remainder, remainders[i]);
        cr_expect_eq(task.optimizer, optimizers[i]);
        cr_expect_eq(task.parameters->trained, trained[i % 3]);
    }
}
