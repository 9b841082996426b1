/*
 * quantise.h - the numbers of one block as bytes, and back.
 *
 * Rounding at random: a number between two that can be written becomes the upper one with the
 * probability of its distance from the lower one, so that the mean of what is decoded is the
 * number. With a scale s the variance of an entry is at most s^2 / 4.
 */
#ifndef DUNLIN_PROTO_QUANTISE_H
#define DUNLIN_PROTO_QUANTISE_H

#include "draws.h"

#include <wire/compress.h>

/* The most bytes a block takes: a scale, a length, 8,192 numbers of 2 bytes. */
#define DUNLIN_QUANTISE_BYTES (6u + 2u * DUNLIN_PACK_BLOCK_MAX)

/* Bytes of the scale and the length at a block's head, and of what follows if it is not
 * entropy-coded, for `n` numbers. */
size_t dunlin__quantise_head(const dunlin__packing *packing);
size_t dunlin__quantise_body(const dunlin__packing *packing, size_t n);

/*
 * Writes `n` finite values (1 to 8,192; 1,024 of F32) to `out_bytes` and replaces them by what the
 * decoder will find. `draws` is at the block's place. `codes` is working memory for `n` bytes. The
 * bytes come out; 0 if a value is too large for F16 or BF16, or the sum of magnitudes too large for
 * a scale, and then `*out_bad` is its index.
 */
size_t dunlin__quantise(const dunlin__packing *packing, const dunlin__draws *draws, float *values,
                        size_t n, uint8_t *codes, uint8_t *out_bytes, size_t *out_bad);

/* What a block's head says. */
typedef struct dunlin__quantise_scale {
    float scale;   /* LEVELS, SIGN */
    size_t n_body; /* bytes that follow */
    bool is_entropy_coded;
} dunlin__quantise_scale;

/* Reads a head; PROTOCOL or NUMERIC with the value and no place, which the caller adds. */
const char *dunlin__quantise_read_head(const dunlin__packing *packing, const uint8_t *head,
                                       size_t n, dunlin__quantise_scale *out_scale);

/* Reads the body of `scale->n_body` bytes into `n` values; NULL, or what is wrong with it. `codes`
 * and `slots` are working memory. */
const char *dunlin__quantise_read(const dunlin__packing *packing,
                                  const dunlin__quantise_scale *scale, const uint8_t *body,
                                  size_t n, uint8_t *codes, uint8_t *slots, float *out_values);

#endif
