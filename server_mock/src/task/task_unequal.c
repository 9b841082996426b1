/*
 * task_unequal.c - those keys of a task file that are for unequal devices: rounds that overlap.
 */
#include "task_json.h"

#include <mem/support.h>

#include <inttypes.h>

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static const dunlin__task_field buffered_fields[] = {
    {"max_staleness", offsetof(dunlin__server_task, buffered.max_staleness), DUNLIN_TASK_U32, 0,
     DUNLIN_SERVER_STALENESS, 16},
    {"exponent", offsetof(dunlin__server_task, buffered.exponent), DUNLIN_TASK_REAL, 0, 10, 0.5},
};

static dunlin_status refuse_beside(const dunlin__task_place *at, const char *what, const char *why)
{
    return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                        "%.80s: buffered does not go with %s: %s", at->file, what, why);
}

/* What is no trait of together.c: numbers that are a default for others. */
static dunlin_status check_buffered(const dunlin__task_place *at, const dunlin__server_task *task)
{
    if (task->n_clients != 0) {
        return refuse_beside(at, "clients, which are known beforehand",
                             "a cohort that is fixed would wait for its slowest");
    }
    if (task->evaluate_every > 0) {
        return refuse_beside(at, "evaluate_every", "rounds that evaluate do not overlap");
    }
    if (task->plan.clip_quantile > 0) {
        return refuse_beside(at, "plan.clip_quantile",
                             "an update would be held against another round's bound");
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__task_read_unequal(const dunlin__task_place *at, const json_t *root,
                                        dunlin__server_task *task)
{
    const dunlin__task_object buffered = {
        .key = "buffered", .rows = buffered_fields, .n_rows = N_OF(buffered_fields)};
    DUNLIN_TRY(dunlin__task_read_object(at, root, &buffered, task));
    task->buffered.is_on = json_object_get(root, "buffered") != NULL;
    return task->buffered.is_on ? check_buffered(at, task) : DUNLIN_OK;
}
