/*
 * select.h - what devices are worth to a round, by their reports: the arithmetic alone.
 *
 * Utility and pacer: Lai et al., "Oort: efficient federated learning via guided participant
 * selection", OSDI 2021, algorithm 1. Tiers: Chai et al., "TiFL: a tier-based federated learning
 * system", HPDC 2020.
 */
#ifndef DUNLIN_SERVER_SELECT_H
#define DUNLIN_SERVER_SELECT_H

#include "state/devices.h"
#include "task/task.h"

/* Whether anything is known of a device: one that was late alone is worth nothing yet, but is not
 * new. */
bool dunlin__select_is_known(const dunlin__reported *reported);

/* Examples times their mean loss. Oort has the root of the mean of squared losses, which devices do
 * not report; the mean is never more than that. */
double dunlin__select_useful(const dunlin__reported *reported);

/*
 * What a device that has reported is worth in a round: min(useful, unit) / unit + sqrt(0.1
 * ln(round) / its last round), times (prefer_ms / its time)^penalty if it takes longer than that.
 */
double dunlin__select_utility(const dunlin__reported *reported, uint64_t round, double unit,
                              double prefer_ms, double penalty);

/* The value that a share of n is not above: the smallest with ceil(share n) of them up to it. Sorts
 * them; 0 without any. */
double dunlin__select_quantile(double *values, size_t n, double share);

/*
 * Oort's pacer: the preferred time before the round that follows on `n` rounds, of which `useful`
 * has what each brought in all. It begins at first_ms, and in each round in which the last `window`
 * brought less than the `window` before them it grows by step_ms, up to most_ms: slower devices are
 * to bring what fast ones have no more.
 */
double dunlin__select_paced_ms(const double *useful, size_t n, size_t window, double first_ms,
                               double step_ms, double most_ms);

/* The share of a round for devices that have not reported. */
double dunlin__select_explore(const dunlin__server_selection *terms, uint64_t round);

/* How many of `n_wanted` are new, of so many that are new and that are known. */
size_t dunlin__select_n_new(double explore, size_t n_wanted, size_t n_new, size_t n_known);

/* A client that may be chosen. */
typedef struct dunlin__select_entry {
    uint64_t rank; /* of its hash in the round */
    double utility;
    double key; /* the call's own */
    uint32_t client_index;
} dunlin__select_entry;

/*
 * Chooses `n` of the entries, which come to the front: at random by utility, among those with at
 * least 95 % of what the n-th best has. The draws are the ranks', as keys rank^(1/utility)
 * (Efraimidis, Spirakis 2006), so order changes nothing.
 */
void dunlin__select_by_utility(dunlin__select_entry *entries, size_t n_entries, size_t n);
/* Chooses those of the lowest ranks. */
void dunlin__select_by_rank(dunlin__select_entry *entries, size_t n_entries, size_t n);

/* The longest time of each of `n_tiers` tiers of equal size over sorted times; the last is the
 * longest of all. */
void dunlin__select_tiers(const double *times, size_t n, uint32_t n_tiers, double *out_ends);
/* The tier of a time: the first whose end is not below it, or the last. */
uint32_t dunlin__select_tier_of(double time_ms, const double *ends, uint32_t n_tiers);
/*
 * TiFL's ChangeProbs (algorithm 2): of the n tiers with credit the least accurate has the weight
 * n - 1, the next n - 2, the most accurate 0. Here a tier's loss stands for its inaccuracy; of
 * equal ones the faster counts as less accurate. A tier without credit has 0.
 */
void dunlin__select_change_tiers(const double *losses, const bool *has_credit, uint32_t n_tiers,
                                 double *out_weights);
/* One tier at random by weight, all alike if all weights are 0; `draw` in [0, 1). */
uint32_t dunlin__select_draw_tier(const double *weights, uint32_t n_tiers, double draw);

#endif
