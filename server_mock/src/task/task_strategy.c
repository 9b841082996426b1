/*
 * task_strategy.c - the keys of a task file that say how the server goes from updates to a model.
 *
 * Invariant: which keys a strategy takes, with their ranges and defaults, is one row of a table;
 * a key of another strategy is refused.
 */
#include "task_json.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>

#define KEYS_MOST 4
#define N_OF(array) (sizeof(array) / sizeof((array)[0]))
#define REAL(key, member, least, most, fallback)                                                   \
    {                                                                                              \
        key, offsetof(dunlin__server_task, strategy.member), DUNLIN_TASK_REAL, least, most,        \
            fallback                                                                               \
    }
#define LR(fallback) REAL("server_lr", lr, 1e-9, 1000, fallback)
#define BETA1(fallback) REAL("beta1", beta1, 0, 0.99999, fallback)
#define BETA2 REAL("beta2", beta2, 0, 0.9999999, 0.99)
#define TAU REAL("tau", tau, 1e-12, 1, 1e-3)

/* The defaults of momentum, betas and tau are those of Reddi et al. 2021, section 5; those of the
 * rates did best on MNIST (tests/bench/results/strategies.csv). */
static const struct {
    const char *name;
    dunlin__task_field keys[KEYS_MOST];
} strategies[DUNLIN_N_STRATEGIES] = {
    [DUNLIN_STRATEGY_AVERAGE] = {"average", {{0}}},
    [DUNLIN_STRATEGY_FEDAVGM] = {"fedavgm",
                                 {LR(1), REAL("server_momentum", momentum, 0, 0.99999, 0.9)}},
    [DUNLIN_STRATEGY_FEDADAGRAD] = {"fedadagrad", {LR(0.01), BETA1(0), TAU}},
    [DUNLIN_STRATEGY_FEDADAM] = {"fedadam", {LR(0.03), BETA1(0.9), BETA2, TAU}},
    [DUNLIN_STRATEGY_FEDYOGI] = {"fedyogi", {LR(0.03), BETA1(0.9), BETA2, TAU}},
    [DUNLIN_STRATEGY_MEDIAN] = {"median", {{0}}},
    [DUNLIN_STRATEGY_TRIMMED_MEAN] = {"trimmed_mean", {REAL("trim", trim, 0, 0.49, 0.1)}},
};

const char *const dunlin__task_strategy_names[DUNLIN_TASK_STRATEGY_NAMES] = {
    "strategy", "server_lr", "server_momentum", "beta1", "beta2", "tau", "trim"};

const char *dunlin__strategy_name(dunlin__strategy_kind kind)
{
    return strategies[kind].name;
}

static size_t count_keys(dunlin__strategy_kind kind)
{
    size_t n = 0;
    while (n < KEYS_MOST && strategies[kind].keys[n].key != NULL) {
        n++;
    }
    return n;
}

static dunlin_status refuse_name(const dunlin__task_place *at, const char *name)
{
    char list[160] = "";
    size_t n = 0;
    for (int i = 0; i < DUNLIN_N_STRATEGIES; i++) {
        const char *before = i + 1 == DUNLIN_N_STRATEGIES ? " or " : ", ";
        (void)snprintf(list + n, sizeof list - n, "%s%s", i == 0 ? "" : before, strategies[i].name);
        n = strlen(list);
    }
    return dunlin__fail(at->error, DUNLIN_DATA, "task", 0, "%.80s: strategy %.40s: wants %s",
                        at->file, name, list);
}

static dunlin_status refuse_key(const dunlin__task_place *at, const char *key,
                                dunlin__strategy_kind kind)
{
    char list[80] = "none of these keys";
    size_t n = 0;
    for (size_t i = 0; i < count_keys(kind); i++) {
        (void)snprintf(list + n, sizeof list - n, "%s%s", i == 0 ? "" : ", ",
                       strategies[kind].keys[i].key);
        n = strlen(list);
    }
    return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                        "%.80s: %s does not go with strategy %s, which takes %s", at->file, key,
                        strategies[kind].name, list);
}

static bool takes(dunlin__strategy_kind kind, const char *key)
{
    for (size_t i = 0; i < count_keys(kind); i++) {
        if (strcmp(strategies[kind].keys[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

dunlin_status dunlin__task_read_strategy(const dunlin__task_place *at, const json_t *root,
                                         dunlin__server_task *task)
{
    char text[32] = "average";
    if (json_object_get(root, "strategy") != NULL) {
        DUNLIN_TRY(dunlin__task_read_text(at, root, "strategy", true, text, sizeof text));
    }
    int kind = 0;
    while (kind < DUNLIN_N_STRATEGIES && strcmp(strategies[kind].name, text) != 0) {
        kind++;
    }
    if (kind == DUNLIN_N_STRATEGIES) {
        return refuse_name(at, text);
    }
    task->strategy = (dunlin__strategy){.kind = (dunlin__strategy_kind)kind};
    for (size_t i = 1; i < N_OF(dunlin__task_strategy_names); i++) {
        const char *key = dunlin__task_strategy_names[i];
        if (json_object_get(root, key) != NULL && !takes(task->strategy.kind, key)) {
            return refuse_key(at, key, task->strategy.kind);
        }
    }
    return dunlin__task_read_fields(at, root, strategies[kind].keys,
                                    count_keys(task->strategy.kind), task);
}
