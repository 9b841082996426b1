/*
 * weigh.h - the total weight of a batch's examples in the loss.
 */
#ifndef DUNLIN_STEP_WEIGH_H
#define DUNLIN_STEP_WEIGH_H

#include "step/context/context.h"

/*
 * How much the run's examples weigh together, and how many of them count. Reads them for
 * their labels, in the idle pool, if one is ignored. DATA for a weight that is negative or not
 * finite; CALLBACK.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_weigh(dunlin_trainer *trainer, dunlin_step_run *run);
/* DATA if none of `n` examples counts. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_check_counted(const dunlin_trainer *trainer,
                                                             int64_t n, int64_t n_counted);

#endif
