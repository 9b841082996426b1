/*
 * int_places.h - the places of maxima, a few bits each: packed and unpacked a run of channels at a
 * time, or up to CHUNK channels in a vector.
 */
#ifndef DUNLIN_KERNELS_INT_PLACES_H
#define DUNLIN_KERNELS_INT_PLACES_H

#include "kernels/api/integer.h"
#include "kernels/parallel/tasks.h"
#include "kernels/simd/vec.h"

#define PLACE_RUN DUNLIN_INT_PLACE_RUN /* channels at once */
#define PLACE_CHUNK 16                 /* of few channels: those of a pixel in one vector */

typedef int8_t place_chars __attribute__((vector_size(PLACE_CHUNK)));

/* n of PLACE_CHUNK elements: n itself, or all where `has_room` after them. */
ALWAYS_INLINE place_chars place_load(const void *from, int64_t n, bool has_room)
{
    place_chars v = {0};
    if (has_room) {
        memcpy(&v, from, sizeof v);
    } else {
        memcpy(&v, from, (size_t)n);
    }
    return v;
}

ALWAYS_INLINE void place_store(void *to, place_chars v, int64_t n, bool has_room)
{
    if (has_room) {
        memcpy(to, &v, sizeof v);
    } else {
        memcpy(to, &v, (size_t)n);
    }
}

/* Ones in the first n elements. */
ALWAYS_INLINE place_chars place_mask(int64_t n)
{
    place_chars mask;
    for (int i = 0; i < PLACE_CHUNK; i++) {
        mask[i] = i < n ? -1 : 0;
    }
    return mask;
}

/* A run's places, a byte each, in bits: dunlin__int_place_bytes(). */
static inline void pack_places(const dunlin_pool_shape *shape, const uint8_t *places, int64_t n,
                               uint8_t *out)
{
    const int32_t bits = dunlin__int_place_bits(shape);
    const int64_t bytes = dunlin__int_place_bytes(shape, n);
    uint8_t packed[PLACE_RUN];
    memcpy(packed, places, (size_t)bytes);
    for (int32_t p = 1; p < 8 / bits; p++) {
        const uint8_t *plane = places + p * bytes;
        const int64_t here = min_i64(bytes, n - p * bytes);
        for (int64_t i = 0; i < here; i++) {
            packed[i] = (uint8_t)(packed[i] | plane[i] << (p * bits));
        }
    }
    memcpy(out, packed, (size_t)bytes);
}

static inline void unpack_places(const dunlin_pool_shape *shape, const uint8_t *packed, int64_t n,
                                 uint8_t *out)
{
    const int32_t bits = dunlin__int_place_bits(shape);
    const int64_t bytes = dunlin__int_place_bytes(shape, n);
    const int32_t low = (1 << bits) - 1;
    for (int32_t p = 0; p < 8 / bits; p++) {
        uint8_t *plane = out + p * bytes;
        const int64_t here = min_i64(bytes, n - p * bytes);
        for (int64_t i = 0; i < here; i++) {
            plane[i] = (uint8_t)(packed[i] >> (p * bits) & low);
        }
    }
}

/* Of a pixel with at most PLACE_CHUNK channels whose places are `bits` wide and take `bytes`, 8 at
 * most: those beyond the channels are 0. */
ALWAYS_INLINE uint64_t pack_chunk(place_chars places, int32_t bits, int64_t bytes)
{
    char line[3 * PLACE_CHUNK] = {0};
    uint64_t packed = 0;
    memcpy(line, &places, sizeof places);
    for (int32_t p = 0; p < 8 / bits; p++) {
        uint64_t plane = 0;
        memcpy(&plane, line + p * bytes, sizeof plane);
        packed |= plane << (p * bits);
    }
    return packed;
}

/* Which byte of a pixel's places each channel's are in. */
ALWAYS_INLINE place_chars chunk_bytes(int64_t bytes)
{
    place_chars v;
    for (int64_t i = 0; i < PLACE_CHUNK; i++) {
        v[i] = (int8_t)(i % bytes);
    }
    return v;
}

/* The bits of each channel, still where they lie in their byte; behind the channels anything.
 * `bytes_of` is chunk_bytes(). */
ALWAYS_INLINE place_chars spread_chunk(uint64_t packed, int32_t bits, int64_t bytes,
                                       place_chars bytes_of)
{
#if defined(__SSSE3__) && USES_X86
    (void)bits;
    (void)bytes;
    return (place_chars)_mm_shuffle_epi8(_mm_set1_epi64x((int64_t)packed), (__m128i)bytes_of);
#elif USES_ARM
    (void)bits;
    (void)bytes;
    return (place_chars)vqtbl1q_s8((int8x16_t)vdupq_n_u64(packed), (uint8x16_t)bytes_of);
#else
    char line[3 * PLACE_CHUNK] = {0};
    place_chars v;
    for (int32_t p = 0; p < 8 / bits; p++) {
        memcpy(line + p * bytes, &packed, sizeof packed);
    }
    memcpy(&v, line, sizeof v);
    (void)bytes_of;
    return v;
#endif
}

/* What spread_chunk() has, masked, where the place is `tap`; and the mask. */
static inline place_chars chunk_bits(int32_t tap, int32_t bits, int64_t bytes, int64_t n)
{
    place_chars v = {0};
    for (int64_t i = 0; i < n; i++) {
        v[i] = (int8_t)(uint8_t)((uint32_t)tap << (i / bytes * bits));
    }
    return v;
}

#endif
