/*
 * task_rounds.c - those keys of a task file that say how long rounds last, and when no other
 * begins.
 *
 * Invariant: the deadlines are in the order of their first rounds, and the first begins at round 1,
 * so that each round has one.
 */
#include "task_json.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define LEAST_DEADLINE_S 0.001
#define MOST_DEADLINE_S 2592000.0
#define DEFAULT_DEADLINE_S 600.0

static bool is_deadline(const json_t *value)
{
    double seconds = json_number_value(value);
    return json_is_number(value) && seconds >= LEAST_DEADLINE_S && seconds <= MOST_DEADLINE_S;
}

static uint64_t to_ms(const json_t *value)
{
    return (uint64_t)(json_number_value(value) * 1000);
}

/* One of a list: {"from": ROUND, "s": SECONDS}. */
static dunlin_status read_range(const dunlin__task_place *at, const json_t *list, size_t index,
                                dunlin__server_task *task)
{
    json_t *item = json_array_get(list, index);
    const json_t *from = json_object_get(item, "from");
    const json_t *seconds = json_object_get(item, "s");
    json_int_t least = index == 0 ? 1 : (json_int_t)task->deadlines[index - 1].from + 1;
    json_int_t most = index == 0 ? 1 : (json_int_t)DUNLIN_SERVER_ROUNDS;
    if (json_object_size(item) != 2 || from == NULL || !is_deadline(seconds)) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: deadline_s[%zu] must be {\"from\": ROUND, \"s\": SECONDS}, "
                            "SECONDS a number from 0.001 to 2592000",
                            at->file, index);
    }
    if (!json_is_integer(from) || json_integer_value(from) < least ||
        json_integer_value(from) > most) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: deadline_s[%zu].from must be a whole number from %" PRId64
                            " to %" PRId64,
                            at->file, index, (int64_t)least, (int64_t)most);
    }
    task->deadlines[index].from = (uint64_t)json_integer_value(from);
    task->deadlines[index].ms = to_ms(seconds);
    task->n_deadlines = (uint32_t)index + 1;
    return DUNLIN_OK;
}

static dunlin_status read_deadlines(const dunlin__task_place *at, const json_t *root,
                                    dunlin__server_task *task)
{
    const json_t *value = json_object_get(root, "deadline_s");
    task->n_deadlines = 1;
    task->deadlines[0] =
        (dunlin__server_deadline){.from = 1, .ms = (uint64_t)(DEFAULT_DEADLINE_S * 1000)};
    if (value == NULL) {
        return DUNLIN_OK;
    }
    if (!json_is_array(value)) {
        if (!is_deadline(value)) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                                "%.80s: deadline_s must be a number from 0.001 to 2592000, or a "
                                "list of {\"from\": ROUND, \"s\": SECONDS}",
                                at->file);
        }
        task->deadlines[0].ms = to_ms(value);
        return DUNLIN_OK;
    }
    size_t n = json_array_size(value);
    if (n < 1 || n > DUNLIN_SERVER_DEADLINES) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: deadline_s has a list of %zu; from 1 to %u work", at->file, n,
                            DUNLIN_SERVER_DEADLINES);
    }
    for (size_t i = 0; i < n; i++) {
        DUNLIN_TRY(read_range(at, value, i, task));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__task_read_rounds(const dunlin__task_place *at, const json_t *root,
                                       dunlin__server_task *task)
{
    DUNLIN_TRY(read_deadlines(at, root, task));
    task->wants_best = task->keeps_best && json_object_get(root, "keep_best") != NULL;
    if (task->min_delta > 0 && task->patience == 0) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: min_delta %.6g goes with patience alone", at->file,
                            task->min_delta);
    }
    if (task->rollback > 0 && task->judge_every > 1) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: judge_every %" PRIu64
                            " does not go with rollback, which judges "
                            "every model",
                            at->file, task->judge_every);
    }
    return DUNLIN_OK;
}

uint64_t dunlin__server_task_deadline_ms(const dunlin__server_task *task, uint64_t round)
{
    uint64_t found_ms = task->deadlines[0].ms;
    for (uint32_t i = 1; i < task->n_deadlines && task->deadlines[i].from <= round; i++) {
        found_ms = task->deadlines[i].ms;
    }
    return found_ms;
}
