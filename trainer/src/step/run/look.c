/*
 * look.c - finds where a value was first not finite: runs the forward pass once more and checks
 * what each op writes.
 *
 * Invariant: no persistent tensor had been written when the step ended, so the same plan from its
 * beginning computes the same values; it ends before the first op of the backward pass.
 */
#include "look.h"

void dunlin__look_again(const dunlin_program *program, dunlin_arena *arena,
                        const dunlin_step_run *run)
{
    dunlin_step_trace trace = *run->trace;
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin_step_run again = *run;
    trace.looks = true;
    again.trace = &trace;
    again.error = &error;
    again.watch = NULL;
    if (dunlin__exec(program, arena, NULL, &again) != DUNLIN_OK && error.status == DUNLIN_NUMERIC) {
        *run->error = error;
    }
}
