/*
 * checkin.c - check in, accept or decline an offer, forget.
 *
 * Invariant: a place in a round is held from the offer on, so an offer that is accepted in time is
 * never withdrawn.
 */
#include "checkin.h"

#include "call.h"
#include "call_macros.h"
#include "model/models.h"
#include "rounds/buffered.h"
#include "rounds/cohort.h"
#include "rounds/orders.h"
#include "rounds/packed.h"
#include "rounds/plan.h"
#include "rounds/private.h"
#include "rounds/secure.h"
#include "run_over.h"
#include "state/context.h"
#include "state/db.h"
#include "state/devices.h"
#include "state/reply.h"
#include "task/compress.h"
#include "task/task.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OFFER_MS 60000

/* ---- check in ---- */

/* What a device says that it can do with packed streams. */
static bool has_feature(const dunlin__capabilities *can, uint32_t feature)
{
    for (size_t i = 0; i < can->features_count; i++) {
        if (can->features[i] == feature) {
            return true;
        }
    }
    return false;
}

static bool has_encoding(const dunlin__capabilities *can, dunlin_v1_encoding_t encoding)
{
    for (size_t i = 0; i < can->encodings_count; i++) {
        if (can->encodings[i] == encoding) {
            return true;
        }
    }
    return false;
}

static bool is_suitable(const dunlin__server_task *task, const dunlin__capabilities *can)
{
    uint32_t wanted[DUNLIN_SERVER_FEATURES];
    size_t n_wanted = dunlin__server_features(task, false, wanted);
    for (size_t i = 0; i < n_wanted; i++) {
        if (!has_feature(can, wanted[i])) {
            return false;
        }
    }
    return can->encodings_count == 0 || has_encoding(can, DUNLIN_V1_ENCODING_F32);
}

/* What is left until a deadline, by a clock that may be off. */
static uint64_t left_ms(int64_t deadline_ms, int64_t now_ms)
{
    int64_t left = deadline_ms - now_ms;
    left = left > 1 ? left : 1;
    return (uint64_t)left < DUNLIN_WIRE_MAX_WAIT_MS ? (uint64_t)left : DUNLIN_WIRE_MAX_WAIT_MS;
}

/* The most that the device's update has. */
static uint64_t most_up(const dunlin__server *server, bool packs)
{
    if (server->task.secagg.is_on) {
        return dunlin__ring_bytes(server->layout.n_shared_values + 1,
                                  server->task.secagg.ring_bits) +
               (uint64_t)DUNLIN_WIRE_SECAGG_STEPS * DUNLIN_WIRE_BODY_BYTES;
    }
    uint64_t n_bytes = dunlin__layout_update_bytes(&server->layout);
    dunlin_error ignored = {0};
    if (server->task.is_packed && packs &&
        dunlin__compress_most(&server->task, server->layout.tensors, server->layout.n_tensors,
                              &n_bytes, &ignored) != DUNLIN_OK) {
        return 0; /* too many elements, which the device will refuse by name */
    }
    return n_bytes;
}

static dunlin_v1_aggregation_t aggregation_of(const dunlin__server *server)
{
    return server->task.secagg.is_on     ? DUNLIN_V1_AGGREGATION_SECURE
           : server->task.buffered.is_on ? DUNLIN_V1_AGGREGATION_BUFFERED
                                         : DUNLIN_V1_AGGREGATION_PLAIN;
}

static void fill_offer(const dunlin__call_state *call, const dunlin__session_row *session,
                       dunlin__offer *offer)
{
    const dunlin__server *server = call->server;
    const dunlin__published *model = &server->models[0];
    bool is_evaluation = server->round.is_evaluation;
    (void)snprintf(offer->offer_id, sizeof offer->offer_id, "%s-%" PRIu64,
                   is_evaluation ? "evaluate" : "train", server->round.round);
    memcpy(offer->task, server->task.name, sizeof server->task.name);
    offer->kind = is_evaluation ? DUNLIN_V1_KIND_EVALUATE : DUNLIN_V1_KIND_TRAIN;
    offer->run_epoch = (uint64_t)server->run_epoch;
    offer->round = server->round.round;
    offer->has_policy = true;
    offer->policy = server->task.policy;
    offer->deadline_ms = server->round.deadline_ms > call->now_ms
                             ? left_ms(server->round.deadline_ms, call->now_ms)
                             : dunlin__server_task_deadline_ms(&server->task, server->round.round);
    offer->download_bytes = dunlin__packed_bytes(model, session->unpacks);
    offer->upload_bytes = is_evaluation ? 0
                                        : most_up(server, session->packs) + model->n_control_bytes +
                                              model->n_manifest_bytes;
    offer->aggregation = aggregation_of(server);
    offer->has_secagg = server->task.secagg.is_on;
    if (offer->has_secagg) {
        dunlin__secure_terms(server, &offer->secagg);
    }
    uint32_t features[DUNLIN_SERVER_FEATURES];
    size_t n_features = dunlin__server_features(&server->task, session->packs, features);
    for (size_t i = 0; i < n_features; i++) {
        offer->required_features[i] = features[i];
    }
    offer->required_features_count = (pb_size_t)n_features;
    offer->has_privacy = dunlin__private_state(server, &offer->privacy);
}

static dunlin_status make_offer(dunlin__call_state *call, const dunlin__capabilities *can,
                                dunlin__checkin_response *answer, dunlin_error *error)
{
    dunlin__session_row session = {.device = call->device->row.row,
                                   .round = call->server->round.round,
                                   .state = DUNLIN_WORK_OPEN,
                                   .until_ms = call->now_ms + OFFER_MS,
                                   .packs = has_feature(can, DUNLIN_V1_FEATURE_ENCODING_PACKED),
                                   .unpacks = has_encoding(can, DUNLIN_V1_ENCODING_PACKED)};
    DUNLIN_TRY(dunlin__server_draw_id(session.id, error));
    DUNLIN_TRY(dunlin__server_db_add_session(call->server->db, &session, error));
    memcpy(answer->session, session.id, sizeof session.id);
    answer->offers_count = 1;
    fill_offer(call, &session, &answer->offers[0]);
    dunlin__device_set_part(call->server, call->device, DUNLIN_PART_OFFERED);
    call->device->offer_until_ms = session.until_ms;
    return DUNLIN_OK;
}

void dunlin__serve_checkin(dunlin__call_state *call)
{
    dunlin__checkin_request request;
    REQUEST(call, checkin_request, &request);
    if (!dunlin__call_is_ours(call) || !dunlin__call_speaks(call, request.protocol_version)) {
        return;
    }
    dunlin__server *server = call->server;
    dunlin_error error = {0};
    if (!call->device->has_checked_in) {
        call->device->has_checked_in = true;
        server->devices.n_checked_in++;
    }
    dunlin__device_settle(server, call->device, call->now_ms);
    dunlin__checkin_response answer = {.has_accepted_window = true, .has_rejected_window = true};
    dunlin_status status = dunlin__server_check_barrier(server, call->now_ms, &error);
    if (status == DUNLIN_OK) {
        status = dunlin__device_challenge(server, call->device, &error);
    }
    answer.rejection = is_suitable(&server->task, &request.capabilities)
                           ? dunlin__server_judge(server, call->device, call->now_ms)
                           : DUNLIN_V1_REJECTION_NOT_SUITABLE;
    if (status == DUNLIN_OK && answer.rejection == DUNLIN_V1_REJECTION_NONE) {
        status = make_offer(call, &request.capabilities, &answer, &error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_state_end(call, &request.capabilities, &answer, &error);
    }
    if (status != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return;
    }
    dunlin__call_note(call, DUNLIN_SERVER_EVENT_CHECKIN, (uint32_t)answer.rejection,
                      call->device->row.client_index, "round %" PRIu64, server->round.round);
    call->is_brief = answer.rejection != DUNLIN_V1_REJECTION_NONE;
    memcpy(answer.challenge, call->device->challenge, sizeof call->device->challenge);
    answer.accepted_window = dunlin__server_window(server->options.accept_ms);
    answer.rejected_window = dunlin__server_window(dunlin__server_wait_ms(server, call->device));
    REPLY(call, checkin_response, &answer);
}

/* ---- accept ---- */

static void fill_assignment(const dunlin__call_state *call, const dunlin__assignment_row *row,
                            bool unpacks, dunlin__assignment *assignment)
{
    const dunlin__server *server = call->server;
    const dunlin__published *base = dunlin__published_base(&server->models[0]);
    memcpy(assignment->population, server->task.population, sizeof server->task.population);
    memcpy(assignment->task, server->task.name, sizeof server->task.name);
    memcpy(assignment->assignment_id, row->id, sizeof row->id);
    memcpy(assignment->device_id, call->device->row.id, sizeof call->device->row.id);
    assignment->run_epoch = (uint64_t)server->run_epoch;
    assignment->round = row->round;
    assignment->kind = server->round.is_evaluation ? DUNLIN_V1_KIND_EVALUATE : DUNLIN_V1_KIND_TRAIN;
    assignment->deadline_ms = left_ms(row->deadline_ms, call->now_ms);
    memcpy(assignment->token, row->token, sizeof row->token);
    assignment->has_plan = true;
    dunlin__plan_fill(server, call->device->row.client_index, row->packs, &assignment->plan);
    memcpy(assignment->base_manifest_sha256, base->manifest_sha256, DUNLIN_SHA256_BYTES);
    assignment->base_manifest_bytes = base->n_manifest_bytes;
    if (unpacks) {
        dunlin__packed_fill(&server->models[0], assignment);
    }
    assignment->aggregation = aggregation_of(server);
    uint32_t features[DUNLIN_SERVER_FEATURES];
    size_t n_features = dunlin__server_features(&server->task, row->packs, features);
    for (size_t i = 0; i < n_features; i++) {
        assignment->required_features[i] = features[i];
    }
    assignment->required_features_count = (pb_size_t)n_features;
    assignment->has_privacy = dunlin__private_state(server, &assignment->privacy);
    memcpy(assignment->key_id, server->certs.key_id, sizeof server->certs.key_id);
}

static dunlin_status assign(dunlin__call_state *call, const dunlin__session_row *session,
                            dunlin__accept_response *answer, dunlin_error *error)
{
    dunlin__server *server = call->server;
    const int64_t own_ms =
        call->now_ms + (int64_t)dunlin__server_task_deadline_ms(&server->task, server->round.round);
    const bool is_buffered = server->task.buffered.is_on; /* each has its own time then */
    if (server->round.deadline_ms == 0 && !is_buffered) {
        server->round.deadline_ms = own_ms;
        DUNLIN_TRY(dunlin__server_db_put_round(server->db, &server->round, error));
    }
    dunlin__assignment_row row = {.device = call->device->row.row,
                                  .round = server->round.round,
                                  .state = DUNLIN_WORK_OPEN,
                                  .deadline_ms = is_buffered ? own_ms : server->round.deadline_ms,
                                  .replaces_from = dunlin__buffered_first(server),
                                  .packs = server->task.is_packed && session->packs};
    DUNLIN_TRY(dunlin__server_draw_id(row.id, error));
    DUNLIN_TRY(dunlin__server_draw_id(row.token, error));
    DUNLIN_TRY(dunlin__server_db_add_assignment(server->db, &row, error));
    DUNLIN_TRY(dunlin__server_db_end_session(server->db, session->id, DUNLIN_WORK_DONE, error));
    DUNLIN_TRY(dunlin__private_take_part(server, call->device, error));
    dunlin__assignment assignment = {0};
    if (server->task.secagg.is_on) {
        assignment.plan.has_secagg = true;
        DUNLIN_TRY(dunlin__secure_join(server, call->device, &assignment.plan.secagg, error));
    }
    fill_assignment(call, &row, session->unpacks, &assignment);
    answer->has_assignment = true;
    DUNLIN_TRY(dunlin__assignment_seal(&assignment, server->certs.signing_key, &answer->assignment,
                                       error));
    dunlin__device_set_part(server, call->device, DUNLIN_PART_ASSIGNED);
    call->device->work_until_ms = row.deadline_ms;
    call->device->assigned_ms = call->now_ms;
    return DUNLIN_OK;
}

static dunlin_status decline(dunlin__call_state *call, const char *session_id, dunlin_error *error)
{
    dunlin__server *server = call->server;
    DUNLIN_TRY(dunlin__server_db_end_session(server->db, session_id, DUNLIN_WORK_GONE, error));
    /* Where the cohort is fixed the round goes on without it; else its place is free again. */
    dunlin__part part = server->in_cohort != NULL ? DUNLIN_PART_DROPPED : DUNLIN_PART_NONE;
    dunlin__device_set_part(server, call->device, part);
    return DUNLIN_OK;
}

/* Finds the session and that it can still be answered; refuses otherwise. */
static bool find_session(dunlin__call_state *call, dunlin__session_row *out_session)
{
    dunlin__server *server = call->server;
    bool is_found = false;
    dunlin_error error = {0};
    if (dunlin__server_db_find_session(server->db, call->request->route.id, out_session, &is_found,
                                       &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return false;
    }
    if (!is_found || out_session->device != call->device->row.row) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_NOT_FOUND,
                              "there is no session %.64s of this device", call->request->route.id);
        return false;
    }
    if (out_session->state != DUNLIN_WORK_OPEN || call->now_ms > out_session->until_ms) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_EXPIRED,
                              "session %.64s has ended; check in again", call->request->route.id);
        return false;
    }
    if (out_session->round != server->round.round || server->round.state != DUNLIN_ROUND_OPEN ||
        dunlin__device_part(server, call->device) != DUNLIN_PART_OFFERED ||
        (server->round.deadline_ms != 0 && call->now_ms >= server->round.deadline_ms) ||
        (server->task.secagg.is_on && !dunlin__secure_has_room(server, call->device))) {
        dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_STALE_ROUND,
                              "round %" PRIu64 " is over; check in again", out_session->round);
        return false;
    }
    return true;
}

void dunlin__serve_accept(dunlin__call_state *call)
{
    dunlin__accept_request request;
    dunlin__session_row session;
    REQUEST(call, accept_request, &request);
    if (!find_session(call, &session)) {
        return;
    }
    dunlin__accept_response answer = {.has_window = true};
    answer.window = dunlin__server_window(dunlin__server_wait_ms(call->server, call->device));
    dunlin_error error = {0};
    dunlin_status status = DUNLIN_OK;
    if (request.decline_reason != DUNLIN_V1_DECLINE_REASON_NONE) {
        status = decline(call, session.id, &error);
        dunlin__call_note(call, DUNLIN_SERVER_EVENT_DECLINE, (uint32_t)request.decline_reason,
                          call->device->row.client_index, "round %" PRIu64, session.round);
    } else {
        dunlin__offer offer = {0};
        fill_offer(call, &session, &offer);
        if (strcmp(offer.offer_id, request.offer_id) != 0) {
            dunlin__server_refuse(call->reply, DUNLIN_V1_STATUS_CODE_NOT_FOUND,
                                  "there was no offer \"%s\"", request.offer_id);
            return;
        }
        status = assign(call, &session, &answer, &error);
    }
    if (status != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return;
    }
    REPLY(call, accept_response, &answer);
}

/* ---- forget ---- */

void dunlin__serve_forget(dunlin__call_state *call)
{
    dunlin__forget_request request;
    REQUEST(call, forget_request, &request);
    if (!dunlin__call_is_ours(call) || !dunlin__call_speaks(call, request.protocol_version)) {
        return;
    }
    const dunlin__device_row *row = &call->device->row;
    dunlin_error error = {0};
    if (dunlin__server_db_spend_proofs(call->server->db, row->public_key, &error) != DUNLIN_OK ||
        dunlin__server_db_remove_device(call->server->db, row->row, row->id, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(call->reply, &error);
        return;
    }
    call->is_forgotten = true;
    dunlin__call_note(call, DUNLIN_SERVER_EVENT_FORGET, 0, row->client_index,
                      "is free: its device asked to be forgotten");
    dunlin__forget_response answer = {.was_known = true};
    REPLY(call, forget_response, &answer);
}
