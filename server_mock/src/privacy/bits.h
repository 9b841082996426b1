/*
 * bits.h - random bits for noise, repeatable by their seed: AES-256 in counter mode.
 *
 * The keystream of NIST SP 800-38A, section 6.5, with the seed as the key; the counter begins with
 * the number of the stream in its first eight bytes and 0 in the others, so streams of one seed
 * never meet. Nettle computes it: mbedTLS keeps PSA's keys in one table for all threads, without a
 * lock in the builds of distributions.
 */
#ifndef DUNLIN_SERVER_PRIVACY_BITS_H
#define DUNLIN_SERVER_PRIVACY_BITS_H

#include <dunlin/base.h>

#include <nettle/aes.h>
#include <stddef.h>

#define DUNLIN_SEED_BYTES 32u
#define DUNLIN_BITS_BUFFER 1024u

/* Not shared between threads. Bytes are used in order, bits of a byte from the lowest on. */
typedef struct dunlin__bits {
    struct aes256_ctx key;
    uint8_t counter[AES_BLOCK_SIZE];
    uint8_t buffer[DUNLIN_BITS_BUFFER];
    size_t used;       /* bytes of the buffer */
    uint32_t one;      /* the byte that single bits come from */
    uint32_t one_left; /* bits of it */
} dunlin__bits;

void dunlin__bits_begin(dunlin__bits *out_bits, const uint8_t seed[DUNLIN_SEED_BYTES],
                        uint64_t stream);
/* Leaves nothing of key and bits behind. */
void dunlin__bits_wipe(dunlin__bits *bits);

/** @return 0 or 1. */
uint32_t dunlin__bits_one(dunlin__bits *bits);

/** @return a whole number below n, each as likely as the others; n above 0. */
uint64_t dunlin__bits_below(dunlin__bits *bits, uint64_t n);

#endif
