/*
 * shuffle.h - the order of an epoch: a permutation computed index by index, so that it costs no
 * memory and can be resumed anywhere.
 */
#ifndef DUNLIN_GRAPH_SHUFFLE_H
#define DUNLIN_GRAPH_SHUFFLE_H

#include <stdint.h>

#define DUNLIN_SHUFFLE_ROUNDS 6

typedef struct dunlin_shuffle {
    int64_t n;
    uint32_t half_bits; /* the network permutes 2 * half_bits bits, fewer than 4 n + 4 values */
    uint64_t keys[DUNLIN_SHUFFLE_ROUNDS];
} dunlin_shuffle;

/* A permutation of [0, n), n >= 1, for one epoch. */
void dunlin__shuffle_init(dunlin_shuffle *shuffle, int64_t n, uint64_t seed, int64_t epoch);

/* Where `position` of the order points: in [0, n). */
int64_t dunlin__shuffle_at(const dunlin_shuffle *shuffle, int64_t position);

#endif
