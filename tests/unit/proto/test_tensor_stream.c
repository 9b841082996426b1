/*
 * test_tensor_stream.c - tensors out into chunks and back in, with odd sizes and failing ends.
 */
#include "random.h"

#include <wire/tensor_stream.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS 8
#define MAX_BYTES (3u << 20)

typedef struct store {
    uint8_t *bytes;
    size_t n_bytes;
    size_t read_at;
    size_t chunk_starts_at;
    uint32_t chunk_bytes;
    uint32_t n_chunks;
    uint8_t sha256[16][32];
    size_t n_calls_left; /* of write, chunk and read, before one fails */
} store;

static dunlin_status spend_call(store *to, dunlin_error *error)
{
    if (to->n_calls_left == 0) {
        snprintf(error->text, sizeof(error->text), "the store is broken");
        error->status = DUNLIN_IO;
        return DUNLIN_IO;
    }
    to->n_calls_left--;
    return DUNLIN_OK;
}

static dunlin_status store_write(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    store *to = ctx;
    cr_assert(n_bytes > 0 && n_bytes <= DUNLIN_WIRE_BLOCK_BYTES);
    cr_assert_leq(to->n_bytes + n_bytes, MAX_BYTES);
    cr_assert_leq(to->n_bytes + n_bytes - to->chunk_starts_at, to->chunk_bytes);
    memcpy(to->bytes + to->n_bytes, data, n_bytes);
    to->n_bytes += n_bytes;
    return spend_call(to, error);
}

static dunlin_status store_chunk(void *ctx, uint32_t chunk_index, uint32_t chunk_bytes,
                                 const uint8_t *sha256, dunlin_error *error)
{
    store *to = ctx;
    uint8_t wanted[32];
    cr_assert_eq(chunk_index, to->n_chunks);
    cr_assert_eq(chunk_bytes, to->n_bytes - to->chunk_starts_at);
    cr_assert_eq(dunlin__sha256_of(to->bytes + to->chunk_starts_at, chunk_bytes, wanted, NULL),
                 DUNLIN_OK);
    cr_assert_arr_eq(sha256, wanted, 32);
    memcpy(to->sha256[to->n_chunks], sha256, 32);
    to->n_chunks++;
    to->chunk_starts_at = to->n_bytes;
    return spend_call(to, error);
}

static dunlin_status store_read(void *ctx, void *out_bytes, size_t n_bytes, dunlin_error *error)
{
    store *from = ctx;
    cr_assert(n_bytes > 0 && n_bytes <= DUNLIN_WIRE_BLOCK_BYTES);
    cr_assert_leq(from->read_at + n_bytes, from->n_bytes);
    memcpy(out_bytes, from->bytes + from->read_at, n_bytes);
    from->read_at += n_bytes;
    return spend_call(from, error);
}

typedef struct model {
    size_t n_tensors;
    dunlin_shape shapes[MAX_TENSORS];
    char names[MAX_TENSORS][24];
    float *values[MAX_TENSORS];
    size_t n_values[MAX_TENSORS];
    uint64_t total_bytes;
} model;

static model make_model(uint64_t *state)
{
    static const uint64_t sizes[] = {1, 2, 3, 10, 1000, 16384, 16385, 65536, 70001};
    model made = {.n_tensors = 1 + test_random_below(state, MAX_TENSORS)};
    for (size_t i = 0; i < made.n_tensors; i++) {
        uint64_t n = sizes[test_random_below(state, 9)];
        dunlin_shape *shape = &made.shapes[i];
        if (test_random_below(state, 12) == 0) {
            n = 0;
        }
        if (n == 1) {
            shape->n_dims = 0;
        } else {
            *shape = (dunlin_shape){.n_dims = 2, .dims = {(int64_t)n, 1}};
        }
        snprintf(made.names[i], sizeof(made.names[i]), "t%zu", i);
        made.n_values[i] = n;
        made.values[i] = malloc(n * sizeof(float) + 1);
        test_random_fill(made.values[i], (int64_t)n, -1.0, 1.0, state);
        made.total_bytes += 4 * n;
    }
    return made;
}

static void free_model(model *made)
{
    for (size_t i = 0; i < made->n_tensors; i++) {
        free(made->values[i]);
    }
}

static dunlin__stream describe(const model *made, uint32_t chunk_bytes)
{
    return (dunlin__stream){.name = "update",
                            .encoding = DUNLIN_V1_ENCODING_F32,
                            .total_bytes = made->total_bytes,
                            .chunk_bytes = chunk_bytes,
                            .n_tensors = (uint32_t)made->n_tensors};
}

/* Writes whole tensors or random parts of them. */
static dunlin_status write_model(const model *made, const dunlin__stream *stream, store *to,
                                 uint64_t *state, dunlin_error *error)
{
    dunlin__tensor_writer writer;
    dunlin__stream_sink sink = {.ctx = to, .write_fn = store_write, .chunk_fn = store_chunk};
    dunlin_status status = dunlin__tensor_writer_begin(&writer, stream, true, &sink, error);
    for (size_t i = 0; i < made->n_tensors && status == DUNLIN_OK; i++) {
        size_t n_values = made->n_values[i];
        if (i % 2 == 0) {
            dunlin_tensor_view view = {.name = made->names[i],
                                       .dtype = DUNLIN_F32,
                                       .shape = made->shapes[i],
                                       .data = made->values[i],
                                       .data_bytes = 4 * n_values};
            status = dunlin__tensor_writer_add(&writer, &view, error);
            continue;
        }
        for (size_t at = 0; at < n_values && status == DUNLIN_OK;) {
            size_t n = 1 + test_random_below(state, n_values - at);
            status = dunlin__tensor_writer_values(&writer, made->names[i], made->values[i] + at, n,
                                                  error);
            at += n;
        }
    }
    if (status == DUNLIN_OK) {
        status = dunlin__tensor_writer_end(&writer, error);
    }
    dunlin__tensor_writer_abort(&writer);
    return status;
}

static size_t write_manifest(const model *made, const dunlin__stream *stream, const store *to,
                             uint8_t *bytes, size_t capacity)
{
    dunlin__manifest_writer writer;
    size_t n_bytes = 0;
    dunlin_error error = {0};
    cr_assert_eq(
        dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_UPDATE, bytes, capacity, &error),
        DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_writer_stream(&writer, stream, &error), DUNLIN_OK, "%s",
                 error.text);
    for (size_t i = 0; i < made->n_tensors; i++) {
        dunlin__tensor_entry entry;
        cr_assert_eq(dunlin__tensor_entry_make(made->names[i], &made->shapes[i],
                                               DUNLIN_V1_RULE_AVERAGE, &entry, &error),
                     DUNLIN_OK);
        cr_assert_eq(dunlin__manifest_writer_tensor(&writer, &entry, &error), DUNLIN_OK, "%s",
                     error.text);
    }
    for (uint32_t i = 0; i < to->n_chunks; i++) {
        cr_assert_eq(dunlin__manifest_writer_chunk(&writer, to->sha256[i], &error), DUNLIN_OK);
    }
    cr_assert_eq(dunlin__manifest_writer_end(&writer, &n_bytes, &error), DUNLIN_OK, "%s",
                 error.text);
    return n_bytes;
}

/* Reads all back and compares; the status of the first failure. */
static dunlin_status read_model(const model *made, const uint8_t *manifest, size_t manifest_bytes,
                                store *from, size_t block_bytes, dunlin_error *error)
{
    static float block[DUNLIN_WIRE_BLOCK_BYTES / 4 + 16];
    dunlin__manifest_source source = dunlin__manifest_source_memory(manifest, manifest_bytes);
    dunlin__stream_source bytes = {.ctx = from, .read_fn = store_read};
    dunlin__manifest_reader place;
    dunlin__stream stream;
    dunlin__tensor_reader reader;
    dunlin__tensor_piece piece;
    cr_assert_eq(dunlin__manifest_reader_begin(&place, &source, DUNLIN_MANIFEST_UPDATE, error),
                 DUNLIN_OK);
    cr_assert_eq(dunlin__manifest_reader_find(&place, "update", &stream, error), DUNLIN_OK);
    cr_assert_eq(
        dunlin__tensor_reader_begin(&reader, &place, &bytes, true, block, block_bytes, error),
        DUNLIN_OK);
    uint64_t n_values = 0;
    size_t n_tensors = 0;
    for (;;) {
        dunlin_status status = dunlin__tensor_reader_next(&reader, &piece, error);
        if (status != DUNLIN_OK) {
            return status;
        }
        if (piece.tensor == NULL) {
            break;
        }
        size_t i = piece.tensor_index;
        cr_assert_str_eq(piece.tensor->name, made->names[i]);
        cr_assert_eq(piece.n_elements, made->n_values[i]);
        cr_assert_leq(piece.first_element + piece.n_values, piece.n_elements);
        cr_assert_eq(memcmp(piece.values, made->values[i] + piece.first_element,
                            piece.n_values * sizeof(float)),
                     0);
        n_tensors += piece.first_element == 0;
        n_values += piece.n_values;
    }
    cr_assert_eq(n_tensors, made->n_tensors);
    cr_assert_eq(4 * n_values, made->total_bytes);
    cr_assert_eq(from->read_at, from->n_bytes);
    return DUNLIN_OK;
}

static uint8_t store_bytes[MAX_BYTES];
static uint8_t manifest_bytes[8192];

Test(proto_tensor_stream, what_goes_out_comes_back)
{
    uint64_t seed = test_seed(71);
    uint64_t state = seed;
    static const uint32_t chunk_sizes[] = {DUNLIN_WIRE_CHUNK_MIN_BYTES,
                                           DUNLIN_WIRE_CHUNK_MIN_BYTES + 1, 300002,
                                           DUNLIN_WIRE_CHUNK_MAX_BYTES};
    static const size_t block_sizes[] = {
        4, 7, 100, 4096, DUNLIN_WIRE_BLOCK_BYTES, DUNLIN_WIRE_BLOCK_BYTES + 64};
    for (int i = 0; i < test_cases(30); i++) {
        model made = make_model(&state);
        store kept = {
            .bytes = store_bytes, .chunk_bytes = chunk_sizes[i % 4], .n_calls_left = SIZE_MAX};
        dunlin__stream stream = describe(&made, kept.chunk_bytes);
        dunlin_error error = {0};
        cr_assert_eq(write_model(&made, &stream, &kept, &state, &error), DUNLIN_OK, "seed %llu: %s",
                     (unsigned long long)seed, error.text);
        cr_assert_eq(kept.n_bytes, made.total_bytes);
        cr_assert_eq(kept.n_chunks, dunlin__chunk_count(made.total_bytes, kept.chunk_bytes));
        size_t n_bytes =
            write_manifest(&made, &stream, &kept, manifest_bytes, sizeof(manifest_bytes));
        size_t block_bytes = (i % 6 < 2 && made.total_bytes > 100000) ? 4096 : block_sizes[i % 6];
        cr_assert_eq(read_model(&made, manifest_bytes, n_bytes, &kept, block_bytes, &error),
                     DUNLIN_OK, "seed %llu: %s", (unsigned long long)seed, error.text);
        free_model(&made);
    }
}

Test(proto_tensor_stream, elements_are_little_endian)
{
    static const uint8_t wanted[] = {0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x20, 0xc0};
    const float values[] = {1.0f, -2.5f};
    store kept = {.bytes = store_bytes,
                  .chunk_bytes = DUNLIN_WIRE_CHUNK_DEFAULT_BYTES,
                  .n_calls_left = SIZE_MAX};
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_F32,
                             .total_bytes = 8,
                             .chunk_bytes = DUNLIN_WIRE_CHUNK_DEFAULT_BYTES,
                             .n_tensors = 1};
    dunlin__stream_sink sink = {.ctx = &kept, .write_fn = store_write, .chunk_fn = NULL};
    dunlin__tensor_writer writer;
    cr_assert_eq(dunlin__tensor_writer_begin(&writer, &stream, false, &sink, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__tensor_writer_values(&writer, "w", values, 2, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__tensor_writer_end(&writer, NULL), DUNLIN_OK);
    cr_assert_eq(kept.n_bytes, 8);
    cr_assert_arr_eq(kept.bytes, wanted, 8);
}

Test(proto_tensor_stream, every_failing_end_is_passed_on)
{
    uint64_t state = test_seed(72);
    model made = make_model(&state);
    while (made.total_bytes < 600000) {
        free_model(&made);
        made = make_model(&state);
    }
    dunlin__stream stream = describe(&made, DUNLIN_WIRE_CHUNK_MIN_BYTES);
    store kept = {0};
    dunlin_error error = {0};
    dunlin_status status = DUNLIN_IO;
    for (size_t n = 0; status != DUNLIN_OK; n++) {
        kept = (store){
            .bytes = store_bytes, .chunk_bytes = DUNLIN_WIRE_CHUNK_MIN_BYTES, .n_calls_left = n};
        status = write_model(&made, &stream, &kept, &state, &error);
        if (status != DUNLIN_OK) {
            cr_assert_eq(status, DUNLIN_IO);
            cr_assert_str_eq(error.text, "the store is broken");
        }
    }
    size_t n_bytes = write_manifest(&made, &stream, &kept, manifest_bytes, sizeof(manifest_bytes));
    status = DUNLIN_IO;
    for (size_t n = 0; status != DUNLIN_OK; n++) {
        kept.n_calls_left = n;
        kept.read_at = 0;
        status = read_model(&made, manifest_bytes, n_bytes, &kept, DUNLIN_WIRE_BLOCK_BYTES, &error);
        if (status != DUNLIN_OK) {
            cr_assert_eq(status, DUNLIN_IO);
        }
    }
    free_model(&made);
}

Test(proto_tensor_stream, values_that_are_not_finite_are_named)
{
    static const float bad_values[] = {INFINITY, -INFINITY, NAN, -NAN};
    uint64_t state = test_seed(73);
    for (size_t i = 0; i < 4; i++) {
        model made = {.n_tensors = 1, .names = {"w"}, .n_values = {20000}, .total_bytes = 80000};
        made.shapes[0] = (dunlin_shape){.n_dims = 1, .dims = {20000}};
        made.values[0] = malloc(80000);
        test_random_fill(made.values[0], 20000, -1.0, 1.0, &state);
        dunlin__stream stream = describe(&made, DUNLIN_WIRE_CHUNK_MIN_BYTES);
        store kept = {.bytes = store_bytes,
                      .chunk_bytes = DUNLIN_WIRE_CHUNK_MIN_BYTES,
                      .n_calls_left = SIZE_MAX};
        dunlin_error error = {0};
        cr_assert_eq(write_model(&made, &stream, &kept, &state, &error), DUNLIN_OK);
        size_t n_bytes =
            write_manifest(&made, &stream, &kept, manifest_bytes, sizeof(manifest_bytes));
        memcpy(kept.bytes + 4 * 17777, &bad_values[i], 4);
        made.values[0][17777] = bad_values[i];
        cr_assert_eq(
            read_model(&made, manifest_bytes, n_bytes, &kept, DUNLIN_WIRE_BLOCK_BYTES, &error),
            DUNLIN_NUMERIC);
        cr_assert_not_null(strstr(error.text, "\"w\": element 17777"), "%s", error.text);
        kept = (store){.bytes = store_bytes,
                       .chunk_bytes = DUNLIN_WIRE_CHUNK_MIN_BYTES,
                       .n_calls_left = SIZE_MAX};
        memset(&error, 0, sizeof(error));
        cr_assert_eq(write_model(&made, &stream, &kept, &state, &error), DUNLIN_NUMERIC);
        cr_assert_not_null(strstr(error.text, "\"w\": element 17777"), "%s", error.text);
        free_model(&made);
    }
}

Test(proto_tensor_stream, misuse_is_told)
{
    const float values[4] = {1, 2, 3, 4};
    store kept = {
        .bytes = store_bytes, .chunk_bytes = DUNLIN_WIRE_CHUNK_MIN_BYTES, .n_calls_left = SIZE_MAX};
    dunlin__stream_sink sink = {.ctx = &kept, .write_fn = store_write, .chunk_fn = store_chunk};
    dunlin__stream stream = {.name = "update",
                             .encoding = DUNLIN_V1_ENCODING_F16,
                             .total_bytes = 12,
                             .chunk_bytes = DUNLIN_WIRE_CHUNK_MIN_BYTES};
    dunlin__tensor_writer writer;
    dunlin_error error = {0};
    for (int encoding = 2; encoding <= 6; encoding++) {
        stream.encoding = (dunlin_v1_encoding_t)encoding;
        cr_assert_eq(dunlin__tensor_writer_begin(&writer, &stream, true, &sink, &error),
                     DUNLIN_UNSUPPORTED);
        cr_assert_not_null(strstr(error.text, dunlin__encoding_name(stream.encoding)), "%s",
                           error.text);
    }
    stream.encoding = DUNLIN_V1_ENCODING_F32;
    stream.total_bytes = 13;
    cr_assert_eq(dunlin__tensor_writer_begin(&writer, &stream, true, &sink, &error),
                 DUNLIN_ARGUMENT);
    stream.total_bytes = 12;
    stream.chunk_bytes = 1;
    cr_assert_eq(dunlin__tensor_writer_begin(&writer, &stream, true, &sink, &error),
                 DUNLIN_ARGUMENT);
    stream.chunk_bytes = DUNLIN_WIRE_CHUNK_MIN_BYTES;
    cr_assert_eq(dunlin__tensor_writer_begin(&writer, &stream, true, &sink, &error), DUNLIN_OK);
    dunlin_tensor_view view = {.name = "w", .dtype = DUNLIN_F64, .data = values, .data_bytes = 4};
    cr_assert_eq(dunlin__tensor_writer_add(&writer, &view, &error), DUNLIN_UNSUPPORTED);
    view.dtype = DUNLIN_F32;
    view.data_bytes = 8;
    cr_assert_eq(dunlin__tensor_writer_add(&writer, &view, &error), DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "\"w\": 8 bytes do not agree"));
    cr_assert_eq(dunlin__tensor_writer_values(&writer, "w", values, 2, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__tensor_writer_end(&writer, &error), DUNLIN_MISMATCH);
    cr_assert_not_null(strstr(error.text, "after 8 of its 12 bytes"), "%s", error.text);
    cr_assert_eq(dunlin__tensor_writer_end(&writer, &error), DUNLIN_STATE);
    cr_assert_eq(dunlin__tensor_writer_begin(&writer, &stream, true, &sink, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__tensor_writer_values(&writer, "w", values, 4, &error), DUNLIN_LIMIT);
    cr_assert_not_null(strstr(error.text, "room for 3"), "%s", error.text);
    cr_assert_eq(dunlin__tensor_writer_values(&writer, "w", values, 1, &error), DUNLIN_STATE);
}
