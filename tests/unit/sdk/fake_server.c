/*
 * fake_server.c - the protocol's server side as plain functions over one struct.
 */
#include "fake_server.h"

#include <wire/digest.h>
#include <wire/signature.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES DUNLIN_WIRE_CHUNK_MIN_BYTES
#define DEVICE "device-1"
#define SESSION "session-1"
#define OFFER "offer-1"
#define TOKEN "token-of-the-assignment"
#define AUTHORITY "fake.example:8443"

static const struct {
    const char *name;
    int64_t n;
    dunlin_v1_rule_t rule;
} TENSORS[FAKE_TENSORS] = {{"weights", 70000, DUNLIN_V1_RULE_AVERAGE},
                           {"bias", 12, DUNLIN_V1_RULE_AVERAGE},
                           {"mean", 3, DUNLIN_V1_RULE_STATISTIC}};

/* One exchange as it is being answered. */
typedef struct fake_exchange {
    const dunlin_http_request *request;
    dunlin__route route;
    const char *path;
    uint8_t *body;
    size_t body_bytes;
    int status;
    uint8_t reply[2600];
    size_t reply_bytes;
    const uint8_t *object; /* instead of reply */
    uint64_t object_bytes;
    uint64_t range_first;
    uint64_t range_total;
    int64_t upload_offset;
} fake_exchange;

static void complain(fake_server *server, const char *format, ...)
{
    if (server->complaint[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(server->complaint, sizeof server->complaint, format, arguments);
        va_end(arguments);
    }
}

static void require(fake_server *server, dunlin_status status, const char *what)
{
    if (status != DUNLIN_OK) {
        complain(server, "%s: %s", what, dunlin_status_name(status));
    }
}

static const char *header(const fake_exchange *x, const char *name)
{
    size_t length = strlen(name);
    for (int32_t i = 0; i < x->request->n_headers; i++) {
        const char *line = x->request->headers[i];
        if (strncmp(line, name, length) == 0 && strncmp(line + length, ": ", 2) == 0) {
            return line + length + 2;
        }
    }
    return "";
}

static void refuse(fake_server *server, fake_exchange *x, dunlin_v1_status_code_t code)
{
    dunlin__status status = {.code = code};
    (void)snprintf(status.text, sizeof status.text, "refused by the test");
    x->status = dunlin__status_describe(code)->http_code;
    require(server,
            dunlin__status_encode(&status, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
            "status");
}

/* --- the calls --- */

static void take_challenge(fake_server *server, char out[DUNLIN_WIRE_ID_BYTES])
{
    char key[DUNLIN_WIRE_IDEMPOTENCY_BYTES];
    require(server, dunlin__idempotency_key(key, NULL), "challenge");
    (void)snprintf(server->challenge, sizeof server->challenge, "%s", key);
    (void)snprintf(out, DUNLIN_WIRE_ID_BYTES, "%s", key);
    server->counter = 0;
}

static void on_enrol(fake_server *server, fake_exchange *x)
{
    dunlin__enrol_request request;
    dunlin__enrol_response response = {.device_id = DEVICE, .has_window = true};
    require(server, dunlin__enrol_request_decode(x->body, x->body_bytes, &request, NULL),
            "enrol request");
    memcpy(server->device_key, request.public_key, sizeof server->device_key);
    server->forgets_device = false;
    server->n_enrolled++;
    take_challenge(server, response.challenge);
    require(
        server,
        dunlin__enrol_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "enrol response");
}

static void on_checkin(fake_server *server, fake_exchange *x)
{
    dunlin__checkin_request request;
    dunlin__checkin_response response = {.has_accepted_window = true,
                                         .accepted_window = server->accepted,
                                         .has_rejected_window = true,
                                         .rejected_window = server->rejected};
    require(server, dunlin__checkin_request_decode(x->body, x->body_bytes, &request, NULL),
            "checkin request");
    if (server->has_offer) {
        (void)strcpy(response.session, SESSION);
        take_challenge(server, response.challenge);
        dunlin__offer *offer = &response.offers[response.offers_count++];
        *offer = (dunlin__offer){.offer_id = OFFER,
                                 .task = "sum",
                                 .kind = server->is_evaluation ? DUNLIN_V1_KIND_EVALUATE
                                                               : DUNLIN_V1_KIND_TRAIN,
                                 .run_epoch = server->run_epoch,
                                 .round = server->round,
                                 .has_policy = true,
                                 .policy = server->policy,
                                 .deadline_ms = server->deadline_ms,
                                 .download_bytes = sizeof server->values,
                                 .upload_bytes = sizeof server->values,
                                 .aggregation = DUNLIN_V1_AGGREGATION_PLAIN};
        if (server->required_feature != 0) {
            offer->required_features[offer->required_features_count++] = server->required_feature;
        }
        server->is_assigned = false;
    } else {
        response.rejection = DUNLIN_V1_REJECTION_NO_WORK;
    }
    require(server,
            dunlin__checkin_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes,
                                            NULL),
            "checkin response");
}

static void fill_assignment(const fake_server *server, dunlin__assignment *out)
{
    *out = (dunlin__assignment){.population = "phones",
                                .task = "sum",
                                .assignment_id = "assignment-1",
                                .device_id = DEVICE,
                                .run_epoch = server->run_epoch,
                                .round = server->round,
                                .kind = server->is_evaluation ? DUNLIN_V1_KIND_EVALUATE
                                                              : DUNLIN_V1_KIND_TRAIN,
                                .deadline_ms = server->deadline_ms,
                                .token = TOKEN,
                                .has_plan = true,
                                .plan = server->plan,
                                .base_manifest_bytes = (uint32_t)server->manifest_bytes,
                                .aggregation = DUNLIN_V1_AGGREGATION_PLAIN,
                                .key_id = "test-key"};
    memcpy(out->base_manifest_sha256, server->manifest_sha256, DUNLIN_SHA256_BYTES);
    uint32_t features[] = {server->required_feature, server->assignment_feature};
    for (size_t i = 0; i < 2; i++) {
        if (features[i] != 0) {
            out->required_features[out->required_features_count++] = features[i];
        }
    }
}

static void on_accept(fake_server *server, fake_exchange *x)
{
    dunlin__accept_request request;
    dunlin__accept_response response = {.has_window = true, .window = server->rejected};
    require(server, dunlin__accept_request_decode(x->body, x->body_bytes, &request, NULL),
            "accept request");
    if (request.decline_reason == DUNLIN_V1_DECLINE_REASON_NONE) {
        if (strcmp(request.offer_id, OFFER) != 0) {
            complain(server, "accept of offer %s", request.offer_id);
        }
        dunlin__assignment assignment;
        fill_assignment(server, &assignment);
        if (server->edit_assignment_fn != NULL) {
            server->edit_assignment_fn(&assignment);
        }
        response.has_assignment = true;
        require(
            server,
            dunlin__assignment_seal(&assignment, server->signing_key, &response.assignment, NULL),
            "seal");
        if (server->edit_sealed_fn != NULL) {
            server->edit_sealed_fn(&response.assignment);
        }
        server->is_assigned = true;
        server->is_committed = false;
        server->put_bytes = 0;
        memset(server->chunk_length, 0, sizeof server->chunk_length);
        memset(server->update, 0, sizeof server->update);
    }
    require(
        server,
        dunlin__accept_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "accept response");
}

static void on_object(fake_server *server, fake_exchange *x)
{
    uint64_t total = sizeof server->values;
    if (memcmp(x->route.sha256, server->manifest_sha256, DUNLIN_SHA256_BYTES) == 0) {
        x->object = server->manifest;
        x->object_bytes = server->manifest_bytes;
    }
    for (uint64_t at = 0; at < total; at += CHUNK_BYTES) {
        uint64_t n = total - at < CHUNK_BYTES ? total - at : CHUNK_BYTES;
        uint8_t sha256[DUNLIN_SHA256_BYTES];
        const uint8_t *bytes = (const uint8_t *)server->values + at;
        require(server, dunlin__sha256_of(bytes, (size_t)n, sha256, NULL), "hash");
        if (memcmp(sha256, x->route.sha256, sizeof sha256) == 0) {
            x->object = bytes;
            x->object_bytes = n;
        }
    }
    if (x->object == NULL) {
        refuse(server, x, DUNLIN_V1_STATUS_CODE_NOT_FOUND);
        return;
    }
    unsigned long long first = 0;
    x->range_total = x->object_bytes;
    if (!server->ignores_ranges && sscanf(header(x, "Range"), "bytes=%llu-", &first) == 1 &&
        first < x->object_bytes) {
        x->status = 206;
        x->range_first = first;
        x->object += first;
        x->object_bytes -= first;
    }
    server->object_bytes += x->object_bytes;
}

/* Finds the chunk of the put manifest; false: there is none. */
static bool find_chunk(fake_server *server, const uint8_t sha256[DUNLIN_SHA256_BYTES],
                       dunlin__manifest_record *out)
{
    dunlin__manifest_source source =
        dunlin__manifest_source_memory(server->put_manifest, server->put_bytes);
    dunlin__manifest_reader reader;
    dunlin_status status =
        dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_UPDATE, NULL);
    while (status == DUNLIN_OK) {
        status = dunlin__manifest_reader_next(&reader, out, NULL);
        if (status != DUNLIN_OK || out->item == DUNLIN_MANIFEST_END) {
            break;
        }
        if (out->item == DUNLIN_MANIFEST_CHUNK &&
            memcmp(out->sha256, sha256, DUNLIN_SHA256_BYTES) == 0) {
            return true;
        }
    }
    return false;
}

static void on_put(fake_server *server, fake_exchange *x)
{
    dunlin__manifest_source source = dunlin__manifest_source_memory(x->body, x->body_bytes);
    dunlin__manifest_summary summary;
    dunlin_error error = {0};
    if (x->body_bytes > sizeof server->put_manifest ||
        dunlin__manifest_check_all(&source, DUNLIN_MANIFEST_UPDATE, &summary, &error) !=
            DUNLIN_OK ||
        summary.total_bytes != sizeof server->update || summary.n_tensors != FAKE_TENSORS) {
        complain(server, "put: a wrong manifest %s", error.text);
        return;
    }
    if (server->put_bytes > 0 && (server->put_bytes != x->body_bytes ||
                                  memcmp(server->put_manifest, x->body, x->body_bytes) != 0)) {
        complain(server, "put: the update has changed");
    }
    memcpy(server->put_manifest, x->body, x->body_bytes);
    server->put_bytes = x->body_bytes;
    memcpy(server->put_sha256, summary.sha256, sizeof server->put_sha256);
    dunlin__put_response response = {.n_chunks = summary.n_chunks};
    memcpy(response.manifest_sha256, summary.sha256, sizeof summary.sha256);
    response.missing.size = (pb_size_t)((summary.n_chunks + 7) / 8);
    for (uint32_t i = 0; i < summary.n_chunks; i++) {
        uint64_t total = sizeof server->update;
        uint64_t length =
            total - i * CHUNK_BYTES < CHUNK_BYTES ? total - i * CHUNK_BYTES : CHUNK_BYTES;
        if (server->chunk_length[i] < length) {
            response.missing.bytes[i / 8] |= (uint8_t)(1U << (i % 8));
        }
    }
    require(
        server,
        dunlin__put_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "put response");
}

static void on_chunk(fake_server *server, fake_exchange *x)
{
    dunlin__manifest_record chunk;
    if (strcmp(header(x, DUNLIN_HEADER_TOKEN), TOKEN) != 0) {
        complain(server, "a chunk without the token");
    }
    if (!find_chunk(server, x->route.sha256, &chunk)) {
        complain(server, "a chunk that no manifest names");
        x->status = 404;
        return;
    }
    uint64_t *length = &server->chunk_length[chunk.chunk_index];
    x->upload_offset = (int64_t)*length;
    if (x->route.call == DUNLIN_CALL_CHUNK_HEAD) {
        return;
    }
    dunlin__chunk_range range;
    require(server, dunlin__chunk_range_parse(header(x, DUNLIN_HEADER_CONTENT_RANGE), &range, NULL),
            "content range");
    if (range.n_bytes != x->body_bytes || range.total_bytes != chunk.n_bytes) {
        complain(server, "a chunk's range does not fit its body");
    }
    if (range.offset != *length) {
        refuse(server, x, DUNLIN_V1_STATUS_CODE_WRONG_OFFSET);
        return;
    }
    memcpy((uint8_t *)server->update + chunk.offset + range.offset, x->body, x->body_bytes);
    *length += range.n_bytes;
    x->upload_offset = (int64_t)*length;
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    require(server,
            dunlin__sha256_of((uint8_t *)server->update + chunk.offset, (size_t)chunk.n_bytes,
                              sha256, NULL),
            "hash");
    if (*length == chunk.n_bytes && memcmp(sha256, chunk.sha256, sizeof sha256) != 0) {
        complain(server, "a chunk that does not match its hash");
    }
}

static void on_commit(fake_server *server, fake_exchange *x)
{
    dunlin__commit_response response = {
        .outcome = server->outcome, .has_window = true, .window = server->accepted};
    require(server, dunlin__commit_request_decode(x->body, x->body_bytes, &server->commit, NULL),
            "commit request");
    uint64_t have = 0;
    for (size_t i = 0; i < 8; i++) {
        have += server->chunk_length[i];
    }
    if (server->commit.kind == DUNLIN_V1_KIND_TRAIN &&
        (have != sizeof server->update ||
         memcmp(server->commit.manifest_sha256, server->put_sha256, DUNLIN_SHA256_BYTES) != 0)) {
        complain(server, "a commit of what is not there");
    }
    if (server->is_committed) {
        complain(server, "a second commit");
    }
    server->is_committed = true;
    server->n_contributions += server->outcome == DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED ? 1 : 0;
    require(
        server,
        dunlin__commit_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "commit response");
}

static void on_abort(fake_server *server, fake_exchange *x)
{
    dunlin__abort_response response = {.has_window = true, .window = server->rejected};
    require(server, dunlin__abort_request_decode(x->body, x->body_bytes, &server->last_abort, NULL),
            "abort request");
    server->n_aborts++;
    require(
        server,
        dunlin__abort_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "abort response");
}

static void on_forget(fake_server *server, fake_exchange *x)
{
    dunlin__forget_response response = {.was_known = true};
    require(
        server,
        dunlin__forget_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "forget response");
}

/* --- the envelope --- */

static bool is_authentic(fake_server *server, fake_exchange *x)
{
    bool is_enrolment = x->route.call == DUNLIN_CALL_ENROL;
    uint64_t counter = 0;
    uint8_t signature[DUNLIN_SIGNATURE_BYTES];
    uint8_t key[DUNLIN_PUBLIC_KEY_BYTES];
    dunlin__signed_request request = {.method = "POST",
                                      .authority = AUTHORITY,
                                      .path = x->path,
                                      .device_id = is_enrolment ? "" : DEVICE,
                                      .idempotency_key = header(x, DUNLIN_HEADER_IDEMPOTENCY),
                                      .challenge = is_enrolment ? "" : server->challenge};
    memcpy(key, server->device_key, sizeof key);
    dunlin__enrol_request enrolment;
    if (is_enrolment &&
        dunlin__enrol_request_decode(x->body, x->body_bytes, &enrolment, NULL) == DUNLIN_OK) {
        memcpy(key, enrolment.public_key, sizeof key);
    }
    if (!is_enrolment && strcmp(header(x, DUNLIN_HEADER_CHALLENGE), server->challenge) != 0) {
        dunlin__status status = {.code = DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE, .text = "stale"};
        if (server->challenge[0] == '\0') {
            take_challenge(server, status.challenge);
        }
        (void)snprintf(status.challenge, sizeof status.challenge, "%s", server->challenge);
        x->status = 401;
        require(server,
                dunlin__status_encode(&status, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
                "status");
        return false;
    }
    if (dunlin__header_u64("counter", header(x, DUNLIN_HEADER_COUNTER), &counter, NULL) !=
        DUNLIN_OK) {
        complain(server, "no counter");
    }
    request.counter = counter;
    require(server, dunlin__sha256_of(x->body, x->body_bytes, request.body_sha256, NULL), "hash");
    if (!dunlin__hex_decode(header(x, DUNLIN_HEADER_SIGNATURE), signature, sizeof signature) ||
        dunlin__request_verify(&request, key, signature, NULL) != DUNLIN_OK) {
        complain(server, "%s: a wrong signature", x->path);
    }
    if (!is_enrolment && counter <= server->counter) {
        /* A client that was killed has forgotten how far it was. */
        dunlin__status status = {.code = DUNLIN_V1_STATUS_CODE_REPLAYED, .text = "replayed"};
        take_challenge(server, status.challenge);
        x->status = 401;
        require(server,
                dunlin__status_encode(&status, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
                "status");
        return false;
    }
    server->counter = is_enrolment ? 0 : counter;
    return true;
}

/* The stored answer of a key that was used; true if there is one. */
static bool answer_again(fake_server *server, fake_exchange *x)
{
    const char *key = header(x, DUNLIN_HEADER_IDEMPOTENCY);
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    require(server, dunlin__sha256_of(x->body, x->body_bytes, sha256, NULL), "hash");
    for (int i = 0; i < server->n_keys; i++) {
        const fake_key *known = &server->keys[i];
        if (strcmp(known->key, key) == 0) {
            if (memcmp(known->body_sha256, sha256, sizeof sha256) != 0) {
                complain(server, "%s: the same key with another body", x->path);
            }
            memcpy(x->reply, known->reply, known->reply_bytes);
            x->reply_bytes = known->reply_bytes;
            return true;
        }
    }
    return false;
}

static void remember(fake_server *server, const fake_exchange *x)
{
    if (server->n_keys == FAKE_KEYS) {
        memmove(server->keys, server->keys + 1, (FAKE_KEYS - 1) * sizeof server->keys[0]);
        server->n_keys--;
    }
    fake_key *known = &server->keys[server->n_keys++];
    (void)snprintf(known->key, sizeof known->key, "%s", header(x, DUNLIN_HEADER_IDEMPOTENCY));
    require(server, dunlin__sha256_of(x->body, x->body_bytes, known->body_sha256, NULL), "hash");
    memcpy(known->reply, x->reply, x->reply_bytes);
    known->reply_bytes = x->reply_bytes;
}

static void on_post(fake_server *server, fake_exchange *x)
{
    static void (*const HANDLERS[DUNLIN_N_CALLS])(fake_server *, fake_exchange *) = {
        [DUNLIN_CALL_ENROL] = on_enrol,   [DUNLIN_CALL_CHECKIN] = on_checkin,
        [DUNLIN_CALL_ACCEPT] = on_accept, [DUNLIN_CALL_PUT] = on_put,
        [DUNLIN_CALL_COMMIT] = on_commit, [DUNLIN_CALL_ABORT] = on_abort,
        [DUNLIN_CALL_FORGET] = on_forget};
    if (strlen(header(x, DUNLIN_HEADER_IDEMPOTENCY)) != 32) {
        complain(server, "%s: no idempotency key", x->path);
    }
    if (server->forgets_device && x->route.call != DUNLIN_CALL_ENROL) {
        refuse(server, x, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED);
        return;
    }
    if (HANDLERS[x->route.call] == NULL || !is_authentic(server, x) || answer_again(server, x)) {
        return;
    }
    HANDLERS[x->route.call](server, x);
    if (x->status == 200) {
        remember(server, x);
    }
}

static void answer(fake_server *server, fake_exchange *x)
{
    x->status = 200;
    x->upload_offset = -1;
    if (strcmp(header(x, DUNLIN_HEADER_PROTOCOL), DUNLIN_WIRE_VERSION_TEXT) != 0) {
        complain(server, "%s: no protocol version", x->path);
    }
    if (x->route.call == DUNLIN_CALL_OBJECT_GET) {
        on_object(server, x);
    } else if (x->route.call == DUNLIN_CALL_CHUNK_HEAD || x->route.call == DUNLIN_CALL_CHUNK_PUT) {
        on_chunk(server, x);
    } else {
        on_post(server, x);
    }
}

static void spoil(fake_server *server, fake_exchange *x, fake_spoil how)
{
    static uint8_t rubbish[300];
    memset(rubbish, 0xA7, sizeof rubbish);
    switch (how) {
    case FAKE_RUBBISH:
        x->object = rubbish;
        x->object_bytes = sizeof rubbish;
        break;
    case FAKE_CUT:
        x->object = x->object == NULL ? x->reply : x->object;
        x->object_bytes = (x->object == x->reply ? x->reply_bytes : x->object_bytes) / 2;
        break;
    case FAKE_BUSY:
        refuse(server, x, DUNLIN_V1_STATUS_CODE_UNAVAILABLE);
        break;
    case FAKE_BROKEN:
        x->status = 500;
        x->reply_bytes = 0;
        x->object = NULL;
        break;
    case FAKE_EXPIRED:
        refuse(server, x, DUNLIN_V1_STATUS_CODE_EXPIRED);
        break;
    case FAKE_MISSING:
        refuse(server, x, DUNLIN_V1_STATUS_CODE_NOT_FOUND);
        break;
    case FAKE_FINE:
    case FAKE_LOST_REQUEST:
    case FAKE_LOST_REPLY:
    default:
        break;
    }
}

/* Brings the answer to where the request wants it. */
static dunlin_status deliver(const fake_exchange *x, dunlin_http_reply *out, dunlin_error *error)
{
    const uint8_t *bytes = x->object != NULL ? x->object : x->reply;
    uint64_t n_bytes = x->object != NULL ? x->object_bytes : x->reply_bytes;
    out->status = x->status;
    out->upload_offset = x->upload_offset;
    out->sent_bytes = x->body_bytes;
    if (strcmp(x->request->method, "HEAD") == 0) {
        return DUNLIN_OK;
    }
    out->received_bytes = n_bytes;
    if (x->status >= 300) {
        out->error_bytes = n_bytes < sizeof out->error_body ? n_bytes : sizeof out->error_body;
        memcpy(out->error_body, bytes, (size_t)out->error_bytes);
        return DUNLIN_OK;
    }
    if (x->status == 206) {
        out->range_first = (int64_t)x->range_first;
        out->range_total = (int64_t)x->range_total;
    }
    out->body_bytes =
        n_bytes < x->request->reply_limit_bytes ? n_bytes : x->request->reply_limit_bytes;
    if (x->request->reply_fd >= 0) {
        if (pwrite(x->request->reply_fd, bytes, (size_t)out->body_bytes,
                   (off_t)x->request->reply_offset) != (ssize_t)out->body_bytes) {
            return dunlin__fail(error, DUNLIN_IO, "fake", 0, "the reply could not be written");
        }
    } else {
        memcpy(x->request->reply, bytes, (size_t)out->body_bytes);
    }
    return n_bytes > x->request->reply_limit_bytes
               ? dunlin__fail(error, DUNLIN_LIMIT, "fake", 0, "the reply is too long")
               : DUNLIN_OK;
}

static fake_spoil next_spoil(fake_server *server, dunlin__call call)
{
    if (server->spoil_exchange >= 0) {
        return server->spoil_exchange-- == 0 ? server->spoil : FAKE_FINE;
    }
    if (server->spoil != FAKE_FINE && call == server->spoil_call && server->spoil_times != 0) {
        server->spoil_times -= server->spoil_times > 0 ? 1 : 0;
        return server->spoil;
    }
    return FAKE_FINE;
}

static dunlin_status perform(dunlin_transport *base, const dunlin_http_request *request,
                             dunlin_http_reply *out_reply, dunlin_error *error)
{
    fake_server *server = (fake_server *)(void *)base;
    static uint8_t body[1 << 20];
    fake_exchange x = {.request = request, .body = body, .body_bytes = (size_t)request->body_bytes};
    memset(out_reply, 0, sizeof *out_reply);
    out_reply->retry_after_ms = -1;
    out_reply->upload_offset = -1;
    out_reply->range_first = -1;
    out_reply->range_total = -1;
    server->now_ms += server->exchange_ms;
    server->n_exchanges++;
    if (request->should_stop_fn != NULL && request->should_stop_fn(request->stop_ctx)) {
        return dunlin__fail(error, DUNLIN_STOPPED, "fake", 0, "stopped");
    }
    if (request->body_fd >= 0) {
        if (pread(request->body_fd, body, x.body_bytes, (off_t)request->body_offset) !=
            (ssize_t)x.body_bytes) {
            complain(server, "a body's file is too short");
        }
    } else if (x.body_bytes > 0) {
        memcpy(body, request->body, x.body_bytes);
    }
    if (strncmp(request->url, "https://" AUTHORITY, 8 + strlen(AUTHORITY)) != 0) {
        complain(server, "a request to %s", request->url);
        return dunlin__fail(error, DUNLIN_UNREACHABLE, "fake", 0, "another server");
    }
    x.path = request->url + 8 + strlen(AUTHORITY);
    require(server, dunlin__route_parse(request->method, x.path, &x.route, NULL), x.path);
    server->n_calls[x.route.call]++;
    fake_spoil how = next_spoil(server, x.route.call);
    if (how != FAKE_LOST_REQUEST && how != FAKE_BUSY) {
        answer(server, &x);
    }
    if (how == FAKE_LOST_REQUEST || how == FAKE_LOST_REPLY) {
        out_reply->sent_bytes = x.body_bytes;
        return dunlin__fail(error, DUNLIN_CLOSED, "fake", 0, "cut by the test");
    }
    spoil(server, &x, how);
    return deliver(&x, out_reply, error);
}

static void get_stats(dunlin_transport *base, dunlin_runtime_stats *out_stats)
{
    out_stats->n_requests = (uint64_t)((fake_server *)(void *)base)->n_exchanges;
}

static void destroy(dunlin_transport *base)
{
    (void)base;
}

static const dunlin_transport_ops FAKE_OPS = {
    .perform_fn = perform, .get_stats_fn = get_stats, .destroy_fn = destroy};

static void make_base(fake_server *server)
{
    for (int64_t i = 0; i < FAKE_VALUES; i++) {
        server->values[i] = (float)(i % 1013) / 64.0F - 7.5F;
    }
    dunlin__manifest_writer writer;
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_F32,
                             .total_bytes = sizeof server->values,
                             .chunk_bytes = CHUNK_BYTES,
                             .n_tensors = FAKE_TENSORS};
    (void)strcpy(stream.name, DUNLIN_STREAM_WEIGHTS);
    require(server,
            dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_BASE, server->manifest,
                                          sizeof server->manifest, NULL),
            "manifest");
    require(server, dunlin__manifest_writer_stream(&writer, &stream, NULL), "stream");
    for (int i = 0; i < FAKE_TENSORS; i++) {
        dunlin_shape shape = {.n_dims = 1, .dims = {TENSORS[i].n}};
        dunlin__tensor_entry entry;
        require(server,
                dunlin__tensor_entry_make(TENSORS[i].name, &shape, TENSORS[i].rule, &entry, NULL),
                "tensor");
        require(server, dunlin__manifest_writer_tensor(&writer, &entry, NULL), "tensor");
    }
    for (uint64_t at = 0; at < sizeof server->values; at += CHUNK_BYTES) {
        uint64_t left = sizeof server->values - at;
        uint8_t sha256[DUNLIN_SHA256_BYTES];
        require(server,
                dunlin__sha256_of((const uint8_t *)server->values + at,
                                  (size_t)(left < CHUNK_BYTES ? left : CHUNK_BYTES), sha256, NULL),
                "hash");
        require(server, dunlin__manifest_writer_chunk(&writer, sha256, NULL), "chunk");
    }
    require(server, dunlin__manifest_writer_end(&writer, &server->manifest_bytes, NULL), "end");
    require(
        server,
        dunlin__sha256_of(server->manifest, server->manifest_bytes, server->manifest_sha256, NULL),
        "hash");
}

void fake_server_init(fake_server *server)
{
    memset(server, 0, sizeof *server);
    server->base.ops = &FAKE_OPS;
    server->now_ms = 1700000000000;
    server->has_offer = true;
    server->run_epoch = 3;
    server->round = 7;
    server->deadline_ms = 600000;
    server->accepted = (dunlin__window){.min_ms = 1000, .max_ms = 2000};
    server->rejected = (dunlin__window){.min_ms = 3000, .max_ms = 4000};
    server->outcome = DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED;
    server->spoil_exchange = -1;
    server->exchange_ms = 5;
    server->plan = (dunlin__training_plan){.learner = DUNLIN_V1_LEARNER_KIND_APPLICATION,
                                           .n_epochs = 2,
                                           .batch_size = 16,
                                           .optimizer = DUNLIN_V1_OPTIMIZER_SGD,
                                           .learning_rate = 0.5F,
                                           .algorithm = DUNLIN_V1_ALGORITHM_FEDAVG,
                                           .seed = 99,
                                           .weight_cap = 1000,
                                           .update_form = DUNLIN_V1_UPDATE_FORM_DELTA,
                                           .update_encoding = DUNLIN_V1_ENCODING_F32,
                                           .chunk_bytes = CHUNK_BYTES};
    require(server, dunlin__key_generate(server->signing_key, server->signing_public, NULL), "key");
    make_base(server);
}
