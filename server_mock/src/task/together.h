/*
 * together.h - what goes with what: strategies, algorithms, guards, statistics, forms of updates,
 * transports, and the orders of a plan.
 *
 * A task is looked at as a set of traits; two traits work together unless a rule of the table says
 * that they are refused, or that the first is off beside the second. TASK.md prints the table.
 */
#ifndef DUNLIN_SERVER_TOGETHER_H
#define DUNLIN_SERVER_TOGETHER_H

#include "task.h"

#define DUNLIN_GUARD_UPDATES 5u /* fewer norms say nothing about each other: no bound */

typedef enum dunlin__trait {
    /* The strategies, by their numbers. */
    DUNLIN_TRAIT_FEDAVG = DUNLIN_N_STRATEGIES, /* algorithms */
    DUNLIN_TRAIT_FEDPROX,
    DUNLIN_TRAIT_SCAFFOLD,
    DUNLIN_TRAIT_NORM_BOUND, /* guards */
    DUNLIN_TRAIT_CLIP_NORM,
    DUNLIN_TRAIT_ROLLBACK,
    DUNLIN_TRAIT_STATISTICS,
    DUNLIN_TRAIT_DELTA, /* forms of updates */
    DUNLIN_TRAIT_WEIGHTS,
    DUNLIN_TRAIT_WIRE, /* transports */
    DUNLIN_N_PAGE_TRAITS,
    DUNLIN_TRAIT_UNKNOWN_CLIENTS = DUNLIN_N_PAGE_TRAITS, /* of the task and its plan */
    DUNLIN_TRAIT_PACKED,
    DUNLIN_TRAIT_SELECTED,
    DUNLIN_TRAIT_DOWN,
    DUNLIN_TRAIT_MOMENTUM,
    DUNLIN_TRAIT_ADAPTIVE,
    DUNLIN_TRAIT_PARAMETERS,
    DUNLIN_TRAIT_SCHEDULE,
    DUNLIN_TRAIT_GRADIENT_CLIP,
    DUNLIN_TRAIT_MIXUP,
    DUNLIN_TRAIT_IGNORED_LABEL,
    DUNLIN_TRAIT_PRECISION,
    DUNLIN_TRAIT_INT8,
    DUNLIN_TRAIT_DP,
    DUNLIN_TRAIT_PARTIAL,
    DUNLIN_TRAIT_BUFFERED,
    DUNLIN_TRAIT_SELECTION,
    DUNLIN_TRAIT_SECAGG,
    DUNLIN_TRAIT_SERVER_NOISE,
    DUNLIN_TRAIT_NO_TEST_SET, /* of the server */
    DUNLIN_N_TRAITS
} dunlin__trait;

typedef enum dunlin__together_kind {
    DUNLIN_TOGETHER_WORKS = 0,
    DUNLIN_TOGETHER_OFF, /* the first has no effect beside the second */
    DUNLIN_TOGETHER_REFUSED
} dunlin__together_kind;

typedef struct dunlin__together_rule {
    dunlin__trait a, b;
    dunlin__together_kind kind;
    const char *why;
} dunlin__together_rule;

/* All rules; the number goes to `out_n`. */
const dunlin__together_rule *dunlin__together_rules(size_t *out_n);

/* What two traits are to each other, in either order. */
dunlin__together_kind dunlin__together_of(dunlin__trait a, dunlin__trait b);

/* As errors and the page call it. */
const char *dunlin__trait_name(dunlin__trait trait);

/* A bit for each trait. */
typedef uint64_t dunlin__traits;
#define DUNLIN_TRAIT_BIT(trait) (UINT64_C(1) << (trait))

/* Those of a task. Whether its model has statistics and the server a test set the task does not
 * know. */
dunlin__traits dunlin__together_traits(const dunlin__server_task *task);

/* True if the trait is there and no other one switches it off. */
bool dunlin__together_is_on(dunlin__traits traits, dunlin__trait trait);

/* DATA names the first two that are refused together, and why; `where` begins the text. */
DUNLIN_NODISCARD dunlin_status dunlin__together_check(dunlin__traits traits, const char *where,
                                                      dunlin_error *error);

#endif
