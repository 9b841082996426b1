/*
 * redo.h - rematerialisation of small steps, one recomputed op at a time: which map parts run again
 * before which op of the whole batch's order.
 *
 * Retention intervals (remat/model.h) say what is retained from one use to the next, and what is
 * dropped is recomputed just before that use. Here any map part may run again before any later op:
 * early, where there is room for what it needs, or only for other recomputed ops. Live ranges
 * follow from that: an instance is alive from the run that computes it to its last touch before it
 * is recomputed (Bartan et al., "MOCCASIN", ICML 2023; Jain et al., "Checkmate", MLSys 2020, call a
 * position before an op a stage). So every choice is a valid schedule, and only its bytes and its
 * time are to be found.
 */
#ifndef DUNLIN_MEM_RECOMPUTE_H
#define DUNLIN_MEM_RECOMPUTE_H

#include "remat/model.h"

#define DUNLIN_RECOMPUTE_OPS 128
#define DUNLIN_RECOMPUTE_WORDS (DUNLIN_RECOMPUTE_OPS / 64)
#define DUNLIN_RECOMPUTE_STEPS                                                                     \
    (4 * DUNLIN_RECOMPUTE_OPS) /* of a schedule; one with more is not valid */

/* A set of ops. */
typedef struct dunlin_recompute_ops {
    uint64_t word[DUNLIN_RECOMPUTE_WORDS];
} dunlin_recompute_ops;

/* By op of the graph: the ops whose map parts run again before it, in the graph's order. */
typedef struct dunlin_recompute_choice {
    dunlin_recompute_ops before[DUNLIN_RECOMPUTE_OPS];
} dunlin_recompute_choice;

/* A root touched by an op. */
typedef struct dunlin_recompute_touch {
    uint32_t root;    /* its tensor */
    bool is_map;      /* touched when the map part runs again; always touched in a first run */
    bool is_map_read; /* the map part reads it */
    bool begins;      /* each run is the beginning of a new instance */
} dunlin_recompute_touch;

typedef struct dunlin_recompute_op {
    uint32_t first_touch, n_touches;
    uint64_t cost_ns; /* of the map part, once more */
    uint64_t workspace_bytes;
    uint32_t deadline;          /* it may run again before ops below this one; 0: never */
    uint32_t written, read;     /* roots of which the first may lie on the second, or NONE */
    bool shares_in_recompute;   /* in a recomputation, too */
    dunlin_recompute_ops group; /* that run again with it: makers of one tensor's parts */
    uint32_t last_of_group;
} dunlin_recompute_op;

/* Bytes and time of a choice. */
typedef struct dunlin_recompute_result {
    uint64_t cost_ns; /* of the recomputed ops */
    uint64_t peak_bytes;
    uint64_t excess_bytes; /* above the limit: the most before and at each op, summed */
    uint32_t peak_step;
} dunlin_recompute_result;

typedef struct dunlin_recompute_model {
    dunlin_alloc alloc;
    uint32_t n_ops;
    uint32_t n_tensors;
    dunlin_recompute_op ops[DUNLIN_RECOMPUTE_OPS];
    dunlin_recompute_touch *touches;
    uint32_t n_touches_max;
    uint64_t *bytes; /* by tensor */
    uint32_t *maker; /* by tensor: an op that writes it in its map part, if it can be recomputed; or
                        NONE */
    /* of the last simulation */
    uint32_t *first, *last, *shared_at;        /* by tensor: steps of the current instance; NONE */
    uint32_t *before, *after, *begin;          /* room for a search, by tensor */
    uint64_t sums[DUNLIN_RECOMPUTE_STEPS + 1]; /* bytes alive at a step */
    uint8_t op_of[DUNLIN_RECOMPUTE_STEPS];
    uint8_t stage_of[DUNLIN_RECOMPUTE_STEPS];
    uint32_t n_steps;
    uint64_t n_runs;
} dunlin_recompute_model;

static inline bool dunlin__recompute_has(const dunlin_recompute_ops *ops, uint32_t op)
{
    return (ops->word[op / 64] >> (op % 64) & 1) != 0;
}

static inline void dunlin__recompute_add(dunlin_recompute_ops *ops, uint32_t op)
{
    ops->word[op / 64] |= UINT64_C(1) << (op % 64);
}

/* May a map part run again before an op? */
static inline bool dunlin__recompute_may(const dunlin_recompute_model *model, uint32_t op,
                                         uint32_t stage)
{
    return stage < model->ops[op].deadline && model->ops[op].last_of_group < stage;
}

/* --- redo_paper.c --- */

/* The model of the whole batch of a step with at most DUNLIN_RECOMPUTE_OPS ops; `remat` knows what
 * may be dropped. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__recompute_open(const dunlin_remat *remat,
                                                      const dunlin_live *live, uint64_t batch,
                                                      const uint8_t *variants,
                                                      dunlin_recompute_model *out_model,
                                                      dunlin_error *error);
void dunlin__recompute_close(dunlin_recompute_model *model);

/* Simulates a choice. More than DUNLIN_RECOMPUTE_STEPS steps give the worst of all results. */
dunlin_recompute_result dunlin__recompute_run(dunlin_recompute_model *model,
                                              const dunlin_recompute_choice *choice,
                                              uint64_t limit_bytes);

/* --- redo_search.c --- */

/*
 * Looks for the cheapest choice within the limit, for so many simulations: large neighbourhoods of
 * the one given (if it fits) and of those found. False: none that fits was found, or none that is
 * cheaper than the one given.
 */
DUNLIN_NODISCARD bool dunlin__recompute_search(dunlin_recompute_model *model, uint64_t limit_bytes,
                                               uint64_t n_runs, dunlin_recompute_choice *choice,
                                               dunlin_recompute_result *out_result);

#endif
