/*
 * margin.h - losses with a margin over distances, cosines and differences of distances.
 */
#ifndef DUNLIN_STEP_MARGIN_H
#define DUNLIN_STEP_MARGIN_H

#include "kernels/api/kernels.h"

#include <dunlin/trainer.h>

/* As the losses of the kernels: rows are summed in their order, a gradient for each output. A
 * network has few outputs of this kind, so one plain form serves all instruction sets. */
void dunlin__margin_loss(dunlin_loss loss, float margin, const dunlin_loss_call *call);

#endif
