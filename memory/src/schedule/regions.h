/*
 * regions.h - the step cut at its barriers: regions that can run slice by slice, because whatever
 * they wait for is final, with FIXED ops between them.
 */
#ifndef DUNLIN_MEM_REGIONS_H
#define DUNLIN_MEM_REGIONS_H

#include "schedule.h"

/*
 * Groups of ops in the order in which they run; within a group the graph's order holds. Even groups
 * are of FIXED ops and may be empty; odd ones are the regions.
 */
typedef struct dunlin_regions {
    uint32_t *group_of; /* by op */
    uint32_t *order;    /* all ops, group by group */
    uint32_t *first;    /* by group, into order; one past the end at n_groups */
    uint32_t n_groups;  /* 2 x regions + 1 */
    uint32_t n_ops;
    dunlin_alloc alloc;
} dunlin_regions;

/*
 * Cuts the step where an op with a map or reduce part waits for a reduction of its own region.
 * FIXED ops that change nothing but persistent tensors (updates of weights) are held back so many
 * regions more, UINT32_MAX: to the very end, as far as no region needs what they change: until then
 * everything that was computed from the old weights may be recomputed, at the price of keeping its
 * inputs. Besides, `n_more` cuts are made so that the parts between them take the same time at
 * `batch` samples. MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__regions_find(const dunlin_mem_graph *graph, uint32_t n_held,
                                                    uint32_t n_more, uint64_t batch,
                                                    const dunlin_alloc *alloc,
                                                    dunlin_regions *out_regions,
                                                    dunlin_error *error);
void dunlin__regions_close(dunlin_regions *regions);

/* Region after region, each in slices of its own: `slices` has one size a region. */
void dunlin__schedule_regions(const dunlin_mem_graph *graph, uint64_t batch,
                              const dunlin_regions *regions, const uint64_t *slices,
                              const uint8_t *variants, const dunlin_recompute_list *recompute,
                              dunlin_schedule *schedule);

#endif
