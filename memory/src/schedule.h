/*
 * schedule.h - which op runs in which slice loop, before anything has an address.
 */
#ifndef DUNLIN_MEM_SCHEDULE_H
#define DUNLIN_MEM_SCHEDULE_H

#include <mem/plan.h>

/* A run of one op. */
typedef struct dunlin_schedule_step {
    uint32_t op;
    uint8_t variant;
    uint8_t parts;
} dunlin_schedule_step;

#define DUNLIN_SCHEDULE_MAX_LOOPS 3

/* The arrays belong to whoever made the schedule; `steps` has room for one step an op. */
typedef struct dunlin_schedule {
    uint64_t batch;
    dunlin_plan_loop loops[DUNLIN_SCHEDULE_MAX_LOOPS];
    uint32_t n_loops;
    dunlin_schedule_step *steps;
    uint32_t n_steps;
} dunlin_schedule;

/*
 * Marks the ops that wait for a reduction over the whole batch: out_is_late[op] is 1 for a FIXED op
 * that comes after, directly or through other FIXED ops, an op with a map or reduce part.
 * `*out_barrier_op` is an op with a map or reduce part that waits for such an op, or NONE: the step
 * can run slice by slice. MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__schedule_find_late(const dunlin_mem_graph *graph,
                                                          const dunlin_alloc *alloc,
                                                          uint8_t *out_is_late,
                                                          uint32_t *out_barrier_op,
                                                          dunlin_error *error);

/* The plain step: one loop, one slice, the graph's order. `variants`: one an op. */
void dunlin__schedule_whole(const dunlin_mem_graph *graph, uint64_t batch, const uint8_t *variants,
                            dunlin_schedule *schedule);

/*
 * Slices with accumulation: FIXED ops that wait for nothing, once; then all ops with map or reduce
 * parts, slice by slice; then the other FIXED ops, once. Only where there is no barrier.
 */
void dunlin__schedule_slices(const dunlin_mem_graph *graph, uint64_t batch, uint64_t slice_samples,
                             const uint8_t *is_late, const uint8_t *variants,
                             dunlin_schedule *schedule);

/* How many slices a loop makes of a batch. */
uint64_t dunlin__loop_n_slices(const dunlin_plan_loop *loop, uint64_t batch);

/* Predicted time of one op in a loop over the whole batch, from the graph's costs. */
uint64_t dunlin__variant_cost_ns(const dunlin_mem_op *op, uint32_t variant,
                                 const dunlin_plan_loop *loop, uint64_t batch);

/* Predicted time of the step from the graph's costs. */
uint64_t dunlin__schedule_cost_ns(const dunlin_mem_graph *graph, const dunlin_schedule *schedule);

#endif
