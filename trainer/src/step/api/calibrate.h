/*
 * calibrate.h - finds the exponents of a step in integers before its first batch.
 */
#ifndef DUNLIN_STEP_CALIBRATE_H
#define DUNLIN_STEP_CALIBRATE_H

#include "step/context/context.h"

/* Before a training step: finds all exponents from its batch unless a step has had them. What the
 * source says, and NUMERIC; nothing is known then, and no weight has changed. */
DUNLIN_NODISCARD dunlin_status dunlin__calibrate_step(dunlin_trainer *trainer,
                                                      const dunlin_step_run *run);
/* Before an evaluation or a prediction of a trainer that has taken no step: those of the forward
 * pass, from the first batch of its range; the next training step finds its own. */
DUNLIN_NODISCARD dunlin_status dunlin__calibrate_infer(dunlin_trainer *trainer,
                                                       const dunlin_step_run *run);
/* The next step begins with a calibration. Nothing in float32. */
void dunlin__calibrate_again(dunlin_trainer *trainer);

#endif
