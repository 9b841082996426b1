/*
 * place_pack.h - packs and compares numbers of 1 or 2 bits, as kernels/api/place_bits.h lays them
 * out.
 */
#ifndef DUNLIN_KERNELS_PLACE_PACK_H
#define DUNLIN_KERNELS_PLACE_PACK_H

#include "kernels/api/place_bits.h"
#include "kernels/parallel/tasks.h"
#include "kernels/simd/vec.h"

/* All pixels' numbers. */
typedef struct place_form {
    int32_t bits;
    int64_t channels, pixel_bytes;
    int64_t group_bytes, last_bytes; /* of a whole group, and of the last if it is not whole */
} place_form;

static inline place_form place_form_of(int32_t bits, int64_t channels)
{
    const int64_t left = channels % DUNLIN_PLACE_GROUP;
    place_form form = {.bits = bits,
                       .channels = channels,
                       .pixel_bytes = dunlin__place_bytes(bits, channels),
                       .group_bytes = dunlin__place_group_bytes(bits, DUNLIN_PLACE_GROUP)};
    form.last_bytes = left == 0 ? form.group_bytes : dunlin__place_group_bytes(bits, left);
    return form;
}

/* What is read with: each channel's bits in its byte, of a whole group and of the last. */
typedef struct place_reader {
    place_form form;
    uint8_t masks[2][DUNLIN_PLACE_GROUP];
} place_reader;

static inline place_reader place_reader_of(int32_t bits, int64_t channels)
{
    place_reader reader = {.form = place_form_of(bits, channels)};
    const int32_t ones = (1 << bits) - 1;
    for (int64_t i = 0; i < DUNLIN_PLACE_GROUP; i++) {
        const int64_t plane = i / reader.form.group_bytes;
        const int64_t last_plane = i / reader.form.last_bytes;
        reader.masks[0][i] = (uint8_t)(ones << (plane * bits));
        if (last_plane * bits < 8) {
            reader.masks[1][i] = (uint8_t)(ones << (last_plane * bits));
        }
    }
    return reader;
}

/* Parts of a vector, of `bytes` each: what they put into a group of so many bytes. Of a vector of a
 * whole group one multiplication or two shifts bring two bits to their places. */
ALWAYS_INLINE uint64_t place_pack(vbytes numbers, int64_t first, int32_t bits, int64_t bytes)
{
#if VEC == 16
    typedef uint64_t pair __attribute__((vector_size(16)));
    const pair both = (pair)numbers;
    if (bits == 2 && bytes == 4) {
        const uint64_t even = both[0] | both[1] << 4;
        return (uint32_t)(even | even >> 30);
    }
    if (bits == 2 && bytes == 2) { /* 16 bits, moved by 48, 34, 20 and 6 */
        return both[0] * UINT64_C(0x0001000400100040) >> 48;
    }
    if (bits == 2) { /* 8 bits, moved by 24, 18, 12 and 6 */
        return (uint32_t)((uint32_t)both[0] * UINT32_C(0x01041040)) >> 24;
    }
    if (bytes == 2) { /* 16 bits, moved by 48, 33, 18 and 3 */
        const uint64_t move = UINT64_C(0x0001000200040008);
        return both[0] * move >> 48 | (both[1] * move >> 48) << 4;
    }
#endif
    const int64_t run = bytes < 4 ? bytes : 4; /* of channels whose bits lie side by side */
    uint8_t each[VEC];
    uint64_t packed = 0;
    memcpy(each, &numbers, sizeof each);
    UNROLL
    for (int64_t i = 0; i < VEC; i += run) {
        const int64_t plane = (first + i) / bytes;
        uint32_t some = 0;
        if (plane * bits < 8) {
            memcpy(&some, each + i, (size_t)run);
            packed |= (uint64_t)some << ((first + i) % bytes * 8 + plane * bits);
        }
    }
    return packed;
}

/* The same of a group whose bytes are known when it runs. */
ALWAYS_INLINE uint64_t place_pack_last(vbytes numbers, int64_t first, int32_t bits, int64_t bytes)
{
    return bytes == 4   ? place_pack(numbers, first, bits, 4)
           : bytes == 2 ? place_pack(numbers, first, bits, 2)
                        : place_pack(numbers, first, bits, 1);
}

ALWAYS_INLINE void place_store(uint8_t *to, uint64_t packed, int64_t bytes)
{
    if (bytes == 4) {
        memcpy(to, &packed, 4);
    } else if (bytes == 2) {
        memcpy(to, &packed, 2);
    } else {
        memcpy(to, &packed, 1);
    }
}

/* Where the numbers of one vector of channels lie in a pixel. */
typedef struct place_at {
    int64_t offset, bytes; /* of the group */
    vbytes mask;
} place_at;

/* Channels [c, c + VEC) of a pixel: c is a multiple of VEC. */
ALWAYS_INLINE place_at place_of(const place_reader *reader, int64_t c)
{
    const place_form *form = &reader->form;
    const int64_t group = c / DUNLIN_PLACE_GROUP;
    const int64_t first = c % DUNLIN_PLACE_GROUP;
    const bool is_whole = (group + 1) * DUNLIN_PLACE_GROUP <= form->channels;
    place_at at = {.offset = group * form->group_bytes,
                   .bytes = is_whole ? form->group_bytes : form->last_bytes};
    memcpy(&at.mask, reader->masks[is_whole ? 0 : 1] + first, VEC);
    return at;
}

/* The group's bytes, again and again. */
ALWAYS_INLINE vbytes place_load(const place_at *at, const uint8_t *pixel)
{
    typedef uint16_t pairs __attribute__((vector_size(VEC)));
    typedef uint32_t fours __attribute__((vector_size(VEC)));
    const uint8_t *from = pixel + at->offset;
    if (at->bytes == 4) {
        uint32_t bytes = 0;
        memcpy(&bytes, from, sizeof bytes);
        return (vbytes)((fours){0} + bytes);
    }
    if (at->bytes == 2) {
        uint16_t bytes = 0;
        memcpy(&bytes, from, sizeof bytes);
        return (vbytes)((pairs){0} + bytes);
    }
    return (vbytes){0} + *from;
}

/* A number in all fields of a byte. */
ALWAYS_INLINE uint8_t place_repeat(int32_t bits, int64_t number)
{
    return (uint8_t)(number * (bits == 1 ? 0xFF : 0x55));
}

/* The bits of channels whose number is the one that is `repeated`. */
ALWAYS_INLINE vbytes place_wanted(const place_at *at, uint8_t repeated)
{
    return ((vbytes){0} + repeated) & at->mask;
}

/* Zero just where the channel's number is the one that is `repeated`. */
ALWAYS_INLINE vbytes place_compare(const place_at *at, vbytes loaded, uint8_t repeated)
{
    return (loaded ^ ((vbytes){0} + repeated)) & at->mask;
}

#endif
