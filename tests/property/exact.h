/*
 * exact.h - trains one network under many policies and limits, and compares the weights bit by bit
 * with those of the plain fused plan.
 *
 * Policies are rows of one table: a new one joins every test by its row. Limits are set on the
 * arena alone, by a slab of exactly so many bytes: the tables of a small network are larger than
 * its tensors, so a limit on both would never make it recompute anything.
 */
#ifndef DUNLIN_TESTS_EXACT_H
#define DUNLIN_TESTS_EXACT_H

#include <dunlin/trainer.h>

#define EXACT_STEPS 3 /* the last one of a smaller batch */
#define EXACT_MAX_BATCH 32

typedef struct exact_policy {
    const char *name;
    dunlin_policy policy;
    bool is_fused;
    bool has_slices; /* of a given size */
    bool is_stored;  /* it goes with storage in fewer bits than float32 */
} exact_policy;
extern const exact_policy exact_policies[];
extern const int exact_n_policies;

/* How many runs of each kind were compared, so that a test can say whether it tested anything. */
typedef struct exact_counts {
    int n_runs;
    int n_recompute_ops; /* whose plan makes something again */
    int n_sliced;        /* in slices, nothing recomputed */
    int n_both;          /* in slices, and something recomputed */
    int n_cut;           /* cut into regions that run in slices */
    int n_swapped;       /* something is written out and read back */
    int n_mixed;         /* and something else recomputed */
    int n_at_least;      /* at the least limit that works */
    double max_error;    /* of an unfused run, as a share of the weights' norm */
} exact_counts;

/* A network and the weights that all its runs must give. */
typedef struct exact_case {
    const dunlin_model *model;
    dunlin_trainer_options options; /* batch, optimiser and so on; policy, limits, threads vary */
    bool may_slice;                 /* nothing waits for the whole batch */
    const char *name;               /* for messages, with the seed */
    uint64_t seed;
    uint64_t rng; /* of limits, slices and threads */
    exact_counts *counts;
    float *fused;   /* weights and statistics; made by exact_open() */
    float *unfused; /* made when first needed */
    double fused_loss, unfused_loss;
    int64_t n;
    uint64_t arena_bytes; /* of the plain fused plan */
} exact_case;

/* Runs the plain fused plan; what is set in `at` stays. exact_close() frees the weights. */
void exact_open(exact_case *at);
void exact_close(exact_case *at);

/*
 * One policy: the least limit that works, `n_between` random ones above it, perhaps none; on one or
 * two threads. Fused policies must agree with the plain fused plan to the bit. Others must agree to
 * the bit with the plain unfused plan, and with the fused one within rounding.
 */
void exact_check_policy(exact_case *at, const exact_policy *policy, int n_between,
                        bool is_unlimited);

/* Policy auto in slices of at most 1, 2, 3 and 5 samples, the last one shorter; with batch norm
 * those of each region. One thread and two. */
void exact_check_slices(exact_case *at);

/* Policy auto within options.budget_bytes, tables included: the least that works and one above. */
void exact_check_budgets(exact_case *at);

#endif
