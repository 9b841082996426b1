/*
 * exec.h - runs a step: replays a plan on the arena.
 */
#ifndef DUNLIN_STEP_EXEC_H
#define DUNLIN_STEP_EXEC_H

#include "step/lower/lower.h"

#include <mem/arena.h>
#include <mem/plan.h>
#include <mem/switch.h>

#include <stdatomic.h>

/* One kind of step, ready to run: training, or inference. */
typedef struct dunlin_program {
    dunlin_step_graph *step;
    dunlin_lowered lowered;
    dunlin_plan *plan;
} dunlin_program;

void dunlin__program_free(dunlin_program *program);

/*
 * Lets a step's plan be changed while it runs. Between two ops, if `is_asked`, turn_fn is called
 * with the op that is next; it may put another plan into the program, with the entry that leads
 * into it (*out_is_changed), or wait. A status other than OK ends the step.
 */
typedef struct dunlin_exec_control {
    atomic_bool *is_asked;
    uint64_t *n_taken; /* by op: samples that its reduce part has taken; FIXED: 1 once it has run */
    const dunlin_switch *entry; /* of the current plan; NULL: it runs from its beginning */
    uint32_t next_late;         /* of the entry's late moves, the first that is not done */
    dunlin_status (*turn_fn)(void *ctx, const dunlin_plan_point *point, bool *out_is_changed);
    void *ctx;
} dunlin_exec_control;

/*
 * Runs the plan over a batch of `run->n_batch` samples, at most the plan's. Allocates nothing. A
 * status other than OK comes from the source or from the check of the loss; parameters are then as
 * they were before. `control` may be NULL; its n_taken must be zero.
 */
DUNLIN_NODISCARD dunlin_status dunlin__exec(const dunlin_program *program, dunlin_arena *arena,
                                            dunlin_exec_control *control,
                                            const dunlin_step_run *run);

/* Where a persistent tensor lies. */
uint64_t dunlin__persistent_offset(const dunlin_program *program, uint32_t tensor);

/* Marks everything above the persistent tensors as dead (debug builds). */
void dunlin__exec_poison_pool(const dunlin_program *program, dunlin_arena *arena);

#endif
