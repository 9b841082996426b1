/*
 * draws.h - random bits that follow from a seed and a place: ChaCha20 (RFC 8439) as a generator
 * that is read at any block, so nothing depends on the order in which things are drawn.
 */
#ifndef DUNLIN_PROTO_DRAWS_H
#define DUNLIN_PROTO_DRAWS_H

#include <stddef.h>
#include <stdint.h>

/* What bits are drawn for; each has a key of its own. */
typedef enum dunlin__draw_purpose {
    DUNLIN_DRAW_ROTATION = 1, /* from the seed of the Packing */
    DUNLIN_DRAW_SELECTION = 2,
    DUNLIN_DRAW_ROUNDING = 3 /* from the packer's own */
} dunlin__draw_purpose;

/* Words that one call gives: 8 ChaCha blocks of 16. */
#define DUNLIN_DRAW_WORDS 128u

typedef struct dunlin__draws {
    uint32_t key[8];
    uint32_t tensor;
    uint32_t block;
} dunlin__draws;

/* The key of a purpose and a round: the first 32 bytes of the ChaCha20 block of the 32-byte seed at
 * counter `purpose` and nonce `round` (8 bytes), 0 (4). */
void dunlin__draws_key(dunlin__draws *draws, const uint8_t seed[32], dunlin__draw_purpose purpose,
                       uint64_t round);

/* Words 128 * batch to 128 * batch + 127 of the place (tensor, block) of `draws`: those of the
 * ChaCha20 blocks of counters 8 * batch to 8 * batch + 7 at the nonce tensor, block, 0. */
void dunlin__draws_words(const dunlin__draws *draws, uint32_t batch,
                         uint32_t out_words[DUNLIN_DRAW_WORDS]);

#endif
