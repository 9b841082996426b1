/*
 * draws.c - ChaCha20's block function, eight blocks side by side.
 */
#include "draws.h"

#include <string.h>

#define LANES 8u
#define WORDS 16u

static inline uint32_t draws_load(const uint8_t bytes[4])
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

#define TURN(x, n) ((x) << (n) | (x) >> (32 - (n)))

/* RFC 8439, 2.1, in each of the lanes. */
static inline void quarter_round(uint32_t s[WORDS][LANES], int a, int b, int c, int d)
{
    for (unsigned i = 0; i < LANES; i++) {
        s[a][i] += s[b][i];
        s[d][i] = TURN(s[d][i] ^ s[a][i], 16);
        s[c][i] += s[d][i];
        s[b][i] = TURN(s[b][i] ^ s[c][i], 12);
        s[a][i] += s[b][i];
        s[d][i] = TURN(s[d][i] ^ s[a][i], 8);
        s[c][i] += s[d][i];
        s[b][i] = TURN(s[b][i] ^ s[c][i], 7);
    }
}

/* The blocks of counters `counter` to `counter` + 7, one after another. */
static void chacha_blocks(const uint32_t key[8], uint32_t counter, const uint32_t nonce[3],
                          uint32_t out_words[LANES * WORDS])
{
    static const uint32_t constants[4] = {0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u};
    uint32_t first[WORDS];
    uint32_t s[WORDS][LANES];
    memcpy(first, constants, sizeof(constants));
    memcpy(first + 4, key, 8 * sizeof(uint32_t));
    first[12] = counter;
    memcpy(first + 13, nonce, 3 * sizeof(uint32_t));
    for (unsigned w = 0; w < WORDS; w++) {
        for (unsigned i = 0; i < LANES; i++) {
            s[w][i] = first[w] + ((w == 12) ? i : 0);
        }
    }
    for (int round = 0; round < 10; round++) {
        quarter_round(s, 0, 4, 8, 12);
        quarter_round(s, 1, 5, 9, 13);
        quarter_round(s, 2, 6, 10, 14);
        quarter_round(s, 3, 7, 11, 15);
        quarter_round(s, 0, 5, 10, 15);
        quarter_round(s, 1, 6, 11, 12);
        quarter_round(s, 2, 7, 8, 13);
        quarter_round(s, 3, 4, 9, 14);
    }
    for (unsigned i = 0; i < LANES; i++) {
        for (unsigned w = 0; w < WORDS; w++) {
            out_words[i * WORDS + w] = s[w][i] + first[w] + ((w == 12) ? i : 0);
        }
    }
}

void dunlin__draws_key(dunlin__draws *draws, const uint8_t seed[32], dunlin__draw_purpose purpose,
                       uint64_t round)
{
    uint32_t key[8];
    uint32_t words[LANES * WORDS];
    const uint32_t nonce[3] = {(uint32_t)round, (uint32_t)(round >> 32), 0};
    for (unsigned i = 0; i < 8; i++) {
        key[i] = draws_load(seed + (size_t)i * 4);
    }
    chacha_blocks(key, (uint32_t)purpose, nonce, words);
    *draws = (dunlin__draws){.tensor = 0};
    memcpy(draws->key, words, sizeof(draws->key));
}

void dunlin__draws_words(const dunlin__draws *draws, uint32_t batch,
                         uint32_t out_words[DUNLIN_DRAW_WORDS])
{
    const uint32_t nonce[3] = {draws->tensor, draws->block, 0};
    chacha_blocks(draws->key, batch * LANES, nonce, out_words);
}
