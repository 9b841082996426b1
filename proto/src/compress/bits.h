/*
 * bits.h - numbers of a few bits, lowest first, and little-endian words in bytes.
 */
#ifndef DUNLIN_PROTO_BITS_H
#define DUNLIN_PROTO_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void dunlin__put_u16(uint8_t *bytes, uint32_t value)
{
    bytes[0] = (uint8_t)value;
    bytes[1] = (uint8_t)(value >> 8);
}

static inline uint32_t dunlin__take_u16(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

static inline void dunlin__put_u32(uint8_t *bytes, uint32_t value)
{
    dunlin__put_u16(bytes, value & 0xffffu);
    dunlin__put_u16(bytes + 2, value >> 16);
}

static inline uint32_t dunlin__take_u32(const uint8_t *bytes)
{
    return dunlin__take_u16(bytes) | dunlin__take_u16(bytes + 2) << 16;
}

static inline uint32_t dunlin__float_bits(float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float dunlin__float_of(uint32_t bits)
{
    float value = 0;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Not an infinity, not "not a number". */
static inline bool dunlin__float_is_finite(float value)
{
    return (dunlin__float_bits(value) & 0x7f800000u) != 0x7f800000u;
}

/* Index of the first value that is not finite, or `n`. */
size_t dunlin__bits_not_finite(const float *values, size_t n);

/* ceil(n * width / 8): what `n` numbers of `width` bits take, without wrapping for n < 2^40. */
static inline uint64_t dunlin__bits_bytes(uint64_t n, unsigned width)
{
    return (n * width + 7) / 8;
}

/* `n` numbers below 2^width (1 to 8), the rest of the last byte 0. */
void dunlin__bits_pack(const uint8_t *numbers, size_t n, unsigned width, uint8_t *out_bytes);
/* False if the rest of the last byte is not 0. */
bool dunlin__bits_unpack(const uint8_t *bytes, size_t n, unsigned width, uint8_t *out_numbers);

/* ---- gaps: Golomb's code with a power of two (Rice): gap >> rice in ones and a zero, then `rice`
 * bits ---- */

#define DUNLIN_RICE_MAX 30u
/* The most bytes of `n` gaps below 2^31 with the best parameter: 32 bits each and no more, since
 * Golomb-Rice with 30 takes at most 2 + 30. */
#define DUNLIN_RICE_BYTES(n) ((n)*4u)

/* The parameter with the fewest bits (the lowest of equals) and the bytes that it takes. */
unsigned dunlin__rice_choose(const uint32_t *gaps, size_t n, size_t *out_n_bytes);
void dunlin__rice_pack(const uint32_t *gaps, size_t n, unsigned rice, uint8_t *out_bytes);

/* Gaps of which, with 1 for each, at most `room` fit. Returns how many were read before one did not
 * fit or the bytes ended: `n` if all is right; `n` + 1 if the bytes are not just those of the gaps.
 */
size_t dunlin__rice_unpack(const uint8_t *bytes, size_t n_bytes, size_t n, unsigned rice,
                           uint64_t room, uint32_t *out_gaps);

#endif
