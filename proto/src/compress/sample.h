/*
 * sample.h - which elements of a tensor a RANDOM selection sends, in order, from the seed alone.
 */
#ifndef DUNLIN_PROTO_SAMPLE_H
#define DUNLIN_PROTO_SAMPLE_H

#include "draws.h"

#include <stdbool.h>

typedef struct dunlin__sampler {
    dunlin__draws draws; /* the tensor's place */
    uint32_t n_left;     /* elements that have not been looked at */
    uint32_t n_kept;     /* of them to be sent */
    uint32_t n_looked;
    uint32_t words[DUNLIN_DRAW_WORDS];
} dunlin__sampler;

/* `n_kept` of `n` elements below 2^31. The key of `sampler->draws` is kept. */
void dunlin__sampler_begin(dunlin__sampler *sampler, uint32_t tensor, uint32_t n, uint32_t n_kept);

/* Whether the next element is sent; false after the last. */
bool dunlin__sampler_next(dunlin__sampler *sampler);

#endif
