/*
 * evaluate_plan.c - checks whether a plan's choice of parameters fits the model when the server
 * starts, not by every device in every round.
 */
#include "evaluate_plan.h"

#include <dunlin/trainer.h>
#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <stdlib.h>

_Static_assert((int)DUNLIN_V1_ROLE_WEIGHT == (int)DUNLIN_USE_WEIGHT &&
                   (int)DUNLIN_V1_ROLE_FACTOR == (int)DUNLIN_USE_FACTOR,
               "roles on the wire are numbered as the trainer's uses");

static const dunlin_storage storage_of[] = {[DUNLIN_V1_STORAGE_EXACT] = DUNLIN_STORAGE_EXACT,
                                            [DUNLIN_V1_STORAGE_BF16] = DUNLIN_STORAGE_BF16,
                                            [DUNLIN_V1_STORAGE_INT8] = DUNLIN_STORAGE_INT8};

static void count_trained(void *ctx, const dunlin_parameter_entry *entry)
{
    int64_t *n_trained = ctx;
    *n_trained += entry->is_trained && entry->lr_factor > 0.0F ? 1 : 0;
}

/* The choice as options of a trainer; `groups` has room for them, the texts are the choice's. */
static void take_choice(const dunlin_v1_parameter_choice_t *choice, dunlin_parameter_group *groups,
                        dunlin_trainer_options *options)
{
    static const dunlin_trained trained_of[] = {[DUNLIN_V1_TRAINED_ALL] = DUNLIN_TRAINED_ALL,
                                                [DUNLIN_V1_TRAINED_HEAD] = DUNLIN_TRAINED_HEAD,
                                                [DUNLIN_V1_TRAINED_BIASES_AND_NORMS] =
                                                    DUNLIN_TRAINED_BIASES_AND_NORMS};
    for (size_t i = 0; i < choice->groups_count; i++) {
        const dunlin_v1_parameter_group_t *from = &choice->groups[i];
        groups[i] = (dunlin_parameter_group)DUNLIN_PARAMETER_GROUP_INIT;
        groups[i].name = from->name[0] != 0 ? from->name : NULL;
        groups[i].patterns = from->patterns[0] != 0 ? from->patterns : NULL;
        groups[i].uses = from->roles;
        groups[i].lr_factor = from->lr_factor;
        groups[i].decay_factor = from->decay_factor;
    }
    options->groups = groups;
    options->n_groups = (int32_t)choice->groups_count;
    options->trained = trained_of[choice->trained];
    options->trained_prefixes = choice->trained_prefixes[0] != 0 ? choice->trained_prefixes : NULL;
    options->frozen_prefixes = choice->frozen_prefixes[0] != 0 ? choice->frozen_prefixes : NULL;
    options->no_norm_decay = choice->no_norm_decay;
}

dunlin_status dunlin__evaluator_check_plan(const struct dunlin_model *model,
                                           const dunlin__server_task *task, dunlin_error *error)
{
    const dunlin__server_orders *orders = &task->plan.orders;
    const size_t n_most = sizeof orders->parameters.groups / sizeof orders->parameters.groups[0];
    dunlin_parameter_group
        groups[sizeof orders->parameters.groups / sizeof orders->parameters.groups[0]];
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    int64_t n_trained = 0;
    dunlin_error reason = {0};
    if (orders->precision[0] != '\0' &&
        dunlin_model_check_precision(model, orders->precision, &reason) != DUNLIN_OK) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "task", 0,
                            "the plan does not fit model %.80s: %.300s", task->model, reason.text);
    }
    if (dunlin_model_check_storage(model, storage_of[orders->storage], &reason) != DUNLIN_OK) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "task", 0,
                            "the plan does not fit model %.80s: %.300s", task->model, reason.text);
    }
    if (!orders->has_parameters || orders->parameters.groups_count > n_most) {
        return DUNLIN_OK;
    }
    take_choice(&orders->parameters, groups, &options);
    const dunlin_status status =
        dunlin_model_list_parameters(model, &options, count_trained, &n_trained, &reason);
    if (status != DUNLIN_OK) {
        return dunlin__fail(error, status, "task", 0, "the plan does not fit model %.80s: %.300s",
                            task->model, reason.text);
    }
    if (n_trained == 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "task", 0,
                            "the plan trains nothing of model %.80s: all that is not frozen has "
                            "lr_factor 0",
                            task->model);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__evaluator_find_variances(const struct dunlin_model *model,
                                               const dunlin_alloc *alloc, bool **out_variances,
                                               dunlin_error *error)
{
    const int32_t n = dunlin_model_n_parameters(model);
    bool *variances = dunlin__alloc_zeroed(alloc, (size_t)n, sizeof *variances);
    if (variances == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "evaluate", 0, "%d tensors", (int)n);
    }
    for (int32_t i = 0; i < n; i++) {
        variances[i] = dunlin_model_is_variance(model, i);
    }
    *out_variances = variances;
    return DUNLIN_OK;
}
