/*
 * numeric.c - what a step says when a value is not finite, and what it notes of what it has
 * written.
 */
#include "step.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

dunlin_status dunlin__run_not_finite(const dunlin_step_run *run, const char *what, const char *name)
{
    const dunlin_step_trace *trace = run->trace;
    if (trace == NULL || trace->largest_example < 0) {
        return dunlin__fail(run->error, DUNLIN_NUMERIC, "step", 0,
                            "step %" PRId64 ": %s '%.100s' is not finite", run->step, what, name);
    }
    float largest = 0.0F;
    memcpy(&largest, &trace->largest_bits, sizeof largest);
    return dunlin__fail(run->error, DUNLIN_NUMERIC, "step", 0,
                        "step %" PRId64 ": %s '%.100s' is not finite; the largest input of the "
                        "batch, %g, is example %" PRId64 "'s",
                        run->step, what, name, (double)largest, trace->largest_example);
}

void dunlin__run_note_change(const dunlin_step_run *run)
{
    if (run->trace != NULL) {
        run->trace->has_changed = true;
    }
}
