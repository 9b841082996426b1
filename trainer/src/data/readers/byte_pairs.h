/*
 * byte_pairs.h - tokens of a text: its bytes, or what pairs of them are joined to again and again.
 *
 * Source: Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units",
 * 2016, section 3.2. Pairs are joined within words: letters with the space before them, digits with
 * the space before them, or one other byte. The most frequent pair of the text learnt from is
 * joined first; of equally frequent ones that whose left token has the lower number, then the right
 * one. So the tokens follow from the text and their number alone.
 */
#ifndef DUNLIN_DATA_BYTE_PAIRS_H
#define DUNLIN_DATA_BYTE_PAIRS_H

#include <dunlin/alloc.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DUNLIN_BYTE_PAIRS_MOST 16384 /* tokens */

/* A pair of tokens. */
typedef struct dunlin_pair_entry {
    int32_t left, right; /* left -1: the entry is free */
    int64_t n;           /* how often it is there; while tokens are learnt */
    int32_t token;       /* that it is joined to; -1: it is not */
} dunlin_pair_entry;

/* By open addressing; a power of two entries. */
typedef struct dunlin_pair_table {
    dunlin_pair_entry *entries;
    size_t capacity, n;
} dunlin_pair_table;

typedef struct dunlin_byte_pairs {
    dunlin_alloc alloc;
    int32_t n_tokens;
    int32_t n_bytes;      /* the first tokens are bytes, in ascending order */
    int32_t of_byte[256]; /* their tokens; -1: it is in no text */
    uint8_t bytes[256];   /* of the first tokens */
    int32_t (*parts)[2];  /* of token n_bytes + i */
    size_t parts_capacity;
    dunlin_pair_table pairs;
} dunlin_byte_pairs;

/* The distinct bytes of a text as tokens, of which there is one at least. MEMORY never: nothing is
 * allocated. */
void dunlin__byte_pairs_init(dunlin_byte_pairs *pairs, const uint8_t *text, size_t n,
                             const dunlin_alloc *alloc);
void dunlin__byte_pairs_free(dunlin_byte_pairs *pairs);

/* Joins pairs until there are n_tokens (at most DUNLIN_BYTE_PAIRS_MOST), or no pair comes twice.
 * Text that learning does not reach across: a byte of 0. MEMORY. */
dunlin_status dunlin__byte_pairs_learn(dunlin_byte_pairs *pairs, const uint8_t *text, size_t n,
                                       int32_t n_tokens, dunlin_error *error);

/* The tokens of a text whose bytes are all known, into room for n of them; how many. */
size_t dunlin__byte_pairs_encode(const dunlin_byte_pairs *pairs, const uint8_t *text, size_t n,
                                 int32_t *out_tokens);

/* The bytes of a token, `room` of them at most, into `out`; how many it has. */
size_t dunlin__byte_pairs_spell(const dunlin_byte_pairs *pairs, int32_t token, uint8_t *out,
                                size_t room);

/* CRC-32 (of zlib) over the bytes of all tokens, each after its length in one byte: 1 to 255. */
uint32_t dunlin__byte_pairs_crc(const dunlin_byte_pairs *pairs);

#endif
