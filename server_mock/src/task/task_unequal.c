/*
 * task_unequal.c - those keys of a task file that are for unequal devices: rounds that overlap, and
 * whom a round asks.
 */
#include "task_json.h"

#include <mem/support.h>

#include <string.h>

#define CREDITS_MOST 1000000
#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static const dunlin__task_field buffered_fields[] = {
    {"max_staleness", offsetof(dunlin__server_task, buffered.max_staleness), DUNLIN_TASK_U32, 0,
     DUNLIN_SERVER_STALENESS, 16},
    {"exponent", offsetof(dunlin__server_task, buffered.exponent), DUNLIN_TASK_REAL, 0, 10, 0.5},
};

#define SELECTION(key, member, kind, least, most, fallback)                                        \
    {                                                                                              \
        key, offsetof(dunlin__server_task, selection.member), kind, least, most, fallback          \
    }
static const dunlin__task_field selection_fields[] = {
    SELECTION("prefer_s", prefer_s, DUNLIN_TASK_REAL, 0, 2592000, 0),
    SELECTION("pacer_s", pacer_s, DUNLIN_TASK_REAL, 0, 2592000, 0),
    SELECTION("pacer_rounds", pacer_rounds, DUNLIN_TASK_U32, 1, 10000, 20),
    SELECTION("penalty", penalty, DUNLIN_TASK_REAL, 0, 100, 2),
    SELECTION("explore", explore, DUNLIN_TASK_REAL, 0, 1, 0.9),
    SELECTION("explore_decay", decay, DUNLIN_TASK_REAL, 0, 1, 0.98),
    SELECTION("explore_least", least, DUNLIN_TASK_REAL, 0, 1, 0.2),
    SELECTION("decline", decline, DUNLIN_TASK_REAL, 0, 0.95, 0.5),
    SELECTION("tiers", n_tiers, DUNLIN_TASK_U32, 2, DUNLIN_SERVER_TIERS, 5),
    SELECTION("interval", interval, DUNLIN_TASK_U32, 0, 10000, 0),
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

/* Keys of another kind would be ignored. */
static dunlin_status check_keys(const dunlin__task_place *at, json_t *object, const char *kind)
{
    const bool is_tiers = strcmp(kind, "tiers") == 0;
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach(object, key, value)
    {
        const bool is_of_tiers = strcmp(key, "tiers") == 0 || strcmp(key, "credits") == 0 ||
                                 strcmp(key, "interval") == 0;
        if (strcmp(key, "kind") != 0 && is_of_tiers != is_tiers) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                                "%.80s: selection.%.40s does not go with kind %s", at->file, key,
                                kind);
        }
    }
    return DUNLIN_OK;
}

/* Rounds of each tier, the fastest first. */
static dunlin_status read_credits(const dunlin__task_place *at, const json_t *object,
                                  dunlin__server_selection *out)
{
    const json_t *list = json_object_get(object, "credits");
    if (list == NULL) {
        return DUNLIN_OK;
    }
    if (!json_is_array(list) || json_array_size(list) != out->n_tiers) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: selection.credits: wants a list of %u numbers, one for each of "
                            "selection.tiers",
                            at->file, (unsigned)out->n_tiers);
    }
    for (size_t i = 0; i < out->n_tiers; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t credits = json_integer_value(value);
        if (!json_is_integer(value) || credits < 0 || credits > CREDITS_MOST) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                                "%.80s: selection.credits, entry %zu: wants a whole number from 0 "
                                "to %d",
                                at->file, i, CREDITS_MOST);
        }
        out->credits[i] = (uint32_t)credits;
    }
    out->has_credits = true;
    return DUNLIN_OK;
}

static dunlin_status read_selection(const dunlin__task_place *at, const json_t *root,
                                    dunlin__server_task *task)
{
    static const char *const names[] = {"kind", "credits"};
    const dunlin__task_object what = {"selection", selection_fields, N_OF(selection_fields), names,
                                      N_OF(names)};
    const dunlin__task_place inside = {at->file, "selection.", at->error};
    json_t *object = json_object_get(root, "selection");
    char kind[16] = "";
    DUNLIN_TRY(dunlin__task_read_object(at, root, &what, task));
    if (object == NULL) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__task_read_text(&inside, object, "kind", true, kind, sizeof kind));
    if (strcmp(kind, "utility") == 0) {
        task->selection.kind = DUNLIN_SELECT_UTILITY;
    } else if (strcmp(kind, "tiers") == 0) {
        task->selection.kind = DUNLIN_SELECT_TIERS;
    } else {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: selection.kind %.12s: wants utility or tiers", at->file, kind);
    }
    DUNLIN_TRY(check_keys(at, object, kind));
    return read_credits(at, object, &task->selection);
}

dunlin_status dunlin__task_read_unequal(const dunlin__task_place *at, const json_t *root,
                                        dunlin__server_task *task)
{
    const dunlin__task_object buffered = {
        .key = "buffered", .rows = buffered_fields, .n_rows = N_OF(buffered_fields)};
    DUNLIN_TRY(dunlin__task_read_object(at, root, &buffered, task));
    DUNLIN_TRY(read_selection(at, root, task));
    task->buffered.is_on = json_object_get(root, "buffered") != NULL;
    return task->buffered.is_on ? check_buffered(at, task) : DUNLIN_OK;
}
