/*
 * calls.c - the envelope of every call: signs it, sends it, retries on 503, and reads refusals.
 *
 * Invariant: a retry of a POST keeps the idempotency key of the journal and signs anew with a
 * higher counter.
 */
#include "calls.h"

#include "context/client_context.h"
#include "context/runtime.h"
#include "device_key.h"
#include "exchange.h"

#include <wire/digest.h>
#include <wire/signature.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define URL_BYTES 2304
#define HEADER_BYTES 192
#define N_TRIES 6
#define BACK_OFF_MS 150

/* The first code that is sent with an HTTP status. */
static dunlin_v1_status_code_t code_of(int32_t http_status)
{
    for (int i = DUNLIN_V1_STATUS_CODE_INVALID; i <= DUNLIN_V1_STATUS_CODE_FORBIDDEN; i++) {
        if (dunlin__status_describe((dunlin_v1_status_code_t)i)->http_code == http_status) {
            return (dunlin_v1_status_code_t)i;
        }
    }
    return DUNLIN_V1_STATUS_CODE_UNSPECIFIED;
}

/* A server forgets the bases and assignments of rounds that are long over: whoever still has such
 * work is late, as a little earlier. */
static bool is_gone(const dunlin_client *client, dunlin_v1_status_code_t code)
{
    return code == DUNLIN_V1_STATUS_CODE_NOT_FOUND && client->session.phase >= DUNLIN_PHASE_FETCH &&
           client->session.phase <= DUNLIN_PHASE_COMMIT;
}

dunlin_status dunlin__call_refused(dunlin_client *client, const dunlin_http_reply *reply,
                                   dunlin__status *out_status, dunlin__fault *out_fault)
{
    *out_fault = (dunlin__fault){.is_permanent = reply->status < 500,
                                 .retry_after_ms = reply->retry_after_ms};
    memset(out_status, 0, sizeof *out_status);
    if (dunlin__status_decode(reply->error_body, (size_t)reply->error_bytes, out_status, NULL) !=
        DUNLIN_OK) {
        memset(out_status, 0, sizeof *out_status);
        if (reply->error_bytes == 0) { /* the answer to a HEAD has no body */
            out_status->code = code_of(reply->status);
        }
    }
    if (out_status->code == DUNLIN_V1_STATUS_CODE_UNSPECIFIED) {
        dunlin_status status = reply->status >= 500 ? DUNLIN_UNREACHABLE : DUNLIN_PROTOCOL;
        return dunlin__fail(&client->error, status, "server", reply->status,
                            "the server answered %d without a status of this protocol",
                            (int)reply->status);
    }
    const dunlin__status_meaning *meaning = dunlin__status_describe(out_status->code);
    out_fault->is_permanent = meaning->is_permanent;
    out_fault->is_gone = is_gone(client, out_status->code);
    out_fault->is_closed = out_status->code == DUNLIN_V1_STATUS_CODE_EXPIRED ||
                           out_status->code == DUNLIN_V1_STATUS_CODE_STALE_ROUND ||
                           out_fault->is_gone;
    out_fault->is_unknown_device = out_status->code == DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED;
    if (out_status->retry_after_ms > 0 && out_status->retry_after_ms < DUNLIN_WIRE_MAX_WAIT_MS) {
        out_fault->retry_after_ms = (int64_t)out_status->retry_after_ms;
    }
    return dunlin__fail(&client->error, meaning->status, "server", reply->status,
                        "the server refused: %s: %.180s", meaning->name, out_status->text);
}

/* The headers of a signed POST; `lines` are kept by the caller as long as the request. */
typedef struct signed_headers {
    char lines[7][HEADER_BYTES];
} signed_headers;

static dunlin_status sign(dunlin_client *client, const char *path, const uint8_t *body,
                          size_t n_bytes, signed_headers *out_headers)
{
    dunlin__journal *journal = &client->journal;
    journal->counter++;
    dunlin__signed_request request = {.method = "POST",
                                      .authority = client->origin.authority,
                                      .path = path,
                                      .device_id = journal->device_id,
                                      .idempotency_key = journal->key,
                                      .challenge = journal->challenge,
                                      .counter = journal->counter};
    uint8_t signature[DUNLIN_SIGNATURE_BYTES];
    char hex[DUNLIN_SIGNATURE_HEX_BYTES];
    DUNLIN_TRY(dunlin__sha256_of(body, n_bytes, request.body_sha256, &client->error));
    DUNLIN_TRY(dunlin__device_key_sign(client, &request, signature));
    dunlin__hex_encode(signature, sizeof signature, hex);
    (void)snprintf(out_headers->lines[0], HEADER_BYTES, "%s: %s", DUNLIN_HEADER_PROTOCOL,
                   DUNLIN_WIRE_VERSION_TEXT);
    (void)snprintf(out_headers->lines[1], HEADER_BYTES, "%s: %s", DUNLIN_HEADER_CONTENT_TYPE,
                   DUNLIN_WIRE_CONTENT_TYPE);
    (void)snprintf(out_headers->lines[2], HEADER_BYTES, "%s: %s", DUNLIN_HEADER_IDEMPOTENCY,
                   journal->key);
    (void)snprintf(out_headers->lines[3], HEADER_BYTES, "%s: %" PRIu64, DUNLIN_HEADER_COUNTER,
                   journal->counter);
    (void)snprintf(out_headers->lines[4], HEADER_BYTES, "%s: %s", DUNLIN_HEADER_SIGNATURE, hex);
    (void)snprintf(out_headers->lines[5], HEADER_BYTES, "%s: %s", DUNLIN_HEADER_DEVICE,
                   journal->device_id);
    (void)snprintf(out_headers->lines[6], HEADER_BYTES, "%s: %s", DUNLIN_HEADER_CHALLENGE,
                   journal->challenge);
    return DUNLIN_OK;
}

static dunlin_status send_once(dunlin_client *client, const char *path, const uint8_t *body,
                               size_t n_bytes, uint8_t *out_reply, dunlin_http_reply *out,
                               dunlin__fault *out_fault)
{
    char url[URL_BYTES];
    (void)snprintf(url, sizeof url, "%s%s", client->origin.url, path);
    signed_headers headers;
    DUNLIN_TRY(dunlin__fault_judge(sign(client, path, body, n_bytes, &headers), out_fault));
    dunlin_http_request request = DUNLIN_HTTP_REQUEST_INIT;
    request.method = "POST";
    request.url = url;
    /* At enrolment there is neither device nor challenge. */
    request.n_headers = client->journal.device_id[0] != '\0' ? 7 : 5;
    for (int32_t i = 0; i < request.n_headers; i++) {
        request.headers[i] = headers.lines[i];
    }
    request.body = body;
    request.body_bytes = n_bytes;
    request.reply = out_reply;
    request.reply_limit_bytes = DUNLIN_WIRE_BODY_BYTES;
    return dunlin__client_exchange(client, &request, out, out_fault);
}

/* Takes the challenge that a refusal brought; true if the request is to be signed again over it. */
static bool take_challenge(dunlin_client *client, const dunlin__status *refusal)
{
    bool is_stale = refusal->code == DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE ||
                    refusal->code == DUNLIN_V1_STATUS_CODE_REPLAYED;
    bool is_enrolled = client->journal.device_id[0] != '\0'; /* else nothing is signed over it */
    if (!is_stale || !is_enrolled || refusal->challenge[0] == '\0') {
        return false;
    }
    memcpy(client->journal.challenge, refusal->challenge, sizeof refusal->challenge);
    client->journal.counter = 0;
    return true;
}

/* Waits in pieces, so that a stop is heard. */
static bool back_off(dunlin_client *client, int64_t wait_ms)
{
    while (wait_ms > 0 && !dunlin__client_is_interrupted(client)) {
        int64_t piece = wait_ms < 50 ? wait_ms : 50;
        dunlin__runtime_sleep(client->runtime, piece);
        wait_ms -= piece;
    }
    return !dunlin__client_is_interrupted(client);
}

dunlin_status dunlin__call_post(dunlin_client *client, const dunlin__route *route,
                                const uint8_t *body, size_t n_bytes, uint8_t *out_reply,
                                size_t *out_reply_bytes, dunlin__fault *out_fault)
{
    char path[DUNLIN_WIRE_PATH_BYTES];
    *out_reply_bytes = 0;
    *out_fault = dunlin__fault_of(DUNLIN_ARGUMENT);
    DUNLIN_TRY(dunlin__route_format(route, path, sizeof path, &client->error));
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin__status refusal;
    int64_t wait_ms = BACK_OFF_MS;
    for (int i = 0;; i++) {
        dunlin_status status = send_once(client, path, body, n_bytes, out_reply, &reply, out_fault);
        if (status != DUNLIN_OK) {
            return status;
        }
        if (reply.status >= 200 && reply.status < 300) {
            *out_reply_bytes = (size_t)reply.body_bytes;
            return DUNLIN_OK;
        }
        status = dunlin__call_refused(client, &reply, &refusal, out_fault);
        bool is_stale = take_challenge(client, &refusal);
        bool is_again = is_stale || reply.status == 503;
        if (!is_again || i + 1 >= N_TRIES) {
            return status;
        }
        if (!is_stale) {
            wait_ms =
                out_fault->retry_after_ms >= 0 ? out_fault->retry_after_ms : wait_ms + wait_ms / 3;
            if (wait_ms > 30000) {
                return status; /* too long inside a request: the round waits instead */
            }
            if (!back_off(client, wait_ms)) {
                *out_fault = dunlin__fault_of(DUNLIN_STOPPED);
                return dunlin__fail(
                    &client->error, DUNLIN_STOPPED, "client", 0,
                    "stopped on request, waiting %" PRId64 " ms to ask the server again", wait_ms);
            }
        }
    }
}
