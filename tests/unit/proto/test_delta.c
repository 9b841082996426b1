/*
 * test_delta.c - deltas of packed bases: the other base to the bit, in fewer bytes; what is no
 * delta is refused by name.
 */
#include "random.h"

#include <dunlin/alloc.h>
#include <wire/delta.h>

#include <criterion/criterion.h>

#include <string.h>

#define MOST 40000
#define HEAD_BYTES 20

typedef struct bytes_at {
    uint8_t bytes[MOST + 256];
    size_t n_bytes;
    size_t at;
    size_t fails_at; /* reading fails from there; 0: never */
} bytes_at;

static bytes_at older;
static bytes_at newer;
static bytes_at delta;
static bytes_at result;

static dunlin_status give(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    bytes_at *from = ctx;
    if (from->fails_at > 0 && from->at + n_bytes > from->fails_at) {
        error->status = DUNLIN_IO;
        return DUNLIN_IO;
    }
    cr_assert_leq(from->at + n_bytes, from->n_bytes);
    memcpy(buffer, from->bytes + from->at, n_bytes);
    from->at += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status take(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    bytes_at *to = ctx;
    (void)error;
    cr_assert_leq(to->at + n_bytes, sizeof to->bytes);
    memcpy(to->bytes + to->at, data, n_bytes);
    to->at += n_bytes;
    to->n_bytes = to->at;
    return DUNLIN_OK;
}

static const dunlin__unpack_source from_older = {.ctx = &older, .read_fn = give};
static const dunlin__unpack_source from_newer = {.ctx = &newer, .read_fn = give};
static const dunlin__unpack_source from_delta = {.ctx = &delta, .read_fn = give};
static const dunlin__pack_sink to_delta = {.ctx = &delta, .write_fn = take};
static const dunlin__pack_sink to_result = {.ctx = &result, .write_fn = take};

/* Two bases of n bytes, of which one has moved by up to `most` either way. */
static void make(size_t n, int most, uint64_t seed)
{
    uint64_t random = seed;
    memset(&older, 0, sizeof older);
    memset(&newer, 0, sizeof newer);
    older.n_bytes = n;
    newer.n_bytes = n;
    for (size_t i = 0; i < n; i++) {
        older.bytes[i] = (uint8_t)test_random_below(&random, 256);
        const int move = (int)test_random_below(&random, (uint64_t)(2 * most + 1)) - most;
        newer.bytes[i] = (uint8_t)(older.bytes[i] + move);
    }
}

static void write_delta(void)
{
    dunlin_error error = {0};
    uint64_t n_bytes = 0;
    memset(&delta, 0, sizeof delta);
    cr_assert_eq(dunlin__delta_write(newer.n_bytes, &from_older, &from_newer, &to_delta, NULL,
                                     &n_bytes, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(n_bytes, delta.n_bytes);
}

static dunlin_status read_delta(uint64_t n_bytes, dunlin_error *error)
{
    *error = (dunlin_error){0};
    memset(&result, 0, sizeof result);
    older.at = 0;
    delta.at = 0;
    return dunlin__delta_read(n_bytes, &from_older, &from_delta, delta.n_bytes, &to_result, NULL,
                              error);
}

Test(delta, gives_the_other_base_to_the_bit)
{
    static const size_t sizes[] = {1, 2, 63, 8191, 8192, 8193, 16384, MOST};
    static const int moves[] = {0, 1, 3, 20, 127};
    dunlin_error error;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (size_t m = 0; m < sizeof moves / sizeof moves[0]; m++) {
            make(sizes[s], moves[m], s * 10 + m);
            write_delta();
            cr_assert_eq(read_delta(sizes[s], &error), DUNLIN_OK, "%s", error.text);
            cr_assert_eq(result.n_bytes, sizes[s]);
            cr_assert_arr_eq(result.bytes, newer.bytes, sizes[s]);
            /* Never more than the whole, but for a length a block and the head. */
            cr_expect_leq(delta.n_bytes, HEAD_BYTES + sizes[s] + 2 * (sizes[s] / 8192 + 1));
        }
    }
}

/* 2 * 3 + 1 values that are alike: log2(7) = 2.81 bits a byte. */
Test(delta, has_about_the_bits_of_its_differences)
{
    make(MOST, 3, 1);
    write_delta();
    cr_expect_lt((double)delta.n_bytes, MOST * 2.81 / 8 * 1.01 + 200, "%zu", delta.n_bytes);
    make(MOST, 0, 1);
    write_delta();
    cr_expect_lt(delta.n_bytes, 200, "%zu", delta.n_bytes);
}

static void expect_refused(dunlin_status wanted, const char *part)
{
    dunlin_error error;
    cr_expect_eq(read_delta(newer.n_bytes, &error), wanted, "%s", error.text);
    cr_expect_not_null(strstr(error.text, part), "\"%s\" has no \"%s\"", error.text, part);
    cr_expect_null(strchr(error.text, '\n'));
}

Test(delta, what_is_none_is_refused_by_name)
{
    make(20000, 2, 5);
    write_delta();
    const bytes_at good = delta;
    delta.bytes[0] ^= 1;
    expect_refused(DUNLIN_PROTOCOL, "is no delta");
    delta = good;
    delta.bytes[8] = 2;
    expect_refused(DUNLIN_VERSION, "version 2");
    delta = good;
    delta.bytes[12] ^= 1;
    expect_refused(DUNLIN_MISMATCH, "the packed base has 20000");
    delta = good;
    delta.bytes[19] = 0xff; /* far more than there can be */
    expect_refused(DUNLIN_MISMATCH, "the packed base has 20000");
    delta = good;
    delta.n_bytes = 10;
    expect_refused(DUNLIN_PROTOCOL, "block of byte 0 has no end");
    delta = good;
    delta.n_bytes -= 1;
    expect_refused(DUNLIN_PROTOCOL, "block of byte 16384 has no end");
    delta = good;
    delta.n_bytes += 3;
    expect_refused(DUNLIN_PROTOCOL, "3 bytes follow");
    delta = good;
    delta.bytes[HEAD_BYTES] = 0xff;
    delta.bytes[HEAD_BYTES + 1] = 0xff;
    expect_refused(DUNLIN_PROTOCOL, "as long coded");
    delta = good;
    delta.bytes[HEAD_BYTES + 40] ^= 0x55;
    expect_refused(DUNLIN_PROTOCOL, "coded bytes");
}

/* Whatever byte of it is changed, the memory stays bounded and the read ends. */
Test(delta, any_changed_byte_ends_in_bounded_memory)
{
    dunlin_alloc_counter counter;
    dunlin_error error;
    make(9000, 4, 9);
    write_delta();
    const bytes_at good = delta;
    size_t n_refused = 0;
    for (size_t i = 0; i < good.n_bytes; i += 13) {
        delta = good;
        delta.bytes[i] ^= 0x81;
        older.at = 0;
        delta.at = 0;
        memset(&result, 0, sizeof result);
        error = (dunlin_error){0};
        dunlin_alloc_counter_init(&counter, NULL);
        const dunlin_status status =
            dunlin__delta_read(newer.n_bytes, &from_older, &from_delta, delta.n_bytes, &to_result,
                               &counter.hooks, &error);
        n_refused += status != DUNLIN_OK ? 1 : 0;
        cr_assert_leq(counter.peak_bytes, DUNLIN_DELTA_MEMORY_BYTES);
        cr_assert_eq(counter.now_bytes, 0);
        cr_assert(status == DUNLIN_OK || error.text[0] != '\0');
    }
    cr_expect_gt(n_refused, 0);
}

Test(delta, what_a_source_says_comes_out)
{
    dunlin_error error;
    make(20000, 2, 5);
    write_delta();
    older.fails_at = 9000;
    cr_expect_eq(read_delta(newer.n_bytes, &error), DUNLIN_IO);
    older.fails_at = 0;
    delta.fails_at = 1000;
    cr_expect_eq(read_delta(newer.n_bytes, &error), DUNLIN_IO);
}
