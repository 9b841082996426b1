/*
 * ring.c - elements of a ring of 2^bits, packed, and masks as key streams.
 *
 * Invariant: a sum is kept modulo 2^32, of which 2^bits is a divisor, so that its lowest bits are
 * right at any time. Whole elements of bytes have loops of their own; others go through a window of
 * 64 bits. NIST SP 800-38A for the stream; its bytes are uniform, so the elements are.
 */
#include <mem/support.h>
#include <wire/secagg.h>

#include <string.h>

/* Elements of which the stream is computed at a time: at 32 bits 4 KiB of it. */
#define PIECE 1024u

static uint32_t low_bits(unsigned bits)
{
    return bits == 0 ? 0 : (uint32_t)(UINT64_MAX >> (64 - bits));
}

void dunlin__ring_pack(const uint32_t *elements, size_t n, unsigned bits, uint8_t *out_bytes)
{
    uint64_t window = 0;
    unsigned n_held = 0;
    for (size_t i = 0; i < n; i++) {
        window |= (uint64_t)(elements[i] & low_bits(bits)) << n_held;
        n_held += bits;
        for (; n_held >= 8; n_held -= 8) {
            *out_bytes++ = (uint8_t)window;
            window >>= 8;
        }
    }
    if (n_held > 0) {
        *out_bytes = (uint8_t)window;
    }
}

/* Little-endian. One load, so that the loop over it becomes one of vectors. */
static uint32_t take_word(const uint8_t *bytes)
{
    uint32_t word = 0;
    memcpy(&word, bytes, sizeof(word));
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap32(word);
#endif
    return word;
}

static void add_words(uint32_t *sums, const uint8_t *bytes, size_t n, uint32_t sign)
{
    for (size_t i = 0; i < n; i++) {
        sums[i] += (take_word(bytes + 4 * i) ^ sign) - sign;
    }
}

static void add_halves(uint32_t *sums, const uint8_t *bytes, size_t n, uint32_t sign)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t element = (uint32_t)bytes[2 * i] | (uint32_t)bytes[2 * i + 1] << 8;
        sums[i] += (element ^ sign) - sign;
    }
}

static uint64_t add_any(uint32_t *sums, const uint8_t *bytes, size_t n, unsigned bits,
                        uint32_t sign)
{
    uint64_t window = 0;
    unsigned n_held = 0;
    for (size_t i = 0; i < n; i++) {
        for (; n_held < bits; n_held += 8) {
            window |= (uint64_t)*bytes++ << n_held;
        }
        sums[i] += (((uint32_t)window & low_bits(bits)) ^ sign) - sign;
        window >>= bits;
        n_held -= bits;
    }
    return window;
}

bool dunlin__ring_add(uint32_t *sums, const uint8_t *bytes, size_t n, unsigned bits,
                      bool is_taken_off)
{
    const uint32_t sign = is_taken_off ? UINT32_MAX : 0;
    if (bits == 32) {
        add_words(sums, bytes, n, sign);
        return true;
    }
    if (bits == 16) {
        add_halves(sums, bytes, n, sign);
        return true;
    }
    return add_any(sums, bytes, n, bits, sign) == 0;
}

int64_t dunlin__ring_signed(uint32_t element, unsigned bits)
{
    const int64_t value = (int64_t)(element & low_bits(bits));
    const int64_t half = (int64_t)(low_bits(bits) >> 1) + 1;
    return value >= half ? value - 2 * half : value;
}

/* The counter's block in which the stream has element `first`, big-endian. */
static void counter_at(uint64_t first, unsigned bits, uint8_t out_counter[DUNLIN_AES_BLOCK_BYTES])
{
    const uint64_t block = first / (8 * DUNLIN_AES_BLOCK_BYTES) * bits;
    memset(out_counter, 0, DUNLIN_AES_BLOCK_BYTES);
    for (unsigned i = 0; i < 8; i++) {
        out_counter[DUNLIN_AES_BLOCK_BYTES - 1 - i] = (uint8_t)(block >> (8 * i));
    }
}

dunlin_status dunlin__mask_add(const uint8_t key[DUNLIN_AES256_BYTES], uint64_t first,
                               unsigned bits, bool is_taken_off, uint32_t *sums, size_t n,
                               dunlin_error *error)
{
    uint8_t stream[PIECE * sizeof(uint32_t)];
    uint8_t counter[DUNLIN_AES_BLOCK_BYTES];
    dunlin__ctr ctr;
    if (first % DUNLIN_SECAGG_BLOCK != 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                            "a mask begins at element %llu, no multiple of %u",
                            (unsigned long long)first, DUNLIN_SECAGG_BLOCK);
    }
    counter_at(first, bits, counter);
    DUNLIN_TRY(dunlin__ctr_begin(&ctr, key, counter, error));
    dunlin_status status = DUNLIN_OK;
    for (size_t at = 0; at < n && status == DUNLIN_OK; at += PIECE) {
        const size_t part = n - at < PIECE ? n - at : PIECE;
        const size_t n_bytes = (size_t)dunlin__ring_bytes(part, bits);
        status = dunlin__ctr_next(&ctr, NULL, n_bytes, stream, error);
        if (status == DUNLIN_OK) {
            /* What is left of the last byte belongs to no element. */
            (void)!dunlin__ring_add(sums + at, stream, part, bits, is_taken_off);
        }
    }
    dunlin__ctr_end(&ctr);
    dunlin__wipe(stream, sizeof(stream));
    return status;
}
