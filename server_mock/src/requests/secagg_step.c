/*
 * secagg_step.c - what devices send in a round with secure aggregation.
 *
 * Invariant: a device gets answers of the steps in which it took part, of its own session alone,
 * while the round is open.
 */
#include "secagg_step.h"

#include "contribution.h"
#include "model/spool_ring.h"
#include "rounds/secure.h"
#include "state/devices.h"

#include <mem/support.h>

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* A device's call in a step. */
typedef struct secagg_call {
    dunlin__server *server;
    const dunlin__server_request *request;
    dunlin__server_reply *reply;
    const dunlin__server_device *device;
    dunlin__secagg_server *session;
    uint32_t peer_index;
    uint32_t step;
    bool is_poll;
} secagg_call;

static dunlin_status pass_peer(void *ctx, uint32_t index, dunlin__secagg_peer *peer,
                               dunlin_error *error)
{
    (void)ctx;
    (void)index;
    (void)peer;
    (void)error;
    return DUNLIN_OK;
}

/* The step, in the path as in the message. */
static bool read_step(secagg_call *call)
{
    dunlin__secagg_message message = {.peer_fn = pass_peer};
    dunlin_error error = {0};
    if (dunlin__secagg_request_decode(call->request->body, call->request->n_body, &message,
                                      &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return false;
    }
    call->step = message.step;
    call->is_poll = message.poll;
    if (message.step != call->request->route.secagg_step) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_INVALID,
                              "SecaggRequest.step is %" PRIu32 ", the path's is %" PRIu32,
                              message.step, call->request->route.secagg_step);
        return false;
    }
    return true;
}

/* The session, if the assignment is one of the open round. Locked. */
static bool find_session(secagg_call *call)
{
    dunlin__server *server = call->server;
    dunlin__assignment_row row;
    call->device = dunlin__devices_find(server, call->request->device_id);
    if (call->device == NULL) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED,
                              "device %.64s is not known", call->request->device_id);
        return false;
    }
    if (!dunlin__server_find_assignment(server, call->request->route.id, call->device, &row,
                                        call->reply)) {
        return false;
    }
    const bool is_open = row.state != DUNLIN_WORK_GONE && row.round == server->round.round &&
                         server->round.state == DUNLIN_ROUND_OPEN && !server->is_stale;
    call->session =
        is_open ? dunlin__secure_session(server, call->device, &call->peer_index) : NULL;
    if (call->session == NULL) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_EXPIRED,
                              "the secure aggregation of round %" PRIu64 " is over", row.round);
    }
    return call->session != NULL;
}

static void refuse(secagg_call *call, const dunlin_error *error)
{
    if (error->status == DUNLIN_REJECTED) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_FORBIDDEN, "%s", error->text);
    } else {
        dunlin__server_refuse_error(call->reply, error);
    }
}

/* Takes the message, unless it was taken before: an answer may have been lost on its way. */
static bool take(secagg_call *call)
{
    dunlin_error error = {0};
    const bool is_past = call->step < dunlin__secagg_server_step(call->session) &&
                         dunlin__secagg_server_took(call->session, call->peer_index, call->step);
    if (is_past) {
        return true;
    }
    if (call->step < dunlin__secagg_server_step(call->session)) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_EXPIRED,
                              "step %" PRIu32 " of the secure aggregation is over", call->step);
        return false;
    }
    const dunlin_status status =
        dunlin__secagg_server_take(call->session, call->peer_index, call->device->row.public_key,
                                   call->request->body, call->request->n_body, &error);
    if (status != DUNLIN_OK) {
        refuse(call, &error);
    }
    return status == DUNLIN_OK;
}

static bool answer(secagg_call *call)
{
    dunlin__server *server = call->server;
    dunlin__server_reply *reply = call->reply;
    dunlin_error error = {0};
    const dunlin__secagg_asked asked = {.peer_index = call->peer_index,
                                        .step = call->step,
                                        .retry_ms = dunlin__secure_retry_ms(server)};
    uint8_t *body = dunlin__alloc_array(&server->alloc, DUNLIN_WIRE_BODY_BYTES, 1);
    if (body == NULL) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_UNAVAILABLE,
                              "no memory for an answer of %u bytes", DUNLIN_WIRE_BODY_BYTES);
        return false;
    }
    if (dunlin__secagg_server_answer(call->session, &asked, body, DUNLIN_WIRE_BODY_BYTES,
                                     &reply->n_body, &error) != DUNLIN_OK) {
        dunlin__free_array(&server->alloc, body, DUNLIN_WIRE_BODY_BYTES, 1);
        refuse(call, &error);
        return false;
    }
    reply->long_body = body;
    reply->n_long = DUNLIN_WIRE_BODY_BYTES;
    return true;
}

/* The step may have come to its end by this message. */
static bool advance(secagg_call *call)
{
    dunlin__server *server = call->server;
    const int64_t now_ms = dunlin__server_now(server);
    dunlin__secure_advance(server, now_ms);
    if (dunlin__secure_reason(server, now_ms) != DUNLIN_CLOSE_NONE) {
        server->is_woken = true;
        (void)pthread_cond_signal(&server->changed);
    }
    if (dunlin__secure_session(server, call->device, &call->peer_index) != NULL) {
        return true;
    }
    dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_EXPIRED,
                          "the secure aggregation of round %" PRIu64 " has failed",
                          server->round.round);
    return false;
}

void dunlin__serve_secagg(dunlin__server *server, const dunlin__server_request *request,
                          dunlin__server_reply *reply)
{
    secagg_call call = {.server = server, .request = request, .reply = reply};
    if (!read_step(&call)) {
        return;
    }
    (void)pthread_mutex_lock(&server->lock);
    if (find_session(&call) && take(&call) && (call.is_poll || advance(&call)) && answer(&call)) {
        dunlin__secure_count(server, request->n_body, reply->n_body);
    }
    (void)pthread_mutex_unlock(&server->lock);
}

/* ---- the vector ---- */

bool dunlin__secagg_takes_vector(const dunlin__call_state *call, const char **out_text)
{
    uint32_t peer_index = 0;
    bool is_folded = false;
    const dunlin__secagg_server *session =
        dunlin__secure_session(call->server, call->device, &peer_index);
    if (session == NULL) {
        *out_text = "the secure aggregation is over";
        return false;
    }
    if (!dunlin__secagg_server_wants(session, peer_index, &is_folded) && !is_folded) {
        *out_text = "the secure aggregation does not await a vector of this device";
        return false;
    }
    return true;
}

bool dunlin__secagg_vector_is_whole(dunlin__call_state *call, const char *assignment_id)
{
    const dunlin__server *server = call->server;
    dunlin__server_path folder;
    dunlin__ring_vector vector = {.chunks = {.fd = -1}};
    dunlin_error error = {0};
    dunlin_status status = dunlin__server_upload_folder(server, assignment_id, &folder, &error);
    if (status == DUNLIN_OK) {
        status = dunlin__ring_vector_open(&vector, folder.text, &server->alloc, &error);
    }
    dunlin__ring_vector_close(&vector);
    call->is_whole = status == DUNLIN_OK;
    if (error.status == DUNLIN_IO && error.code == ENOENT) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_INVALID, "%s", error.text);
    } else if (status != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
    }
    return call->is_whole;
}

/* What the commit says in the protocol's words: which bytes are the vector. */
static dunlin_status take_manifest(const dunlin__call_state *call, dunlin__secagg_server *session,
                                   uint32_t peer_index, dunlin_error *error)
{
    uint8_t body[128];
    size_t n_body = 0;
    dunlin__secagg_message message = {.step = DUNLIN_V1_SECAGG_STEP_MASK, .has_manifest = true};
    memcpy(message.manifest_sha256, call->commit.manifest_sha256, DUNLIN_SHA256_BYTES);
    DUNLIN_TRY(dunlin__secagg_request_encode(&message, body, sizeof body, &n_body, error));
    return dunlin__secagg_server_take(session, peer_index, call->device->row.public_key, body,
                                      n_body, error);
}

dunlin_status dunlin__secagg_take_vector(dunlin__call_state *call, const char *assignment_id,
                                         dunlin_error *error)
{
    dunlin__server *server = call->server;
    dunlin__server_path folder;
    dunlin__ring_vector vector;
    uint32_t peer_index = 0;
    bool is_folded = false;
    dunlin__secagg_server *session = dunlin__secure_session(server, call->device, &peer_index);
    if (session == NULL ||
        (!dunlin__secagg_server_wants(session, peer_index, &is_folded) && !is_folded)) {
        return dunlin__fail(error, DUNLIN_STATE, "rounds", 0,
                            "peer %" PRIu32 " comes with a vector that is not awaited", peer_index);
    }
    if (is_folded) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(take_manifest(call, session, peer_index, error));
    DUNLIN_TRY(dunlin__server_upload_folder(server, assignment_id, &folder, error));
    dunlin_status status = dunlin__ring_vector_open(&vector, folder.text, &server->alloc, error);
    if (status == DUNLIN_OK) {
        status = dunlin__secagg_server_fold(session, peer_index, dunlin__ring_vector_read, &vector,
                                            error);
    }
    dunlin__ring_vector_close(&vector);
    return status;
}
