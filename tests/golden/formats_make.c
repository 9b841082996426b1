/*
 * formats_make.c - writes the golden files of the client and of the wire as they are now; those
 * that are committed are not replaced.
 */
#include "formats.h"
#include "server/must.h"

#include <wire/secagg.h>

#include <stdio.h>
#include <string.h>

#define PATH_BYTES FORMATS_PATH_BYTES

/* --- the client's --- */

static void make_journal(const char *folder)
{
    dunlin_error error = {.status = DUNLIN_OK};
    char from[PATH_BYTES];
    char to[PATH_BYTES];
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__store *store = NULL;
    dunlin__journal journal;
    dunlin__accept_response response = {
        .has_assignment = true, .has_window = true, .window = {.min_ms = 1000, .max_ms = 2000}};
    uint8_t key[DUNLIN_PRIVATE_KEY_BYTES];
    uint8_t bytes[DUNLIN_V1_ACCEPT_RESPONSE_SIZE];
    size_t n_bytes = 0;
    const dunlin__assignment assignment = formats_assignment();
    formats_server_key(key);
    MUST(dunlin__assignment_seal(&assignment, key, &response.assignment, &error));
    MUST(dunlin__accept_response_encode(&response, bytes, sizeof bytes, &n_bytes, &error));
    formats_small_pages(formats_path(folder, "dunlin.db", from));
    MUST(dunlin__store_open(folder, &alloc, &store, &error));
    formats_journal(&journal);
    MUST(dunlin__store_save_assignment(store, FORMATS_CLIENT, &journal, bytes, n_bytes, &error));
    /* Another client of the runtime, that has not begun. */
    memset(&journal, 0, sizeof journal);
    MUST(dunlin__store_save(store, "idle", &journal, &error));
    dunlin__store_close(store);
    MUST_HOLD(rename(from, formats_path(folder, "journal_6.db", to)) == 0, "%s", to);
}

static void make_metrics(const char *folder)
{
    dunlin_error error = {.status = DUNLIN_OK};
    uint8_t bytes[DUNLIN_V1_COMMIT_REQUEST_SIZE];
    size_t n_bytes = 0;
    const dunlin__commit_request metrics = formats_metrics();
    MUST(dunlin__commit_request_encode(&metrics, bytes, sizeof bytes, &n_bytes, &error));
    formats_write(folder, "metrics_1.bin", bytes, n_bytes);
}

static void make_examples(const char *folder)
{
    dunlin_error error = {.status = DUNLIN_OK};
    char from[PATH_BYTES];
    char to[PATH_BYTES];
    dunlin_example list[FORMATS_N_EXAMPLES];
    uint8_t data[FORMATS_N_EXAMPLES][FORMATS_EXAMPLE_BYTES];
    int64_t ids[FORMATS_N_EXAMPLES] = {0};
    dunlin__examples_parts parts = {0};
    formats_small_pages(formats_path(folder, "examples.db", from));
    dunlin_examples *examples = formats_examples_open(folder);
    for (int64_t i = 0; i < FORMATS_N_EXAMPLES; i++) {
        for (size_t k = 0; k < FORMATS_EXAMPLE_BYTES; k++) {
            data[i][k] = formats_example_byte(i, k);
        }
        list[i] = (dunlin_example){.collection = i == 1 ? "notes" : "drawings",
                                   .data = data[i],
                                   .n_bytes = FORMATS_EXAMPLE_BYTES,
                                   .label = (int32_t)i - 2,
                                   .time_ms = FORMATS_NOW_MS - 1000 + i};
    }
    MUST(dunlin_examples_add(examples, list, FORMATS_N_EXAMPLES, ids, &error));
    MUST(dunlin_examples_remove(examples, &ids[2], 1, &error));
    MUST(dunlin__examples_choose(examples, FORMATS_CLIENT, "assignment-7", "task-1", 0, &parts,
                                 &error));
    dunlin_examples_close(examples);
    MUST_HOLD(rename(from, formats_path(folder, "examples_2.db", to)) == 0, "%s", to);
}

/* --- the wire's --- */

static void make_streams(const char *folder)
{
    uint8_t manifest[FORMATS_STREAM_BYTES];
    uint8_t streams[FORMATS_STREAM_BYTES];
    size_t n_manifest = 0;
    size_t n_streams = 0;
    formats_streams(DUNLIN_MANIFEST_BASE, manifest, &n_manifest, streams, &n_streams);
    formats_write(folder, "base_1.manifest", manifest, n_manifest);
    formats_write(folder, "base_1.bin", streams, n_streams);
    formats_streams(DUNLIN_MANIFEST_UPDATE, manifest, &n_manifest, streams, &n_streams);
    formats_write(folder, "update_1.manifest", manifest, n_manifest);
    formats_write(folder, "update_1.bin", streams, n_streams);
}

/* The decoded values as float32, of a little-endian machine. */
static void make_packed(const char *folder)
{
    static uint8_t manifest[FORMATS_STREAM_BYTES];
    static uint8_t streams[FORMATS_FILE_BYTES];
    static float decoded[FORMATS_PACKED_DECODED];
    size_t n_manifest = 0;
    size_t n_streams = 0;
    formats_packed(manifest, &n_manifest, streams, &n_streams, decoded);
    formats_write(folder, "packed_1.manifest", manifest, n_manifest);
    formats_write(folder, "packed_1.bin", streams, n_streams);
    formats_write(folder, "packed_1.f32", decoded, sizeof decoded);
}

static void make_delta(const char *folder)
{
    static uint8_t delta[FORMATS_FILE_BYTES];
    static uint8_t to[FORMATS_DELTA_BYTES];
    size_t n_delta = 0;
    formats_delta(delta, &n_delta, to);
    formats_write(folder, "packed_delta_1.bin", delta, n_delta);
    formats_write(folder, "packed_delta_1.to", to, sizeof to);
}

static void make_int8(const char *folder)
{
    uint8_t manifest[FORMATS_STREAM_BYTES];
    uint8_t stream[FORMATS_STREAM_BYTES];
    size_t n_manifest = 0;
    size_t n_stream = 0;
    formats_int8(manifest, &n_manifest, stream, &n_stream);
    formats_write(folder, "int8_1.manifest", manifest, n_manifest);
    formats_write(folder, "int8_1.bin", stream, n_stream);
}

static void make_masked(const char *folder)
{
    uint8_t manifest[FORMATS_STREAM_BYTES];
    uint8_t stream[FORMATS_STREAM_BYTES];
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin_error error = {.status = DUNLIN_OK};
    char name[32];
    size_t n_manifest = 0;
    size_t n_stream = 0;
    for (unsigned ring_bits = 16; ring_bits <= 32; ring_bits += 8) {
        formats_masked(ring_bits, manifest, &n_manifest, stream, &n_stream);
        (void)snprintf(name, sizeof name, "masked_1_%u.manifest", ring_bits);
        formats_write(folder, name, manifest, n_manifest);
        (void)snprintf(name, sizeof name, "masked_1_%u.bin", ring_bits);
        formats_write(folder, name, stream, n_stream);
    }
    for (uint32_t version = 1; version <= 2; version++) {
        const dunlin__secagg_plan plan = formats_secagg_plan(version);
        MUST(dunlin__secagg_digest(&plan, sha256, &error));
        (void)snprintf(name, sizeof name, "secagg_terms_%u.sha256", version);
        formats_write(folder, name, sha256, sizeof sha256);
    }
}

static void make_app_model(const char *folder)
{
    dunlin_error error = {.status = DUNLIN_OK};
    char from[PATH_BYTES];
    char to[PATH_BYTES];
    const dunlin__app_model_head head = formats_app_model();
    MUST(dunlin__app_model_head_write(folder, &head, &error));
    MUST_HOLD(rename(formats_path(folder, DUNLIN_APP_MODEL_HEAD, from),
                     formats_path(folder, "app_model_1.head", to)) == 0,
              "%s", to);
}

void formats_make(const char *folder)
{
    make_app_model(folder);
    make_journal(folder);
    make_metrics(folder);
    make_examples(folder);
    make_streams(folder);
    make_packed(folder);
    make_delta(folder);
    make_int8(folder);
    make_masked(folder);
}
