/*
 * quantise.c - float32 to F16, BF16, levels or signs with a scale, and back.
 *
 * Levels: s = max |x| / L with L = 2^(bits - 1) - 1, codes q + L for q in [-L, L]; Alistarh et al.,
 * "QSGD", 2017, with the greatest magnitude for the norm. Signs of a rotated block: the scale
 * ||y||^2 / ||y||_1 of DRIVE (Vargaftik et al. 2021, theorem 2), which is unbiased for a rotation
 * drawn uniformly; of the largest numbers of a stream, which are not rotated: their mean magnitude
 * (sparse ternary compression, Sattler et al. 2019), which is biased and wants error feedback.
 */
#include "quantise.h"

#include "bits.h"
#include "entropy.h"

#include <string.h>

#define SCALE_BYTES 4u
#define LENGTH_BYTES 2u
#define HALF_MAX 65504.0f
#define HALF_MAX_BITS 0x477fe000u
#define BF16_MAX_BITS 0x7f7f0000u
#define LEAST_SCALE 1e-30f /* below it a block is 0: its quotients would not be exact */
#define DRAW_UNIT (1.0f / 16777216.0f)

static unsigned levels_of(const dunlin__packing *packing)
{
    return (1u << (packing->bits - 1)) - 1u;
}

static unsigned code_width(const dunlin__packing *packing)
{
    return (packing->values == DUNLIN_V1_VALUES_SIGN) ? 1u : packing->bits;
}

static bool has_scale(const dunlin__packing *packing)
{
    return packing->values == DUNLIN_V1_VALUES_LEVELS || packing->values == DUNLIN_V1_VALUES_SIGN;
}

size_t dunlin__quantise_head(const dunlin__packing *packing)
{
    return (has_scale(packing) ? SCALE_BYTES : 0) + (packing->is_entropy_coded ? LENGTH_BYTES : 0);
}

size_t dunlin__quantise_body(const dunlin__packing *packing, size_t n)
{
    if (has_scale(packing)) {
        return (size_t)dunlin__bits_bytes(n, code_width(packing));
    }
    return n * ((packing->values == DUNLIN_V1_VALUES_F32) ? 4u : 2u);
}

/* ---- F32, F16, BF16 ---- */

/* A half of a magnitude of at most HALF_MAX. */
static inline uint32_t half_round(uint32_t bits, uint32_t draw)
{
    if (bits >= 0x38800000u) { /* 2^-14: a normal half; 13 bits of the fraction go */
        return (bits + (draw & 0x1fffu) - 0x38000000u) >> 13;
    }
    float units = dunlin__float_of(bits) * 16777216.0f; /* of 2^-24: 0 to 1,024 */
    uint32_t low = (uint32_t)units;
    return low + (((float)(draw >> 8) * DRAW_UNIT < units - (float)low) ? 1u : 0u);
}

static inline float half_value(uint32_t half)
{
    uint32_t magnitude = half & 0x7fffu;
    float value = (magnitude < 0x400u) ? (float)magnitude * (1.0f / 16777216.0f)
                                       : dunlin__float_of((magnitude << 13) + 0x38000000u);
    return ((half & 0x8000u) != 0) ? -value : value;
}

static inline float short_value(const dunlin__packing *packing, uint32_t bits)
{
    return (packing->values == DUNLIN_V1_VALUES_F16) ? half_value(bits)
                                                     : dunlin__float_of(bits << 16);
}

static size_t write_shorts(const dunlin__packing *packing, const dunlin__draws *draws,
                           float *values, size_t n, uint8_t *out_bytes, size_t *out_bad)
{
    const bool is_half = packing->values == DUNLIN_V1_VALUES_F16;
    const uint32_t most = is_half ? HALF_MAX_BITS : BF16_MAX_BITS;
    uint32_t words[DUNLIN_DRAW_WORDS];
    for (size_t i = 0; i < n; i++) {
        if (i % DUNLIN_DRAW_WORDS == 0) {
            dunlin__draws_words(draws, (uint32_t)(i / DUNLIN_DRAW_WORDS), words);
        }
        const uint32_t bits = dunlin__float_bits(values[i]);
        const uint32_t magnitude = bits & 0x7fffffffu;
        const uint32_t draw = words[i % DUNLIN_DRAW_WORDS];
        if (magnitude > most) {
            *out_bad = i;
            return 0;
        }
        const uint32_t code = (bits >> 31 << 15) | (is_half ? half_round(magnitude, draw)
                                                            : (magnitude + (draw >> 16)) >> 16);
        dunlin__put_u16(out_bytes + 2 * i, code);
        values[i] = short_value(packing, code);
    }
    return 2 * n;
}

static size_t write_floats(const float *values, size_t n, uint8_t *out_bytes)
{
    for (size_t i = 0; i < n; i++) {
        dunlin__put_u32(out_bytes + 4 * i, dunlin__float_bits(values[i]));
    }
    return 4 * n;
}

/* ---- LEVELS ---- */

/* The greatest magnitude: as numbers, the bits of magnitudes have the order of the values. */
static float greatest(const float *values, size_t n)
{
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = dunlin__float_bits(values[i]) & 0x7fffffffu;
        most = (magnitude > most) ? magnitude : most;
    }
    return dunlin__float_of(most);
}

/* Codes of up to DUNLIN_DRAW_WORDS values. */
static void round_levels(const float *values, size_t n, float scale, int levels,
                         const uint32_t *words, uint8_t *codes)
{
    for (size_t i = 0; i < n; i++) {
        float quotient = values[i] / scale;
        int low = (int)quotient;
        low -= (quotient < (float)low) ? 1 : 0;
        low += ((float)(words[i] >> 8) * DRAW_UNIT < quotient - (float)low) ? 1 : 0;
        low = (low > levels) ? levels : low;
        low = (low < -levels) ? -levels : low;
        codes[i] = (uint8_t)(low + levels);
    }
}

static void read_levels(const uint8_t *codes, size_t n, float scale, int levels, float *out_values)
{
    for (size_t i = 0; i < n; i++) {
        out_values[i] = scale * (float)((int)codes[i] - levels);
    }
}

static size_t write_levels(const dunlin__packing *packing, const dunlin__draws *draws,
                           float *values, size_t n, uint8_t *codes, uint8_t *out_bytes)
{
    const int levels = (int)levels_of(packing);
    const size_t n_head = dunlin__quantise_head(packing);
    const size_t n_body = dunlin__quantise_body(packing, n);
    float scale = greatest(values, n) / (float)levels;
    if (scale < LEAST_SCALE) {
        scale = 0.0f;
        memset(codes, levels, n);
    } else {
        uint32_t words[DUNLIN_DRAW_WORDS];
        for (size_t first = 0; first < n; first += DUNLIN_DRAW_WORDS) {
            size_t part = (n - first < DUNLIN_DRAW_WORDS) ? n - first : DUNLIN_DRAW_WORDS;
            dunlin__draws_words(draws, (uint32_t)(first / DUNLIN_DRAW_WORDS), words);
            round_levels(values + first, part, scale, levels, words, codes + first);
        }
    }
    read_levels(codes, n, scale, levels, values);
    dunlin__put_u32(out_bytes, dunlin__float_bits(scale));
    if (packing->is_entropy_coded) {
        size_t n_coded = dunlin__entropy_pack(codes, n, out_bytes + n_head, n_body);
        dunlin__put_u16(out_bytes + SCALE_BYTES, (uint32_t)n_coded);
        if (n_coded > 0) {
            return n_head + n_coded;
        }
    }
    dunlin__bits_pack(codes, n, packing->bits, out_bytes + n_head);
    return n_head + n_body;
}

/* ---- SIGN ---- */

static void read_signs(const uint8_t *codes, size_t n, float scale, float *out_values)
{
    for (size_t i = 0; i < n; i++) {
        out_values[i] = (codes[i] != 0) ? -scale : scale;
    }
}

/* 0 if the scale is beyond float32. */
static size_t write_signs(const dunlin__packing *packing, float *values, size_t n, uint8_t *codes,
                          uint8_t *out_bytes, size_t *out_bad)
{
    double sum = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < n; i++) {
        double magnitude = (values[i] < 0.0f) ? -(double)values[i] : (double)values[i];
        sum += magnitude;
        squares += magnitude * magnitude;
        codes[i] = (values[i] < 0.0f) ? 1 : 0;
    }
    float scale = 0.0f;
    if (sum > 0.0) {
        scale = (float)(packing->is_rotated ? squares / sum : sum / (double)n);
    }
    if (!dunlin__float_is_finite(scale)) {
        *out_bad = 0;
        return 0;
    }
    read_signs(codes, n, scale, values);
    dunlin__put_u32(out_bytes, dunlin__float_bits(scale));
    dunlin__bits_pack(codes, n, 1, out_bytes + SCALE_BYTES);
    return SCALE_BYTES + dunlin__quantise_body(packing, n);
}

size_t dunlin__quantise(const dunlin__packing *packing, const dunlin__draws *draws, float *values,
                        size_t n, uint8_t *codes, uint8_t *out_bytes, size_t *out_bad)
{
    if (packing->values == DUNLIN_V1_VALUES_F32) {
        return write_floats(values, n, out_bytes);
    }
    if (packing->values == DUNLIN_V1_VALUES_LEVELS) {
        return write_levels(packing, draws, values, n, codes, out_bytes);
    }
    if (packing->values == DUNLIN_V1_VALUES_SIGN) {
        return write_signs(packing, values, n, codes, out_bytes, out_bad);
    }
    return write_shorts(packing, draws, values, n, out_bytes, out_bad);
}

/* ---- reading ---- */

const char *dunlin__quantise_read_head(const dunlin__packing *packing, const uint8_t *head,
                                       size_t n, dunlin__quantise_scale *out_scale)
{
    *out_scale = (dunlin__quantise_scale){.n_body = dunlin__quantise_body(packing, n)};
    if (!has_scale(packing)) {
        return NULL;
    }
    out_scale->scale = dunlin__float_of(dunlin__take_u32(head));
    if (!dunlin__float_is_finite(out_scale->scale)) {
        return "a scale that is not finite";
    }
    if ((dunlin__take_u32(head) >> 31) != 0) {
        return "a scale below 0";
    }
    if (packing->is_entropy_coded) {
        size_t n_coded = dunlin__take_u16(head + SCALE_BYTES);
        if (n_coded >= out_scale->n_body) {
            return "an entropy-coded length that is no shorter than the numbers themselves";
        }
        out_scale->is_entropy_coded = n_coded > 0;
        out_scale->n_body = (n_coded > 0) ? n_coded : out_scale->n_body;
    }
    return NULL;
}

static const char *read_codes(const dunlin__packing *packing, const dunlin__quantise_scale *scale,
                              const uint8_t *body, size_t n, uint8_t *codes, uint8_t *slots)
{
    if (scale->is_entropy_coded) {
        unsigned n_symbols = 2 * levels_of(packing) + 1;
        return dunlin__entropy_unpack(body, scale->n_body, n, n_symbols, slots, codes)
                   ? NULL
                   : "entropy-coded bytes that are not just those of its numbers";
    }
    if (!dunlin__bits_unpack(body, n, code_width(packing), codes)) {
        return "bits after its last number";
    }
    if (packing->values == DUNLIN_V1_VALUES_LEVELS) {
        unsigned most = 0;
        for (size_t i = 0; i < n; i++) {
            most = (codes[i] > most) ? codes[i] : most;
        }
        if (most > 2 * levels_of(packing)) {
            return "a level beyond the last";
        }
    }
    return NULL;
}

const char *dunlin__quantise_read(const dunlin__packing *packing,
                                  const dunlin__quantise_scale *scale, const uint8_t *body,
                                  size_t n, uint8_t *codes, uint8_t *slots, float *out_values)
{
    if (packing->values == DUNLIN_V1_VALUES_F32) {
        for (size_t i = 0; i < n; i++) {
            out_values[i] = dunlin__float_of(dunlin__take_u32(body + 4 * i));
        }
    } else if (!has_scale(packing)) {
        for (size_t i = 0; i < n; i++) {
            uint32_t code = dunlin__take_u16(body + 2 * i);
            uint32_t all_ones = (packing->values == DUNLIN_V1_VALUES_F16) ? 0x7c00u : 0x7f80u;
            if ((code & all_ones) == all_ones) {
                return "a number that is not finite";
            }
            out_values[i] = short_value(packing, code);
        }
    } else {
        const char *wrong = read_codes(packing, scale, body, n, codes, slots);
        if (wrong != NULL) {
            return wrong;
        }
        if (packing->values == DUNLIN_V1_VALUES_SIGN) {
            read_signs(codes, n, scale->scale, out_values);
        } else {
            read_levels(codes, n, scale->scale, (int)levels_of(packing), out_values);
        }
    }
    /* A scale may be finite and its levels not. */
    return (dunlin__bits_not_finite(out_values, n) < n) ? "a number that is not finite" : NULL;
}
