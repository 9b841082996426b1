/*
 * losses.h - the loss of each output, from a trainer's options.
 */
#ifndef DUNLIN_STEP_LOSSES_H
#define DUNLIN_STEP_LOSSES_H

#include "graph/build.h"

/*
 * Fills in `out` for each output of the network, and what the options say of the first one's loss.
 * ARGUMENT: an output that is not the network's, or is named twice, a number out of its range;
 * labels are ignored, and no loss is over labels.
 */
DUNLIN_NODISCARD dunlin_status dunlin__losses_take(const dunlin_net *net,
                                                   dunlin_trainer_options *options,
                                                   dunlin_step_loss *out, dunlin_error *error);

#endif
