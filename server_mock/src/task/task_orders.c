/*
 * task_orders.c - the keys of a task file's plan that order more than the plain training.
 *
 * Numbers are in task.c's table of the plan; here are the keys that are not numbers, and the checks
 * of keys that depend on each other.
 */
#include "task_json.h"

#include <mem/support.h>

#include <string.h>

#define GROUPS_MOST 8u
#define FACTOR_MOST 1e6

const char *const dunlin__task_order_names[DUNLIN_TASK_ORDER_NAMES] = {
    "groups",       "trained",   "frozen",    "schedule",  "random_crop", "remainder",
    "ignore_label", "optimizer", "precision", "grad_bits", "storage"};

static const char *const role_names[] = {NULL,         "weight", "bias",     "norm_scale",
                                         "norm_shift", "table",  "position", "factor"};

static dunlin_status fail(const dunlin__task_place *at, const char *what)
{
    return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: %s%s", at->file, at->object,
                        what);
}

/* The number of a text in a list that ends with NULL after `first`; -1 if it is not there. */
static int find(const char *text, const char *const *names, int first, int n)
{
    for (int i = first; i < n; i++) {
        if (strcmp(names[i], text) == 0) {
            return i;
        }
    }
    return -1;
}

/* ---- groups of parameters ---- */

static dunlin_status read_roles(const dunlin__task_place *at, const json_t *object,
                                dunlin_v1_parameter_group_t *group)
{
    const json_t *list = json_object_get(object, "roles");
    if (list != NULL && !json_is_array(list)) {
        return fail(at, "roles must be a list of roles");
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        const int role = name != NULL ? find(name, role_names, 1,
                                             (int)(sizeof role_names / sizeof role_names[0]))
                                      : -1;
        if (role < 0) {
            return fail(at, "roles: each is one of weight, bias, norm_scale, norm_shift, table, "
                            "position, factor");
        }
        group->roles |= UINT32_C(1) << role;
    }
    return DUNLIN_OK;
}

static dunlin_status read_factor(const dunlin__task_place *at, const json_t *object,
                                 const char *key, float *out)
{
    const json_t *value = json_object_get(object, key);
    const double factor = value == NULL ? 1.0 : json_number_value(value);
    if ((value != NULL && !json_is_number(value)) || !(factor >= 0 && factor <= FACTOR_MOST)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: %s%s must be a number from 0 to 1e6", at->file, at->object,
                            key);
    }
    *out = (float)factor;
    return DUNLIN_OK;
}

static dunlin_status read_group(const dunlin__task_place *at, json_t *object,
                                dunlin_v1_parameter_group_t *group)
{
    static const char *const names[] = {"name", "patterns", "roles", "lr_factor", "decay_factor"};
    if (!json_is_object(object)) {
        return fail(at, "must be an object with patterns or roles");
    }
    DUNLIN_TRY(
        dunlin__task_refuse_unknown(at, object, NULL, 0, names, sizeof names / sizeof names[0]));
    DUNLIN_TRY(dunlin__task_read_text(at, object, "name", false, group->name, sizeof group->name));
    DUNLIN_TRY(dunlin__task_read_text(at, object, "patterns", false, group->patterns,
                                      sizeof group->patterns));
    DUNLIN_TRY(read_roles(at, object, group));
    if (group->patterns[0] == 0 && group->roles == 0) {
        return fail(at, "patterns or roles must be there");
    }
    DUNLIN_TRY(read_factor(at, object, "lr_factor", &group->lr_factor));
    return read_factor(at, object, "decay_factor", &group->decay_factor);
}

static dunlin_status read_groups(const dunlin__task_place *at, const json_t *plan,
                                 dunlin_v1_parameter_choice_t *choice)
{
    const json_t *list = json_object_get(plan, "groups");
    if (list == NULL) {
        return DUNLIN_OK;
    }
    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > GROUPS_MOST) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: %sgroups must be a list of 1 to %u groups", at->file,
                            at->object, GROUPS_MOST);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        char place[48];
        (void)snprintf(place, sizeof place, "%sgroups[%zu].", at->object, i);
        const dunlin__task_place inside = {at->file, place, at->error};
        DUNLIN_TRY(read_group(&inside, json_array_get(list, i), &choice->groups[i]));
        choice->groups_count++;
    }
    return DUNLIN_OK;
}

/* "head" and "biases", or prefixes. */
static dunlin_status read_trained(const dunlin__task_place *at, const json_t *plan,
                                  dunlin_v1_parameter_choice_t *choice)
{
    char *text = choice->trained_prefixes;
    DUNLIN_TRY(
        dunlin__task_read_text(at, plan, "trained", false, text, sizeof choice->trained_prefixes));
    if (strcmp(text, "head") == 0) {
        choice->trained = DUNLIN_V1_TRAINED_HEAD;
        text[0] = 0;
    } else if (strcmp(text, "biases") == 0) {
        choice->trained = DUNLIN_V1_TRAINED_BIASES_AND_NORMS;
        text[0] = 0;
    }
    return dunlin__task_read_text(at, plan, "frozen", false, choice->frozen_prefixes,
                                  sizeof choice->frozen_prefixes);
}

static dunlin_status read_parameters(const dunlin__task_place *at, const json_t *plan,
                                     dunlin__server_orders *orders)
{
    dunlin_v1_parameter_choice_t *choice = &orders->parameters;
    DUNLIN_TRY(read_groups(at, plan, choice));
    DUNLIN_TRY(read_trained(at, plan, choice));
    choice->no_norm_decay = !orders->decays_norms;
    orders->has_parameters = choice->groups_count > 0 || choice->trained != DUNLIN_V1_TRAINED_ALL ||
                             choice->trained_prefixes[0] != 0 || choice->frozen_prefixes[0] != 0 ||
                             choice->no_norm_decay;
    return DUNLIN_OK;
}

/* ---- the rest ---- */

static dunlin_status read_schedule(const dunlin__task_place *at, const json_t *plan,
                                   dunlin__server_orders *orders)
{
    static const char *const names[] = {"constant", "step", "exponential", "cosine", "linear"};
    char text[16] = "";
    DUNLIN_TRY(dunlin__task_read_text(at, plan, "schedule", false, text, sizeof text));
    const int found = text[0] != 0 ? find(text, names, 0, 5) : 0;
    if (found < 0) {
        return fail(at, "schedule must be constant, step, exponential, cosine or linear");
    }
    orders->schedule = (dunlin_v1_schedule_kind_t)found;
    const bool has_gamma = orders->schedule == DUNLIN_V1_SCHEDULE_KIND_STEP ||
                           orders->schedule == DUNLIN_V1_SCHEDULE_KIND_EXPONENTIAL;
    const bool has_least = orders->schedule == DUNLIN_V1_SCHEDULE_KIND_COSINE ||
                           orders->schedule == DUNLIN_V1_SCHEDULE_KIND_LINEAR;
    if (!has_gamma && (json_object_get(plan, "gamma") != NULL || orders->period_steps > 0)) {
        return fail(at, "gamma and lr_period go with schedule step or exponential");
    }
    if (!has_least && orders->min_lr > 0) {
        return fail(at, "min_lr goes with schedule cosine or linear");
    }
    orders->has_schedule =
        orders->schedule != DUNLIN_V1_SCHEDULE_KIND_CONSTANT || orders->warmup_steps > 0;
    return DUNLIN_OK;
}

static dunlin_status read_remainder(const dunlin__task_place *at, const json_t *plan,
                                    dunlin__server_orders *orders)
{
    static const char *const names[] = {NULL, "keep", "drop", "join"};
    char text[16] = "";
    DUNLIN_TRY(dunlin__task_read_text(at, plan, "remainder", false, text, sizeof text));
    const int found = text[0] != 0 ? find(text, names, 1, 4) : 0;
    if (found < 0) {
        return fail(at, "remainder must be join, drop or keep");
    }
    orders->remainder = (dunlin_v1_remainder_t)found;
    return DUNLIN_OK;
}

static dunlin_status read_optimizer(const dunlin__task_place *at, const json_t *plan,
                                    dunlin__server_task *task)
{
    static const char *const names[] = {NULL, "sgd", "adam", "adamw"};
    char text[16] = "";
    DUNLIN_TRY(dunlin__task_read_text(at, plan, "optimizer", false, text, sizeof text));
    const int found = text[0] != 0 ? find(text, names, 1, 4) : (int)DUNLIN_V1_OPTIMIZER_SGD;
    if (found < 0) {
        return fail(at, "optimizer must be sgd, adam or adamw");
    }
    task->plan.orders.optimizer = (dunlin_v1_optimizer_t)found;
    return DUNLIN_OK;
}

/* A whole number of a key that may be absent. */
static dunlin_status read_whole(const dunlin__task_place *at, const json_t *plan, const char *key,
                                int64_t least, int64_t most, bool *out_is_there, int64_t *out)
{
    const json_t *value = json_object_get(plan, key);
    *out_is_there = value != NULL;
    if (value == NULL) {
        return DUNLIN_OK;
    }
    *out = (int64_t)json_integer_value(value);
    if (!json_is_integer(value) || *out < least || *out > most) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: %s%s must be a whole number from %lld to %lld", at->file,
                            at->object, key, (long long)least, (long long)most);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__task_read_orders(const dunlin__task_place *at, const json_t *root,
                                       dunlin__server_task *task)
{
    dunlin__server_orders *orders = &task->plan.orders;
    const json_t *plan = json_object_get(root, "plan");
    const dunlin__task_place inside = {at->file, "plan.", at->error};
    int64_t padding = 0;
    int64_t label = 0;
    DUNLIN_TRY(read_parameters(&inside, plan, orders));
    DUNLIN_TRY(read_schedule(&inside, plan, orders));
    DUNLIN_TRY(read_remainder(&inside, plan, orders));
    DUNLIN_TRY(read_optimizer(&inside, plan, task));
    DUNLIN_TRY(read_whole(&inside, plan, "random_crop", 0, 4096, &orders->crops, &padding));
    DUNLIN_TRY(read_whole(&inside, plan, "ignore_label", INT32_MIN, INT32_MAX,
                          &orders->ignores_label, &label));
    orders->crop_padding = (uint32_t)padding;
    orders->ignored_label = (int32_t)label;
    return DUNLIN_OK;
}
