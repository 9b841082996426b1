/*
 * scales.h - what a report says of the exponents of a trainer in integers.
 */
#ifndef DUNLIN_STEP_SCALES_H
#define DUNLIN_STEP_SCALES_H

#include "step/context/context.h"

/* Values that did not fit, over all batches and sites; 0 in float32 and before there is an arena.
 */
int64_t dunlin__scales_n_clipped(const dunlin_trainer *trainer);

#endif
