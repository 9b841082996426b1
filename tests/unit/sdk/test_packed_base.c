/*
 * test_packed_base.c - a base that comes packed: it becomes the base to the bit, or the device
 * fetches that as float32 in the same round.
 */
#include "client/fake_exchange.h"
#include "client/in_world.h"
#include "server/must.h"

#include <wire/compress.h>
#include <wire/digest.h>

#define BASE_TEST(name) WORLD_TEST(packed_base, name)
#define PLAIN_BYTES (FAKE_VALUES * sizeof(float))

/* What the server gives out as the packed form of its base. */
static struct {
    dunlin__packing packing;
    dunlin_v1_encoding_t encoding;
    const char *first_name; /* of the tensors; NULL: as the base has it */
    uint8_t bytes[FAKE_VALUES * 4 + 4096];
    size_t n_bytes;
    uint64_t stored[FAKE_TENSORS];
    float decoded[FAKE_VALUES];
    size_t n_decoded;
    uint8_t manifest[4096];
    size_t n_manifest;
    uint8_t sha256[DUNLIN_SHA256_BYTES];
} made;

static dunlin_status take_bytes(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    (void)ctx;
    (void)error;
    memcpy(made.bytes + made.n_bytes, data, n_bytes);
    made.n_bytes += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status take_values(void *ctx, const float *values, size_t n_values,
                                 dunlin_error *error)
{
    (void)ctx;
    (void)error;
    memcpy(made.decoded + made.n_decoded, values, n_values * sizeof(float));
    made.n_decoded += n_values;
    return DUNLIN_OK;
}

static void pack(void)
{
    dunlin_error error = {0};
    dunlin__tensor_packer *packer = NULL;
    const dunlin__pack_options options = {.packing = made.packing,
                                          .sink = {.write_fn = take_bytes},
                                          .mirror = {.values_fn = take_values}};
    const float *values = w.server.values;
    MUST(dunlin__tensor_packer_open(&options, NULL, &packer, &error));
    for (uint32_t t = 0; t < FAKE_TENSORS; t++) {
        const size_t n = (size_t)fake_tensors[t].n;
        MUST(dunlin__tensor_packer_tensor(packer, t, fake_tensors[t].rule, n, 1.0F, &error));
        MUST(dunlin__tensor_packer_values(packer, values, n, &error));
        MUST(dunlin__tensor_packer_tensor_end(packer, &made.stored[t], NULL, &error));
        if (fake_tensors[t].rule != DUNLIN_V1_RULE_AVERAGE) {
            MUST(take_values(NULL, values, n, &error));
        }
        values += n;
    }
    dunlin__tensor_packer_close(packer);
}

/* The manifest of the bytes as they are now. */
static void describe(void)
{
    dunlin_error error = {0};
    dunlin__manifest_writer writer;
    dunlin__stream stream = {.name = DUNLIN_STREAM_WEIGHTS,
                             .encoding = made.encoding,
                             .total_bytes = made.n_bytes,
                             .chunk_bytes = CHUNK_BYTES,
                             .n_tensors = FAKE_TENSORS,
                             .has_packing = made.encoding == DUNLIN_V1_ENCODING_PACKED,
                             .packing = made.packing};
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    MUST(dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_BASE, made.manifest,
                                       sizeof made.manifest, &error));
    MUST(dunlin__manifest_writer_stream(&writer, &stream, &error));
    for (int t = 0; t < FAKE_TENSORS; t++) {
        const dunlin_shape shape = {.n_dims = 1, .dims = {fake_tensors[t].n}};
        dunlin__tensor_entry entry;
        const char *name =
            t == 0 && made.first_name != NULL ? made.first_name : fake_tensors[t].name;
        MUST(dunlin__tensor_entry_make(name, &shape, fake_tensors[t].rule, &entry, &error));
        entry.stored_bytes = made.stored[t];
        MUST(dunlin__manifest_writer_tensor(&writer, &entry, &error));
    }
    MUST(dunlin__sha256_of(made.bytes, made.n_bytes, sha256, &error));
    MUST(dunlin__manifest_writer_chunk(&writer, sha256, &error));
    MUST(dunlin__manifest_writer_end(&writer, &made.n_manifest, &error));
    MUST(dunlin__sha256_of(made.manifest, made.n_manifest, made.sha256, &error));
    w.server.objects[0].bytes = made.manifest;
    w.server.objects[0].n_bytes = made.n_manifest;
    w.server.objects[1].bytes = made.bytes;
    w.server.objects[1].n_bytes = made.n_bytes;
}

static void name_packed(dunlin__assignment *assignment)
{
    assignment->has_packed_base = true;
    memcpy(assignment->packed_base.manifest_sha256, made.sha256, sizeof made.sha256);
    assignment->packed_base.manifest_bytes = (uint32_t)made.n_manifest;
}

/* A base that is what 8 bits an entry decode to. */
static void offer_packed(void)
{
    memset(&made, 0, sizeof made);
    made.encoding = DUNLIN_V1_ENCODING_PACKED;
    made.packing = (dunlin__packing){.version = DUNLIN_PACK_VERSION,
                                     .values = DUNLIN_V1_VALUES_LEVELS,
                                     .bits = 8,
                                     .selection = DUNLIN_V1_SELECTION_ALL,
                                     .block_values = 512};
    pack();
    cr_assert_eq(made.n_decoded, FAKE_VALUES);
    memcpy(w.server.values, made.decoded, sizeof made.decoded);
    fake_server_remake_base(&w.server);
    describe();
    w.server.edit_assignment_fn = name_packed;
}

static void expect_update(void)
{
    for (int64_t i = 0; i < FAKE_VALUES; i++) {
        cr_assert_float_eq((double)w.server.update[i],
                           (double)fake_learner_update(&w.learner, &w.server, i), 0.0, "value %lld",
                           (long long)i);
    }
}

BASE_TEST(it_becomes_the_base_to_the_bit)
{
    offer_packed();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    expect_update();
    cr_expect_lt(w.server.object_bytes, FAKE_VALUES + 4096, "%llu",
                 (unsigned long long)w.server.object_bytes);
    expect_no_files();
}

/* As float32 then, once, and the round is accepted all the same. */
static void expect_plain(void)
{
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    expect_update();
    cr_expect_geq(w.server.object_bytes, PLAIN_BYTES);
    cr_expect_lt(w.server.object_bytes, PLAIN_BYTES + FAKE_VALUES + 8192, "%llu",
                 (unsigned long long)w.server.object_bytes);
    expect_no_files();
}

BASE_TEST(values_that_are_not_the_base_are_not_used)
{
    offer_packed();
    w.server.values[50000] += 0.25F; /* as arithmetic that is not IEEE's would have it */
    fake_server_remake_base(&w.server);
    expect_plain();
}

BASE_TEST(bytes_that_break_a_rule_are_not_used)
{
    static const uint8_t nan[4] = {0, 0, 0xc0, 0x7f};
    offer_packed();
    memcpy(made.bytes + 4, nan, sizeof nan); /* the first scale */
    describe();
    expect_plain();
}

BASE_TEST(a_packed_base_of_other_tensors_is_not_used)
{
    offer_packed();
    made.first_name = "others";
    describe();
    expect_plain();
}

BASE_TEST(an_encoding_that_was_not_agreed_is_not_used)
{
    offer_packed();
    made.encoding = DUNLIN_V1_ENCODING_F16;
    made.n_bytes = 2 * FAKE_VALUES;
    for (int t = 0; t < FAKE_TENSORS; t++) {
        made.stored[t] = 2 * (uint64_t)fake_tensors[t].n;
    }
    describe();
    expect_plain();
    cr_expect_lt(w.server.object_bytes, PLAIN_BYTES + 8192); /* nothing of it was fetched */
}

BASE_TEST(a_packed_base_that_is_not_there_is_done_without)
{
    offer_packed();
    w.server.objects[0].bytes = NULL;
    expect_plain();
}

/* A cut at any exchange: what is here is not fetched again, and the round ends well. */
BASE_TEST(a_cut_at_any_exchange_goes_on)
{
    for (int at = 0; at < 12; at++) {
        offer_packed();
        w.server.object_bytes = 0;
        w.server.spoil = at % 2 == 0 ? FAKE_LOST_REPLY : FAKE_LOST_REQUEST;
        w.server.spoil_exchange = at;
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        for (int i = 0; i < 4 && report.outcome != DUNLIN_OUTCOME_ACCEPTED; i++) {
            report = (dunlin_round_report)DUNLIN_ROUND_REPORT_INIT;
            const dunlin_status status = dunlin_client_run_round(w.client, &report);
            cr_assert(status == DUNLIN_OK || status == DUNLIN_CLOSED, "%s",
                      dunlin_status_name(status));
            w.server.now_ms += 5000;
        }
        cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "cut at exchange %d", at);
        cr_expect_lt(w.server.object_bytes, 2 * FAKE_VALUES + 8192, "cut at exchange %d: %llu", at,
                     (unsigned long long)w.server.object_bytes);
        expect_update();
        w.server.spoil = FAKE_FINE;
        w.server.now_ms += 5000;
        w.server.round++;
    }
    expect_no_files();
}
