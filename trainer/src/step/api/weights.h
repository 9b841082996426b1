/*
 * weights.h - reads and sets parameters.
 */
#ifndef DUNLIN_STEP_WEIGHTS_H
#define DUNLIN_STEP_WEIGHTS_H

#include "step/context/context.h"

/* What is known of the rows of tables' optimiser state holds no longer: it comes from elsewhere. */
void dunlin__trainer_forget_rows(const dunlin_trainer *trainer);
/* A persistent tensor's floats in the arena. */
float *dunlin__trainer_floats(const dunlin_trainer *trainer, uint32_t tensor);

#endif
