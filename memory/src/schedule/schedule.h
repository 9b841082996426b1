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

/* A map part that runs again: before which op of the graph. Lists of them ascend by `before`. */
typedef struct dunlin_recompute {
    uint32_t before;
    uint32_t op;
} dunlin_recompute;

typedef struct dunlin_recompute_list {
    const dunlin_recompute *recompute;
    uint32_t n;
} dunlin_recompute_list;

/* The arrays belong to whoever made the schedule; `steps` has room for one step for each op and for
 * each recomputed op, `loops` for one loop more than ops. */
typedef struct dunlin_schedule {
    uint64_t batch;
    dunlin_plan_loop *loops;
    uint32_t n_loops;
    dunlin_schedule_step *steps;
    uint32_t n_steps;
} dunlin_schedule;

/*
 * Marks the ops that wait for a reduction over the whole batch: out_is_after_barrier[op] is 1 for a
 * FIXED op that comes after, directly or through other FIXED ops, an op with a map or reduce part.
 * `*out_barrier_op` is an op with a map or reduce part that waits for such an op, or NONE: the step
 * can run slice by slice. MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__schedule_find_barriers(const dunlin_mem_graph *graph,
                                                              const dunlin_alloc *alloc,
                                                              uint8_t *out_is_after_barrier,
                                                              uint32_t *out_barrier_op,
                                                              dunlin_error *error);

/* The plain step: one loop, one slice, the graph's order. `variants`: one an op. */
void dunlin__schedule_whole(const dunlin_mem_graph *graph, uint64_t batch, const uint8_t *variants,
                            const dunlin_recompute_list *recompute, dunlin_schedule *schedule);

/*
 * Slices with accumulation: FIXED ops that wait for nothing, once; then all ops with map or reduce
 * parts, slice by slice; then the other FIXED ops, once. Only where there is no barrier.
 */
void dunlin__schedule_slices(const dunlin_mem_graph *graph, uint64_t batch, uint64_t slice_samples,
                             const uint8_t *is_after_barrier, const uint8_t *variants,
                             const dunlin_recompute_list *recompute, dunlin_schedule *schedule);

/* One more step: all parts of an op. */
void dunlin__schedule_add_step(const dunlin_mem_graph *graph, uint32_t op, const uint8_t *variants,
                               dunlin_schedule *schedule);

/* The map parts that run again before an op; `*next` goes on through the list. */
void dunlin__schedule_add_recompute(const dunlin_recompute_list *recompute, uint32_t before,
                                    const uint8_t *variants, uint32_t *next,
                                    dunlin_schedule *schedule);

/* The steps from `first_step` on are a loop, if there are any. */
void dunlin__schedule_end_loop(dunlin_schedule *schedule, uint32_t first_step,
                               uint64_t slice_samples);

/* How many slices a loop makes of a batch. */
uint64_t dunlin__loop_n_slices(const dunlin_plan_loop *loop, uint64_t batch);

/* Predicted time of one op in a loop over the whole batch, from the graph's costs; and of a step,
 * which may be its map part alone. */
uint64_t dunlin__variant_cost_ns(const dunlin_mem_op *op, uint32_t variant,
                                 const dunlin_plan_loop *loop, uint64_t batch);
uint64_t dunlin__step_cost_ns(const dunlin_mem_graph *graph, const dunlin_schedule_step *step,
                              const dunlin_plan_loop *loop, uint64_t batch);

/* The part of a time that is not the reduce part's. */
uint64_t dunlin__without_reduce_ns(const dunlin_mem_variant *variant, uint64_t ns);

/* Predicted time of the step from the graph's costs. */
uint64_t dunlin__schedule_cost_ns(const dunlin_mem_graph *graph, const dunlin_schedule *schedule);

#endif
