/*
 * delta.c - differences of bytes, block by block, behind the entropy coder.
 */
#include "bits.h"
#include "entropy.h"

#include <mem/support.h>
#include <wire/delta.h>

#include <string.h>

#define MAGIC "DUNLINPD"
static const uint8_t magic[8] = {'D', 'U', 'N', 'L', 'I', 'N', 'P', 'D'};
#define HEAD_BYTES 20u
#define AT_VERSION 8u
#define AT_BYTES 12u
#define BLOCK_BYTES 8192u
#define LENGTH_BYTES 2u
#define N_SYMBOLS 256u
#define MIDDLE 128u /* a difference of 0: those on both sides of it are neighbours in the table */

typedef struct delta_work {
    uint8_t from[BLOCK_BYTES];
    uint8_t to[BLOCK_BYTES];
    uint8_t coded[LENGTH_BYTES + BLOCK_BYTES];
    uint8_t slots[DUNLIN_ENTROPY_SLOTS];
} delta_work;

_Static_assert(sizeof(delta_work) <= DUNLIN_DELTA_MEMORY_BYTES, "a delta keeps within its memory");

static dunlin_status take_work(const dunlin_alloc *hooks, delta_work **out_work,
                               dunlin_error *error)
{
    *out_work = dunlin__alloc_zeroed(hooks, 1, sizeof(**out_work));
    if (*out_work == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "compress", 0,
                            "no memory for a delta of %zu "
                            "bytes",
                            sizeof(**out_work));
    }
    return DUNLIN_OK;
}

/* ---- writing ---- */

static dunlin_status write_block(delta_work *work, size_t n, const dunlin__unpack_source *from,
                                 const dunlin__unpack_source *to, const dunlin__pack_sink *sink,
                                 uint64_t *n_written, dunlin_error *error)
{
    DUNLIN_TRY(from->read_fn(from->ctx, work->from, n, error));
    DUNLIN_TRY(to->read_fn(to->ctx, work->to, n, error));
    for (size_t i = 0; i < n; i++) {
        work->from[i] = (uint8_t)(work->to[i] - work->from[i] + MIDDLE);
    }
    size_t n_body = dunlin__entropy_pack(work->from, n, work->coded + LENGTH_BYTES, n);
    dunlin__put_u16(work->coded, (uint32_t)n_body);
    if (n_body == 0) {
        memcpy(work->coded + LENGTH_BYTES, work->to, n);
        n_body = n;
    }
    *n_written += LENGTH_BYTES + n_body;
    return sink->write_fn(sink->ctx, work->coded, LENGTH_BYTES + n_body, error);
}

dunlin_status dunlin__delta_write(uint64_t n_bytes, const dunlin__unpack_source *from,
                                  const dunlin__unpack_source *to, const dunlin__pack_sink *sink,
                                  const dunlin_alloc *alloc, uint64_t *out_bytes,
                                  dunlin_error *error)
{
    uint8_t head[HEAD_BYTES];
    delta_work *work = NULL;
    const dunlin_alloc hooks = dunlin__alloc_or_default(alloc);
    memcpy(head, magic, sizeof(magic));
    dunlin__put_u32(head + AT_VERSION, DUNLIN_DELTA_VERSION);
    dunlin__put_u32(head + AT_BYTES, (uint32_t)n_bytes);
    dunlin__put_u32(head + AT_BYTES + 4, (uint32_t)(n_bytes >> 32));
    *out_bytes = HEAD_BYTES;
    DUNLIN_TRY(take_work(&hooks, &work, error));
    dunlin_status status = sink->write_fn(sink->ctx, head, sizeof(head), error);
    for (uint64_t at = 0; status == DUNLIN_OK && at < n_bytes; at += BLOCK_BYTES) {
        const size_t n = (n_bytes - at < BLOCK_BYTES) ? (size_t)(n_bytes - at) : BLOCK_BYTES;
        status = write_block(work, n, from, to, sink, out_bytes, error);
    }
    dunlin__free_array(&hooks, work, 1, sizeof(*work));
    return status;
}

/* ---- reading ---- */

/* A delta that is being read: never more of it than it has. */
typedef struct delta_reading {
    const dunlin__unpack_source *source;
    uint64_t n_left;
    uint64_t at; /* in what comes out, for errors */
    dunlin_error *error;
} delta_reading;

static dunlin_status fail_at(const delta_reading *reading, const char *wrong)
{
    return dunlin__fail(reading->error, DUNLIN_PROTOCOL, "compress", 0,
                        "the delta's block of byte %llu %s", (unsigned long long)reading->at,
                        wrong);
}

static dunlin_status take_bytes(delta_reading *reading, uint8_t *bytes, size_t n)
{
    if (n > reading->n_left) {
        return fail_at(reading, "has no end");
    }
    reading->n_left -= n;
    return reading->source->read_fn(reading->source->ctx, bytes, n, reading->error);
}

static dunlin_status read_head(delta_reading *reading, uint64_t n_bytes)
{
    uint8_t head[HEAD_BYTES] = {0};
    DUNLIN_TRY(take_bytes(reading, head, sizeof(head)));
    const uint32_t version = dunlin__take_u32(head + AT_VERSION);
    const uint64_t n_found = (uint64_t)dunlin__take_u32(head + AT_BYTES) |
                             (uint64_t)dunlin__take_u32(head + AT_BYTES + 4) << 32;
    if (memcmp(head, magic, sizeof(magic)) != 0) {
        return dunlin__fail(reading->error, DUNLIN_PROTOCOL, "compress", 0,
                            "what came is no delta: it begins with %02x%02x%02x%02x, not with %s",
                            head[0], head[1], head[2], head[3], MAGIC);
    }
    if (version != DUNLIN_DELTA_VERSION) {
        return dunlin__fail(reading->error, DUNLIN_VERSION, "compress", 0,
                            "a delta of version %u, only %u is known", version,
                            DUNLIN_DELTA_VERSION);
    }
    if (n_found != n_bytes) {
        return dunlin__fail(reading->error, DUNLIN_MISMATCH, "compress", 0,
                            "the delta is of %llu bytes, the packed base has %llu",
                            (unsigned long long)n_found, (unsigned long long)n_bytes);
    }
    return DUNLIN_OK;
}

static dunlin_status read_block(delta_work *work, delta_reading *reading, size_t n,
                                const dunlin__unpack_source *from, const dunlin__pack_sink *sink)
{
    uint8_t length[LENGTH_BYTES] = {0};
    DUNLIN_TRY(from->read_fn(from->ctx, work->from, n, reading->error));
    DUNLIN_TRY(take_bytes(reading, length, sizeof(length)));
    const size_t n_body = dunlin__take_u16(length);
    if (n_body == 0) {
        DUNLIN_TRY(take_bytes(reading, work->to, n));
        return sink->write_fn(sink->ctx, work->to, n, reading->error);
    }
    if (n_body >= n) {
        return fail_at(reading, "is as long coded as it is without");
    }
    DUNLIN_TRY(take_bytes(reading, work->coded, n_body));
    if (!dunlin__entropy_unpack(work->coded, n_body, n, N_SYMBOLS, work->slots, work->to)) {
        return fail_at(reading, "has coded bytes that are not those of its differences");
    }
    for (size_t i = 0; i < n; i++) {
        work->to[i] = (uint8_t)(work->to[i] + work->from[i] - MIDDLE);
    }
    return sink->write_fn(sink->ctx, work->to, n, reading->error);
}

dunlin_status dunlin__delta_read(uint64_t n_bytes, const dunlin__unpack_source *from,
                                 const dunlin__unpack_source *delta, uint64_t n_delta_bytes,
                                 const dunlin__pack_sink *sink, const dunlin_alloc *alloc,
                                 dunlin_error *error)
{
    delta_work *work = NULL;
    delta_reading reading = {.source = delta, .n_left = n_delta_bytes, .error = error};
    const dunlin_alloc hooks = dunlin__alloc_or_default(alloc);
    DUNLIN_TRY(read_head(&reading, n_bytes));
    DUNLIN_TRY(take_work(&hooks, &work, error));
    dunlin_status status = DUNLIN_OK;
    for (; status == DUNLIN_OK && reading.at < n_bytes; reading.at += BLOCK_BYTES) {
        const uint64_t left = n_bytes - reading.at;
        status = read_block(work, &reading, (left < BLOCK_BYTES) ? (size_t)left : BLOCK_BYTES, from,
                            sink);
    }
    dunlin__free_array(&hooks, work, 1, sizeof(*work));
    if (status == DUNLIN_OK && reading.n_left > 0) {
        return dunlin__fail(error, DUNLIN_PROTOCOL, "compress", 0,
                            "%llu bytes follow the delta's last block",
                            (unsigned long long)reading.n_left);
    }
    return status;
}
