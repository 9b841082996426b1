/*
 * exec.h - runs a step: replays a plan on the arena.
 */
#ifndef DUNLIN_STEP_EXEC_H
#define DUNLIN_STEP_EXEC_H

#include "lower.h"

#include <mem/arena.h>
#include <mem/plan.h>

/* One kind of step, ready to run: training, or inference. */
typedef struct dunlin_program {
    dunlin_step_graph *step;
    dunlin_lowered lowered;
    dunlin_plan *plan;
} dunlin_program;

void dunlin__program_free(dunlin_program *program);

/*
 * Runs the plan over a batch of `run->n_batch` samples, at most the plan's. Allocates nothing. A
 * status other than OK comes from the source or from the check of the loss; parameters are then as
 * they were before.
 */
DUNLIN_NODISCARD dunlin_status dunlin__exec(const dunlin_program *program, dunlin_arena *arena,
                                            const dunlin_step_run *run);

/* Where a persistent tensor lies. */
uint64_t dunlin__persistent_offset(const dunlin_program *program, uint32_t tensor);

/* Marks everything above the persistent tensors as dead (debug builds). */
void dunlin__exec_poison_pool(const dunlin_program *program, dunlin_arena *arena);

#endif
