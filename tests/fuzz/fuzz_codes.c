/*
 * fuzz_codes.c - any bytes as coded numbers (rANS) and as coded gaps (Golomb-Rice): refused, or
 * numbers below the alphabet's size, gaps that fit the tensor; and what is read is written to bytes
 * that read back to it.
 *
 * The first bytes: which of the two; numbers, less 1 (2 bytes); symbols less 1, or the parameter.
 */
#include "compress/bits.h"
#include "compress/entropy.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD_BYTES 4u
#define MOST 8192u
#define MOST_GAPS 1024u
#define ROOM 0x7fffffffu

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static void read_numbers(const uint8_t *bytes, size_t n_bytes, size_t n, unsigned n_symbols)
{
    static uint8_t slots[DUNLIN_ENTROPY_SLOTS];
    static uint8_t numbers[MOST];
    static uint8_t coded[MOST];
    static uint8_t again[MOST];
    if (!dunlin__entropy_unpack(bytes, n_bytes, n, n_symbols, slots, numbers)) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        require(numbers[i] < n_symbols);
    }
    const size_t n_coded = dunlin__entropy_pack(numbers, n, coded, n);
    require(n_coded < n);
    if (n_coded > 0) {
        require(dunlin__entropy_unpack(coded, n_coded, n, n_symbols, slots, again));
        require(memcmp(numbers, again, n) == 0);
    }
}

static void read_gaps(const uint8_t *bytes, size_t n_bytes, size_t n, unsigned rice)
{
    static uint32_t gaps[MOST_GAPS];
    static uint32_t again[MOST_GAPS];
    static uint8_t coded[DUNLIN_RICE_BYTES(MOST_GAPS)];
    size_t n_coded = 0;
    uint64_t n_places = 0;
    n_bytes = n_bytes < DUNLIN_RICE_BYTES(n) ? n_bytes : DUNLIN_RICE_BYTES(n);
    if (dunlin__rice_unpack(bytes, n_bytes, n, rice, ROOM, gaps) != n) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        n_places += (uint64_t)gaps[i] + 1;
    }
    require(n_places <= ROOM);
    rice = dunlin__rice_choose(gaps, n, &n_coded);
    require(rice <= DUNLIN_RICE_MAX && n_coded <= DUNLIN_RICE_BYTES(n));
    dunlin__rice_pack(gaps, n, rice, coded);
    require(dunlin__rice_unpack(coded, n_coded, n, rice, ROOM, again) == n);
    require(memcmp(gaps, again, n * sizeof gaps[0]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < HEAD_BYTES) {
        return 0;
    }
    const size_t n = (size_t)data[1] | (size_t)data[2] << 8;
    /* A copy of its own size, so that a byte too far is seen. */
    const size_t n_bytes = size - HEAD_BYTES;
    uint8_t *bytes = malloc(n_bytes + 1);
    require(bytes != NULL);
    memcpy(bytes, data + HEAD_BYTES, n_bytes);
    if (data[0] % 2 == 0) {
        read_numbers(bytes, n_bytes, n % MOST + 1, data[3] + 1u);
    } else {
        read_gaps(bytes, n_bytes, n % MOST_GAPS + 1, data[3] % (DUNLIN_RICE_MAX + 1));
    }
    free(bytes);
    return 0;
}
