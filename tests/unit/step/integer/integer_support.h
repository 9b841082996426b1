/*
 * integer_support.h - what the tests of steps in integers share.
 */
#ifndef DUNLIN_TESTS_INTEGER_SUPPORT_H
#define DUNLIN_TESTS_INTEGER_SUPPORT_H

#include "step/step_support.h"

#include <dunlin/model.h>

/* Precision niti, seed 7, and nothing else. */
dunlin_trainer_options integer_options(int64_t batch);
/* The builder's model, or the test fails. */
dunlin_model *integer_finish(dunlin_builder *builder, dunlin_value end);
/* Every operator that niti has: residual sums, concatenation, grouped and depthwise convolution,
 * ReLU6, overlapping windows, averages, dropout, fan-out. */
dunlin_model *integer_branched_model(void);
/* VGG's form: 3 x 3 convolutions, each with a ReLU, pooled. */
dunlin_model *integer_plain_model(void);
/* Activations where they are folded and where they are not: a mask that passes through windows that
 * overlap, dropout and flatten; a ReLU6; a sum that is clipped, of readers that mask and do not. */
dunlin_model *integer_folded_model(void);

#endif
