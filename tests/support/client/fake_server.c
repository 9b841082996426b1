/*
 * fake_server.c - the envelope of the protocol's server side: who signs, what was asked before,
 * what is spoilt; and the calls that belong to no round.
 */
#include "fake_exchange.h"

#include <wire/digest.h>
#include <wire/signature.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

const fake_tensor fake_tensors[FAKE_TENSORS] = {{"weights", 70000, DUNLIN_V1_RULE_AVERAGE},
                                                {"bias", 12, DUNLIN_V1_RULE_AVERAGE},
                                                {"mean", 3, DUNLIN_V1_RULE_STATISTIC}};

void fake_complain(fake_server *server, const char *format, ...)
{
    if (server->complaint[0] == '\0') {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(server->complaint, sizeof server->complaint, format, arguments);
        va_end(arguments);
    }
}

void fake_require(fake_server *server, dunlin_status status, const char *what)
{
    if (status != DUNLIN_OK) {
        fake_complain(server, "%s: %s", what, dunlin_status_name(status));
    }
}

const char *fake_header(const fake_exchange *x, const char *name)
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

void fake_refuse(fake_server *server, fake_exchange *x, dunlin_v1_status_code_t code)
{
    dunlin__status status = {.code = code};
    (void)snprintf(status.text, sizeof status.text, "refused by the test");
    x->status = dunlin__status_describe(code)->http_code;
    fake_require(server,
                 dunlin__status_encode(&status, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
                 "status");
}

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
                                      .idempotency_key = fake_header(x, DUNLIN_HEADER_IDEMPOTENCY),
                                      .challenge = is_enrolment ? "" : server->challenge};
    memcpy(key, server->device_key, sizeof key);
    dunlin__enrol_request enrolment;
    if (is_enrolment &&
        dunlin__enrol_request_decode(x->body, x->body_bytes, &enrolment, NULL) == DUNLIN_OK) {
        memcpy(key, enrolment.public_key, sizeof key);
    }
    if (!is_enrolment && strcmp(fake_header(x, DUNLIN_HEADER_CHALLENGE), server->challenge) != 0) {
        dunlin__status status = {.code = DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE, .text = "stale"};
        if (server->challenge[0] == '\0') {
            fake_take_challenge(server, status.challenge);
        }
        (void)snprintf(status.challenge, sizeof status.challenge, "%s", server->challenge);
        x->status = 401;
        fake_require(
            server,
            dunlin__status_encode(&status, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
            "status");
        return false;
    }
    if (dunlin__header_u64("counter", fake_header(x, DUNLIN_HEADER_COUNTER), &counter, NULL) !=
        DUNLIN_OK) {
        fake_complain(server, "no counter");
    }
    request.counter = counter;
    fake_require(server, dunlin__sha256_of(x->body, x->body_bytes, request.body_sha256, NULL),
                 "hash");
    if (!dunlin__hex_decode(fake_header(x, DUNLIN_HEADER_SIGNATURE), signature, sizeof signature) ||
        dunlin__request_verify(&request, key, signature, NULL) != DUNLIN_OK) {
        fake_complain(server, "%s: a wrong signature", x->path);
    }
    if (!is_enrolment && counter <= server->counter) {
        /* A client that was killed has forgotten how far it was. */
        dunlin__status status = {.code = DUNLIN_V1_STATUS_CODE_REPLAYED, .text = "replayed"};
        fake_take_challenge(server, status.challenge);
        x->status = 401;
        fake_require(
            server,
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
    const char *key = fake_header(x, DUNLIN_HEADER_IDEMPOTENCY);
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    fake_require(server, dunlin__sha256_of(x->body, x->body_bytes, sha256, NULL), "hash");
    for (int i = 0; i < server->n_keys; i++) {
        const fake_key *known = &server->keys[i];
        if (strcmp(known->key, key) == 0) {
            if (memcmp(known->body_sha256, sha256, sizeof sha256) != 0) {
                fake_complain(server, "%s: the same key with another body", x->path);
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
    (void)snprintf(known->key, sizeof known->key, "%s", fake_header(x, DUNLIN_HEADER_IDEMPOTENCY));
    fake_require(server, dunlin__sha256_of(x->body, x->body_bytes, known->body_sha256, NULL),
                 "hash");
    memcpy(known->reply, x->reply, x->reply_bytes);
    known->reply_bytes = x->reply_bytes;
}

static void on_post(fake_server *server, fake_exchange *x)
{
    static void (*const HANDLERS[DUNLIN_N_CALLS])(fake_server *, fake_exchange *) = {
        [DUNLIN_CALL_ENROL] = fake_on_enrol,   [DUNLIN_CALL_CHECKIN] = fake_on_checkin,
        [DUNLIN_CALL_ACCEPT] = fake_on_accept, [DUNLIN_CALL_PUT] = fake_on_put,
        [DUNLIN_CALL_COMMIT] = fake_on_commit, [DUNLIN_CALL_ABORT] = fake_on_abort,
        [DUNLIN_CALL_FORGET] = fake_on_forget, [DUNLIN_CALL_TELEMETRY] = fake_on_telemetry};
    if (strlen(fake_header(x, DUNLIN_HEADER_IDEMPOTENCY)) != 32) {
        fake_complain(server, "%s: no idempotency key", x->path);
    }
    if (server->forgets_device && x->route.call != DUNLIN_CALL_ENROL) {
        fake_refuse(server, x, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED);
        return;
    }
    bool is_signed = dunlin__call_describe(x->route.call)->is_signed;
    if (HANDLERS[x->route.call] == NULL || (is_signed && !is_authentic(server, x)) ||
        answer_again(server, x)) {
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
    if (strcmp(fake_header(x, DUNLIN_HEADER_PROTOCOL), DUNLIN_WIRE_VERSION_TEXT) != 0) {
        fake_complain(server, "%s: no protocol version", x->path);
    }
    if (x->route.call == DUNLIN_CALL_OBJECT_GET) {
        fake_on_object(server, x);
    } else if (x->route.call == DUNLIN_CALL_CHUNK_HEAD || x->route.call == DUNLIN_CALL_CHUNK_PUT) {
        fake_on_chunk(server, x);
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
        fake_refuse(server, x, DUNLIN_V1_STATUS_CODE_UNAVAILABLE);
        break;
    case FAKE_BROKEN:
        x->status = 500;
        x->reply_bytes = 0;
        x->object = NULL;
        break;
    case FAKE_EXPIRED:
        x->object = NULL;
        fake_refuse(server, x, DUNLIN_V1_STATUS_CODE_EXPIRED);
        break;
    case FAKE_MISSING:
        x->object = NULL;
        fake_refuse(server, x, DUNLIN_V1_STATUS_CODE_NOT_FOUND);
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
    dunlin_http_reply_begin(out_reply);
    out_reply->is_server = true;
    server->now_ms += server->exchange_ms;
    server->n_exchanges++;
    if (request->should_stop_fn != NULL && request->should_stop_fn(request->stop_ctx)) {
        return dunlin__fail(error, DUNLIN_STOPPED, "fake", 0, "stopped");
    }
    if (request->body_fd >= 0) {
        if (pread(request->body_fd, body, x.body_bytes, (off_t)request->body_offset) !=
            (ssize_t)x.body_bytes) {
            fake_complain(server, "a body's file is too short");
        }
    } else if (x.body_bytes > 0) {
        memcpy(body, request->body, x.body_bytes);
    }
    if (strncmp(request->url, "https://" AUTHORITY, 8 + strlen(AUTHORITY)) != 0) {
        fake_complain(server, "a request to %s", request->url);
        return dunlin__fail(error, DUNLIN_UNREACHABLE, "fake", 0, "another server");
    }
    x.path = request->url + 8 + strlen(AUTHORITY);
    fake_require(server, dunlin__route_parse(request->method, x.path, &x.route, NULL), x.path);
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

static const dunlin_transport_ops FAKE_OPS = {.struct_size = sizeof(dunlin_transport_ops),
                                              .perform_fn = perform,
                                              .get_stats_fn = get_stats,
                                              .destroy_fn = destroy};

void fake_server_remake_base(fake_server *server)
{
    dunlin__manifest_writer writer;
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_F32,
                             .total_bytes = sizeof server->values,
                             .chunk_bytes = CHUNK_BYTES,
                             .n_tensors = FAKE_TENSORS};
    (void)strcpy(stream.name, DUNLIN_STREAM_WEIGHTS);
    fake_require(server,
                 dunlin__manifest_writer_begin(&writer, DUNLIN_MANIFEST_BASE, server->manifest,
                                               sizeof server->manifest, NULL),
                 "manifest");
    fake_require(server, dunlin__manifest_writer_stream(&writer, &stream, NULL), "stream");
    for (int i = 0; i < FAKE_TENSORS; i++) {
        dunlin_shape shape = {.n_dims = 1, .dims = {fake_tensors[i].n}};
        dunlin__tensor_entry entry;
        fake_require(server,
                     dunlin__tensor_entry_make(fake_tensors[i].name, &shape, fake_tensors[i].rule,
                                               &entry, NULL),
                     "tensor");
        if (server->has_no_statistic) {
            entry.rule = DUNLIN_V1_RULE_AVERAGE;
        }
        if (server->tensor_names_begin != '\0') {
            entry.name[0] = server->tensor_names_begin;
        }
        fake_require(server, dunlin__manifest_writer_tensor(&writer, &entry, NULL), "tensor");
    }
    for (uint64_t at = 0; at < sizeof server->values; at += CHUNK_BYTES) {
        uint64_t left = sizeof server->values - at;
        uint8_t sha256[DUNLIN_SHA256_BYTES];
        fake_require(server,
                     dunlin__sha256_of((const uint8_t *)server->values + at,
                                       (size_t)(left < CHUNK_BYTES ? left : CHUNK_BYTES), sha256,
                                       NULL),
                     "hash");
        if (server->wrong_chunk_byte >= 0) {
            sha256[server->wrong_chunk_byte] ^= 1;
        }
        fake_require(server, dunlin__manifest_writer_chunk(&writer, sha256, NULL), "chunk");
    }
    fake_require(server, dunlin__manifest_writer_end(&writer, &server->manifest_bytes, NULL),
                 "end");
    fake_require(
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
    server->wrong_chunk_byte = -1;
    server->wrong_base_byte = -1;
    server->wrong_put_byte = -1;
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
    fake_require(server, dunlin__key_generate(server->signing_key, server->signing_public, NULL),
                 "key");
    for (int64_t i = 0; i < FAKE_VALUES; i++) {
        server->values[i] = (float)(i % 1013) / 64.0F - 7.5F;
    }
    fake_server_remake_base(server);
}

void fake_on_telemetry(fake_server *server, fake_exchange *x)
{
    static const char *const NAMES[] = {DUNLIN_HEADER_DEVICE, DUNLIN_HEADER_CHALLENGE,
                                        DUNLIN_HEADER_COUNTER, DUNLIN_HEADER_SIGNATURE};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (fake_header(x, NAMES[i])[0] != '\0') {
            fake_complain(server, "telemetry with %s", NAMES[i]);
        }
    }
    fake_require(server,
                 dunlin__telemetry_request_decode(x->body, x->body_bytes, &server->telemetry, NULL),
                 "telemetry request");
    server->n_telemetry_records += server->telemetry.records_count;
    dunlin__telemetry_response response = {.n_stored = server->telemetry.records_count};
    fake_require(server,
                 dunlin__telemetry_response_encode(&response, x->reply, sizeof x->reply,
                                                   &x->reply_bytes, NULL),
                 "telemetry response");
}

void fake_on_forget(fake_server *server, fake_exchange *x)
{
    dunlin__forget_response response = {.was_known = true};
    fake_require(
        server,
        dunlin__forget_response_encode(&response, x->reply, sizeof x->reply, &x->reply_bytes, NULL),
        "forget response");
}
