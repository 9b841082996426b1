/*
 * zoo_step.h - the training step of a ready-made network as the planner gets it: momentum SGD,
 * fused, the kernels of this machine, one thread.
 */
#ifndef DUNLIN_TESTS_ZOO_STEP_H
#define DUNLIN_TESTS_ZOO_STEP_H

#include "step/lower/lower.h"

#include <dunlin/model.h>

typedef struct zoo_step {
    dunlin_alloc_counter counter; /* the others' memory comes from it: never copied */
    dunlin_model *model;
    dunlin_step_graph *step;
    dunlin_lowered lowered;
} zoo_step;

/* Of whatever status, it is to be closed. */
dunlin_status zoo_step_open(const char *name, zoo_step *out_step, dunlin_error *error);
/* The same with the kernels of an instruction set ("sse2", "avx2", ...; NULL: the machine's best).
 */
dunlin_status zoo_step_open_for(const char *name, const char *isa, zoo_step *out_step,
                                dunlin_error *error);
void zoo_step_close(zoo_step *step);

#endif
