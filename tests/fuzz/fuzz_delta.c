/*
 * fuzz_delta.c - any bytes as a delta of packed bases: refused in one line, or as many bytes as
 * were asked for, and then a delta to these bytes reads back to them.
 *
 * The first two bytes are how many bytes the bases have, less 1.
 */
#include <dunlin/alloc.h>
#include <wire/delta.h>

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MOST 65536u
/* Of a delta from nothing: each block with its length. */
#define MOST_CODED (MOST + 64u)

typedef struct bytes_at {
    const uint8_t *bytes; /* that are read... */
    uint8_t *room;        /* ...or written */
    size_t n_bytes;
    size_t at;
} bytes_at;

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static dunlin_status give(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    bytes_at *from = ctx;
    (void)error;
    require(n_bytes > 0 && n_bytes <= from->n_bytes - from->at);
    memcpy(buffer, from->bytes + from->at, n_bytes);
    from->at += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status take(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    bytes_at *to = ctx;
    (void)error;
    require(n_bytes <= to->n_bytes - to->at);
    memcpy(to->room + to->at, data, n_bytes);
    to->at += n_bytes;
    return DUNLIN_OK;
}

/* Writes a delta to the bytes that came out, and reads it. */
static void there_and_back(bytes_at *from, bytes_at *to, const dunlin_alloc *alloc)
{
    static uint8_t coded[MOST_CODED];
    static uint8_t again[MOST];
    dunlin_error error = {0};
    bytes_at delta = {.bytes = coded, .room = coded, .n_bytes = sizeof coded};
    bytes_at out = {.room = again, .n_bytes = to->n_bytes};
    uint64_t n_delta = 0;
    const dunlin__unpack_source before = {.ctx = from, .read_fn = give};
    const dunlin__unpack_source now = {.ctx = to, .read_fn = give};
    const dunlin__unpack_source bytes = {.ctx = &delta, .read_fn = give};
    const dunlin__pack_sink sink = {.ctx = &delta, .write_fn = take};
    const dunlin__pack_sink result = {.ctx = &out, .write_fn = take};
    from->at = 0;
    to->at = 0;
    require(dunlin__delta_write(to->n_bytes, &before, &now, &sink, alloc, &n_delta, &error) ==
            DUNLIN_OK);
    require(n_delta == delta.at);
    delta.n_bytes = delta.at;
    delta.at = 0;
    from->at = 0;
    require(dunlin__delta_read(to->n_bytes, &before, &bytes, n_delta, &result, alloc, &error) ==
            DUNLIN_OK);
    require(memcmp(again, to->bytes, to->n_bytes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t older[MOST];
    static uint8_t newer[MOST];
    dunlin_alloc_counter counter;
    dunlin_error error = {0};
    if (size < 2) {
        return 0;
    }
    const size_t n_bytes = ((size_t)data[0] | (size_t)data[1] << 8) + 1;
    for (size_t i = 0; i < n_bytes; i++) {
        older[i] = (uint8_t)(i * 31 + i / 7);
    }
    bytes_at from = {.bytes = older, .n_bytes = n_bytes};
    bytes_at to = {.bytes = newer, .room = newer, .n_bytes = n_bytes};
    bytes_at delta = {.bytes = data + 2, .n_bytes = size - 2};
    const dunlin__unpack_source before = {.ctx = &from, .read_fn = give};
    const dunlin__unpack_source bytes = {.ctx = &delta, .read_fn = give};
    const dunlin__pack_sink sink = {.ctx = &to, .write_fn = take};
    dunlin_alloc_counter_init(&counter, NULL);
    const dunlin_status status =
        dunlin__delta_read(n_bytes, &before, &bytes, size - 2, &sink, &counter.hooks, &error);
    require(status == DUNLIN_OK || (error.status == status && error.text[0] != '\0'));
    if (status == DUNLIN_OK) {
        require(to.at == n_bytes && delta.at == delta.n_bytes);
        there_and_back(&from, &to, &counter.hooks);
    }
    require(counter.peak_bytes <= DUNLIN_DELTA_MEMORY_BYTES && counter.now_bytes == 0);
    return 0;
}
