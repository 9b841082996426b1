/*
 * exact_nets.h - random networks built like those that people train, but small: deep enough that
 * recomputation pays.
 */
#ifndef DUNLIN_TESTS_EXACT_NETS_H
#define DUNLIN_TESTS_EXACT_NETS_H

#include <dunlin/model.h>

typedef enum exact_norm {
    EXACT_NORM_NONE,
    EXACT_NORM_BATCH, /* couples the samples of a batch */
    EXACT_NORM_GROUP
} exact_norm;

/* Images: residual, inverted residual, dense, fire and plain blocks, pooling, dropout. */
dunlin_model *exact_image_model(uint64_t *rng, exact_norm norm);

/* Tokens: encoder layers with dropout. */
dunlin_model *exact_token_model(uint64_t *rng);

#endif
