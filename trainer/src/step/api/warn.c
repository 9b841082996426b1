/*
 * warn.c - warnings that a trainer logs once about options that are valid and perhaps not intended.
 */
#include "warn.h"

#include "step/context/context.h"

#include <mem/support.h>

#include <inttypes.h>

void dunlin__trainer_warn_of_one(dunlin_trainer *trainer, int64_t n_batch)
{
    const char *norm = trainer->train.step->live_norm;
    if (n_batch != 1 || norm == NULL || trainer->has_warned_of_one) {
        return;
    }
    trainer->has_warned_of_one = true;
    dunlin__log(&trainer->options.log, DUNLIN_LOG_WARNING, "trainer",
                "step %" PRId64 " has a batch of one example, of which batch norm \"%.80s\" takes "
                "its statistics: a channel with a single value has variance 0, and the running "
                "variance shrinks with each such step. Leave the last, smaller batch out "
                "(drop_last), take larger ones or freeze batch norm",
                trainer->step, norm);
}
