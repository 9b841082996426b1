/*
 * evict.c - eviction on demand by live bytes, as the papers do it.
 *
 * Invariant: a dropped tensor is gone from its last use on, not only from the position that was
 * over the target; a choice that could not be run is undone and pinned.
 * Sources: Wang et al., "Melon", MobiSys 2022, section 5; Gim and Ko, "Sage", MobiSys 2022, section
 * 5.
 */
#include "evict.h"

#include <string.h>

static double score_of(dunlin_remat *remat, dunlin_eviction metric, uint32_t interval,
                       uint32_t position)
{
    uint32_t r = remat->intervals[interval].root;
    const dunlin_remat_root *root = &remat->roots[r];
    if (metric == DUNLIN_EVICT_SIZE_OVER_TIME) {
        uint64_t cost = 0;
        for (uint32_t m = 0; m < root->n_makers; m++) {
            cost += remat->steps[remat->makers[root->first_maker + m]].cost_ns;
        }
        return (double)root->bytes / ((double)cost + 1.0);
    }
    return (double)root->bytes * (double)(root->last_position - position) /
           ((double)dunlin__remat_recompute_cost(remat, r) + 1.0);
}

bool dunlin__evict_at(dunlin_remat *remat, dunlin_eviction metric, uint32_t position,
                      uint8_t *intervals, uint8_t *is_pinned)
{
    for (;;) {
        uint32_t best = DUNLIN_MEM_NONE;
        double best_score = 0.0;
        dunlin__remat_stand(remat, intervals, position + 1);
        for (uint32_t r = 0; r < remat->n_roots; r++) {
            const uint32_t interval = dunlin__remat_interval_at(remat, r, position + 1);
            if (!dunlin__remat_is_here(remat, r) || interval == DUNLIN_MEM_NONE ||
                is_pinned[interval] != 0 || intervals[interval] == DUNLIN_INTERVAL_EAGER ||
                remat->intervals[interval].to <= position + 1) {
                continue;
            }
            double score = score_of(remat, metric, interval, position);
            if (best == DUNLIN_MEM_NONE || score > best_score) {
                best = interval;
                best_score = score;
            }
        }
        if (best == DUNLIN_MEM_NONE) {
            return false;
        }
        const uint8_t held = intervals[best];
        intervals[best] = dunlin__remat_lower(remat, held);
        if (dunlin__remat_run(remat, intervals, UINT64_MAX).is_valid) {
            return true;
        }
        intervals[best] = held;
        is_pinned[best] = 1;
    }
}

bool dunlin__evict_on_demand(dunlin_remat *remat, dunlin_eviction metric, uint64_t target_bytes,
                             uint8_t *intervals, uint8_t *scratch)
{
    memset(intervals, DUNLIN_INTERVAL_RETAIN, remat->n_intervals);
    memset(scratch, 0, remat->n_intervals);
    for (;;) {
        dunlin_remat_result result = dunlin__remat_run(remat, intervals, target_bytes);
        if (result.excess_bytes == 0) {
            return true;
        }
        if (!dunlin__evict_at(remat, metric, result.first_over, intervals, scratch)) {
            return false;
        }
    }
}
