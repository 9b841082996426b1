/*
 * device.c - a server without sockets, and clients that talk to it by plain calls: for tests. What
 * they send in a round is in device_updates.c.
 */
#define _XOPEN_SOURCE 700 /* nftw */

#include "device.h"

#include "must.h"

#include <mem/support.h>
#include <wire/digest.h>
#include <wire/signature.h>

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t fixed_time(void *ctx)
{
    return ((test_server *)ctx)->now_ms;
}

void test_server_keep_time(test_server *fixture)
{
    fixture->server.now_ms_fn = fixed_time;
    fixture->server.now_ctx = fixture;
}

void test_server_folder(test_server *fixture)
{
    memset(fixture, 0, sizeof *fixture);
    fixture->now_ms = 1700000000000;
    const char *parent = getenv("TMPDIR");
    (void)snprintf(fixture->folder, sizeof fixture->folder, "%s/dunlin-server-XXXXXX",
                   parent != NULL ? parent : "/tmp");
    MUST_HOLD(mkdtemp(fixture->folder) != NULL, "%s", fixture->folder);
}

const char *test_server_write(test_server *fixture, const char *name, const char *text)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", fixture->folder, name);
    FILE *file = fopen(path, "w");
    MUST_HOLD(file != NULL, "%s", path);
    (void)fputs(text, file);
    (void)fclose(file);
    return path;
}

void test_server_open(test_server *fixture, const char *keys, uint32_t n_more)
{
    dunlin_error error = {0};
    char text[1024];
    char more[128] = "";
    if (n_more > 0) {
        (void)snprintf(more, sizeof more, ", {\"name\": \"more\", \"shape\": [%u]}", n_more);
    }
    (void)snprintf(text, sizeof text,
                   "{\"population\": \"%s\", \"task\": \"sums\", \"tensors\": ["
                   "{\"name\": \"w\", \"shape\": [2, 3]}, "
                   "{\"name\": \"b\", \"shape\": [4]%s}%s]%s}",
                   TEST_POPULATION, fixture->has_no_statistics ? "" : ", \"rule\": \"statistic\"",
                   more, keys);
    const char *path = test_server_write(fixture, "task.json", text);
    static char state[256];
    (void)snprintf(state, sizeof state, "%s/state", fixture->folder);
    dunlin_server_options options = {.host = "127.0.0.1",
                                     .state_folder = state,
                                     .accept_ms = 100,
                                     .reject_ms = 200,
                                     .n_threads = 1,
                                     .tokens_file = fixture->tokens,
                                     .allows_replace = fixture->allows_replace,
                                     .has_mtls_places = fixture->has_mtls_places,
                                     .has_insecure_noise_seed = fixture->has_noise_seed,
                                     .insecure_noise_seed = fixture->noise_seed,
                                     .has_claimed_places =
                                         fixture->tokens == NULL && !fixture->is_open};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__server_task task;
    dunlin_log log = fixture->log;
    memset(&fixture->server, 0, sizeof fixture->server);
    test_server_keep_time(fixture);
    MUST(dunlin__server_task_read(path, &alloc, &task, &error));
    MUST(dunlin__server_open(&fixture->server, &options, &task, &log, &error));
}

void test_server_close(test_server *fixture)
{
    dunlin__server_close(&fixture->server);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info;
    (void)kind;
    (void)place;
    return remove(path);
}

void test_server_end(test_server *fixture)
{
    (void)nftw(fixture->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- calls ---- */

bool test_sign(test_device *device, dunlin__server_request *request)
{
    dunlin_error error = {0};
    uint8_t signature[DUNLIN_SIGNATURE_BYTES];
    bool is_enrolment = request->route.call == DUNLIN_CALL_ENROL;
    dunlin__signed_request signing = {.method = request->method,
                                      .authority = request->authority,
                                      .path = request->path,
                                      .device_id = is_enrolment ? "" : request->device_id,
                                      .idempotency_key = request->idempotency_key,
                                      .challenge = is_enrolment ? "" : request->challenge};
    request->signature = "";
    MUST(dunlin__sha256_of(request->body, request->n_body, signing.body_sha256, &error));
    if (dunlin__header_u64(DUNLIN_HEADER_COUNTER, request->counter, &signing.counter, &error) !=
            DUNLIN_OK ||
        dunlin__request_sign(&signing, device->private_key, signature, &error) != DUNLIN_OK) {
        return false;
    }
    dunlin__hex_encode(signature, sizeof signature, device->signature);
    request->signature = device->signature;
    return true;
}

dunlin__server_request test_request(test_device *device, const dunlin__route *route,
                                    const void *body, size_t n_bytes)
{
    dunlin_error error = {0};
    MUST(dunlin__route_format(route, device->path, sizeof device->path, &error));
    MUST(dunlin__idempotency_key(device->key, &error));
    device->counter++;
    (void)snprintf(device->counter_text, sizeof device->counter_text, "%llu",
                   (unsigned long long)device->counter);
    return (dunlin__server_request){.route = *route,
                                    .method = dunlin__call_describe(route->call)->method,
                                    .path = device->path,
                                    .authority = TEST_AUTHORITY,
                                    .device_id = device->id,
                                    .challenge = device->challenge,
                                    .counter = device->counter_text,
                                    .idempotency_key = device->key,
                                    .certificate_sha256 = device->certificate_sha256,
                                    .body = body,
                                    .n_body = n_bytes};
}

uint32_t test_send(test_device *device, const dunlin__route *route, const void *body,
                   size_t n_bytes, const char *key)
{
    dunlin_error error = {0};
    dunlin__server_request request = test_request(device, route, body, n_bytes);
    if (key != NULL) {
        request.idempotency_key = key;
    }
    (void)test_sign(device, &request);
    dunlin__server_handle(&device->fixture->server, &request, &device->reply);
    memset(&device->status, 0, sizeof device->status);
    if (device->reply.http_code >= 400) {
        MUST(dunlin__status_decode(device->reply.body, device->reply.n_body, &device->status,
                                   &error));
    }
    return device->reply.http_code;
}

void test_device_make(test_device *device, test_server *fixture)
{
    dunlin_error error = {0};
    memset(device, 0, sizeof *device);
    device->fixture = fixture;
    MUST(dunlin__key_generate(device->private_key, device->public_key, &error));
}

uint32_t test_enrol(test_device *device, int index)
{
    char invitation[32] = "";
    if (index >= 0) {
        (void)snprintf(invitation, sizeof invitation, "index:%d", index);
    }
    return test_enrol_with(device, invitation);
}

uint32_t test_enrol_with(test_device *device, const char *invitation)
{
    dunlin_error error = {0};
    dunlin__enrol_request request = {.protocol_version = DUNLIN_WIRE_VERSION, .client_version = 1};
    dunlin__enrol_response answer;
    uint8_t body[256];
    size_t n_body = 0;
    memcpy(request.public_key, device->public_key, sizeof request.public_key);
    (void)snprintf(request.invitation, sizeof request.invitation, "%s", invitation);
    MUST(dunlin__enrol_request_encode(&request, body, sizeof body, &n_body, &error));
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_ENROL, TEST_POPULATION);
    uint32_t code = test_send(device, &route, body, n_body, NULL);
    if (code == 200) {
        MUST(dunlin__enrol_response_decode(device->reply.body, device->reply.n_body, &answer,
                                           &error));
        memcpy(device->id, answer.device_id, sizeof answer.device_id);
        memcpy(device->challenge, answer.challenge, sizeof answer.challenge);
        device->counter = 0;
    }
    return code;
}

uint32_t test_checkin(test_device *device, dunlin__checkin_response *out_answer)
{
    dunlin_error error = {0};
    dunlin__checkin_request request = {.protocol_version = DUNLIN_WIRE_VERSION,
                                       .client_version = 1,
                                       .has_capabilities = true,
                                       .has_conditions = true};
    if (device->can_all) {
        request.capabilities.features[0] = DUNLIN_V1_FEATURE_CLIPPING;
        request.capabilities.features[1] = DUNLIN_V1_FEATURE_PROXIMAL_TERM;
        request.capabilities.features[2] = DUNLIN_V1_FEATURE_CONTROL_VARIATES;
        request.capabilities.features_count = 3;
        for (uint32_t i = DUNLIN_V1_FEATURE_PARAMETER_CHOICE;
             i <= (uint32_t)DUNLIN_V1_FEATURE_EXAMPLE_CHANGES; i++) {
            request.capabilities.features[request.capabilities.features_count++] = i;
        }
        request.capabilities.features[request.capabilities.features_count++] =
            DUNLIN_V1_FEATURE_CLIP_ORDERS;
        request.capabilities.features[request.capabilities.features_count++] =
            DUNLIN_V1_FEATURE_ENCODING_PACKED;
        request.capabilities.features[request.capabilities.features_count++] =
            DUNLIN_V1_FEATURE_PRECISION;
        request.capabilities.features[request.capabilities.features_count++] =
            DUNLIN_V1_FEATURE_STORAGE;
        request.capabilities.features[request.capabilities.features_count++] =
            DUNLIN_V1_FEATURE_SECURE_AGGREGATION;
        request.capabilities.features[request.capabilities.features_count++] =
            DUNLIN_V1_FEATURE_DISTRIBUTED_NOISE;
        request.capabilities.features[request.capabilities.features_count++] =
            DUNLIN_V1_FEATURE_SKELLAM_NOISE;
    }
    if (device->unpacks) {
        request.capabilities.encodings[0] = DUNLIN_V1_ENCODING_F32;
        request.capabilities.encodings[1] = DUNLIN_V1_ENCODING_PACKED;
        request.capabilities.encodings_count = 2;
    }
    if (device->knows_end) {
        request.capabilities.features[request.capabilities.features_count++] =
            DUNLIN_V1_FEATURE_RUN_OVER;
    }
    uint8_t body[256];
    size_t n_body = 0;
    memset(out_answer, 0, sizeof *out_answer);
    MUST(dunlin__checkin_request_encode(&request, body, sizeof body, &n_body, &error));
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_CHECKIN, TEST_POPULATION);
    uint32_t code = test_send(device, &route, body, n_body, NULL);
    if (code == 200) {
        MUST(dunlin__checkin_response_decode(device->reply.body, device->reply.n_body, out_answer,
                                             &error));
        memcpy(device->session, out_answer->session, sizeof out_answer->session);
    }
    return code;
}

static uint32_t answer_offer(test_device *device, dunlin__accept_request *request)
{
    dunlin_error error = {0};
    dunlin__accept_response answer;
    uint8_t body[256];
    size_t n_body = 0;
    MUST(dunlin__accept_request_encode(request, body, sizeof body, &n_body, &error));
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_ACCEPT, device->session);
    uint32_t code = test_send(device, &route, body, n_body, NULL);
    if (code != 200) {
        return code;
    }
    MUST(dunlin__accept_response_decode(device->reply.body, device->reply.n_body, &answer, &error));
    MUST_HOLD(answer.has_assignment == (request->offer_id[0] != 0), "%s", request->offer_id);
    if (answer.has_assignment) {
        dunlin__trusted_key key;
        const dunlin__server_certs *certs = &device->fixture->server.certs;
        memcpy(key.key_id, certs->key_id, sizeof key.key_id);
        memcpy(key.public_key, certs->signing_public, sizeof key.public_key);
        MUST(dunlin__assignment_open(&answer.assignment, &key, 1, &device->assignment, &error));
    }
    return code;
}

uint32_t test_accept(test_device *device)
{
    dunlin__accept_request request = {.offer_id = ""};
    const dunlin__round_row *round = &device->fixture->server.round;
    (void)snprintf(request.offer_id, sizeof request.offer_id, "%s-%llu",
                   round->is_evaluation ? "evaluate" : "train", (unsigned long long)round->round);
    return answer_offer(device, &request);
}

uint32_t test_decline(test_device *device)
{
    dunlin__accept_request request = {.decline_reason = DUNLIN_V1_DECLINE_REASON_DATA};
    return answer_offer(device, &request);
}

bool test_take_work(test_device *device)
{
    dunlin__checkin_response answer;
    MUST_HOLD(test_checkin(device, &answer) == 200, "%s", device->status.text);
    if (answer.rejection != DUNLIN_V1_REJECTION_NONE) {
        return false;
    }
    MUST_HOLD(test_accept(device) == 200, "%s", device->status.text);
    return true;
}

void test_join(test_device *device, test_server *fixture, int index)
{
    test_device_make(device, fixture);
    MUST_HOLD(test_enrol(device, index) == 200, "%s", device->status.text);
    MUST_HOLD(test_take_work(device), "no work");
}
