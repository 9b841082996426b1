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

static double score_of(dunlin_remat *remat, dunlin_eviction metric, uint32_t gap, uint32_t position)
{
    uint32_t r = remat->gaps[gap].root;
    const dunlin_remat_root *root = &remat->roots[r];
    if (metric == DUNLIN_EVICT_SIZE_OVER_TIME) {
        uint64_t cost = 0;
        for (uint32_t m = 0; m < root->n_makers; m++) {
            cost += remat->steps[remat->makers[root->first_maker + m]].cost_ns;
        }
        return (double)root->bytes / ((double)cost + 1.0);
    }
    return (double)root->bytes * (double)(root->last_position - position) /
           ((double)dunlin__remat_redo_cost(remat, r) + 1.0);
}

bool dunlin__evict_at(dunlin_remat *remat, dunlin_eviction metric, uint32_t position, uint8_t *gaps,
                      uint8_t *is_pinned)
{
    for (;;) {
        uint32_t best = DUNLIN_MEM_NONE;
        double best_score = 0.0;
        dunlin__remat_stand(remat, gaps, position + 1);
        for (uint32_t r = 0; r < remat->n_roots; r++) {
            const uint32_t gap = dunlin__remat_gap_at(remat, r, position + 1);
            if (!dunlin__remat_is_here(remat, r) || gap == DUNLIN_MEM_NONE || is_pinned[gap] != 0 ||
                gaps[gap] == DUNLIN_GAP_EAGER || remat->gaps[gap].to <= position + 1) {
                continue;
            }
            double score = score_of(remat, metric, gap, position);
            if (best == DUNLIN_MEM_NONE || score > best_score) {
                best = gap;
                best_score = score;
            }
        }
        if (best == DUNLIN_MEM_NONE) {
            return false;
        }
        const uint8_t held = gaps[best];
        gaps[best] = dunlin__remat_lower(remat, held);
        if (dunlin__remat_run(remat, gaps, UINT64_MAX).is_valid) {
            return true;
        }
        gaps[best] = held;
        is_pinned[best] = 1;
    }
}

bool dunlin__evict_on_demand(dunlin_remat *remat, dunlin_eviction metric, uint64_t target_bytes,
                             uint8_t *gaps, uint8_t *scratch)
{
    memset(gaps, DUNLIN_GAP_KEEP, remat->n_gaps);
    memset(scratch, 0, remat->n_gaps);
    for (;;) {
        dunlin_remat_result result = dunlin__remat_run(remat, gaps, target_bytes);
        if (result.excess_bytes == 0) {
            return true;
        }
        if (!dunlin__evict_at(remat, metric, result.first_over, gaps, scratch)) {
            return false;
        }
    }
}
