/*
 * place_bits.h - how small numbers of channels lie in memory, a few bits each: the places of maxima
 * in their windows, and whether elements lie inside an activation's bounds.
 *
 * The channels of a pixel are cut into groups of DUNLIN_PLACE_GROUP. A group of n channels takes b
 * bytes, as many as its bits need, rounded up to a power of two; channel i of it is in byte i mod
 * b, from bit bits * (i / b) on. So a group is one load for every instruction set. Numbers of 8
 * bits are bytes, one a channel.
 */
#ifndef DUNLIN_KERNELS_PLACE_BITS_H
#define DUNLIN_KERNELS_PLACE_BITS_H

#include "image_calls.h"

#define DUNLIN_PLACE_GROUP 16
#define DUNLIN_SIGN_BITS 1
#define DUNLIN_PLACE_BITS 2 /* of a maximum in a window of at most 4 elements */

/* Bits of a maximum's place in its window, of at most 255 elements: 2 or 8. Four bits of a window
 * of 3 x 3 save no network a twentieth of what it keeps, and cost SqueezeNet's step a hundredth. */
static inline int32_t dunlin__place_bits(const dunlin_pool_shape *shape)
{
    return (int64_t)shape->kernel_h * shape->kernel_w <= 4 ? DUNLIN_PLACE_BITS : 8;
}

/* Bytes of a group of n channels, 1 <= n <= DUNLIN_PLACE_GROUP; fewer than 8 bits. */
static inline int64_t dunlin__place_group_bytes(int32_t bits, int64_t n)
{
    int64_t bytes = 1;
    while (8 * bytes < n * bits) {
        bytes *= 2;
    }
    return bytes;
}

/* Bytes of a pixel of `channels`. */
static inline int64_t dunlin__place_bytes(int32_t bits, int64_t channels)
{
    const int64_t left = channels % DUNLIN_PLACE_GROUP;
    if (bits == 8) {
        return channels;
    }
    return channels / DUNLIN_PLACE_GROUP * dunlin__place_group_bytes(bits, DUNLIN_PLACE_GROUP) +
           (left == 0 ? 0 : dunlin__place_group_bytes(bits, left));
}

#endif
