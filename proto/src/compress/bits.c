/*
 * bits.c - packs and unpacks numbers of a few bits.
 *
 * The gaps' code: Golomb, "Run-length encodings", 1966; Rice, "Some practical universal noiseless
 * coding techniques", 1979.
 */
#include "bits.h"

size_t dunlin__bits_not_finite(const float *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!dunlin__float_is_finite(values[i])) {
            return i;
        }
    }
    return n;
}

void dunlin__bits_pack(const uint8_t *numbers, size_t n, unsigned width, uint8_t *out_bytes)
{
    uint32_t held = 0;
    unsigned n_held = 0;
    for (size_t i = 0; i < n; i++) {
        held |= (uint32_t)numbers[i] << n_held;
        n_held += width;
        if (n_held >= 8) {
            *out_bytes++ = (uint8_t)held;
            held >>= 8;
            n_held -= 8;
        }
    }
    if (n_held > 0) {
        *out_bytes = (uint8_t)held;
    }
}

bool dunlin__bits_unpack(const uint8_t *bytes, size_t n, unsigned width, uint8_t *out_numbers)
{
    const uint32_t mask = (1u << width) - 1u;
    uint32_t held = 0;
    unsigned n_held = 0;
    for (size_t i = 0; i < n; i++) {
        if (n_held < width) {
            held |= (uint32_t)*bytes++ << n_held;
            n_held += 8;
        }
        out_numbers[i] = (uint8_t)(held & mask);
        held >>= width;
        n_held -= width;
    }
    return held == 0;
}

unsigned dunlin__rice_choose(const uint32_t *gaps, size_t n, size_t *out_n_bytes)
{
    unsigned best = 0;
    uint64_t best_bits = UINT64_MAX;
    for (unsigned rice = 0; rice <= DUNLIN_RICE_MAX; rice++) {
        uint64_t n_bits = (uint64_t)n * (rice + 1);
        for (size_t i = 0; i < n; i++) {
            n_bits += gaps[i] >> rice;
        }
        if (n_bits < best_bits) {
            best_bits = n_bits;
            best = rice;
        }
    }
    *out_n_bytes = (size_t)((best_bits + 7) / 8);
    return best;
}

typedef struct bit_place {
    uint8_t *bytes;
    uint64_t held;
    unsigned n_held;
} bit_place;

/* Up to 32 bits. */
static inline void put_bits(bit_place *at, uint64_t bits, unsigned n)
{
    at->held |= bits << at->n_held;
    at->n_held += n;
    while (at->n_held >= 8) {
        *at->bytes++ = (uint8_t)at->held;
        at->held >>= 8;
        at->n_held -= 8;
    }
}

void dunlin__rice_pack(const uint32_t *gaps, size_t n, unsigned rice, uint8_t *out_bytes)
{
    bit_place at = {.bytes = out_bytes};
    for (size_t i = 0; i < n; i++) {
        uint32_t n_ones = gaps[i] >> rice;
        for (; n_ones >= 16; n_ones -= 16) {
            put_bits(&at, 0xffffu, 16);
        }
        put_bits(&at, (1u << n_ones) - 1u, n_ones + 1);
        put_bits(&at, gaps[i] & ((1u << rice) - 1u), rice);
    }
    if (at.n_held > 0) {
        *at.bytes = (uint8_t)at.held;
    }
}

/* A bit; past the end there are none, and `*is_over` is set. */
static inline unsigned take_bit(const uint8_t *bytes, uint64_t n_bits, uint64_t *at, bool *is_over)
{
    if (*at >= n_bits) {
        *is_over = true;
        return 0;
    }
    const unsigned bit = ((unsigned)bytes[*at / 8] >> (*at % 8)) & 1U;
    *at += 1;
    return bit;
}

size_t dunlin__rice_unpack(const uint8_t *bytes, size_t n_bytes, size_t n, unsigned rice,
                           uint64_t room, uint32_t *out_gaps)
{
    const uint64_t n_bits = (uint64_t)n_bytes * 8;
    uint64_t at = 0;
    bool is_over = false;
    for (size_t i = 0; i < n; i++) {
        uint64_t n_ones = 0;
        while (take_bit(bytes, n_bits, &at, &is_over) != 0) {
            n_ones++;
        }
        uint64_t gap = n_ones << rice; /* at most 2^17 ones, since a group has few bytes */
        for (unsigned b = 0; b < rice; b++) {
            gap |= (uint64_t)take_bit(bytes, n_bits, &at, &is_over) << b;
        }
        if (is_over || gap >= room) {
            return i;
        }
        out_gaps[i] = (uint32_t)gap;
        room -= gap + 1;
    }
    bool is_whole = (at + 7) / 8 == n_bytes;
    while (is_whole && at < n_bits) {
        is_whole = take_bit(bytes, n_bits, &at, &is_over) == 0;
    }
    return is_whole ? n : n + 1;
}
