/*
 * look.h - finds where a value was first not finite.
 */
#ifndef DUNLIN_STEP_LOOK_H
#define DUNLIN_STEP_LOOK_H

#include "exec.h"

/*
 * After a step that ended in its forward pass with NUMERIC (run->trace->ended_forward), before
 * anything lasting was written: runs the forward pass once more, and puts into run->error the first
 * op whose output is not finite, if there is one. The source is asked for the batch again.
 */
void dunlin__look_again(const dunlin_program *program, dunlin_arena *arena,
                        const dunlin_step_run *run);

#endif
