/*
 * task_orders.c - what a plan orders beside the plain training, converted from the wire format to
 * the learner's structs.
 *
 * Invariant: the plan has passed the message's rules, so every number is in its range.
 */
#include "task_orders.h"

#include <string.h>

static const dunlin_task_trained trained_of[] = {
    [DUNLIN_V1_TRAINED_ALL] = DUNLIN_TASK_TRAINED_ALL,
    [DUNLIN_V1_TRAINED_HEAD] = DUNLIN_TASK_TRAINED_HEAD,
    [DUNLIN_V1_TRAINED_BIASES_AND_NORMS] = DUNLIN_TASK_TRAINED_BIASES_AND_NORMS};

static const dunlin_task_schedule_kind schedule_of[] = {
    [DUNLIN_V1_SCHEDULE_KIND_CONSTANT] = DUNLIN_TASK_SCHEDULE_CONSTANT,
    [DUNLIN_V1_SCHEDULE_KIND_STEP] = DUNLIN_TASK_SCHEDULE_STEP,
    [DUNLIN_V1_SCHEDULE_KIND_EXPONENTIAL] = DUNLIN_TASK_SCHEDULE_EXPONENTIAL,
    [DUNLIN_V1_SCHEDULE_KIND_COSINE] = DUNLIN_TASK_SCHEDULE_COSINE,
    [DUNLIN_V1_SCHEDULE_KIND_LINEAR] = DUNLIN_TASK_SCHEDULE_LINEAR};

static const dunlin_task_remainder remainder_of[] = {
    [DUNLIN_V1_REMAINDER_UNSPECIFIED] = DUNLIN_TASK_REMAINDER_KEEP,
    [DUNLIN_V1_REMAINDER_KEEP] = DUNLIN_TASK_REMAINDER_KEEP,
    [DUNLIN_V1_REMAINDER_DROP] = DUNLIN_TASK_REMAINDER_DROP,
    [DUNLIN_V1_REMAINDER_JOIN] = DUNLIN_TASK_REMAINDER_JOIN};

static const dunlin_task_optimizer optimizer_of[] = {
    [DUNLIN_V1_OPTIMIZER_UNSPECIFIED] = DUNLIN_TASK_OPTIMIZER_SGD,
    [DUNLIN_V1_OPTIMIZER_SGD] = DUNLIN_TASK_OPTIMIZER_SGD,
    [DUNLIN_V1_OPTIMIZER_ADAM] = DUNLIN_TASK_OPTIMIZER_ADAM,
    [DUNLIN_V1_OPTIMIZER_ADAMW] = DUNLIN_TASK_OPTIMIZER_ADAMW};

static const dunlin_task_storage storage_of[] = {
    [DUNLIN_V1_STORAGE_EXACT] = DUNLIN_TASK_STORAGE_EXACT,
    [DUNLIN_V1_STORAGE_BF16] = DUNLIN_TASK_STORAGE_BF16,
    [DUNLIN_V1_STORAGE_INT8] = DUNLIN_TASK_STORAGE_INT8};

static void take_parameters(const dunlin_v1_parameter_choice_t *from, dunlin__task_orders *orders)
{
    for (int32_t i = 0; i < (int32_t)from->groups_count && i < DUNLIN_TASK_GROUPS; i++) {
        const dunlin_v1_parameter_group_t *group = &from->groups[i];
        orders->groups[i] = (dunlin_task_group){.name = group->name,
                                                .patterns = group->patterns,
                                                .roles = group->roles,
                                                .lr_factor = group->lr_factor,
                                                .decay_factor = group->decay_factor};
    }
    orders->parameters = (dunlin_task_parameters){.struct_size = sizeof orders->parameters,
                                                  .trained = trained_of[from->trained],
                                                  .trained_prefixes = from->trained_prefixes,
                                                  .frozen_prefixes = from->frozen_prefixes,
                                                  .no_norm_decay = from->no_norm_decay,
                                                  .groups = orders->groups,
                                                  .n_groups = (int32_t)from->groups_count};
}

void dunlin__task_take_orders(const dunlin__training_plan *plan, dunlin__task_orders *orders,
                              dunlin_task *task)
{
    memset(orders, 0, sizeof *orders);
    if (plan->has_parameters) {
        take_parameters(&plan->parameters, orders);
        task->parameters = &orders->parameters;
    }
    if (plan->has_schedule) {
        const dunlin_v1_schedule_t *from = &plan->schedule;
        orders->schedule = (dunlin_task_schedule){.struct_size = sizeof orders->schedule,
                                                  .kind = schedule_of[from->kind],
                                                  .warmup_steps = (int64_t)from->warmup_steps,
                                                  .period_steps = (int64_t)from->period_steps,
                                                  .gamma = from->gamma,
                                                  .min_lr = from->min_lr,
                                                  .n_rounds = (int64_t)from->n_rounds};
        task->schedule = &orders->schedule;
    }
    if (plan->has_augmentation) {
        task->flips = plan->augmentation.flips;
        task->crops = plan->augmentation.crops;
        task->crop_padding = (int32_t)plan->augmentation.crop_padding;
        task->cutout = (int32_t)plan->augmentation.cutout;
        task->shift = (int32_t)plan->augmentation.shift;
        task->mixup = plan->augmentation.mixup;
        task->noise = plan->augmentation.noise;
    }
    task->remainder = remainder_of[plan->remainder];
    task->gradient_clip_norm = plan->gradient_clip_norm;
    task->gradient_clip_value = plan->gradient_clip_value;
    task->has_ignored_label = plan->ignores_label;
    task->ignored_label = plan->ignored_label;
    task->precision = plan->precision[0] != '\0' ? plan->precision : NULL;
    task->grad_bits = (int32_t)plan->grad_bits;
    task->storage = storage_of[plan->storage];
    /* Of a plan to evaluate it is not checked, and no matter. */
    const bool is_known = (size_t)plan->optimizer < sizeof optimizer_of / sizeof optimizer_of[0];
    task->optimizer = is_known ? optimizer_of[plan->optimizer] : DUNLIN_TASK_OPTIMIZER_SGD;
}

void dunlin__task_take(const dunlin__assignment *assignment, dunlin__task_orders *orders,
                       dunlin_task *out_task)
{
    const dunlin__training_plan *plan = &assignment->plan;
    *out_task = (dunlin_task){
        .struct_size = sizeof *out_task,
        .kind =
            assignment->kind == DUNLIN_V1_KIND_EVALUATE ? DUNLIN_TASK_EVALUATE : DUNLIN_TASK_TRAIN,
        .population = assignment->population,
        .name = assignment->task,
        .run_epoch = assignment->run_epoch,
        .round = assignment->round,
        .epochs = (int32_t)plan->n_epochs,
        .batch = (int32_t)plan->batch_size,
        .lr = plan->learning_rate,
        .momentum = plan->momentum,
        .weight_decay = plan->weight_decay,
        .proximal_mu = plan->algorithm == DUNLIN_V1_ALGORITHM_FEDPROX ? plan->prox_mu : 0.0F,
        .seed = plan->seed,
        .max_examples = plan->max_examples > INT64_MAX ? 0 : (int64_t)plan->max_examples,
        .max_steps = plan->max_steps > INT64_MAX ? 0 : (int64_t)plan->max_steps,
        .config = plan->learner_config.size > 0 ? plan->learner_config.bytes : NULL,
        .config_bytes = plan->learner_config.size};
    dunlin__task_take_orders(plan, orders, out_task);
    if (out_task->kind == DUNLIN_TASK_EVALUATE) {
        out_task->storage = DUNLIN_TASK_STORAGE_EXACT; /* nothing is kept for a backward pass */
    }
}
