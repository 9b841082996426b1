/*
 * held_weights.h - weights in memory, as a learner reads those a server sent.
 */
#ifndef DUNLIN_TESTS_HELD_WEIGHTS_H
#define DUNLIN_TESTS_HELD_WEIGHTS_H

#include <dunlin/learner.h>
#include <dunlin/model.h>

#define HELD_TENSORS 24

typedef struct held_weights {
    dunlin_weights_tensor tensors[HELD_TENSORS];
    int32_t n_tensors;
    int64_t n_values;
    const float *values; /* one tensor after another */
} held_weights;

/* The tensors of a model over `values`, of which there are at least as many as `capacity`. */
void held_weights_make(held_weights *weights, const dunlin_model *model, const float *values,
                       int64_t capacity);
/* Reads `weights`, which stays where it is. */
dunlin_weights_reader held_weights_reader(held_weights *weights);

#endif
