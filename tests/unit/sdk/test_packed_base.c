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

/* A base that is what a packing decodes to. */
static void offer(const dunlin__packing *packing)
{
    memset(&made, 0, sizeof made);
    made.encoding = DUNLIN_V1_ENCODING_PACKED;
    made.packing = *packing;
    pack();
    cr_assert_eq(made.n_decoded, FAKE_VALUES);
    memcpy(w.server.values, made.decoded, sizeof made.decoded);
    fake_server_remake_base(&w.server);
    describe();
    w.server.edit_assignment_fn = name_packed;
}

/* The same with 8 bits an entry. */
static void offer_packed(void)
{
    offer(&(dunlin__packing){.version = DUNLIN_PACK_VERSION,
                             .values = DUNLIN_V1_VALUES_LEVELS,
                             .bits = 8,
                             .selection = DUNLIN_V1_SELECTION_ALL,
                             .block_values = 512});
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

/* ---- memory ---- */

static struct {
    dunlin_alloc_counter counter;
    dunlin_learner_ops ops;   /* of the learner, with our load() */
    dunlin_learner_ops plain; /* its own */
    dunlin_status (*perform_fn)(dunlin_transport *transport, const dunlin_http_request *request,
                                dunlin_http_reply *out_reply, dunlin_error *error);
    bool is_fetching;
    uint64_t n_before; /* when the first object was asked for */
    uint64_t n_most;   /* beside that, until the learner has the base */
} seen;

static dunlin_status perform_counted(dunlin_transport *transport,
                                     const dunlin_http_request *request,
                                     dunlin_http_reply *out_reply, dunlin_error *error)
{
    if (!seen.is_fetching && strstr(request->url, "/objects/") != NULL) {
        seen.is_fetching = true;
        seen.n_before = seen.counter.now_bytes;
        seen.counter.peak_bytes = seen.counter.now_bytes;
    }
    return seen.perform_fn(transport, request, out_reply, error);
}

static dunlin_status load_counted(void *self, const dunlin_task *task,
                                  const dunlin_weights_reader *base)
{
    seen.n_most = seen.counter.peak_bytes - seen.n_before;
    return seen.plain.load(self, task, base);
}

static void expect_little(dunlin_v1_values_t values, uint32_t bits, bool is_rotated, bool is_coded)
{
    dunlin__packing packing = {.version = DUNLIN_PACK_VERSION,
                               .values = values,
                               .bits = bits,
                               .selection = DUNLIN_V1_SELECTION_ALL,
                               .is_rotated = is_rotated,
                               .is_entropy_coded = is_coded,
                               .block_values = DUNLIN_PACK_BLOCK_MAX};
    packing.seed.size = is_rotated ? DUNLIN_PACK_SEED_BYTES : 0;
    offer(&packing);
    seen.is_fetching = false;
    w.server.object_bytes = 0;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_lt(w.server.object_bytes, PLAIN_BYTES); /* it came packed */
    cr_expect(seen.is_fetching);
    cr_expect_gt(seen.n_most, sizeof(float) * DUNLIN_PACK_BLOCK_MAX); /* it was looked at */
    cr_expect_leq(seen.n_most, 65536u, "%llu bytes: values %d of %u bits, rotated %d, coded %d",
                  (unsigned long long)seen.n_most, (int)values, bits, is_rotated, is_coded);
    w.server.now_ms += 5000;
    w.server.round++;
}

BASE_TEST(it_takes_at_most_64_kib_beside_the_model)
{
    fake_world_close(&w);
    memset(&seen, 0, sizeof seen);
    dunlin_alloc_counter_init(&seen.counter, NULL);
    seen.plain = *w.plug.ops;
    seen.ops = seen.plain;
    seen.ops.load = load_counted;
    w.plug.ops = &seen.ops;
    w.runtime = fake_server_runtime(&w.server, w.folder, &seen.counter.hooks);
    seen.perform_fn = w.runtime->transport_ops.perform_fn;
    w.runtime->transport_ops.perform_fn = perform_counted;
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, NULL), DUNLIN_OK);
    for (int how = 0; how < 4; how++) {
        const bool is_rotated = how % 2 == 1;
        const bool is_coded = how / 2 == 1;
        for (uint32_t bits = 2; bits <= 8; bits += 3) {
            expect_little(DUNLIN_V1_VALUES_LEVELS, bits, is_rotated, is_coded);
        }
        if (!is_coded) {
            expect_little(DUNLIN_V1_VALUES_F16, 0, is_rotated, false);
            expect_little(DUNLIN_V1_VALUES_BF16, 0, is_rotated, false);
        }
    }
    fake_world_close(&w);
    fake_world_open(&w);
}
