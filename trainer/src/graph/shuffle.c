/*
 * shuffle.c - an epoch's order as a balanced Feistel network with cycle walking.
 *
 * Invariant: for a fixed key the network is a bijection of 2^(2 half_bits) values, and walking
 * along its cycle until a value falls below n keeps it one of [0, n). Source: Black and Rogaway,
 * "Ciphers with arbitrary finite domains" (CT-RSA 2002), section 3 (cycle walking).
 */
#include "shuffle.h"

#include <assert.h>
#include <stddef.h>

/* SplitMix64's finaliser: every input bit reaches every output bit. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

void dunlin__shuffle_init(dunlin_shuffle *shuffle, int64_t n, uint64_t seed, int64_t epoch)
{
    assert(n >= 1);
    shuffle->n = n;
    shuffle->half_bits = 1;
    while (shuffle->half_bits < 32 && (UINT64_C(1) << (2 * shuffle->half_bits)) < (uint64_t)n) {
        shuffle->half_bits++;
    }
    uint64_t key = mix(seed + UINT64_C(0x9e3779b97f4a7c15)) ^ (uint64_t)epoch;
    for (size_t i = 0; i < DUNLIN_SHUFFLE_ROUNDS; i++) {
        key += UINT64_C(0x9e3779b97f4a7c15);
        shuffle->keys[i] = mix(key);
    }
}

int64_t dunlin__shuffle_at(const dunlin_shuffle *shuffle, int64_t position)
{
    assert(position >= 0 && position < shuffle->n);
    const uint32_t bits = shuffle->half_bits;
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    uint64_t value = (uint64_t)position;
    do {
        uint64_t left = value >> bits;
        uint64_t right = value & mask;
        for (size_t i = 0; i < DUNLIN_SHUFFLE_ROUNDS; i++) {
            const uint64_t next = left ^ (mix(right ^ shuffle->keys[i]) & mask);
            left = right;
            right = next;
        }
        value = (left << bits) | right;
    } while (value >= (uint64_t)shuffle->n);
    return (int64_t)value;
}
