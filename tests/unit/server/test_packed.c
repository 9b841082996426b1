/*
 * test_packed.c - the server's side of packed updates: what it takes, and what it refuses by name.
 */
#include "server/device.h"
#include "server/must.h"

#include <wire/compress.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

/* w (2, 3) and 300 more are averaged, b (4) between them is a statistic. */
#define N_MORE 300
#define N_VALUES (10 + N_MORE)
#define N_TENSORS 3
#define INT8 ", \"rounds\": 2, \"cohort\": 1, \"compress\": {\"up\": \"int8\"}"
#define SIGN ", \"rounds\": 2, \"cohort\": 1, \"compress\": {\"up\": \"bit+rotate\"}"
#define TOPK ", \"rounds\": 2, \"cohort\": 1, \"compress\": {\"up\": \"topk:0.1+int8\"}"
#define CLIPPED INT8 ", \"plan\": {\"clip_norm\": 1}"

typedef struct site {
    test_server fixture;
    test_device device;
    dunlin__packing packing; /* that the manifest names */
    uint8_t bytes[8192];
    size_t n_bytes;
    uint64_t stored[N_TENSORS];
    uint8_t sha256[DUNLIN_SHA256_BYTES];
} site;

static void site_open(site *at, const char *keys)
{
    memset(at, 0, sizeof *at);
    test_server_folder(&at->fixture);
    test_server_open(&at->fixture, keys, N_MORE);
    test_device_make(&at->device, &at->fixture);
    at->device.can_all = true;
    cr_assert_eq(test_enrol(&at->device, -1), 200);
    cr_assert(test_take_work(&at->device));
    at->packing = at->device.assignment.plan.packing;
}

static void site_end(site *at)
{
    test_server_close(&at->fixture);
    test_server_end(&at->fixture);
}

static dunlin_status take_bytes(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    site *at = ctx;
    (void)error;
    cr_assert_leq(at->n_bytes + n_bytes, sizeof at->bytes);
    memcpy(at->bytes + at->n_bytes, data, n_bytes);
    at->n_bytes += n_bytes;
    return DUNLIN_OK;
}

static void pack(site *at, const float *values)
{
    dunlin_error error = {0};
    const dunlin__layout *layout = &at->fixture.server.layout;
    dunlin__pack_options options = {.packing = at->packing,
                                    .sink = {.ctx = at, .write_fn = take_bytes},
                                    .choice = {.key = 0x3f000000U}}; /* those above 0.5 */
    dunlin__tensor_packer *packer = NULL;
    at->n_bytes = 0;
    MUST(dunlin__tensor_packer_open(&options, NULL, &packer, &error));
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        const uint64_t n = layout->tensors[t].stored_bytes / sizeof(float);
        MUST(dunlin__tensor_packer_tensor(packer, t, layout->tensors[t].rule, n, 1.0F, &error));
        MUST(dunlin__tensor_packer_values(packer, values, n, &error));
        MUST(dunlin__tensor_packer_tensor_end(packer, &at->stored[t], NULL, &error));
        values += n;
    }
    dunlin__tensor_packer_close(packer);
}

/* Puts a manifest of the bytes as they are; gives the HTTP code. */
static uint32_t put(site *at)
{
    static uint8_t buffer[DUNLIN_WIRE_MANIFEST_BYTES];
    dunlin_error error = {0};
    const dunlin__layout *layout = &at->fixture.server.layout;
    dunlin__manifest_writer writer;
    dunlin__stream stream = {.name = DUNLIN_STREAM_UPDATE,
                             .encoding = DUNLIN_V1_ENCODING_PACKED,
                             .total_bytes = at->n_bytes,
                             .chunk_bytes = at->device.assignment.plan.chunk_bytes,
                             .n_tensors = N_TENSORS,
                             .n_chunks = 1,
                             .has_packing = true,
                             .packing = at->packing};
    size_t n_manifest = 0;
    MUST(dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_UPDATE, buffer, sizeof buffer,
                                       &error));
    MUST(dunlin__manifest_writer_stream(&writer, &stream, &error));
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        dunlin__tensor_entry entry = layout->tensors[t];
        entry.stored_bytes = at->stored[t];
        MUST(dunlin__manifest_writer_tensor(&writer, &entry, &error));
    }
    MUST(dunlin__sha256_of(at->bytes, at->n_bytes, at->sha256, &error));
    MUST(dunlin__manifest_writer_chunk(&writer, at->sha256, &error));
    MUST(dunlin__manifest_writer_end(&writer, &n_manifest, &error));
    MUST(dunlin__sha256_of(buffer, n_manifest, at->device.manifest_sha256, &error));
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_PUT, at->device.assignment.assignment_id);
    return test_send(&at->device, &route, buffer, n_manifest, NULL);
}

/* Sends the bytes and commits. */
static dunlin__commit_response commit(site *at)
{
    dunlin__commit_response answer;
    dunlin__server_upload upload;
    dunlin__route route =
        dunlin__route_make(DUNLIN_CALL_CHUNK_PUT, at->device.assignment.assignment_id);
    memcpy(route.sha256, at->sha256, sizeof route.sha256);
    dunlin__server_request request = {
        .route = route, .method = "PUT", .path = "", .token = at->device.assignment.token};
    dunlin__server_reply *reply = &at->device.reply;
    cr_assert(dunlin__server_upload_begin(&at->fixture.server, &request, &upload, reply));
    cr_assert(dunlin__server_upload_write(&upload, at->bytes, at->n_bytes, reply));
    dunlin__server_upload_end(&upload, reply);
    cr_assert_eq(test_commit(&at->device, 4, NULL, &answer), 200, "%s", at->device.status.text);
    dunlin__server_tick(&at->fixture.server);
    return answer;
}

static void fill(float *values)
{
    for (int i = 0; i < N_VALUES; i++) {
        values[i] = (float)(i % 7 - 3) * 0.25F;
    }
}

/* How far the next model is from base and update, of the update's length. */
static double relative_error(site *at, const float *values)
{
    float base[N_VALUES];
    float next[N_VALUES];
    double error = 0.0;
    double sum = 0.0;
    test_read_model(&at->fixture, 1, base);
    test_read_model(&at->fixture, 2, next);
    for (int i = 0; i < N_VALUES; i++) {
        const double difference = (double)next[i] - (double)base[i] - (double)values[i];
        error += difference * difference;
        sum += (double)values[i] * (double)values[i];
        cr_expect(i < 6 || i >= 10 || fabs(difference) < 1e-6, "statistic %d", i);
    }
    return sqrt(error / sum);
}

Test(packed, becomes_the_next_model)
{
    const struct {
        const char *keys;
        double error;
    } cases[] = {{INT8, 0.01}, {SIGN, 0.9}, {TOPK, 0.95}};
    float values[N_VALUES];
    site at;
    fill(values);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        site_open(&at, cases[i].keys);
        pack(&at, values);
        cr_assert_eq(put(&at), 200, "%s", at.device.status.text);
        const dunlin__commit_response answer = commit(&at);
        cr_assert_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED, "%s", answer.text);
        cr_assert_eq(at.fixture.server.round.round, 2, "%s", at.fixture.server.fault.text);
        cr_expect_lt(relative_error(&at, values), cases[i].error, "%s: %g", cases[i].keys,
                     relative_error(&at, values));
        site_end(&at);
    }
}

/* Statistics go as they are whatever the words, up and down; one that is a variance ends at 0. */
Test(packed, statistics_are_exact_and_a_variance_never_goes_below_0)
{
    static const char *const words[] = {"f16",          "bf16",
                                        "int2",         "int8+entropy",
                                        "int4+rotate",  "int4+rotate+entropy",
                                        "bit+rotate",   "topk:0.1",
                                        "topk:0.1+bit", "topk:0.1+int4+entropy",
                                        "randk:0.1",    "randk:0.5+f16"};
    static const bool is_variance[N_TENSORS] = {false, true, false};
    const float statistics[4] = {-0.5F, 0.3F, -1e-9F, 0.0F};
    float values[N_VALUES];
    float next[N_VALUES];
    site at;
    fill(values);
    memcpy(values + 6, statistics, sizeof statistics);
    for (size_t i = 0; i < 2 * sizeof words / sizeof words[0]; i++) {
        char keys[160];
        const bool has_variance = i % 2 == 1;
        (void)snprintf(keys, sizeof keys,
                       ", \"rounds\": 2, \"cohort\": 1, \"compress\": {\"up\": \"%s\", "
                       "\"down\": \"int4+rotate\"}",
                       words[i / 2]);
        site_open(&at, keys);
        at.fixture.server.layout.is_variance = has_variance ? is_variance : NULL;
        pack(&at, values);
        cr_assert_eq(put(&at), 200, "%s: %s", keys, at.device.status.text);
        const dunlin__commit_response answer = commit(&at);
        cr_assert_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED, "%s", answer.text);
        test_read_model(&at.fixture, 2, next);
        for (int k = 0; k < 4; k++) {
            const float wanted = has_variance && statistics[k] < 0.0F ? 0.0F : statistics[k];
            cr_expect_eq(next[6 + k], wanted, "%s: %d: %g", keys, k, (double)next[6 + k]);
        }
        site_end(&at);
    }
}

static void expect_put_refused(site *at, const char *wanted)
{
    cr_expect_geq(put(at), 400);
    cr_expect_not_null(strstr(at->device.status.text, wanted), "%s", at->device.status.text);
}

Test(packed, what_was_not_agreed_is_refused)
{
    float values[N_VALUES];
    dunlin__put_response answer;
    site at;
    fill(values);
    site_open(&at, SIGN);
    pack(&at, values);
    at.packing.seed.bytes[3] ^= 1;
    expect_put_refused(&at, "Packing.seed");
    at.packing = at.device.assignment.plan.packing;
    at.packing.round++;
    expect_put_refused(&at, "Packing.round is 2, but 1 was agreed");
    cr_expect_geq(test_put(&at.device, values, &answer), 400);
    cr_expect_not_null(strstr(at.device.status.text, "is F32; the plan asks for PACKED"), "%s",
                       at.device.status.text);
    site_end(&at);
    site_open(&at, INT8);
    at.packing.bits = 4;
    pack(&at, values);
    expect_put_refused(&at, "Packing.bits is 4, but 8 was agreed");
    site_end(&at);
    site_open(&at, ", \"rounds\": 2, \"cohort\": 1");
    at.packing = (dunlin__packing){.version = DUNLIN_PACK_VERSION,
                                   .values = DUNLIN_V1_VALUES_F16,
                                   .selection = DUNLIN_V1_SELECTION_ALL,
                                   .block_values = 64};
    pack(&at, values);
    expect_put_refused(&at, "is PACKED; the plan asks for F32");
    site_end(&at);
}

static void expect_refused(site *at, const char *wanted)
{
    cr_assert_eq(put(at), 200, "%s", at->device.status.text);
    const dunlin__commit_response answer = commit(at);
    cr_expect_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_REFUSED);
    cr_expect_not_null(strstr(answer.text, wanted), "%s", answer.text);
    cr_expect_eq(at->fixture.server.round.round, 1);
}

Test(packed, a_decoded_norm_above_the_bound_is_refused)
{
    float values[N_VALUES] = {0};
    site at;
    site_open(&at, CLIPPED);
    values[0] = 1.5F;
    pack(&at, values);
    expect_refused(&at, "is above the plan's 1");
    site_end(&at);
    site_open(&at, CLIPPED);
    values[0] = 0.99F;
    values[8] = 1000.0F; /* a statistic */
    pack(&at, values);
    cr_assert_eq(put(&at), 200);
    cr_expect_eq(commit(&at).outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    site_end(&at);
}

/* The gain and the scale of the first tensor are made numbers that are none. */
Test(packed, bytes_that_break_a_rule_are_refused_by_name)
{
    static const uint8_t nan[4] = {0, 0, 0xc0, 0x7f};
    static const uint8_t minus[4] = {0, 0, 0x80, 0xbf};
    float values[N_VALUES];
    site at;
    fill(values);
    for (size_t place = 0; place <= 4; place += 4) {
        for (int kind = 0; kind < 2; kind++) {
            site_open(&at, INT8);
            pack(&at, values);
            memcpy(at.bytes + place, kind == 0 ? nan : minus, 4);
            expect_refused(&at, "tensor 0");
            site_end(&at);
        }
    }
    site_open(&at, INT8);
    pack(&at, values);
    memcpy(at.bytes + at.stored[0], nan, 4); /* a statistic */
    expect_refused(&at, "tensor 1");
    site_end(&at);
}

/* After a restart: challenges do not outlive the server. */
static void take_challenge(test_device *device, const float *values)
{
    dunlin__put_response answer;
    cr_assert_eq(test_put(device, values, &answer), 401);
    memcpy(device->challenge, device->status.challenge, sizeof device->challenge);
    device->counter = 0;
}

/* In one round a device that packs, and one that does not know packing and sends float32: both
 * count, and what was agreed with each is held against it, also after a restart. */
Test(packed, an_old_device_sends_float32_in_the_same_round)
{
    float values[N_VALUES];
    test_device old;
    dunlin__put_response answer;
    site at;
    fill(values);
    site_open(&at, ", \"rounds\": 2, \"cohort\": 2, \"clients\": 2, \"compress\": {\"up\": "
                   "\"int8\"}, \"min_clients_for_start\": 1");
    test_join(&old, &at.fixture, -1);
    cr_expect_not(old.assignment.plan.has_packing);
    cr_expect_eq(old.assignment.plan.update_encoding, DUNLIN_V1_ENCODING_F32);
    cr_expect(at.device.assignment.plan.has_packing);
    pack(&at, values);
    test_server_close(&at.fixture);
    test_server_open(&at.fixture,
                     ", \"rounds\": 2, \"cohort\": 2, \"clients\": 2, \"compress\": {\"up\": "
                     "\"int8\"}, \"min_clients_for_start\": 1",
                     N_MORE);
    take_challenge(&at.device, values);
    take_challenge(&old, values);
    cr_expect_geq(test_put(&at.device, values, &answer), 400);
    cr_expect_not_null(strstr(at.device.status.text, "is F32; the plan asks for PACKED"), "%s",
                       at.device.status.text);
    cr_assert_eq(put(&at), 200, "%s", at.device.status.text);
    cr_assert_eq(commit(&at).outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(test_contribute(&old, values, 4), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&at.fixture.server);
    cr_assert_eq(at.fixture.server.round.round, 2, "%s", at.fixture.server.fault.text);
    cr_expect_eq(at.fixture.server.closed[0].n_participants, 2);
    cr_expect_lt(relative_error(&at, values), 0.005, "%g", relative_error(&at, values));
    site_end(&at);
}

Test(packed, an_old_device_sends_no_packed_update)
{
    float values[N_VALUES];
    site at;
    fill(values);
    site_open(&at, ", \"rounds\": 2, \"cohort\": 2, \"compress\": {\"up\": \"int8\"}");
    pack(&at, values);
    test_join(&at.device, &at.fixture, -1);
    expect_put_refused(&at, "is PACKED; the plan asks for F32");
    site_end(&at);
}
