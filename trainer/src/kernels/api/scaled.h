/*
 * scaled.h - rows of floats as int8 with a scale for each block of their channels: the format, and
 * what its kernels are called with.
 *
 * A row of channels is cut into blocks of DUNLIN_SCALED_BLOCK, the last of them may be shorter. A
 * block's scale is the smallest bfloat16 that is no less than DUNLIN_SCALED_PART, a little more
 * than a 127th, of the block's largest float by size, and no less than 2^-100. A float x is stored
 * as a whole number q of scales, -127 to 127, and read as q * scale, which rounds nothing. drawn:
 * q is the whole number below x / scale, or the next one with the probability of what x / scale is
 * above it, by a draw of 23 bits of (key, sample, element): its mean is x / scale, to 2^-22;
 *   otherwise:  the nearest, of two as near the even one.
 * A block with a float that is not finite, or of which 127 scales are not, has a scale that is no
 * number, and so have all that is read from it.
 *
 * Of a sample all scales come first, row by row, and then all int8; samples follow each other
 * without a gap, so nothing here is aligned.
 */
#ifndef DUNLIN_KERNELS_SCALED_H
#define DUNLIN_KERNELS_SCALED_H

#include "kernels/parallel/threads.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define DUNLIN_SCALED_BLOCK 32
#define DUNLIN_SCALED_PART 0x1.02042p-7F /* no quotient reaches 127, however it is rounded */

typedef struct dunlin_scaled_call {
    int64_t rows_per_sample, n_samples;
    int32_t channels;
    float *floats;        /* compact */
    unsigned char *bytes; /* n_samples x dunlin__scaled_bytes() */
    /* store */
    bool is_drawn;
    bool writes_back; /* the floats become those that are read */
    uint64_t key;     /* of the draws: of the tensor and the step */
    int64_t first_sample;
    dunlin_threads *threads;
} dunlin_scaled_call;

/* Blocks of a row. */
static inline int64_t dunlin__scaled_blocks(int32_t channels)
{
    return ((int64_t)channels + DUNLIN_SCALED_BLOCK - 1) / DUNLIN_SCALED_BLOCK;
}

/* Bytes of so many rows of one sample. */
static inline int64_t dunlin__scaled_bytes(int64_t rows, int32_t channels)
{
    return rows * (channels + dunlin__scaled_blocks(channels) * (int64_t)sizeof(uint16_t));
}

/* The rows of one sample have no scale that is none. */
static inline bool dunlin__scaled_is_finite(const unsigned char *bytes, int64_t rows,
                                            int32_t channels)
{
    const int64_t n = rows * dunlin__scaled_blocks(channels);
    for (int64_t i = 0; i < n; i++) {
        uint16_t scale = 0;
        memcpy(&scale, bytes + i * (int64_t)sizeof scale, sizeof scale);
        if ((scale & 0x7F80U) == 0x7F80U) {
            return false;
        }
    }
    return true;
}

#endif
