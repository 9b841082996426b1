/*
 * orders.c - what a plan orders beside the plain training, written into assignments.
 *
 * Invariant: every order that is filled in has its feature, so a device that does not know it gets
 * no offer.
 */
#include "orders.h"

#include "clip.h"

#include <string.h>

_Static_assert(sizeof(((dunlin__training_plan *)0)->precision) == DUNLIN_SERVER_PRECISION_BYTES,
               "a precision's name is as long in a task as in a plan");

static bool has_changes(const dunlin__server_orders *orders)
{
    return orders->cutout > 0 || orders->shift > 0 || orders->mixup > 0 || orders->noise > 0;
}

static bool has_augmentation(const dunlin__server_orders *orders)
{
    return orders->flips || orders->crops || has_changes(orders);
}

size_t dunlin__server_features(const dunlin__server_task *task, bool packs,
                               uint32_t out_features[DUNLIN_SERVER_FEATURES])
{
    const dunlin__server_plan *plan = &task->plan;
    const dunlin__server_orders *orders = &plan->orders;
    const struct {
        bool is_wanted;
        dunlin_v1_feature_t feature;
    } all[] = {
        {plan->proximal_mu > 0, DUNLIN_V1_FEATURE_PROXIMAL_TERM},
        {plan->is_scaffold, DUNLIN_V1_FEATURE_CONTROL_VARIATES},
        {plan->clip_norm > 0, DUNLIN_V1_FEATURE_CLIPPING},
        {dunlin__clip_has_orders(task), DUNLIN_V1_FEATURE_CLIP_ORDERS},
        {task->is_packed && packs, DUNLIN_V1_FEATURE_ENCODING_PACKED},
        {orders->has_parameters, DUNLIN_V1_FEATURE_PARAMETER_CHOICE},
        {orders->has_schedule, DUNLIN_V1_FEATURE_SCHEDULE},
        {orders->flips || orders->crops, DUNLIN_V1_FEATURE_AUGMENTATION},
        {orders->remainder > DUNLIN_V1_REMAINDER_KEEP, DUNLIN_V1_FEATURE_REMAINDER},
        {orders->gradient_clip_norm > 0 || orders->gradient_clip_value > 0,
         DUNLIN_V1_FEATURE_GRADIENT_CLIPPING},
        {orders->ignores_label, DUNLIN_V1_FEATURE_IGNORED_LABEL},
        {orders->optimizer > DUNLIN_V1_OPTIMIZER_SGD, DUNLIN_V1_FEATURE_ADAPTIVE_OPTIMIZER},
        {has_changes(orders), DUNLIN_V1_FEATURE_EXAMPLE_CHANGES},
        {dunlin__server_orders_are_whole(orders), DUNLIN_V1_FEATURE_PRECISION},
        {orders->precision[0] != '\0' && !dunlin__server_orders_are_whole(orders),
         DUNLIN_V1_FEATURE_PRODUCT_PRECISION},
        {orders->storage != DUNLIN_V1_STORAGE_EXACT, DUNLIN_V1_FEATURE_STORAGE},
        {task->secagg.is_on, DUNLIN_V1_FEATURE_SECURE_AGGREGATION},
        {task->secagg.noise_scale > 0, DUNLIN_V1_FEATURE_DISTRIBUTED_NOISE},
        {task->secagg.noise_scale > 0 && task->dp.is_skellam, DUNLIN_V1_FEATURE_SKELLAM_NOISE},
    };
    size_t n = 0;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].is_wanted) {
            out_features[n++] = (uint32_t)all[i].feature;
        }
    }
    return n;
}

void dunlin__orders_settle(dunlin__server_task *task, const dunlin__layout *layout)
{
    dunlin__server_orders *orders = &task->plan.orders;
    bool has_statistics = false;
    for (uint32_t i = 0; i < layout->n_tensors; i++) {
        has_statistics = has_statistics || layout->tensors[i].rule == DUNLIN_V1_RULE_STATISTIC;
    }
    if (orders->remainder == DUNLIN_V1_REMAINDER_UNSPECIFIED && task->n_tensors == 0 &&
        has_statistics) {
        orders->remainder = DUNLIN_V1_REMAINDER_JOIN;
    }
}

void dunlin__orders_fill(const dunlin__server_task *task, uint64_t round,
                         dunlin__training_plan *plan)
{
    const dunlin__server_orders *orders = &task->plan.orders;
    plan->optimizer = orders->optimizer;
    memcpy(plan->precision, orders->precision, sizeof plan->precision);
    plan->grad_bits = dunlin__server_task_grad_bits(task, round);
    plan->storage = orders->storage;
    plan->clips_layers = task->plan.clips_layers;
    plan->reports_clip = task->plan.clip_quantile > 0;
    plan->has_parameters = orders->has_parameters;
    plan->parameters = orders->parameters;
    plan->has_schedule = orders->has_schedule;
    if (orders->has_schedule) {
        plan->schedule = (dunlin_v1_schedule_t){.kind = orders->schedule,
                                                .warmup_steps = orders->warmup_steps,
                                                .period_steps = orders->period_steps,
                                                .gamma = orders->gamma,
                                                .min_lr = orders->min_lr,
                                                .n_rounds = task->rounds};
    }
    plan->has_augmentation = has_augmentation(orders);
    if (plan->has_augmentation) {
        plan->augmentation = (dunlin_v1_augmentation_t){.flips = orders->flips,
                                                        .crops = orders->crops,
                                                        .crop_padding = orders->crop_padding,
                                                        .cutout = orders->cutout,
                                                        .shift = orders->shift,
                                                        .mixup = (float)orders->mixup,
                                                        .noise = (float)orders->noise};
    }
    plan->remainder = orders->remainder;
    plan->gradient_clip_norm = (float)orders->gradient_clip_norm;
    plan->gradient_clip_value = (float)orders->gradient_clip_value;
    plan->ignores_label = orders->ignores_label;
    plan->ignored_label = orders->ignored_label;
}
