/*
 * fuzz_request.c - any bytes as what a client sends the mock server: it is answered as the protocol
 * has it, never with a failure of the server's own; nobody else's work changes; and what it leaves
 * can be folded, and read after a restart.
 *
 * The first byte says how far the client has come in its round, from nothing to an update that is
 * sent. Then requests follow, each as call, header (below), length (two bytes, low one first) and
 * so many bytes: with a header, its text up to a 0, and the body. The client signs what it sends,
 * as a hostile one would, unless its signature is the header.
 */
#define _POSIX_C_SOURCE 200809L

#include "server/device.h"

#include <wire/digest.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define N_VALUES 10
#define TEXT_BYTES 512u
#define DEADLINE_MS 600001
#define MAX_DEVICES 256u /* then the round is closed and all begins anew */

typedef enum progress { MADE, ENROLLED, OFFERED, ASSIGNED, PUT, SENT, N_PROGRESS } progress;

typedef enum header {
    NO_HEADER,
    PATH,
    DEVICE,
    CHALLENGE,
    COUNTER,
    KEY,
    SIGNATURE,
    TOKEN,
    CONTENT_RANGE,
    RANGE,
    IF_RANGE,
    N_HEADERS
} header;
#define HEADER_MASK 0x3Fu
#define OF_ANOTHER 0x40u /* session or assignment of another device */
#define OWN_HASH 0x80u   /* a chunk by the hash of the body, not of the update's */

typedef struct sent {
    dunlin__call call;
    header header;
    uint8_t flags;
    char text[TEXT_BYTES]; /* of the header */
    const uint8_t *body;
    size_t n_body;
} sent;

static test_server fixture;
static test_device devices[N_PROGRESS];
static dunlin__part parts[N_PROGRESS];
static uint32_t n_made;
static float values[N_VALUES];
static dunlin__server_reply reply;

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

/* ---- the clients, and how far each has come ---- */

static void make_device(progress how_far)
{
    test_device *device = &devices[how_far];
    dunlin__checkin_response offered;
    dunlin__put_response put;
    n_made++;
    test_device_make(device, &fixture);
    require(how_far < ENROLLED || test_enrol(device, -1) == 200);
    require(how_far < OFFERED || (test_checkin(device, &offered) == 200 &&
                                  offered.rejection == DUNLIN_V1_REJECTION_NONE));
    require(how_far < ASSIGNED || test_accept(device) == 200);
    require(how_far < PUT || test_put(device, values, &put) == 200);
    if (how_far >= SENT) {
        test_send_chunks(device, values);
    }
}

static dunlin__part part_of(progress which)
{
    const dunlin__server_device *device = dunlin__devices_find(&fixture.server, devices[which].id);
    return device != NULL ? dunlin__device_part(&fixture.server, device) : DUNLIN_PART_NONE;
}

static void begin_world(void)
{
    test_server_folder(&fixture);
    test_server_open(&fixture, ", \"rounds\": 2, \"cohort\": 1024", 0);
    n_made = 0;
    for (progress i = MADE; i < N_PROGRESS; i++) {
        make_device(i);
    }
}

/* Whatever was sent: the round closes, its model is one, and the state can be read again. */
static void end_world(void)
{
    float model[N_VALUES];
    fixture.now_ms += DEADLINE_MS;
    dunlin__server_tick(&fixture.server);
    require(fixture.server.fault.status == DUNLIN_OK && fixture.server.n_closed == 1);
    test_read_model(&fixture, fixture.server.round.round, model);
    for (int i = 0; i < N_VALUES; i++) {
        require(isfinite(model[i]));
    }
    test_server_close(&fixture);
    test_server_open(&fixture, ", \"rounds\": 2, \"cohort\": 1024", 0);
    require(fixture.server.n_closed == 1);
    test_server_close(&fixture);
    test_server_end(&fixture);
}

static void prepare(void)
{
    static bool is_there;
    if (!is_there) {
        is_there = true;
        if (access("/dev/shm", W_OK) == 0) {
            require(setenv("TMPDIR", "/dev/shm", 0) == 0);
        }
        for (int i = 0; i < N_VALUES; i++) {
            values[i] = 0.5F;
        }
        begin_world();
        require(atexit(end_world) == 0);
    } else if (n_made >= MAX_DEVICES) {
        end_world();
        begin_world();
    }
}

/* ---- one request ---- */

static bool take(const uint8_t **data, size_t *size, sent *out)
{
    if (*size < 4) {
        return false;
    }
    const uint8_t *bytes = *data + 4;
    size_t n_bytes = (size_t)(*data)[2] | (size_t)(*data)[3] << 8;
    n_bytes = n_bytes < *size - 4 ? n_bytes : *size - 4;
    memset(out, 0, sizeof *out);
    out->call = (dunlin__call)((*data)[0] % DUNLIN_N_CALLS);
    out->header = (header)(((*data)[1] & HEADER_MASK) % N_HEADERS);
    out->flags = (*data)[1];
    *data = bytes + n_bytes;
    *size -= 4 + n_bytes;
    if (out->header != NO_HEADER) {
        size_t n_most = n_bytes < TEXT_BYTES - 1 ? n_bytes : TEXT_BYTES - 1;
        const uint8_t *end = memchr(bytes, 0, n_most);
        size_t n_text = end != NULL ? (size_t)(end - bytes) : n_most;
        memcpy(out->text, bytes, n_text);
        n_text += end != NULL ? 1 : 0;
        bytes += n_text;
        n_bytes -= n_text;
    }
    out->body = bytes;
    out->n_body = n_bytes;
    return true;
}

static dunlin__route route_of(progress which, const sent *now)
{
    dunlin_error error = {0};
    bool is_foreign = (now->flags & OF_ANOTHER) != 0;
    const test_device *of = &devices[is_foreign ? (which == SENT ? ASSIGNED : SENT) : which];
    const char *id = of->assignment.assignment_id;
    const void *hashed = values;
    size_t n_hashed = sizeof values;
    if (now->call == DUNLIN_CALL_ENROL || now->call == DUNLIN_CALL_CHECKIN ||
        now->call == DUNLIN_CALL_FORGET) {
        id = TEST_POPULATION;
    } else if (now->call == DUNLIN_CALL_ACCEPT) {
        id = of->session;
    }
    dunlin__route route = dunlin__route_make(now->call, id[0] != 0 ? id : "none");
    route.secagg_step = now->call == DUNLIN_CALL_SECAGG ? 1 : 0;
    if ((now->flags & OWN_HASH) != 0) {
        hashed = now->body;
        n_hashed = now->n_body;
    }
    if (now->call == DUNLIN_CALL_CHUNK_HEAD || now->call == DUNLIN_CALL_CHUNK_PUT) {
        require(dunlin__sha256_of(hashed, n_hashed, route.sha256, &error) == DUNLIN_OK);
    } else if (now->call == DUNLIN_CALL_OBJECT_GET) {
        memcpy(route.sha256, fixture.server.models[0].manifest_sha256, sizeof route.sha256);
    }
    return route;
}

/* Puts the header in. False: a path that the server's front refuses, in words. */
static bool put_header(const sent *now, dunlin__server_request *request)
{
    dunlin_error error = {0};
    const char **places[N_HEADERS] = {[PATH] = &request->path,
                                      [DEVICE] = &request->device_id,
                                      [CHALLENGE] = &request->challenge,
                                      [COUNTER] = &request->counter,
                                      [KEY] = &request->idempotency_key,
                                      [TOKEN] = &request->token,
                                      [CONTENT_RANGE] = &request->content_range,
                                      [RANGE] = &request->range,
                                      [IF_RANGE] = &request->if_range};
    if (places[now->header] != NULL) {
        *places[now->header] = now->text;
    }
    if (now->header == PATH &&
        dunlin__route_parse(request->method, now->text, &request->route, &error) != DUNLIN_OK) {
        require(error.text[0] != 0);
        return false;
    }
    return true;
}

static void upload(const dunlin__server_request *request)
{
    dunlin__server_upload chunk;
    size_t half = request->n_body / 2;
    if (dunlin__server_upload_begin(&fixture.server, request, &chunk, &reply) &&
        dunlin__server_upload_write(&chunk, request->body, half, &reply) &&
        dunlin__server_upload_write(&chunk, request->body + half, request->n_body - half, &reply)) {
        dunlin__server_upload_end(&chunk, &reply);
    }
    dunlin__server_upload_abort(&chunk);
}

/* A refusal says why; no answer is a failure of the server's own, but for what it does not do. */
static void require_answer(void)
{
    dunlin__status status;
    dunlin_error error = {0};
    require(reply.http_code >= 200 && reply.n_body <= sizeof reply.body);
    require(reply.http_code < 500 || reply.http_code == 501);
    if (reply.http_code >= 400) {
        require(dunlin__status_decode(reply.body, reply.n_body, &status, &error) == DUNLIN_OK &&
                status.text[0] != 0);
    } else if (reply.fd >= 0) {
        require(reply.n_fd_bytes > 0 && reply.n_fd_bytes <= DUNLIN_WIRE_MANIFEST_BYTES);
        require(close(reply.fd) == 0);
    }
}

/* What the client goes on with. */
static void learn(test_device *device, dunlin__call call)
{
    static dunlin__accept_response accepted;
    dunlin_error error = {0};
    if (call == DUNLIN_CALL_ENROL) {
        dunlin__enrol_response answer;
        require(dunlin__enrol_response_decode(reply.body, reply.n_body, &answer, &error) ==
                DUNLIN_OK);
        memcpy(device->id, answer.device_id, sizeof answer.device_id);
        memcpy(device->challenge, answer.challenge, sizeof answer.challenge);
        device->counter = 0;
    } else if (call == DUNLIN_CALL_CHECKIN) {
        dunlin__checkin_response answer;
        require(dunlin__checkin_response_decode(reply.body, reply.n_body, &answer, &error) ==
                DUNLIN_OK);
        memcpy(device->session, answer.session, sizeof answer.session);
    } else if (call == DUNLIN_CALL_ACCEPT) {
        require(dunlin__accept_response_decode(reply.body, reply.n_body, &accepted, &error) ==
                DUNLIN_OK);
        if (accepted.has_assignment) {
            dunlin__trusted_key key;
            memcpy(key.key_id, fixture.server.certs.key_id, sizeof key.key_id);
            memcpy(key.public_key, fixture.server.certs.signing_public, sizeof key.public_key);
            require(dunlin__assignment_open(&accepted.assignment, &key, 1, &device->assignment,
                                            &error) == DUNLIN_OK);
        }
    }
}

/* A recorded enrolment is not this device's: its own key goes in where one stands. */
static const uint8_t *put_own_key(const test_device *device, const sent *now)
{
    static const uint8_t head[2] = {0x1A, DUNLIN_PUBLIC_KEY_BYTES}; /* EnrolRequest.public_key */
    static uint8_t copy[1u << 16];
    memcpy(copy, now->body, now->n_body);
    for (size_t i = 0; i + sizeof head + DUNLIN_PUBLIC_KEY_BYTES <= now->n_body; i++) {
        if (memcmp(copy + i, head, sizeof head) == 0) {
            memcpy(copy + i + sizeof head, device->public_key, DUNLIN_PUBLIC_KEY_BYTES);
            break;
        }
    }
    return copy;
}

/* True if it may have changed something of the client's at the server. */
static bool send_one(progress which, const sent *now, uint32_t *out_enrolments)
{
    test_device *device = &devices[which];
    dunlin__route route = route_of(which, now);
    bool is_own = now->call == DUNLIN_CALL_ENROL && (now->flags & OF_ANOTHER) == 0;
    const uint8_t *body = is_own ? put_own_key(device, now) : now->body;
    dunlin__server_request request = test_request(device, &route, body, now->n_body);
    request.token = device->assignment.token;
    if (!put_header(now, &request)) {
        return false;
    }
    if (now->header == SIGNATURE) {
        request.signature = now->text;
    } else if (dunlin__call_describe(request.route.call)->is_signed) {
        (void)test_sign(device, &request);
    }
    if (request.route.call == DUNLIN_CALL_CHUNK_PUT) {
        upload(&request);
    } else {
        dunlin__server_handle(&fixture.server, &request, &reply);
    }
    require_answer();
    if (reply.http_code == 200) {
        learn(device, request.route.call);
        *out_enrolments += request.route.call == DUNLIN_CALL_ENROL ? 1 : 0;
    }
    return now->header == COUNTER || reply.http_code < 300;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    prepare();
    sent now;
    bool is_used = false;
    uint32_t n_enrolments = 1;
    progress which = (progress)(data[0] % N_PROGRESS);
    uint32_t n_before = dunlin__server_count_parts(&fixture.server, fixture.now_ms).n_accepted;
    for (progress i = MADE; i < N_PROGRESS; i++) {
        parts[i] = part_of(i);
    }
    data++;
    size--;
    while (take(&data, &size, &now)) {
        is_used = send_one(which, &now, &n_enrolments) || is_used;
    }
    for (progress i = MADE; i < N_PROGRESS; i++) {
        require(i == which || part_of(i) == parts[i]);
    }
    /* One contribution, and one for each time it came as somebody new. */
    require(dunlin__server_count_parts(&fixture.server, fixture.now_ms).n_accepted <=
            n_before + n_enrolments);
    if (is_used) {
        make_device(which);
    }
    return 0;
}
