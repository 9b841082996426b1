/*
 * warn.h - warnings that a trainer logs once about options that are valid and perhaps not intended.
 */
#ifndef DUNLIN_STEP_WARN_H
#define DUNLIN_STEP_WARN_H

#include "step/context/context.h"

/* A step of one example in a network whose batch norm takes statistics: warned of once. */
void dunlin__trainer_warn_of_one(dunlin_trainer *trainer, int64_t n_batch);

#endif
