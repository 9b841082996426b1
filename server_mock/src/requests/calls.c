/*
 * calls.c - processes a request in stages: shape, signature, stored answer, the call itself.
 *
 * Invariant: the changes of a call and its answer are one transaction; so a retry with the same
 * idempotency key finds either both or neither.
 */
#include "calls.h"

#include "auth.h"
#include "base/files.h"
#include "call.h"
#include "checkin.h"
#include "contribution.h"
#include "enrol.h"
#include "objects.h"
#include "rounds/secure.h"
#include "rounds/state.h"
#include "secagg_step.h"
#include "state/context.h"
#include "state/db.h"
#include "state/devices.h"
#include "state/reply.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NOBODY "-" /* the scope of calls without a device */

_Static_assert(DUNLIN_SERVER_ANSWER_BYTES >= DUNLIN_V1_ACCEPT_RESPONSE_SIZE, "replies fit");
_Static_assert(DUNLIN_SERVER_ANSWER_BYTES >= DUNLIN_V1_CHECKIN_RESPONSE_SIZE, "replies fit");
_Static_assert(DUNLIN_SERVER_ANSWER_BYTES >= DUNLIN_V1_PUT_RESPONSE_SIZE, "replies fit");

/* ---- stored answers ---- */

/* Who a key belongs to: the device; at enrolment its public key; else nobody in particular. */
static dunlin_status fill_scope(const dunlin__server_request *request, dunlin__answer_row *answer,
                                dunlin_error *error)
{
    if (request->route.call == DUNLIN_CALL_ENROL) {
        dunlin__enrol_request enrol;
        uint8_t sha256[DUNLIN_SHA256_BYTES];
        DUNLIN_TRY(dunlin__enrol_request_decode(request->body, request->n_body, &enrol, error));
        DUNLIN_TRY(dunlin__sha256_of(enrol.public_key, sizeof enrol.public_key, sha256, error));
        dunlin__hex_encode(sha256, sizeof sha256, answer->scope);
        return DUNLIN_OK;
    }
    bool is_signed = dunlin__call_describe(request->route.call)->is_signed;
    const char *scope = is_signed ? request->device_id : NOBODY;
    (void)snprintf(answer->scope, sizeof answer->scope, "%s", scope);
    return DUNLIN_OK;
}

static dunlin_status fingerprint(const dunlin__server_request *request, dunlin__answer_row *answer,
                                 dunlin_error *error)
{
    dunlin__sha256 hash;
    DUNLIN_TRY(dunlin__sha256_begin(&hash, error));
    DUNLIN_TRY(dunlin__sha256_update(&hash, request->path, strlen(request->path) + 1, error));
    DUNLIN_TRY(dunlin__sha256_update(&hash, request->body, request->n_body, error));
    return dunlin__sha256_end(&hash, answer->request_sha256, error);
}

static dunlin_status identify(const dunlin__server_request *request, dunlin__answer_row *answer,
                              dunlin_error *error)
{
    DUNLIN_TRY(fill_scope(request, answer, error));
    (void)snprintf(answer->key, sizeof answer->key, "%s", request->idempotency_key);
    return fingerprint(request, answer, error);
}

/* True if the request has been answered before: the reply is filled. Locked. */
static bool answer_again(dunlin__server *server, const dunlin__answer_row *identity,
                         dunlin__server_reply *reply)
{
    dunlin__answer_row stored;
    bool is_found = false;
    dunlin_error error = {0};
    if (dunlin__server_db_find_answer(server->db, identity->scope, identity->key, &stored,
                                      &is_found, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
        return true;
    }
    if (!is_found) {
        return false;
    }
    if (memcmp(stored.request_sha256, identity->request_sha256, DUNLIN_SHA256_BYTES) != 0) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_IDEMPOTENCY_CONFLICT,
                              "idempotency key %.64s was used for another request", identity->key);
        return true;
    }
    dunlin__server_reply_clear(reply);
    reply->http_code = stored.http_code;
    reply->n_body = stored.n_body;
    memcpy(reply->body, stored.body, stored.n_body);
    return true;
}

static dunlin_status store_answer(dunlin__call_state *call, dunlin__answer_row *identity,
                                  dunlin_error *error)
{
    identity->http_code = call->reply->http_code;
    identity->made_ms = call->now_ms;
    identity->is_brief = call->is_brief;
    identity->n_body = call->reply->n_body;
    memcpy(identity->body, call->reply->body, call->reply->n_body);
    return dunlin__server_db_add_answer(call->server->db, identity, error);
}

/* ---- the calls ---- */

static void telemetry(dunlin__call_state *call)
{
    dunlin__telemetry_request batch;
    dunlin__telemetry_response answer = {0};
    dunlin_error error = {0};
    if (dunlin__telemetry_request_decode(call->request->body, call->request->n_body, &batch,
                                         &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return;
    }
    for (size_t i = 0; i < batch.records_count; i++) {
        const dunlin__telemetry_record *record = &batch.records[i];
        bool is_stored = false;
        if (dunlin__server_db_add_telemetry(call->server->db, record->event, (double)record->count,
                                            record->value, &is_stored, &error) != DUNLIN_OK) {
            dunlin__server_refuse_error(call->reply, &error);
            return;
        }
        answer.n_stored += is_stored ? 1 : 0;
    }
    atomic_fetch_add(&call->server->counters.n_telemetry, answer.n_stored);
    call->is_brief = true;
    if (dunlin__telemetry_response_encode(&answer, call->reply->body, sizeof call->reply->body,
                                          &call->reply->n_body, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
    }
}

static void apply(dunlin__call_state *call)
{
    switch (call->request->route.call) {
    case DUNLIN_CALL_ENROL:
        dunlin__serve_enrol(call);
        break;
    case DUNLIN_CALL_CHECKIN:
        dunlin__serve_checkin(call);
        break;
    case DUNLIN_CALL_ACCEPT:
        dunlin__serve_accept(call);
        break;
    case DUNLIN_CALL_PUT:
        dunlin__serve_put(call);
        break;
    case DUNLIN_CALL_COMMIT:
        dunlin__serve_commit(call);
        break;
    case DUNLIN_CALL_ABORT:
        dunlin__serve_abort(call);
        break;
    case DUNLIN_CALL_FORGET:
        dunlin__serve_forget(call);
        break;
    case DUNLIN_CALL_TELEMETRY:
        telemetry(call);
        break;
    case DUNLIN_CALL_SECAGG:
    case DUNLIN_CALL_OBJECT_GET:
    case DUNLIN_CALL_CHUNK_HEAD:
    case DUNLIN_CALL_CHUNK_PUT:
    case DUNLIN_N_CALLS:
    default:
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_UNIMPLEMENTED,
                              "%s is not handled as a call with a stored answer",
                              dunlin__call_describe(call->request->route.call)->name);
        break;
    }
}

/* Something of ours failed; what is not done here at all (501) is a refusal like any other. */
static bool has_failed(const dunlin__server_reply *reply)
{
    return reply->http_code >= 500 && reply->http_code != 501;
}

/* The call and its stored answer in one transaction; after a failure memory follows the database
 * again. Locked. */
static void apply_and_store(dunlin__call_state *call, dunlin__answer_row *identity)
{
    dunlin__server *server = call->server;
    dunlin_error error = {0};
    dunlin_status status = dunlin__server_db_begin(server->db, false, &error);
    if (status == DUNLIN_OK) {
        apply(call);
        if (call->reply->http_code >= 400) {
            dunlin__server_db_rollback(server->db);
            if (!has_failed(call->reply)) {
                return;
            }
            status = DUNLIN_INTERNAL;
        } else {
            /* Of a device that is forgotten no row stays, not even this one. */
            status = call->is_forgotten ? DUNLIN_OK : store_answer(call, identity, &error);
            if (status == DUNLIN_OK) {
                status = dunlin__server_db_commit(server->db, &error);
            }
        }
    }
    if (status != DUNLIN_OK) {
        dunlin__server_db_rollback(server->db);
        if (call->reply->http_code < 500) {
            dunlin__log(&server->log, DUNLIN_LOG_ERROR, "database", "%s", error.text);
            dunlin__server_refuse_error(call->reply, &error);
        }
        call->finished_assignment[0] = 0;
        call->is_forgotten = false;
        if (dunlin__server_reload(server, &error) != DUNLIN_OK) {
            dunlin__log(&server->log, DUNLIN_LOG_ERROR, "database", "%s", error.text);
        }
        return;
    }
    for (size_t i = 0; i < sizeof call->events / sizeof call->events[0]; i++) {
        dunlin__watch_event(server, &call->events[i]);
    }
    if (call->is_forgotten) {
        dunlin__part part = dunlin__device_part(server, call->device);
        dunlin__secure_leave(server, call->device);
        dunlin__devices_remove(server, call->device);
        if (part == DUNLIN_PART_OFFERED || part == DUNLIN_PART_ASSIGNED) {
            dunlin__device_set_part(server, call->device, DUNLIN_PART_DROPPED);
        }
    }
}

static bool needs_device(const dunlin__server_request *request)
{
    return dunlin__call_describe(request->route.call)->is_signed &&
           request->route.call != DUNLIN_CALL_ENROL;
}

/* Reads the state again if that has failed before; false: refused, for nothing is known of anybody.
 * Locked. */
static bool is_fresh(dunlin__server *server, dunlin__server_reply *reply)
{
    dunlin_error error = {0};
    if (!server->is_stale || dunlin__server_reload(server, &error) == DUNLIN_OK) {
        return true;
    }
    dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_UNAVAILABLE,
                          "the server cannot read its state now: %.160s", error.text);
    return false;
}

/* False if the reply is there already. Locked. */
static bool get_ready(dunlin__call_state *call, const dunlin__answer_row *identity)
{
    if (answer_again(call->server, identity, call->reply)) {
        return false;
    }
    if (needs_device(call->request)) {
        call->device = dunlin__devices_find(call->server, call->request->device_id);
        if (call->device == NULL) {
            dunlin__server_refuse_stranger(call->server, call->request->device_id, call->reply);
            return false;
        }
    }
    return true;
}

/* Whether a call may have ended the round: else the worker need not look before its time. */
static bool may_end_round(const dunlin__call_state *call)
{
    switch (call->request->route.call) {
    case DUNLIN_CALL_ACCEPT: /* or decline */
    case DUNLIN_CALL_COMMIT:
    case DUNLIN_CALL_ABORT:
    case DUNLIN_CALL_FORGET:
        return true;
    case DUNLIN_CALL_ENROL:
    case DUNLIN_CALL_CHECKIN:
    case DUNLIN_CALL_PUT:
    case DUNLIN_CALL_OBJECT_GET:
    case DUNLIN_CALL_CHUNK_HEAD:
    case DUNLIN_CALL_CHUNK_PUT:
    case DUNLIN_CALL_SECAGG:
    case DUNLIN_CALL_TELEMETRY:
    case DUNLIN_N_CALLS:
    default:
        return false;
    }
}

/* What the transaction made needless, and what it made needful. Not locked. */
static void clean_up(dunlin__call_state *call)
{
    dunlin__server_path path;
    dunlin_error ignored;
    if (call->spooled.text[0] != 0) {
        (void)unlink(call->spooled.text);
    }
    if (call->finished_assignment[0] != 0 &&
        dunlin__server_upload_folder(call->server, call->finished_assignment, &path, &ignored) ==
            DUNLIN_OK) {
        dunlin__server_folder_remove(path.text);
    }
}

/* Whether an answer promises that something stays, whatever happens to the machine. */
static bool is_promise(const dunlin__call_state *call)
{
    dunlin__call kind = call->request->route.call;
    return (kind == DUNLIN_CALL_COMMIT || kind == DUNLIN_CALL_ENROL) &&
           call->reply->http_code < 400;
}

/* Waits until what the ticket stands for is on the storage, together with whoever else does. Not
 * locked. */
static void keep_promise(dunlin__call_state *call, uint64_t ticket)
{
    dunlin__server *server = call->server;
    dunlin_error error = {0};
    if (dunlin__server_db_wait(server->db, ticket, &error) == DUNLIN_OK) {
        return;
    }
    dunlin__log(&server->log, DUNLIN_LOG_ERROR, "database", "%s", error.text);
    (void)pthread_mutex_lock(&server->lock);
    dunlin_status status = dunlin__server_db_force(server->db, &error);
    (void)pthread_mutex_unlock(&server->lock);
    if (status != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
    }
}

static void handle_keyed(dunlin__call_state *call)
{
    dunlin__server *server = call->server;
    dunlin__answer_row identity;
    dunlin_error error = {0};
    if (identify(call->request, &identity, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return;
    }
    (void)pthread_mutex_lock(&server->lock);
    bool is_ready = is_fresh(server, call->reply) && get_ready(call, &identity);
    if (is_ready && call->request->route.call == DUNLIN_CALL_COMMIT) {
        (void)pthread_mutex_unlock(&server->lock);
        is_ready = dunlin__serve_commit_prepare(call);
        (void)pthread_mutex_lock(&server->lock);
        is_ready = is_ready && is_fresh(server, call->reply) && get_ready(call, &identity);
    }
    if (is_ready) {
        call->now_ms = dunlin__server_now(server) + call->request->clock_skew_ms;
        apply_and_store(call, &identity);
        if (may_end_round(call)) {
            server->is_woken = true;
            (void)pthread_cond_signal(&server->changed);
        }
    }
    uint64_t ticket = dunlin__server_db_ticket(server->db);
    (void)pthread_mutex_unlock(&server->lock);
    if (is_promise(call)) {
        keep_promise(call, ticket);
    }
    clean_up(call);
}

/* A device that was forgotten asks again, because the first answer was lost on the way: there is no
 * key left to check it by, and nothing left to protect. */
static bool forget_unknown(dunlin__server *server, const dunlin__server_request *request,
                           dunlin__server_reply *reply)
{
    (void)pthread_mutex_lock(&server->lock);
    bool is_known =
        request->device_id == NULL || dunlin__devices_find(server, request->device_id) != NULL;
    (void)pthread_mutex_unlock(&server->lock);
    dunlin__forget_response answer = {.was_known = false};
    dunlin_error error = {0};
    if (!is_known && dunlin__forget_response_encode(&answer, reply->body, sizeof reply->body,
                                                    &reply->n_body, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
    }
    return !is_known;
}

void dunlin__server_handle(dunlin__server *server, const dunlin__server_request *request,
                           dunlin__server_reply *reply)
{
    dunlin__server_reply_clear(reply);
    const dunlin__call_info *info = dunlin__call_describe(request->route.call);
    if (info == NULL) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_NOT_FOUND,
                              "there is no call of number %d", (int)request->route.call);
        return;
    }
    if (request->n_body > info->max_body_bytes) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_TOO_LARGE,
                              "the body has %zu bytes; %s takes at most %u", request->n_body,
                              info->name, info->max_body_bytes);
        return;
    }
    if (request->route.call == DUNLIN_CALL_OBJECT_GET) {
        dunlin__server_object_get(server, request, reply);
        return;
    }
    if (request->route.call == DUNLIN_CALL_CHUNK_HEAD) {
        dunlin__server_chunk_head(server, request, reply);
        return;
    }
    if (request->idempotency_key == NULL ||
        !dunlin__token_is_valid(request->idempotency_key, DUNLIN_WIRE_SECRET_CHARS_MIN,
                                DUNLIN_WIRE_ID_CHARS)) {
        dunlin__server_refuse(
            reply, DUNLIN_V1_STATUS_CODE_INVALID, "%s must be %u to %u letters, digits and - _ . ~",
            DUNLIN_HEADER_IDEMPOTENCY, DUNLIN_WIRE_SECRET_CHARS_MIN, DUNLIN_WIRE_ID_CHARS);
        return;
    }
    (void)pthread_mutex_lock(&server->lock);
    bool is_known_state = is_fresh(server, reply);
    (void)pthread_mutex_unlock(&server->lock);
    if (!is_known_state) {
        return;
    }
    if (request->route.call == DUNLIN_CALL_FORGET && forget_unknown(server, request, reply)) {
        return;
    }
    if (info->is_signed && !dunlin__server_authenticate(server, request, reply)) {
        return;
    }
    if (request->route.call == DUNLIN_CALL_SECAGG) {
        dunlin__serve_secagg(server, request, reply);
        return;
    }
    dunlin__call_state call = {.server = server, .request = request, .reply = reply};
    handle_keyed(&call);
}
