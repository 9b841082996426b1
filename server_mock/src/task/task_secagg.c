/*
 * task_secagg.c - the key `secagg` of a task file: rounds of which the server sees a sum alone.
 *
 * Invariant: a task that passes has terms that go together, a set-up that holds the chances it was
 * asked for, and nothing beside it that tells of single devices.
 */
#include "task_json.h"

#include <mem/support.h>
#include <wire/secagg.h>

#include <inttypes.h>
#include <math.h>

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define LATER_STEPS 4.0 /* share, mask, consistency, unmask */
#define ROW(key, member, kind, least, most, fallback)                                              \
    {                                                                                              \
        key, offsetof(dunlin__server_task, secagg.member), kind, least, most, fallback             \
    }

static const dunlin__task_field secagg_fields[] = {
    ROW("neighbours", n_neighbours, DUNLIN_TASK_U32, 0, DUNLIN_SECAGG_NEIGHBOURS, 0),
    ROW("threshold", threshold, DUNLIN_TASK_U32, 0, DUNLIN_SECAGG_NEIGHBOURS, 0),
    ROW("ring_bits", ring_bits, DUNLIN_TASK_U32, 16, 32, 32),
    ROW("clip", clip, DUNLIN_TASK_REAL, 0, 1e30, 0),
    ROW("value_limit", value_limit, DUNLIN_TASK_U32, 0, INT32_MAX, 0),
    ROW("weight_limit", weight_limit, DUNLIN_TASK_U32, 0, INT32_MAX, 0),
    ROW("least_devices", least_devices, DUNLIN_TASK_U32, 0, DUNLIN_WIRE_SECAGG_COHORT, 0),
    ROW("consistency", check_consistency, DUNLIN_TASK_BOOL, 0, 1, 1),
    ROW("step_s", step_s, DUNLIN_TASK_REAL, 0, 1e6, 0),
    ROW("corrupt", wish.corrupt, DUNLIN_TASK_REAL, 0, 1, 0.1),
    ROW("dropout", wish.dropout, DUNLIN_TASK_REAL, 0, 1, 0.1),
    ROW("security", wish.security_bits, DUNLIN_TASK_REAL, 1, 256, 40),
    ROW("failure", wish.failure_bits, DUNLIN_TASK_REAL, 1, 256, 20),
};

static dunlin_status refuse(const dunlin__task_place *at, const char *why)
{
    return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: %s", at->file, why);
}

/* What would tell the server of single devices; traits are in the table of what goes with what. */
static const char *find_conflict(const dunlin__server_task *task)
{
    if (task->evaluate_every > 0 || task->plan.evaluates) {
        return "evaluate_every and plan.evaluate do not go with secagg: their numbers would be of "
               "single devices";
    }
    if (task->metrics_per_device) {
        return "metrics_per_device does not go with secagg: its numbers would be of single devices";
    }
    if (task->plan.clip_quantile > 0) {
        return "plan.clip_quantile does not go with secagg: its bits would be of single devices";
    }
    return NULL;
}

/* The middle of the thresholds that hold the wish; if none does, the least there may be, which is
 * then refused by its chances. */
static uint32_t middle_threshold(const dunlin__server_secagg *secagg)
{
    const uint32_t least = secagg->n_neighbours / 2 + 1;
    uint32_t first = 0;
    uint32_t last = 0;
    for (uint32_t t = least; t <= secagg->n_neighbours; t++) {
        if (dunlin__secagg_judge(&secagg->wish, secagg->n_neighbours, t, NULL) == DUNLIN_OK) {
            first = first == 0 ? t : first;
            last = t;
        }
    }
    return first == 0 ? least : first + (last - first + 1) / 2;
}

/* Neighbours and threshold that hold the wish, where the task names neither. */
static dunlin_status choose_setup(const dunlin__task_place *at, dunlin__server_secagg *secagg)
{
    dunlin__secagg_setup setup;
    dunlin_error why = {0};
    if (secagg->n_neighbours == 0 && secagg->threshold > 0) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: secagg.threshold %" PRIu32 " goes with secagg.neighbours",
                            at->file, secagg->threshold);
    }
    if (secagg->n_neighbours == 0) {
        if (dunlin__secagg_choose(&secagg->wish, DUNLIN_SECAGG_NEIGHBOURS, &setup, &why) !=
            DUNLIN_OK) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: secagg: %s", at->file,
                                why.text);
        }
        secagg->n_neighbours = setup.n_neighbours;
        secagg->threshold = setup.threshold;
        return DUNLIN_OK;
    }
    if (secagg->n_neighbours > secagg->n_cohort - 1) { /* everybody is one */
        secagg->n_neighbours = secagg->n_cohort - 1;
    }
    if (secagg->threshold == 0) {
        secagg->threshold = middle_threshold(secagg);
    }
    return dunlin__secagg_judge(&secagg->wish, secagg->n_neighbours, secagg->threshold, &why) ==
                   DUNLIN_OK
               ? DUNLIN_OK
               : dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: secagg: %s", at->file,
                              why.text);
}

/* What the task does not say: the finest steps that the ring has room for. */
static void fill_limits(dunlin__server_task *task)
{
    dunlin__server_secagg *secagg = &task->secagg;
    const uint64_t ring = UINT64_C(1) << secagg->ring_bits;
    if (secagg->value_limit == 0 && !task->dp.is_distributed) {
        secagg->value_limit = (uint32_t)((ring / 2 - 1) / secagg->n_cohort);
    }
    if (secagg->weight_limit == 0) {
        const uint64_t most = task->dp.is_distributed ? 1 : (ring - 1) / secagg->n_cohort;
        secagg->weight_limit = (uint32_t)(task->weight_cap < most ? task->weight_cap : most);
    }
    if (!(secagg->clip > 0)) {
        secagg->clip = task->plan.clip_norm > 0 ? task->plan.clip_norm : 1;
    }
    if (secagg->least_devices == 0) {
        const uint32_t half = (secagg->n_cohort + 1) / 2;
        secagg->least_devices = half > task->min_reports ? half : task->min_reports;
    }
}

/* Steps after advertise must leave it time. */
static dunlin_status check_times(const dunlin__task_place *at, dunlin__server_task *task)
{
    double least_s = HUGE_VAL;
    for (uint32_t i = 0; i < task->n_deadlines; i++) {
        least_s = fmin(least_s, (double)task->deadlines[i].ms / 1000);
    }
    if (!(task->secagg.step_s > 0)) {
        task->secagg.step_s = least_s / 10;
    }
    return task->secagg.step_s * (LATER_STEPS + 1) <= least_s
               ? DUNLIN_OK
               : dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                              "%.80s: secagg.step_s is %g, at most a fifth of the least "
                              "deadline_s, %g",
                              at->file, task->secagg.step_s, least_s);
}

dunlin_status dunlin__task_read_secagg(const dunlin__task_place *at, const json_t *root,
                                       const dunlin_alloc *alloc, dunlin__server_task *task)
{
    dunlin__server_secagg *secagg = &task->secagg;
    const dunlin__task_object object = {
        .key = "secagg", .rows = secagg_fields, .n_rows = N_OF(secagg_fields)};
    dunlin_error why = {0};
    if (json_object_get(root, "secagg") == NULL) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__task_read_object(at, root, &object, task));
    const char *conflict = find_conflict(task);
    if (conflict != NULL) {
        return refuse(at, conflict);
    }
    if (secagg->ring_bits % 8 != 0) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: secagg.ring_bits is %" PRIu32 ", wants 16, 24 or 32", at->file,
                            secagg->ring_bits);
    }
    secagg->is_on = true;
    secagg->n_cohort = dunlin__server_task_n_select(task);
    secagg->wish.n_devices = secagg->n_cohort;
    DUNLIN_TRY(choose_setup(at, secagg));
    fill_limits(task);
    DUNLIN_TRY(dunlin__task_settle_noise(at, alloc, task));
    DUNLIN_TRY(check_times(at, task));
    const dunlin__secagg_plan plan = dunlin__server_task_secagg(task, 1);
    return dunlin__secagg_check(&plan, &why) == DUNLIN_OK
               ? DUNLIN_OK
               : dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: secagg: %s", at->file,
                              why.text);
}
