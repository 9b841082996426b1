/*
 * evict.h - eviction on demand: walk through the step, and where too many bytes are alive drop the
 * tensor that the metric ranks last.
 */
#ifndef DUNLIN_MEM_EVICT_H
#define DUNLIN_MEM_EVICT_H

#include "model.h"

typedef enum dunlin_eviction {
    DUNLIN_EVICT_TPS, /* bytes times time to the last use, over the time to recompute it (Melon) */
    DUNLIN_EVICT_SIZE_OVER_TIME /* bytes over the time of its own ops (Sage) */
} dunlin_eviction;

/* Drops one tensor that is resident after a position. `is_pinned` (by interval) marks those that
 * cannot be dropped. False: there is none. */
bool dunlin__evict_at(dunlin_remat *remat, dunlin_eviction metric, uint32_t position,
                      uint8_t *intervals, uint8_t *is_pinned);

/* From nothing dropped: at the first position above the target evicts one, and so on. False: that
 * is not enough. `scratch`: n_intervals. */
bool dunlin__evict_on_demand(dunlin_remat *remat, dunlin_eviction metric, uint64_t target_bytes,
                             uint8_t *intervals, uint8_t *scratch);

#endif
