/*
 * entropy.c - rANS with a table for each block.
 *
 * A coded block: the least and the greatest symbol (a byte each), the frequencies of all from the
 * one to the other (of 4,096; one byte below 128, else two: 128 + the lower 7 bits, the upper 5),
 * the coder's state (4 bytes, little-endian), then the bytes that the decoder takes one after
 * another. The state begins and ends at 2^23.
 */
#include "entropy.h"

#include "bits.h"

#include <string.h>

#define SLOT_BITS 12u
#define STATE_LOW (1u << 23)
#define STATE_BYTES 4u
#define N_SYMBOLS 256u

typedef struct entropy_table {
    unsigned first; /* the least symbol there is */
    unsigned last;
    uint16_t counts[N_SYMBOLS]; /* of DUNLIN_ENTROPY_SLOTS */
    uint16_t starts[N_SYMBOLS];
} entropy_table;

static void fill_starts(entropy_table *table)
{
    unsigned start = 0;
    for (unsigned s = table->first; s <= table->last; s++) {
        table->starts[s] = (uint16_t)start;
        start += table->counts[s];
    }
}

/* Frequencies that sum to 4,096, none of a symbol that occurs 0; what rounding leaves goes to, or
 * comes from, the most frequent. */
static void make_table(const uint8_t *numbers, size_t n, entropy_table *out_table)
{
    uint32_t seen[N_SYMBOLS] = {0};
    uint32_t sum = 0;
    memset(out_table, 0, sizeof(*out_table));
    for (size_t i = 0; i < n; i++) {
        seen[numbers[i]]++;
    }
    out_table->first = N_SYMBOLS;
    for (unsigned s = 0; s < N_SYMBOLS; s++) {
        if (seen[s] == 0) {
            continue;
        }
        out_table->first = (out_table->first == N_SYMBOLS) ? s : out_table->first;
        out_table->last = s;
        uint32_t share = (uint32_t)((uint64_t)seen[s] * DUNLIN_ENTROPY_SLOTS / n);
        out_table->counts[s] = (uint16_t)((share > 0) ? share : 1);
        sum += out_table->counts[s];
    }
    while (sum != DUNLIN_ENTROPY_SLOTS) {
        unsigned most = out_table->first;
        for (unsigned s = most; s <= out_table->last; s++) {
            most = (out_table->counts[s] > out_table->counts[most]) ? s : most;
        }
        if (sum < DUNLIN_ENTROPY_SLOTS) {
            out_table->counts[most] =
                (uint16_t)(out_table->counts[most] + DUNLIN_ENTROPY_SLOTS - sum);
            sum = DUNLIN_ENTROPY_SLOTS;
        } else {
            out_table->counts[most]--;
            sum--;
        }
    }
    fill_starts(out_table);
}

static size_t write_table(const entropy_table *table, uint8_t *out_bytes)
{
    uint8_t *at = out_bytes;
    *at++ = (uint8_t)table->first;
    *at++ = (uint8_t)table->last;
    for (unsigned s = table->first; s <= table->last; s++) {
        unsigned count = table->counts[s];
        if (count < 128) {
            *at++ = (uint8_t)count;
        } else {
            *at++ = (uint8_t)(128u | (count & 127u));
            *at++ = (uint8_t)(count >> 7);
        }
    }
    return (size_t)(at - out_bytes);
}

size_t dunlin__entropy_pack(const uint8_t *numbers, size_t n, uint8_t *out_bytes, size_t room)
{
    entropy_table table;
    uint8_t head[2 + 2 * N_SYMBOLS];
    make_table(numbers, n, &table);
    const size_t n_head = write_table(&table, head);
    if (n_head + STATE_BYTES >= room) {
        return 0;
    }
    /* From the last number to the first, and from the end of the room towards its head. */
    uint8_t *const least = out_bytes + n_head + STATE_BYTES;
    uint8_t *at = out_bytes + room;
    uint32_t state = STATE_LOW;
    for (size_t i = n; i-- > 0;) {
        const uint32_t count = table.counts[numbers[i]];
        const uint64_t most = (uint64_t)((STATE_LOW >> SLOT_BITS) << 8) * count;
        while (state >= most) {
            if (at == least) {
                return 0;
            }
            *--at = (uint8_t)state;
            state >>= 8;
        }
        state = (state / count << SLOT_BITS) + state % count + table.starts[numbers[i]];
    }
    const size_t n_tail = (size_t)(out_bytes + room - at);
    if (n_head + STATE_BYTES + n_tail >= room) {
        return 0;
    }
    memmove(least, at, n_tail);
    memcpy(out_bytes, head, n_head);
    dunlin__put_u32(out_bytes + n_head, state);
    return n_head + STATE_BYTES + n_tail;
}

/* Bytes of the table at the head of `bytes`, 0 if they are none. */
static size_t read_table(const uint8_t *bytes, size_t n_bytes, unsigned n_symbols,
                         entropy_table *out_table)
{
    size_t at = 2;
    uint32_t sum = 0;
    memset(out_table, 0, sizeof(*out_table));
    if (n_bytes < 2 || bytes[0] > bytes[1] || bytes[1] >= n_symbols) {
        return 0;
    }
    out_table->first = bytes[0];
    out_table->last = bytes[1];
    for (unsigned s = out_table->first; s <= out_table->last; s++) {
        if (at >= n_bytes) {
            return 0;
        }
        unsigned count = bytes[at++];
        if (count >= 128) {
            if (at >= n_bytes || bytes[at] == 0) {
                return 0;
            }
            count = (count & 127u) | (unsigned)bytes[at++] << 7;
        }
        sum += count;
        if (sum > DUNLIN_ENTROPY_SLOTS) {
            return 0;
        }
        out_table->counts[s] = (uint16_t)count;
    }
    bool has_ends =
        out_table->counts[out_table->first] > 0 && out_table->counts[out_table->last] > 0;
    fill_starts(out_table);
    return (sum == DUNLIN_ENTROPY_SLOTS && has_ends) ? at : 0;
}

bool dunlin__entropy_unpack(const uint8_t *bytes, size_t n_bytes, size_t n, unsigned n_symbols,
                            uint8_t slots[DUNLIN_ENTROPY_SLOTS], uint8_t *out_numbers)
{
    entropy_table table;
    size_t at = read_table(bytes, n_bytes, n_symbols, &table);
    if (at == 0 || n_bytes - at < STATE_BYTES) {
        return false;
    }
    for (unsigned s = table.first; s <= table.last; s++) {
        memset(slots + table.starts[s], (int)s, table.counts[s]);
    }
    uint32_t state = dunlin__take_u32(bytes + at);
    at += STATE_BYTES;
    if (state < STATE_LOW || state >= STATE_LOW << 8) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t slot = state & (DUNLIN_ENTROPY_SLOTS - 1u);
        const uint8_t symbol = slots[slot];
        out_numbers[i] = symbol;
        state = table.counts[symbol] * (state >> SLOT_BITS) + slot - table.starts[symbol];
        while (state < STATE_LOW) {
            if (at == n_bytes) {
                return false;
            }
            state = state << 8 | bytes[at++];
        }
    }
    return at == n_bytes && state == STATE_LOW;
}
