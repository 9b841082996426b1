/*
 * secure.c - the device's part in the secure aggregation of its round.
 *
 * Invariant: a message is kept until its answer has come, so what is sent again are the same bytes;
 * whatever ends the session wipes it and them.
 */
#include "secure.h"

#include "calls/calls_secagg.h"
#include "calls/device_key.h"
#include "calls/floor.h"
#include "transfer/update_masked.h"

#include <mem/support.h>

#include <string.h>

#define AWAIT_LEAST_MS 1

bool dunlin__round_is_secure(const dunlin_client *client)
{
    const dunlin__round *round = client->round;
    return round != NULL && round->has_assignment &&
           round->assignment.kind == DUNLIN_V1_KIND_TRAIN &&
           round->assignment.aggregation == DUNLIN_V1_AGGREGATION_SECURE;
}

static void drop_request(dunlin_client *client)
{
    dunlin__secure_part *part = &client->round->secure;
    if (part->request != NULL) {
        dunlin__wipe(part->request, part->n_request);
        dunlin__free_array(&client->runtime->alloc, part->request, part->n_request, 1);
        part->request = NULL;
    }
}

void dunlin__secure_drop(dunlin_client *client)
{
    drop_request(client);
    dunlin__secagg_client_close(client->round->secure.session);
    client->round->secure.session = NULL;
}

/* ---- the session ---- */

static dunlin_status sign(void *ctx, const uint8_t *message, size_t n_bytes,
                          uint8_t out_signature[DUNLIN_SIGNATURE_BYTES], dunlin_error *error)
{
    (void)error; /* the client's own, which is where the key's failures go */
    return dunlin__device_key_sign_bytes(ctx, message, n_bytes, out_signature);
}

static dunlin_status open_session(dunlin_client *client)
{
    dunlin__secagg_client_options options = {.plan = &client->round->assignment.plan.secagg,
                                             .floor = dunlin__floor_secagg(&client->options),
                                             .ctx = client,
                                             .sign_fn = sign,
                                             .alloc = &client->runtime->alloc};
    DUNLIN_TRY(dunlin__device_key_public(client, options.device_key));
    return dunlin__secagg_client_open(&options, &client->round->secure.session, &client->error);
}

/* Writes the message of the step, unless it is still to be answered. */
static dunlin_status write_request(dunlin_client *client)
{
    dunlin__secure_part *part = &client->round->secure;
    const dunlin_alloc *alloc = &client->runtime->alloc;
    size_t n_bytes = 0;
    if (part->request != NULL) {
        return DUNLIN_OK;
    }
    uint8_t *body = dunlin__alloc_array(alloc, DUNLIN_WIRE_BODY_BYTES, 1);
    if (body == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "client", 0, "no memory for a message");
    }
    part->step = dunlin__secagg_client_step(part->session);
    dunlin_status status = dunlin__secagg_client_write(part->session, body, DUNLIN_WIRE_BODY_BYTES,
                                                       &n_bytes, &client->error);
    if (status == DUNLIN_OK) {
        part->request = dunlin__alloc_array(alloc, n_bytes, 1);
        part->n_request = n_bytes;
        if (part->request != NULL) {
            memcpy(part->request, body, n_bytes);
        } else {
            status = dunlin__fail(&client->error, DUNLIN_MEMORY, "client", 0,
                                  "no memory for a message of %zu bytes", n_bytes);
        }
    }
    dunlin__wipe(body, n_bytes);
    dunlin__free_array(alloc, body, DUNLIN_WIRE_BODY_BYTES, 1);
    return status;
}

/* Sends the message and takes its answer. */
static dunlin_status exchange(dunlin_client *client, uint8_t *reply, uint64_t *out_retry_ms,
                              dunlin__fault *out_fault)
{
    dunlin__secure_part *part = &client->round->secure;
    size_t n_bytes = 0;
    client->round->has_timed_phase = false; /* the time limit is that of a call, not of the wait */
    DUNLIN_TRY(dunlin__fault_judge(write_request(client), out_fault));
    DUNLIN_TRY(dunlin__call_secagg(client, part->step, part->request, part->n_request, reply,
                                   &n_bytes, out_fault));
    drop_request(client);
    if (part->step == (uint32_t)DUNLIN_V1_SECAGG_STEP_UNMASK) {
        return DUNLIN_OK; /* nothing comes down */
    }
    return dunlin__fault_judge(
        dunlin__secagg_client_read(part->session, reply, n_bytes, out_retry_ms, &client->error),
        out_fault);
}

/* One call of the step that comes next: AWAIT. */
static dunlin_status take_step(dunlin_client *client, dunlin__event *out_event,
                               dunlin__fault *out_fault)
{
    const dunlin_alloc *alloc = &client->runtime->alloc;
    uint64_t retry_ms = 0;
    uint8_t *reply = dunlin__alloc_array(alloc, DUNLIN_WIRE_BODY_BYTES, 1);
    if (reply == NULL) {
        return dunlin__fault_judge(
            dunlin__fail(&client->error, DUNLIN_MEMORY, "client", 0, "no memory for a reply"),
            out_fault);
    }
    const dunlin_status status = exchange(client, reply, &retry_ms, out_fault);
    dunlin__free_array(alloc, reply, DUNLIN_WIRE_BODY_BYTES, 1);
    out_event->kind = DUNLIN_EVENT_AWAIT;
    out_event->retry_after_ms =
        retry_ms < DUNLIN_WIRE_MAX_WAIT_MS ? (int64_t)retry_ms : (int64_t)DUNLIN_WIRE_MAX_WAIT_MS;
    return status;
}

/* ---- before the upload ---- */

dunlin_status dunlin__secure_agree(dunlin_client *client, dunlin__event *out_event,
                                   bool *out_is_done, dunlin__fault *out_fault)
{
    dunlin__secure_part *part = &client->round->secure;
    *out_is_done = dunlin__update_is_masked(client);
    if (*out_is_done) {
        return DUNLIN_OK;
    }
    if (part->session == NULL) {
        DUNLIN_TRY(dunlin__fault_judge(open_session(client), out_fault));
    }
    if (dunlin__secagg_client_step(part->session) == (uint32_t)DUNLIN_V1_SECAGG_STEP_MASK) {
        DUNLIN_TRY(dunlin__fault_judge(dunlin__update_mask(client, part->session), out_fault));
        *out_is_done = true;
        return DUNLIN_OK;
    }
    return take_step(client, out_event, out_fault);
}

/* ---- after the commit ---- */

bool dunlin__secure_hold(dunlin_client *client, const dunlin__event *committed)
{
    dunlin__secure_part *part = &client->round->secure;
    if (!dunlin__round_is_secure(client) || part->session == NULL ||
        committed->outcome != DUNLIN_OUTCOME_ACCEPTED) {
        return false; /* nothing was agreed in this process, or the sum is without us */
    }
    part->committed = *committed;
    part->is_telling = true;
    return true;
}

bool dunlin__secure_is_telling(const dunlin_client *client)
{
    return client->round->secure.is_telling;
}

dunlin_status dunlin__secure_tell(dunlin_client *client, dunlin__event *out_event,
                                  dunlin__fault *out_fault)
{
    dunlin__secure_part *part = &client->round->secure;
    DUNLIN_TRY(take_step(client, out_event, out_fault));
    return part->step == (uint32_t)DUNLIN_V1_SECAGG_STEP_UNMASK
               ? dunlin__secure_give_up(client, out_event)
               : DUNLIN_OK;
}

dunlin_status dunlin__secure_give_up(dunlin_client *client, dunlin__event *out_event)
{
    *out_event = client->round->secure.committed;
    client->round->secure.is_telling = false;
    dunlin__secure_drop(client);
    return DUNLIN_OK;
}
