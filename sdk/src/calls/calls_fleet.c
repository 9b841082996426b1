/*
 * calls_fleet.c - joining, asking for work, taking or declining it, leaving.
 *
 * Whether an offer suits is decided here, on the device, which sends numbers rounded to powers of
 * two only.
 */
#include "calls_fleet.h"

#include "calls.h"
#include "context/client_context.h"
#include "context/conditions.h"
#include "context/round_examples.h"
#include "device_key.h"
#include "floor.h"
#include "session/session.h"

#include <wire/signature.h>

#include <string.h>

static const uint32_t FEATURES[] = {
    DUNLIN_V1_FEATURE_CLIPPING,           DUNLIN_V1_FEATURE_PROXIMAL_TERM,
    DUNLIN_V1_FEATURE_BUILTIN_LEARNER,    DUNLIN_V1_FEATURE_CONTROL_VARIATES,
    DUNLIN_V1_FEATURE_PARAMETER_CHOICE,   DUNLIN_V1_FEATURE_SCHEDULE,
    DUNLIN_V1_FEATURE_AUGMENTATION,       DUNLIN_V1_FEATURE_REMAINDER,
    DUNLIN_V1_FEATURE_GRADIENT_CLIPPING,  DUNLIN_V1_FEATURE_IGNORED_LABEL,
    DUNLIN_V1_FEATURE_ADAPTIVE_OPTIMIZER, DUNLIN_V1_FEATURE_EXAMPLE_CHANGES,
    DUNLIN_V1_FEATURE_RUN_OVER,           DUNLIN_V1_FEATURE_CLIP_ORDERS,
    DUNLIN_V1_FEATURE_SECURE_AGGREGATION, DUNLIN_V1_FEATURE_DISTRIBUTED_NOISE,
    DUNLIN_V1_FEATURE_PRODUCT_PRECISION,  DUNLIN_V1_FEATURE_STORAGE,
    DUNLIN_V1_FEATURE_PRECISION,          DUNLIN_V1_FEATURE_ENCODING_PACKED,
    DUNLIN_V1_FEATURE_SKELLAM_NOISE};
#define N_FEATURES (sizeof FEATURES / sizeof FEATURES[0])
_Static_assert(sizeof FEATURES <= sizeof((dunlin_v1_capabilities_t *)0)->features, "room for all");

/* The reply's buffer, for the length of one call. */
typedef struct reply_buffer {
    uint8_t *bytes;
    size_t n_bytes;
} reply_buffer;

static dunlin_status take_buffer(dunlin_client *client, reply_buffer *out, dunlin__fault *out_fault)
{
    out->bytes = dunlin__alloc_array(&client->runtime->alloc, DUNLIN_WIRE_BODY_BYTES, 1);
    out->n_bytes = 0;
    if (out->bytes == NULL) {
        *out_fault = dunlin__fault_of(DUNLIN_MEMORY);
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "client", 0, "no memory for a reply");
    }
    return DUNLIN_OK;
}

static void give_buffer(dunlin_client *client, reply_buffer *buffer)
{
    dunlin__free_array(&client->runtime->alloc, buffer->bytes, DUNLIN_WIRE_BODY_BYTES, 1);
}

static uint32_t log2_of(uint64_t value)
{
    uint32_t bits = 0;
    while (value > 1) {
        value >>= 1;
        bits++;
    }
    return bits;
}

/* The app has not turned it off. */
static bool is_on(const dunlin_client_options *options, uint32_t feature)
{
    const bool is_encoded =
        feature == DUNLIN_V1_FEATURE_PRECISION || feature == DUNLIN_V1_FEATURE_ENCODING_PACKED;
    return !(options->sends_plain && is_encoded) &&
           !(options->stores_exact && feature == DUNLIN_V1_FEATURE_STORAGE);
}

static dunlin__wait_window window_of(bool has_window, const dunlin__window *window)
{
    return has_window ? (dunlin__wait_window){window->min_ms, window->max_ms}
                      : (dunlin__wait_window){0, 0};
}

/* `body`: room for the encoded request. */
static dunlin_status enrol_exchange(dunlin_client *client, uint8_t *body, reply_buffer *reply,
                                    dunlin__enrol_response *out, dunlin__fault *out_fault)
{
    dunlin__enrol_request request = {.protocol_version = DUNLIN_WIRE_VERSION,
                                     .client_version = (uint32_t)dunlin_version()};
    size_t n_bytes = 0;
    DUNLIN_TRY(
        dunlin__fault_judge(dunlin__device_key_public(client, request.public_key), out_fault));
    if (client->enrolment_token != NULL) {
        (void)strncpy(request.invitation, client->enrolment_token, sizeof request.invitation - 1);
    }
    DUNLIN_TRY(dunlin__fault_judge(dunlin__enrol_request_encode(&request, body,
                                                                DUNLIN_V1_ENROL_REQUEST_SIZE,
                                                                &n_bytes, &client->error),
                                   out_fault));
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_ENROL, client->population);
    DUNLIN_TRY(
        dunlin__call_post(client, &route, body, n_bytes, reply->bytes, &reply->n_bytes, out_fault));
    return dunlin__fault_judge(
        dunlin__enrol_response_decode(reply->bytes, reply->n_bytes, out, &client->error),
        out_fault);
}

dunlin_status dunlin__call_enrol(dunlin_client *client, dunlin__event *out_event,
                                 dunlin__fault *out_fault)
{
    reply_buffer reply;
    DUNLIN_TRY(take_buffer(client, &reply, out_fault));
    client->journal.counter = 0;
    client->journal.challenge[0] = '\0';
    reply_buffer body;
    dunlin__enrol_response response;
    dunlin_status status = take_buffer(client, &body, out_fault);
    if (status == DUNLIN_OK) {
        status = enrol_exchange(client, body.bytes, &reply, &response, out_fault);
        give_buffer(client, &body);
    }
    if (status == DUNLIN_OK) {
        memcpy(client->journal.device_id, response.device_id, sizeof response.device_id);
        memcpy(client->journal.challenge, response.challenge, sizeof response.challenge);
        client->journal.counter = 0;
        out_event->kind = DUNLIN_EVENT_ENROLLED;
        out_event->has_window = response.has_window;
        out_event->accepted = window_of(response.has_window, &response.window);
    }
    give_buffer(client, &reply);
    return status;
}

/* The first of these features that this client does not have; NULL: it has them all. */
const uint32_t *dunlin__find_unknown(const uint32_t *features, pb_size_t n_features)
{
    for (pb_size_t i = 0; i < n_features; i++) {
        bool is_known = false;
        for (size_t k = 0; k < N_FEATURES; k++) {
            is_known = is_known || features[i] == FEATURES[k];
        }
        if (!is_known) {
            return &features[i];
        }
    }
    return NULL;
}

/* Whether rounds lie between the offer and the last one with this device that are too few. What an
 * epsilon is reckoned by is kept whatever the policy says. */
static bool is_too_near(const dunlin__journal *journal, const dunlin__offer *offer)
{
    const uint32_t of_policy = offer->has_policy ? offer->policy.min_separation_rounds : 0;
    const uint32_t of_noise = offer->has_privacy ? offer->privacy.min_separation_rounds : 0;
    return journal->contributed_wall_ms > 0 && offer->round >= journal->contributed_round &&
           offer->round - journal->contributed_round <
               (of_policy > of_noise ? of_policy : of_noise);
}

/* DECLINE_REASON_NONE if this device takes the offer. */
static dunlin_v1_decline_reason_t judge_offer(dunlin_client *client, const dunlin__offer *offer,
                                              const dunlin_conditions *conditions,
                                              int64_t now_wall_ms)
{
    const dunlin__journal *journal = &client->journal;
    const dunlin__policy *policy = &offer->policy;
    if (dunlin__find_unknown(offer->required_features, offer->required_features_count) != NULL) {
        return DUNLIN_V1_DECLINE_REASON_FEATURE;
    }
    if (offer->download_bytes > client->options.max_download_bytes ||
        offer->upload_bytes > client->options.max_upload_bytes) {
        return DUNLIN_V1_DECLINE_REASON_BUDGET;
    }
    if (offer->kind == DUNLIN_V1_KIND_TRAIN &&
        dunlin__floor_check(&client->options, offer->has_privacy ? &offer->privacy : NULL,
                            &client->error) != DUNLIN_OK) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_INFO, "client", "an offer is declined: %s",
                    client->error.text);
        /* A server that says nothing of noise may be of before, and know no other reason. */
        return offer->has_privacy ? DUNLIN_V1_DECLINE_REASON_PRIVACY
                                  : DUNLIN_V1_DECLINE_REASON_APPLICATION;
    }
    if (offer->kind == DUNLIN_V1_KIND_TRAIN &&
        dunlin__floor_check_secagg(&client->options, offer, &client->error) != DUNLIN_OK) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_INFO, "client", "an offer is declined: %s",
                    client->error.text);
        return DUNLIN_V1_DECLINE_REASON_APPLICATION;
    }
    if (offer->kind == DUNLIN_V1_KIND_TRAIN &&
        dunlin__floor_check_storage(&client->options, offer, &client->error) != DUNLIN_OK) {
        dunlin__log(&client->runtime->log, DUNLIN_LOG_INFO, "client", "an offer is declined: %s",
                    client->error.text);
        return DUNLIN_V1_DECLINE_REASON_APPLICATION;
    }
    dunlin_v1_decline_reason_t reason = dunlin__round_judge_examples(
        client, offer->task, offer->has_policy ? policy->min_examples : 0);
    if (reason != DUNLIN_V1_DECLINE_REASON_NONE) {
        return reason;
    }
    if ((policy->requires_charging && !conditions->is_charging) ||
        (policy->requires_unmetered && !conditions->is_unmetered) ||
        (policy->requires_idle && !conditions->is_idle)) {
        return DUNLIN_V1_DECLINE_REASON_CONDITIONS;
    }
    if (conditions->n_examples >= 0 && (uint64_t)conditions->n_examples < policy->min_examples) {
        return DUNLIN_V1_DECLINE_REASON_DATA;
    }
    bool is_too_soon = journal->contributed_wall_ms > 0 && policy->min_separation_ms > 0 &&
                       (uint64_t)dunlin__ms_between(journal->contributed_wall_ms, now_wall_ms) <
                           policy->min_separation_ms;
    return is_too_soon || is_too_near(journal, offer) ? DUNLIN_V1_DECLINE_REASON_SEPARATION
                                                      : DUNLIN_V1_DECLINE_REASON_NONE;
}

static void choose_offer(dunlin_client *client, const dunlin__checkin_response *response,
                         const dunlin_conditions *conditions, dunlin__event *out_event)
{
    out_event->kind = DUNLIN_EVENT_OFFERED;
    out_event->decline_reason = DUNLIN_V1_DECLINE_REASON_APPLICATION;
    for (pb_size_t i = 0; i < response->offers_count; i++) {
        dunlin_v1_decline_reason_t reason =
            judge_offer(client, &response->offers[i], conditions, out_event->now.wall_ms);
        if (reason == DUNLIN_V1_DECLINE_REASON_NONE) {
            out_event->has_offer = true;
            out_event->decline_reason = DUNLIN_V1_DECLINE_REASON_NONE;
            memcpy(client->journal.offer_id, response->offers[i].offer_id,
                   sizeof client->journal.offer_id);
            return;
        }
        out_event->decline_reason = (int32_t)reason;
    }
}

static void fill_checkin(const dunlin_client *client, const dunlin_conditions *conditions,
                         dunlin__checkin_request *out)
{
    out->protocol_version = DUNLIN_WIRE_VERSION;
    out->client_version = (uint32_t)dunlin_version();
    out->has_capabilities = true;
    out->capabilities.memory_log2 = log2_of(client->options.budget_bytes);
    out->capabilities.cores_log2 =
        log2_of(client->options.n_cores > 0 ? (uint64_t)client->options.n_cores : 1);
    out->capabilities.encodings[0] = DUNLIN_V1_ENCODING_F32;
    out->capabilities.encodings[1] = DUNLIN_V1_ENCODING_PACKED; /* of a base: what comes down */
    out->capabilities.encodings_count = 2;
    out->capabilities.features_count = 0;
    for (size_t i = 0; i < N_FEATURES; i++) {
        if (is_on(&client->options, FEATURES[i])) {
            out->capabilities.features[out->capabilities.features_count++] = FEATURES[i];
        }
    }
    out->has_conditions = true;
    out->conditions.charging = conditions->is_charging;
    out->conditions.unmetered = conditions->is_unmetered;
    out->conditions.idle = conditions->is_idle;
    out->conditions.n_examples_log2 =
        conditions->n_examples > 0 ? log2_of((uint64_t)conditions->n_examples) : 0;
}

static dunlin_status open_statement(const dunlin_client *client,
                                    const dunlin__checkin_response *response, dunlin__run_over *out,
                                    dunlin_error *error)
{
    const dunlin__journal *journal = &client->journal;
    dunlin_status status = DUNLIN_SIGNATURE;
    for (int32_t i = 0; status == DUNLIN_SIGNATURE && i < client->n_signing_keys; i++) {
        dunlin__trusted_key key = {0}; /* trusted under any name, as for an assignment */
        memcpy(key.key_id, response->run_over.key_id, sizeof key.key_id);
        memcpy(key.public_key, client->signing_keys[i], sizeof key.public_key);
        status = dunlin__run_over_open(&response->run_over, &key, 1, out, error);
    }
    DUNLIN_TRY(status);
    if (strcmp(out->population, client->population) != 0 ||
        strcmp(out->device_id, journal->device_id) != 0) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "client", 0,
                            "it is for another device or population (%.64s)", out->population);
    }
    if (out->run_epoch < journal->seen_epoch ||
        (out->run_epoch == journal->seen_epoch && out->round < journal->seen_round)) {
        return dunlin__fail(error, DUNLIN_ROLLBACK, "client", 0,
                            "it is of round %llu of a run, and a later one was seen before",
                            (unsigned long long)out->round);
    }
    return DUNLIN_OK;
}

/* That the run is over, if that is what a trusted key says; else there is no work, and no more. */
static void take_statement(dunlin_client *client, const dunlin__checkin_response *response,
                           dunlin__event *out_event)
{
    dunlin__run_over *statement = &client->round->run_over;
    dunlin_error error = {0};
    if (!response->has_run_over) {
        return;
    }
    const dunlin_status status = open_statement(client, response, statement, &error);
    if (status != DUNLIN_OK) {
        memset(statement, 0, sizeof *statement);
        dunlin__log(&client->runtime->log, DUNLIN_LOG_WARNING, "client",
                    "a statement that the run is over counts for nothing: %s",
                    dunlin_status_text(status));
        return;
    }
    out_event->is_run_over = true;
    out_event->over = window_of(true, &statement->window);
    client->session.round = statement->round; /* for the report */
}

static dunlin_status checkin_exchange(dunlin_client *client, reply_buffer *reply,
                                      dunlin__event *out_event, dunlin__fault *out_fault)
{
    dunlin_conditions conditions = dunlin__client_conditions(client);
    dunlin__checkin_request request = {0};
    fill_checkin(client, &conditions, &request);
    uint8_t body[DUNLIN_V1_CHECKIN_REQUEST_SIZE];
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__fault_judge(
        dunlin__checkin_request_encode(&request, body, sizeof body, &n_bytes, &client->error),
        out_fault));
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_CHECKIN, client->population);
    DUNLIN_TRY(
        dunlin__call_post(client, &route, body, n_bytes, reply->bytes, &reply->n_bytes, out_fault));
    dunlin__checkin_response response;
    DUNLIN_TRY(dunlin__fault_judge(
        dunlin__checkin_response_decode(reply->bytes, reply->n_bytes, &response, &client->error),
        out_fault));
    if (response.challenge[0] != '\0' &&
        strcmp(response.challenge, client->journal.challenge) != 0) {
        memcpy(client->journal.challenge, response.challenge, sizeof response.challenge);
        client->journal.counter = 0;
    }
    out_event->accepted = window_of(response.has_accepted_window, &response.accepted_window);
    out_event->rejected = window_of(response.has_rejected_window, &response.rejected_window);
    if (response.offers_count == 0) {
        out_event->kind = DUNLIN_EVENT_REJECTED;
        take_statement(client, &response, out_event);
        return DUNLIN_OK;
    }
    memcpy(client->journal.session, response.session, sizeof response.session);
    choose_offer(client, &response, &conditions, out_event);
    return DUNLIN_OK;
}

dunlin_status dunlin__call_checkin(dunlin_client *client, dunlin__event *out_event,
                                   dunlin__fault *out_fault)
{
    reply_buffer reply;
    DUNLIN_TRY(take_buffer(client, &reply, out_fault));
    dunlin_status status = checkin_exchange(client, &reply, out_event, out_fault);
    give_buffer(client, &reply);
    return status;
}

static dunlin_status accept_exchange(dunlin_client *client, reply_buffer *reply, int32_t reason,
                                     dunlin__fault *out_fault)
{
    dunlin__accept_request request = {0};
    if (reason == DUNLIN_V1_DECLINE_REASON_NONE) {
        memcpy(request.offer_id, client->journal.offer_id, sizeof request.offer_id);
    }
    request.decline_reason = (dunlin_v1_decline_reason_t)reason;
    uint8_t body[DUNLIN_V1_ACCEPT_REQUEST_SIZE];
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__fault_judge(
        dunlin__accept_request_encode(&request, body, sizeof body, &n_bytes, &client->error),
        out_fault));
    dunlin__route route = dunlin__route_make(DUNLIN_CALL_ACCEPT, client->journal.session);
    return dunlin__call_post(client, &route, body, n_bytes, reply->bytes, &reply->n_bytes,
                             out_fault);
}

dunlin_status dunlin__call_accept(dunlin_client *client, dunlin__event *out_event,
                                  dunlin__fault *out_fault)
{
    dunlin__round *round = client->round;
    reply_buffer reply;
    DUNLIN_TRY(take_buffer(client, &reply, out_fault));
    dunlin_status status =
        accept_exchange(client, &reply, DUNLIN_V1_DECLINE_REASON_NONE, out_fault);
    if (status == DUNLIN_OK && reply.n_bytes > sizeof round->sealed) {
        status =
            dunlin__fault_judge(dunlin__fail(&client->error, DUNLIN_LIMIT, "client", 0,
                                             "the assignment's answer has %zu bytes, more than %zu",
                                             reply.n_bytes, sizeof round->sealed),
                                out_fault);
    }
    if (status == DUNLIN_OK) {
        memcpy(round->sealed, reply.bytes, reply.n_bytes);
        round->sealed_bytes = reply.n_bytes;
        status = dunlin__fault_judge(dunlin__assignment_read(client), out_fault);
    }
    if (status == DUNLIN_OK) {
        out_event->kind = DUNLIN_EVENT_ASSIGNED;
        out_event->epoch = round->assignment.run_epoch;
        out_event->round = round->assignment.round;
        out_event->is_evaluation = round->assignment.kind == DUNLIN_V1_KIND_EVALUATE;
        out_event->deadline_ms = dunlin__round_deadline_ms(client);
    }
    give_buffer(client, &reply);
    return status;
}

dunlin_status dunlin__call_decline(dunlin_client *client, int32_t reason, dunlin__event *out_event,
                                   dunlin__fault *out_fault)
{
    reply_buffer reply;
    DUNLIN_TRY(take_buffer(client, &reply, out_fault));
    dunlin_status status = accept_exchange(client, &reply, reason, out_fault);
    dunlin__accept_response response;
    if (status == DUNLIN_OK) {
        status = dunlin__fault_judge(
            dunlin__accept_response_decode(reply.bytes, reply.n_bytes, &response, &client->error),
            out_fault);
    }
    if (status == DUNLIN_OK) {
        out_event->kind = DUNLIN_EVENT_DECLINED;
        out_event->has_window = response.has_window;
        out_event->accepted = window_of(response.has_window, &response.window);
    }
    give_buffer(client, &reply);
    return status;
}

dunlin_status dunlin__call_forget(dunlin_client *client, dunlin__fault *out_fault)
{
    reply_buffer reply;
    DUNLIN_TRY(take_buffer(client, &reply, out_fault));
    dunlin__forget_request request = {.protocol_version = DUNLIN_WIRE_VERSION};
    uint8_t body[DUNLIN_V1_FORGET_REQUEST_SIZE];
    size_t n_bytes = 0;
    dunlin_status status =
        dunlin__forget_request_encode(&request, body, sizeof body, &n_bytes, &client->error);
    if (status == DUNLIN_OK) {
        dunlin__route route = dunlin__route_make(DUNLIN_CALL_FORGET, client->population);
        status = dunlin__call_post(client, &route, body, n_bytes, reply.bytes, &reply.n_bytes,
                                   out_fault);
    }
    if (status == DUNLIN_OK) {
        dunlin__forget_response response;
        status =
            dunlin__forget_response_decode(reply.bytes, reply.n_bytes, &response, &client->error);
    }
    give_buffer(client, &reply);
    return status;
}
