/*
 * switch.h - migrating from one plan to another in mid-step.
 *
 * How far a step has come does not depend on its plan: for each op, how many samples its reduce
 * part has taken, or whether it has run if it is FIXED. None of that is ever done again. The new
 * plan does what is not done yet. A map part runs only if its output is not resident and something
 * that still runs will read it. What the old plan left in memory is moved to where the new plan
 * expects it, or is staged in free room until then.
 *
 * So the step can migrate to every plan, from every point of every other plan, within the bytes of
 * the new one: with nothing resident the new plan's own steps recompute everything. That requires
 * two things of a graph: all its fixed tensors are persistent or pinned, and nothing persistent
 * that a map part reads is changed before every reduce part has taken all samples.
 *
 * Source: the sets "in memory now" and "needed by the new plan" of Melon (MobiSys'22, section 6);
 * what is kept and what is recomputed is decided differently, from the plans alone.
 */
#ifndef DUNLIN_MEM_SWITCH_H
#define DUNLIN_MEM_SWITCH_H

#include <mem/plan.h>

/* About to run `step` of `loop` on the slice that begins at `first_sample`. */
typedef struct dunlin_plan_point {
    uint32_t loop;
    uint32_t step;
    uint64_t first_sample;
} dunlin_plan_point;

/* Bytes of the arena that move; in the order of the list, each as memmove() does it. */
typedef struct dunlin_switch_move {
    uint64_t from_bytes;
    uint64_t to_bytes;
    uint64_t bytes;
    uint32_t place; /* of the new plan */
} dunlin_switch_move;

/* What the largest of some plans has. */
typedef struct dunlin_switch_sizes {
    uint32_t n_steps, n_loops, n_places, n_operands;
} dunlin_switch_sizes;

/* A way into a plan. The arrays have room for any plan of the sizes it was opened for. */
typedef struct dunlin_switch {
    dunlin_alloc alloc;
    dunlin_switch_sizes sizes;
    uint32_t n_ops;
    uint8_t *runs_map; /* by step: its map part runs */
    uint64_t *brought; /* by operand that is written: samples, from 0, that were migrated */
    uint64_t *done;    /* by loop: slices that end at this sample or before are not run; UINT64_MAX:
                          nothing of the loop is */
    dunlin_switch_move *moves;
    uint32_t n_moves;
    uint32_t n_tail_moves; /* after so many nothing lies above the new plan's arena */
    /* What is staged until its allocation's live range begins, by the step where it does: moved
     * there before that step, or before the first one after it that runs. In the same array, from
     * its end. */
    dunlin_switch_move *late;
    uint32_t n_late;
    uint64_t moved_bytes; /* by both */
    uint64_t left_ns;     /* predicted time of all that is left to run */
    uint64_t
        recompute_ns; /* of that, what a step under this plan alone would not have had to run now */
    uint64_t reach_ns; /* what a step under this plan alone takes to come as far */
    /* scratch: of the new plan by place and operand, of the old one by op, step and operand */
    uint8_t *marks;
    uint32_t *source;
    uint32_t *list;
    uint32_t n_listed;
    uint32_t *by_offset;
    uint32_t n_by_offset;
    uint64_t *lies_at; /* where what is migrated to an allocation lies at first */
    uint64_t *worth;   /* its recompute cost: the time */
    uint32_t *first_writer;
    uint32_t *next_writer;
    uint32_t *step_of_op;
    uint32_t *next_step;
    uint64_t *covered;
} dunlin_switch;

/* The step in progress. Of the entry's late moves those up to the point's step are done. */
typedef struct dunlin_switch_from {
    const dunlin_plan *plan;
    const dunlin_switch *entry; /* how the step migrated to this plan, or NULL: it began with it */
    dunlin_plan_point point;
    const uint64_t
        *n_taken; /* by op: samples its reduce part has taken; FIXED: not 0 once it ran */
    uint64_t n_batch;
} dunlin_switch_from;

/* Room for plans of up to these sizes. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__switch_open(const dunlin_mem_graph *graph,
                                                   const dunlin_switch_sizes *sizes,
                                                   const dunlin_alloc *alloc,
                                                   dunlin_switch *out_entry, dunlin_error *error);
/* Raises each size to that of the plan. */
void dunlin__switch_measure(const dunlin_plan *plan, dunlin_switch_sizes *sizes);
/* Zeroed memory is fine. */
void dunlin__switch_close(dunlin_switch *entry);

/*
 * Works out how to go on under `to`: an entry for it, and what it costs. `limit_bytes` is the end
 * of the arena while the moves are done: room in it that nothing needs may break their cycles. If
 * from->plan is NULL nothing is migrated. Allocates nothing, cannot fail.
 */
void dunlin__switch_find(const dunlin_mem_graph *graph, const dunlin_switch_from *from,
                         const dunlin_plan *to, uint64_t limit_bytes, dunlin_switch *entry);

/*
 * Simulates what is left of `to`, from the entry alone: every read must find what the graph's order
 * asks for, every reducer must take what is left, and every FIXED op that has not run must run.
 * MISMATCH with a text that names the step and the tensor; MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__switch_verify(
    const dunlin_mem_graph *graph, const dunlin_switch_from *from, const dunlin_plan *to,
    const dunlin_switch *entry, const dunlin_alloc *alloc, dunlin_error *error);

/* Performs the moves [first, end) in the arena at `base`. */
void dunlin__switch_move(const dunlin_switch *entry, uint32_t first, uint32_t end,
                         unsigned char *base);

/* Performs the late moves from `next` on that step `step` or one before it asks for. Returns the
 * first that is left. */
uint32_t dunlin__switch_move_late(const dunlin_switch *entry, const dunlin_plan *to, uint32_t next,
                                  uint32_t step, unsigned char *base);

#endif
