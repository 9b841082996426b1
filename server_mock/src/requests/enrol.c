/*
 * enrol.c - who gets a place in the population, and by what proof.
 *
 * Invariant: a place changes hands only by a proof that the options name, and then the log says so
 * and the device that had it gets a refusal.
 */
#include "enrol.h"

#include "call.h"
#include "call_macros.h"
#include "state/context.h"
#include "state/db.h"
#include "state/devices.h"
#include "state/places.h"
#include "state/reply.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What an enrolment asks for and proves. */
typedef struct claim {
    int64_t index; /* -1: the lowest place that nobody has */
    bool has_proof;
    dunlin__proof_row proof; /* to be kept, once the key is in it */
    dunlin__enrol_proof by;  /* how the place is proved */
} claim;

static int64_t n_places(const dunlin__server *server)
{
    return server->task.n_clients != 0 ? server->task.n_clients : (int64_t)DUNLIN_SERVER_CLIENTS;
}

static bool refuse(dunlin__call_state *call, const char *why)
{
    dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_FORBIDDEN, "%s", why);
    return false;
}

static bool refuse_error(dunlin__call_state *call, const dunlin_error *error)
{
    dunlin__server_refuse_error(call->reply, error);
    return false;
}

/* ---- by a token ---- */

/* A later token of the same place that was used: the operator has given the place to it. */
static dunlin_status is_overruled(const dunlin__server *server, size_t number, bool *out_is_so,
                                  dunlin_error *error)
{
    const dunlin__places *places = &server->places;
    *out_is_so = false;
    size_t i = places->later[number];
    while (i < places->n_tokens && !*out_is_so) {
        dunlin__proof_row used;
        DUNLIN_TRY(dunlin__server_db_find_proof(server->db, places->tokens[i].sha256, &used,
                                                out_is_so, error));
        i = places->later[i];
    }
    return DUNLIN_OK;
}

static bool claim_by_token(dunlin__call_state *call, const dunlin__enrol_request *request,
                           claim *out_claim)
{
    const dunlin__server *server = call->server;
    dunlin_error error = {0};
    size_t number = 0;
    bool is_used = false;
    bool is_overtaken = false;
    if (dunlin__places_find(&server->places, request->invitation, &number, &error) != DUNLIN_OK) {
        return refuse_error(call, &error);
    }
    if (number >= server->places.n_tokens) {
        return refuse(call, request->invitation[0] == 0 ? "enrolment here takes a token"
                                                        : "the token is not known here");
    }
    const dunlin__place_token *token = &server->places.tokens[number];
    if (dunlin__server_db_find_proof(server->db, token->sha256, &out_claim->proof, &is_used,
                                     &error) != DUNLIN_OK ||
        is_overruled(server, number, &is_overtaken, &error) != DUNLIN_OK) {
        return refuse_error(call, &error);
    }
    if (is_overtaken) {
        return refuse(call, "a newer token has been used for this place");
    }
    bool is_same = is_used && memcmp(out_claim->proof.public_key, request->public_key,
                                     sizeof request->public_key) == 0;
    if (is_used && !is_same && !server->options.allows_replace) {
        return refuse(call, "the token was used by another key; ask the operator for a new one");
    }
    memcpy(out_claim->proof.sha256, token->sha256, sizeof token->sha256);
    out_claim->index = token->client_index;
    out_claim->has_proof = true;
    out_claim->by = is_used && !is_same ? DUNLIN_PROOF_USED_TOKEN : DUNLIN_PROOF_TOKEN;
    return true;
}

/* ---- by a certificate, by a claim ---- */

static bool claim_by_certificate(dunlin__call_state *call, claim *out_claim)
{
    const uint8_t *sha256 = call->request->certificate_sha256;
    dunlin_error error = {0};
    bool is_known = false;
    if (sha256 == NULL) {
        return refuse(call, "enrolment here takes a client certificate");
    }
    if (dunlin__server_db_find_proof(call->server->db, sha256, &out_claim->proof, &is_known,
                                     &error) != DUNLIN_OK) {
        return refuse_error(call, &error);
    }
    memcpy(out_claim->proof.sha256, sha256, DUNLIN_SHA256_BYTES);
    out_claim->index = is_known ? out_claim->proof.client_index : -1;
    out_claim->has_proof = true;
    out_claim->by = DUNLIN_PROOF_CERTIFICATE;
    return true;
}

/* "index:N" names a place in the order of folding. */
static bool claim_by_index(dunlin__call_state *call, const char *invitation, claim *out_claim)
{
    const char *digits = invitation + 6;
    char *end = NULL;
    errno = 0;
    long long value = strtoll(digits, &end, 10);
    int64_t limit = n_places(call->server);
    if (!call->server->options.has_claimed_places) {
        return refuse(call, "a place is not given to whoever names it: index:N needs a server with "
                            "--claimed-places, for simulated fleets");
    }
    if (digits[0] < '0' || digits[0] > '9' || *end != 0 || errno != 0 || value >= limit) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_FORBIDDEN,
                              "the invitation is not an index from 0 to %" PRId64, limit - 1);
        return false;
    }
    out_claim->index = value;
    out_claim->by = DUNLIN_PROOF_CLAIM;
    return true;
}

/* False: refused. */
static bool judge(dunlin__call_state *call, const dunlin__enrol_request *request, claim *out_claim)
{
    *out_claim = (claim){.index = -1, .by = DUNLIN_PROOF_FIRST};
    if (call->server->options.tokens_file != NULL) {
        return claim_by_token(call, request, out_claim);
    }
    if (call->server->options.has_mtls_places) {
        return claim_by_certificate(call, out_claim);
    }
    return strncmp(request->invitation, "index:", 6) != 0 ||
           claim_by_index(call, request->invitation, out_claim);
}

/* ---- the place ---- */

/* For the log. */
static const char *proof_text(dunlin__enrol_proof proof)
{
    static const char *const texts[DUNLIN_N_PROOFS] = {
        "coming first",    "a token",   "a token that was used before",
        "its certificate", "its claim", "its key"};
    return texts[proof];
}

/* The one who had the place before gives it up, and is refused with the reason when it comes again.
 */
static dunlin_status free_index(dunlin__call_state *call, const claim *wanted, dunlin_error *error)
{
    dunlin__server *server = call->server;
    dunlin__server_device *before = dunlin__devices_find_index(server, wanted->index);
    if (before == NULL) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__server_db_add_replaced(server->db, before->row.id, call->now_ms, error));
    DUNLIN_TRY(dunlin__server_db_remove_device(server->db, before->row.row, before->row.id, error));
    dunlin__devices_remove(server, before);
    dunlin__call_note(call, DUNLIN_SERVER_EVENT_EVICT, 0, wanted->index,
                      "changed hands: another key enrolled for it by %s", proof_text(wanted->by));
    return DUNLIN_OK;
}

static dunlin_status add_device(dunlin__call_state *call, const dunlin__enrol_request *request,
                                claim *wanted, dunlin__server_device **out_device,
                                dunlin_error *error)
{
    dunlin__server *server = call->server;
    dunlin__device_row row = {.client_index = wanted->index};
    DUNLIN_TRY(free_index(call, wanted, error));
    DUNLIN_TRY(dunlin__server_draw_id(row.id, error));
    memcpy(row.public_key, request->public_key, sizeof row.public_key);
    DUNLIN_TRY(dunlin__server_db_add_device(server->db, &row, error));
    if (wanted->has_proof) {
        wanted->proof.client_index = wanted->index;
        memcpy(wanted->proof.public_key, request->public_key, sizeof request->public_key);
        DUNLIN_TRY(dunlin__server_db_put_proof(server->db, &wanted->proof, error));
    }
    dunlin__devices_compact(server);
    DUNLIN_TRY(dunlin__devices_add(server, &row, out_device, error));
    dunlin__call_note(call, DUNLIN_SERVER_EVENT_ENROL, wanted->by, wanted->index, "is taken, by %s",
                      proof_text(wanted->by));
    return DUNLIN_OK;
}

void dunlin__serve_enrol(dunlin__call_state *call)
{
    dunlin__enrol_request request;
    REQUEST(call, enrol_request, &request);
    if (!dunlin__call_is_ours(call) || !dunlin__call_speaks(call, request.protocol_version)) {
        return;
    }
    dunlin__server *server = call->server;
    dunlin_error error = {0};
    /* Whoever signs with the key of a place has it already, whatever else it brings. */
    dunlin__server_device *device = dunlin__devices_find_key(server, request.public_key);
    dunlin_status status = DUNLIN_OK;
    if (device == NULL) {
        claim wanted;
        if (!judge(call, &request, &wanted)) {
            return;
        }
        if (wanted.index < 0) {
            wanted.index = dunlin__devices_free_index(server, n_places(server));
        }
        if (wanted.index >= n_places(server)) {
            dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_FORBIDDEN,
                                  "the population has its %" PRId64 " clients", n_places(server));
            return;
        }
        status = add_device(call, &request, &wanted, &device, &error);
    } else {
        dunlin__call_note(call, DUNLIN_SERVER_EVENT_ENROL, DUNLIN_PROOF_KEY,
                          device->row.client_index, "is taken, by the same key as before");
    }
    if (status == DUNLIN_OK) {
        status = dunlin__device_challenge(server, device, &error);
    }
    if (status != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return;
    }
    dunlin__enrol_response answer = {.has_window = true};
    memcpy(answer.device_id, device->row.id, sizeof device->row.id);
    memcpy(answer.challenge, device->challenge, sizeof device->challenge);
    REPLY(call, enrol_response, &answer);
}

void dunlin__server_refuse_stranger(dunlin__server *server, const char *device_id,
                                    dunlin__server_reply *reply)
{
    bool is_replaced = false;
    dunlin_error error = {0};
    if (dunlin__server_db_find_replaced(server->db, device_id, &is_replaced, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
    } else if (is_replaced) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_FORBIDDEN,
                              "this device's place was given to another key; it has to be set up "
                              "anew, with a token of its own");
    } else {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED,
                              "device %.64s is not known here; it has to enrol", device_id);
    }
}
