/*
 * auth.c - the check of a signed request.
 */
#include "auth.h"

#include "enrol.h"
#include "state/context.h"
#include "state/devices.h"
#include "state/reply.h"

#include <mem/support.h>
#include <wire/digest.h>
#include <wire/signature.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct credentials {
    uint64_t counter;
    uint8_t signature[DUNLIN_SIGNATURE_BYTES];
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
} credentials;

static bool read_headers(const dunlin__server_request *request, credentials *out,
                         dunlin__server_reply *reply)
{
    bool is_enrolment = request->route.call == DUNLIN_CALL_ENROL;
    const char *missing = NULL;
    if (request->signature == NULL) {
        missing = DUNLIN_HEADER_SIGNATURE;
    } else if (request->counter == NULL) {
        missing = DUNLIN_HEADER_COUNTER;
    } else if (!is_enrolment && request->device_id == NULL) {
        missing = DUNLIN_HEADER_DEVICE;
    } else if (!is_enrolment && request->challenge == NULL) {
        missing = DUNLIN_HEADER_CHALLENGE;
    } else if (request->authority == NULL) {
        missing = "Host";
    }
    if (missing != NULL) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED,
                              "the header %s is missing", missing);
        return false;
    }
    if (!dunlin__hex_decode(request->signature, out->signature, sizeof out->signature)) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED,
                              "%s must be 128 lower-case hex digits", DUNLIN_HEADER_SIGNATURE);
        return false;
    }
    dunlin_error error = {0};
    if (dunlin__header_u64(DUNLIN_HEADER_COUNTER, request->counter, &out->counter, &error) !=
        DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
        return false;
    }
    return true;
}

/* Copies the device's key, and sends those with an old challenge away with the new one. */
static bool find_key(dunlin__server *server, const dunlin__server_request *request,
                     credentials *out, dunlin__server_reply *reply)
{
    bool is_found = false;
    (void)pthread_mutex_lock(&server->lock);
    dunlin__server_device *device = dunlin__devices_find(server, request->device_id);
    dunlin_error error = {0};
    if (device == NULL) {
        dunlin__server_refuse_stranger(server, request->device_id, reply);
    } else if (device->challenge[0] != 0 && strcmp(device->challenge, request->challenge) == 0) {
        memcpy(out->public_key, device->row.public_key, sizeof out->public_key);
        is_found = true;
    } else if (dunlin__device_challenge(server, device, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
    } else {
        dunlin__status status = {.code = DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE,
                                 .text = "sign over the challenge given here"};
        memcpy(status.challenge, device->challenge, sizeof device->challenge);
        dunlin__server_refuse_with(reply, &status);
    }
    (void)pthread_mutex_unlock(&server->lock);
    return is_found;
}

static bool find_enrolment_key(const dunlin__server_request *request, credentials *out,
                               dunlin__server_reply *reply)
{
    dunlin__enrol_request enrol;
    dunlin_error error = {0};
    if (dunlin__enrol_request_decode(request->body, request->n_body, &enrol, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(reply, &error);
        return false;
    }
    memcpy(out->public_key, enrol.public_key, sizeof out->public_key);
    if (dunlin__key_check(out->public_key, &error) != DUNLIN_OK) {
        dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_INVALID,
                              "EnrolRequest.public_key is not a point of P-256");
        return false;
    }
    return true;
}

/* A used counter is answered with a fresh challenge: a device that lost count can go on. */
static bool use_counter(dunlin__server *server, const dunlin__server_request *request,
                        uint64_t counter, dunlin__server_reply *reply)
{
    dunlin_error error = {0};
    dunlin__status status = {.code = DUNLIN_V1_STATUS_CODE_REPLAYED};
    (void)snprintf(status.text, sizeof status.text, "the counter %" PRIu64 " was used before",
                   counter);
    (void)pthread_mutex_lock(&server->lock);
    dunlin__server_device *device = dunlin__devices_find(server, request->device_id);
    bool is_fresh = device != NULL && strcmp(device->challenge, request->challenge) == 0 &&
                    dunlin__device_use_counter(device, counter);
    if (!is_fresh && device != NULL) {
        if (strcmp(device->challenge, request->challenge) == 0) {
            device->challenge[0] = 0;
        }
        if (dunlin__device_challenge(server, device, &error) == DUNLIN_OK) {
            memcpy(status.challenge, device->challenge, sizeof device->challenge);
        }
    }
    (void)pthread_mutex_unlock(&server->lock);
    if (!is_fresh) {
        dunlin__server_refuse_with(reply, &status);
    }
    return is_fresh;
}

bool dunlin__server_authenticate(dunlin__server *server, const dunlin__server_request *request,
                                 dunlin__server_reply *reply)
{
    credentials have;
    bool is_enrolment = request->route.call == DUNLIN_CALL_ENROL;
    if (!read_headers(request, &have, reply)) {
        return false;
    }
    if (!(is_enrolment ? find_enrolment_key(request, &have, reply)
                       : find_key(server, request, &have, reply))) {
        return false;
    }
    dunlin__signed_request signed_request = {.method = request->method,
                                             .authority = request->authority,
                                             .path = request->path,
                                             .device_id = is_enrolment ? "" : request->device_id,
                                             .idempotency_key = request->idempotency_key,
                                             .challenge = is_enrolment ? "" : request->challenge,
                                             .counter = have.counter};
    dunlin_error error = {0};
    dunlin_status status =
        dunlin__sha256_of(request->body, request->n_body, signed_request.body_sha256, &error);
    if (status == DUNLIN_OK && !server->trusts_callers) {
        status = dunlin__request_verify(&signed_request, have.public_key, have.signature, &error);
    }
    if (status != DUNLIN_OK) {
        if (status == DUNLIN_SIGNATURE) {
            dunlin__server_refuse(reply, DUNLIN_V1_STATUS_CODE_UNAUTHENTICATED,
                                  "the request's signature is wrong for the host %.100s, which "
                                  "is what this server saw; a proxy has to pass Host on as it came",
                                  request->authority);
        } else {
            dunlin__server_refuse_error(reply, &error);
        }
        return false;
    }
    if (is_enrolment) {
        return true;
    }
    return use_counter(server, request, have.counter, reply);
}
