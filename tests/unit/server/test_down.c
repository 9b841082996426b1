/*
 * test_down.c - models that go down packed: what can be fetched of a base, to the byte, by which
 * devices, and after which troubles.
 */
#include "model/down.h"
#include "server/device.h"
#include "server/must.h"

#include <wire/delta.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* w (2, 3) and 40,000 more are averaged, b (4) between them is a statistic. */
#define N_MORE 40000
#define N_VALUES (10 + N_MORE)
#define N_TENSORS 3
#define OBJECT_BYTES (N_VALUES * sizeof(float))
#define INT8 ", \"compress\": {\"down\": \"int8\"}"
#define INT4 ", \"compress\": {\"down\": \"int4+rotate\"}"
#define CODED ", \"compress\": {\"down\": \"int8+entropy\"}"
#define F16 ", \"compress\": {\"down\": \"f16\"}"

typedef struct site {
    test_server fixture;
    test_device device;
    char keys[600];
    float values[N_VALUES]; /* of the first model */
} site;

static void open_server(site *at)
{
    test_server_open(&at->fixture, at->keys, N_MORE);
}

/* Values of a network's size, `most` among them, and rounds of so many updates. */
static void site_make(site *at, const char *keys, float most, int cohort)
{
    char path[200];
    memset(at, 0, sizeof *at);
    test_server_folder(&at->fixture);
    for (int i = 0; i < N_VALUES; i++) {
        at->values[i] = 0.1F * sinf((float)i);
    }
    at->values[20] = most;
    (void)snprintf(path, sizeof path, "%s/initial.f32", at->fixture.folder);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(at->values, sizeof(float), N_VALUES, file), N_VALUES);
    cr_assert_eq(fclose(file), 0);
    (void)snprintf(at->keys, sizeof at->keys,
                   ", \"rounds\": 4, \"cohort\": %d, \"initial\": \"%s\", \"seed\": 7%s", cohort,
                   path, keys);
    open_server(at);
}

static void join(site *at, test_device *device)
{
    test_device_make(device, &at->fixture);
    device->unpacks = true;
    cr_assert_eq(test_enrol(device, -1), 200);
    cr_assert(test_take_work(device));
}

/* A restart, after which the device takes work anew: challenges do not outlive the server. */
static void open_again(site *at)
{
    dunlin__checkin_response answer;
    open_server(at);
    cr_assert_eq(test_checkin(&at->device, &answer), 401);
    memcpy(at->device.challenge, at->device.status.challenge, sizeof at->device.challenge);
    at->device.counter = 0;
    cr_assert(test_take_work(&at->device));
}

static void site_open(site *at, const char *keys)
{
    site_make(at, keys, 0.5F, 1);
    join(at, &at->device);
}

static void site_end(site *at)
{
    test_server_close(&at->fixture);
    test_server_end(&at->fixture);
}

/* ---- what is fetched ---- */

static bool try_object(site *at, const uint8_t *sha256, uint8_t *out_bytes, size_t *out_n)
{
    dunlin__server_reply reply;
    dunlin__server_request request = {
        .route = dunlin__route_make(DUNLIN_CALL_OBJECT_GET, NULL), .method = "GET", .path = ""};
    memcpy(request.route.sha256, sha256, DUNLIN_SHA256_BYTES);
    dunlin__server_handle(&at->fixture.server, &request, &reply);
    if (reply.http_code != 200) {
        return false;
    }
    cr_assert_eq(pread(reply.fd, out_bytes, reply.n_fd_bytes, (off_t)reply.fd_offset),
                 (ssize_t)reply.n_fd_bytes);
    (void)close(reply.fd);
    *out_n = (size_t)reply.n_fd_bytes;
    return true;
}

typedef struct object {
    uint8_t manifest[8192];
    size_t n_manifest;
    uint8_t bytes[OBJECT_BYTES];
    size_t n_bytes;
    size_t at; /* for reading in order */
} object;

/* The whole of an object by the hash of its manifest, each chunk held against its hash. */
static void fetch(site *at, const uint8_t *sha256, object *out)
{
    dunlin_error error = {0};
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    memset(out, 0, sizeof *out);
    cr_assert(try_object(at, sha256, out->manifest, &out->n_manifest));
    const dunlin__manifest_source source =
        dunlin__manifest_source_memory(out->manifest, out->n_manifest);
    MUST(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_BASE, &error));
    do {
        size_t n = 0;
        uint8_t found[DUNLIN_SHA256_BYTES];
        MUST(dunlin__manifest_reader_next(&reader, &record, &error));
        if (record.item != DUNLIN_MANIFEST_CHUNK) {
            continue;
        }
        cr_assert_leq(out->n_bytes + record.n_bytes, sizeof out->bytes);
        cr_assert(try_object(at, record.sha256, out->bytes + out->n_bytes, &n));
        cr_assert_eq(n, record.n_bytes);
        MUST(dunlin__sha256_of(out->bytes + out->n_bytes, n, found, &error));
        cr_assert_arr_eq(found, record.sha256, DUNLIN_SHA256_BYTES);
        out->n_bytes += n;
    } while (record.item != DUNLIN_MANIFEST_END);
}

static dunlin_status read_object(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    object *from = ctx;
    (void)error;
    cr_assert_leq(from->at + n_bytes, from->n_bytes);
    memcpy(buffer, from->bytes + from->at, n_bytes);
    from->at += n_bytes;
    return DUNLIN_OK;
}

/* What a device makes of packed bytes. */
static void decode(object *packed, float *out_values)
{
    dunlin_error error = {0};
    dunlin__manifest_reader reader;
    dunlin__manifest_record record;
    dunlin__tensor_unpacker *unpacker = NULL;
    const dunlin__unpack_source bytes = {.ctx = packed, .read_fn = read_object};
    const dunlin__manifest_source source =
        dunlin__manifest_source_memory(packed->manifest, packed->n_manifest);
    MUST(dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_BASE, &error));
    MUST(dunlin__manifest_reader_next(&reader, &record, &error));
    cr_assert_eq(record.stream.encoding, DUNLIN_V1_ENCODING_PACKED);
    MUST(dunlin__tensor_unpacker_open(&record.stream.packing, &bytes, NULL, &unpacker, &error));
    for (int t = 0; t < N_TENSORS; t++) {
        const float *values = NULL;
        size_t n_values = 0;
        uint64_t n_elements = 0;
        MUST(dunlin__manifest_reader_next(&reader, &record, &error));
        MUST(dunlin__tensor_entry_count(&record.tensor, &n_elements, &error));
        MUST(dunlin__tensor_unpacker_tensor(unpacker, record.index, record.tensor.rule, n_elements,
                                            record.n_bytes, &error));
        do {
            MUST(dunlin__tensor_unpacker_next(unpacker, &values, &n_values, &error));
            memcpy(out_values, values, n_values * sizeof(float));
            out_values += n_values;
        } while (n_values > 0);
    }
    dunlin__tensor_unpacker_close(unpacker);
}

static object base;
static object packed;
static object delta;
static object older;
static float decoded[N_VALUES];

/* ---- the tests ---- */

Test(down, packed_bytes_decode_to_the_base_to_the_byte)
{
    const struct {
        const char *keys;
        size_t n_bytes; /* at most */
        double error;   /* of an entry, at most */
    } cases[] = {
        {INT8, 41000, 0.005}, {INT4, 21000, 0.4}, {CODED, 41000, 0.005}, {F16, 80100, 5e-4}};
    static site at;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        site_open(&at, cases[i].keys);
        const dunlin__assignment *given = &at.device.assignment;
        cr_assert(given->has_packed_base, "%s", cases[i].keys);
        fetch(&at, given->base_manifest_sha256, &base);
        fetch(&at, given->packed_base.manifest_sha256, &packed);
        cr_assert_eq(base.n_bytes, sizeof decoded);
        cr_expect_leq(packed.n_bytes, cases[i].n_bytes, "case %zu: %zu bytes", i, packed.n_bytes);
        decode(&packed, decoded);
        cr_expect_arr_eq(decoded, base.bytes, sizeof decoded, "case %zu", i);
        size_t n_moved = 0;
        for (int v = 0; v < N_VALUES; v++) {
            cr_assert_lt(fabs((double)decoded[v] - (double)at.values[v]), cases[i].error,
                         "case %zu, value %d: %g for %g", i, v, (double)decoded[v],
                         (double)at.values[v]);
            n_moved += decoded[v] != at.values[v] ? 1 : 0;
        }
        cr_expect_gt(n_moved, N_VALUES / 2);
        cr_expect_arr_eq(decoded + 6, at.values + 6, 4 * sizeof(float)); /* the statistic */
        site_end(&at);
    }
}

/* A device that does not unpack begins from the same base, and both count. */
Test(down, who_does_not_unpack_gets_the_same_base_as_float32)
{
    static site at;
    static float step[N_VALUES];
    static float next[N_VALUES];
    test_device old;
    dunlin__checkin_response answer;
    site_make(&at, INT8, 0.5F, 2);
    join(&at, &at.device);
    test_device_make(&old, &at.fixture);
    cr_assert_eq(test_enrol(&old, -1), 200);
    cr_assert_eq(test_checkin(&old, &answer), 200);
    cr_assert_eq(answer.rejection, DUNLIN_V1_REJECTION_NONE);
    cr_expect_gt(answer.offers[0].download_bytes, OBJECT_BYTES);
    cr_assert_eq(test_accept(&old), 200);
    cr_expect_not(old.assignment.has_packed_base);
    cr_expect_arr_eq(old.assignment.base_manifest_sha256, at.device.assignment.base_manifest_sha256,
                     DUNLIN_SHA256_BYTES);
    fetch(&at, old.assignment.base_manifest_sha256, &base);
    for (int i = 0; i < N_VALUES; i++) {
        step[i] = (float)(i % 5) / 64.0F;
    }
    cr_assert_eq(test_contribute(&old, step, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(test_contribute(&at.device, step, 3), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&at.fixture.server);
    cr_assert_eq(at.fixture.server.round.round, 2, "%s", at.fixture.server.fault.text);
    test_read_model(&at.fixture, 2, next); /* of the server's own model, not of what went down */
    for (int i = 0; i < N_VALUES; i++) {
        cr_assert_float_eq(next[i], at.values[i] + step[i], 1e-6, "value %d", i);
    }
    site_end(&at);
}

static void contribute(site *at, float scale)
{
    static float step[N_VALUES];
    for (int i = 0; i < N_VALUES; i++) {
        step[i] = scale * cosf((float)(7 * i));
    }
    const uint64_t round = at->fixture.server.round.round;
    cr_assert_eq(test_contribute(&at->device, step, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&at->fixture.server);
    cr_assert_eq(at->fixture.server.round.round, round + 1, "%s", at->fixture.server.fault.text);
    cr_assert(test_take_work(&at->device));
}

static dunlin_status compare_bytes(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    object *wanted = ctx;
    (void)error;
    cr_assert_leq(wanted->at + n_bytes, wanted->n_bytes);
    cr_assert_arr_eq(wanted->bytes + wanted->at, data, n_bytes);
    wanted->at += n_bytes;
    return DUNLIN_OK;
}

/* From one round to the next, and again after a restart. */
Test(down, a_delta_gives_the_bytes_of_the_whole)
{
    static site at;
    dunlin_error error = {0};
    site_open(&at, INT8);
    cr_expect_eq(at.device.assignment.packed_base.from_sha256.size, 0);
    fetch(&at, at.device.assignment.packed_base.manifest_sha256, &older);
    const dunlin__assignment first = at.device.assignment;
    contribute(&at, 0.002F);
    const dunlin__assignment second = at.device.assignment;
    cr_assert_eq(second.packed_base.from_sha256.size, DUNLIN_SHA256_BYTES);
    cr_expect_arr_eq(second.packed_base.from_sha256.bytes, first.base_manifest_sha256,
                     DUNLIN_SHA256_BYTES);
    fetch(&at, second.packed_base.manifest_sha256, &packed);
    fetch(&at, second.packed_base.delta_manifest_sha256.bytes, &delta);
    cr_expect_lt(delta.n_bytes, packed.n_bytes * 3 / 4, "%zu of %zu", delta.n_bytes,
                 packed.n_bytes);
    const dunlin__unpack_source from = {.ctx = &older, .read_fn = read_object};
    const dunlin__unpack_source bytes = {.ctx = &delta, .read_fn = read_object};
    const dunlin__pack_sink sink = {.ctx = &packed, .write_fn = compare_bytes};
    MUST(dunlin__delta_read(packed.n_bytes, &from, &bytes, delta.n_bytes, &sink, NULL, &error));
    cr_expect_eq(packed.at, packed.n_bytes);
    test_server_close(&at.fixture);
    open_again(&at);
    cr_expect_arr_eq(&at.device.assignment.packed_base, &second.packed_base,
                     sizeof second.packed_base);
    site_end(&at);
}

/* A model that moves by more than its levels has no delta that is worth it. */
Test(down, a_delta_that_saves_little_is_none)
{
    static site at;
    site_open(&at, INT8);
    contribute(&at, 10.0F);
    cr_expect(at.device.assignment.has_packed_base);
    cr_expect_eq(at.device.assignment.packed_base.from_sha256.size, 0);
    site_end(&at);
}

/* A round without updates leaves the model, and so the base: nothing is drawn twice. */
Test(down, the_same_model_has_the_same_base)
{
    static site at;
    site_open(&at, INT8);
    const dunlin__assignment first = at.device.assignment;
    at.fixture.now_ms += 700000;
    dunlin__server_tick(&at.fixture.server);
    cr_assert_eq(at.fixture.server.round.round, 2, "%s", at.fixture.server.fault.text);
    join(&at, &at.device); /* the other one is served last now */
    cr_expect_arr_eq(at.device.assignment.base_manifest_sha256, first.base_manifest_sha256,
                     DUNLIN_SHA256_BYTES);
    cr_expect_arr_eq(at.device.assignment.packed_base.manifest_sha256,
                     first.packed_base.manifest_sha256, DUNLIN_SHA256_BYTES);
    cr_expect_eq(at.device.assignment.packed_base.from_sha256.size, 0);
    site_end(&at);
}

/* What a kill left out, or a disk lost, is created again at the start, to the same bytes. */
Test(down, what_is_missing_at_a_start_is_created_again)
{
    static const char *const endings[] = {"manifest", "packed", "packed.manifest", "weights"};
    static site at;
    char path[300];
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        site_open(&at, INT8);
        contribute(&at, 0.002F);
        const dunlin__assignment before = at.device.assignment;
        test_server_close(&at.fixture);
        (void)snprintf(path, sizeof path, "%s/state/down/000002.%s", at.fixture.folder, endings[i]);
        cr_assert_eq(unlink(path), 0, "%s", path);
        open_again(&at);
        cr_expect_arr_eq(at.device.assignment.base_manifest_sha256, before.base_manifest_sha256,
                         DUNLIN_SHA256_BYTES);
        cr_expect_arr_eq(&at.device.assignment.packed_base, &before.packed_base,
                         sizeof before.packed_base);
        fetch(&at, before.packed_base.manifest_sha256, &packed);
        site_end(&at);
    }
}

Test(down, another_packing_at_a_start_makes_another_base)
{
    static site at;
    site_open(&at, INT8);
    const dunlin__assignment before = at.device.assignment;
    test_server_close(&at.fixture);
    char *words = strstr(at.keys, "int8");
    cr_assert_not_null(words);
    memcpy(words, "int6", 4);
    open_again(&at);
    cr_expect_arr_neq(at.device.assignment.base_manifest_sha256, before.base_manifest_sha256,
                      DUNLIN_SHA256_BYTES);
    fetch(&at, at.device.assignment.packed_base.manifest_sha256, &packed);
    cr_expect_lt(packed.n_bytes, 32000);
    site_end(&at);
}

/* The server says so in a warning, and the round goes on. */
Test(down, a_model_that_does_not_fit_goes_down_as_it_is)
{
    static site at;
    site_make(&at, F16, 1e6F, 1);
    join(&at, &at.device);
    cr_expect_not(at.device.assignment.has_packed_base);
    fetch(&at, at.device.assignment.base_manifest_sha256, &base);
    cr_expect_arr_eq(base.bytes, at.values, sizeof at.values);
    site_end(&at);
}

/* With SCAFFOLD the server's variate goes down beside the packed weights, as it is. */
Test(down, a_control_variate_goes_with_it)
{
    static site at;
    static float step[2 * N_VALUES]; /* the variate's change follows */
    const size_t n_control = (6 + N_MORE) * sizeof(float);
    site_make(&at,
              ", \"algorithm\": \"scaffold\", \"clients\": 1, \"compress\": {\"down\": \"int8\"}",
              0.5F, 1);
    test_device_make(&at.device, &at.fixture);
    at.device.unpacks = true;
    at.device.can_all = true;
    cr_assert_eq(test_enrol(&at.device, 0), 200);
    cr_assert(test_take_work(&at.device));
    static uint8_t bytes[DUNLIN_WIRE_CHUNK_MAX_BYTES];
    size_t n = 0;
    cr_assert(try_object(&at, at.device.assignment.base_manifest_sha256, bytes, &n));
    const dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n);
    dunlin__manifest_summary summary;
    dunlin_error error = {0};
    MUST(dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_BASE, &summary, &error));
    cr_expect_eq(summary.n_streams, 2);
    cr_expect_eq(summary.total_bytes, sizeof at.values + n_control);
    fetch(&at, at.device.assignment.packed_base.manifest_sha256, &packed);
    decode(&packed, decoded);
    cr_assert_eq(test_contribute(&at.device, step, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&at.fixture.server);
    cr_expect_eq(at.fixture.server.round.round, 2, "%s", at.fixture.server.fault.text);
    site_end(&at);
}

/* Three bases can be fetched; what was packed of older ones is gone with them. */
Test(down, old_bases_are_swept)
{
    static site at;
    uint8_t bytes[8192];
    size_t n = 0;
    site_open(&at, INT8);
    const dunlin__assignment first = at.device.assignment;
    for (int i = 0; i < 2; i++) {
        contribute(&at, 0.002F);
        cr_expect(try_object(&at, first.packed_base.manifest_sha256, bytes, &n));
    }
    contribute(&at, 0.002F);
    cr_expect_not(try_object(&at, first.packed_base.manifest_sha256, bytes, &n));
    cr_expect_not(try_object(&at, first.base_manifest_sha256, bytes, &n));
    char path[300];
    (void)snprintf(path, sizeof path, "%s/state/down/000001.packed", at.fixture.folder);
    cr_expect_neq(access(path, F_OK), 0);
    site_end(&at);
}
