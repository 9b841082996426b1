/*
 * bits.c - random bits for noise, repeatable by their seed: AES-256 in counter mode.
 *
 * Invariant: no bit is given twice, and none is left out but the top ones of numbers below n.
 */
#include "bits.h"

#include <wire/digest.h>

#include <nettle/ctr.h>
#include <string.h>

void dunlin__bits_begin(dunlin__bits *out_bits, const uint8_t seed[DUNLIN_SEED_BYTES],
                        uint64_t stream)
{
    *out_bits = (dunlin__bits){.used = DUNLIN_BITS_BUFFER};
    aes256_set_encrypt_key(&out_bits->key, seed);
    for (int i = 0; i < 8; i++) {
        out_bits->counter[i] = (uint8_t)(stream >> (56 - 8 * i));
    }
}

void dunlin__bits_wipe(dunlin__bits *bits)
{
    dunlin__wipe(bits, sizeof *bits);
}

static uint32_t next_byte(dunlin__bits *bits)
{
    if (bits->used == DUNLIN_BITS_BUFFER) {
        memset(bits->buffer, 0, sizeof bits->buffer);
        ctr_crypt(&bits->key, (nettle_cipher_func *)aes256_encrypt, AES_BLOCK_SIZE, bits->counter,
                  sizeof bits->buffer, bits->buffer, bits->buffer);
        bits->used = 0;
    }
    return bits->buffer[bits->used++];
}

uint32_t dunlin__bits_one(dunlin__bits *bits)
{
    if (bits->one_left == 0) {
        bits->one = next_byte(bits);
        bits->one_left = 8;
    }
    const uint32_t bit = bits->one & 1;
    bits->one >>= 1;
    bits->one_left--;
    return bit;
}

uint64_t dunlin__bits_below(dunlin__bits *bits, uint64_t n)
{
    uint32_t n_bits = 0;
    while (n_bits < 64 && (n - 1) >> n_bits != 0) {
        n_bits++;
    }
    for (;;) {
        uint64_t value = 0;
        for (uint32_t i = 0; i < n_bits; i += 8) {
            value |= (uint64_t)next_byte(bits) << i;
        }
        if (n_bits < 64) {
            value &= ((uint64_t)1 << n_bits) - 1;
        }
        if (value < n) {
            return value;
        }
    }
}
