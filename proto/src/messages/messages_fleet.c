/*
 * messages_fleet.c - the rules of enrol, check-in, the end of a run, accept and forget.
 *
 * Sets that may grow in a newer version (features, encodings) accept unknown numbers; values that
 * must be understood to act on a message do not.
 */
#include "codec/codec.h"
#include "plan_rules.h"

#define OPEN_NUMBER_MAX 65535u
#define LOG2_MAX 63u
#define OVER_ROUNDS_MAX (UINT64_C(1) << 53)

static void check_features(dunlin__rules *rules, const uint32_t *features, size_t count, size_t max,
                           const char *field)
{
    if (!dunlin__rule_count(rules, field, count, 0, max)) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        dunlin__rule_number(rules, field, features[i], 1, OPEN_NUMBER_MAX);
    }
}

static void check_enrol_request(dunlin__rules *rules, const void *data)
{
    const dunlin__enrol_request *m = data;
    dunlin__rule_number(rules, "protocol_version", m->protocol_version, 1, UINT32_MAX);
    dunlin__rule_true(rules, "public_key", m->public_key[0] == 0x04,
                      "is missing or not an uncompressed point");
    dunlin__rule_count(rules, "attestation", m->attestation.size, 0, sizeof(m->attestation.bytes));
    dunlin__rule_text(rules, "invitation", m->invitation, sizeof(m->invitation));
}
DUNLIN_DEFINE_KIND(enrol_request, "EnrolRequest", DUNLIN_V1_ENROL_REQUEST, check_enrol_request);

static void check_enrol_response(dunlin__rules *rules, const void *data)
{
    const dunlin__enrol_response *m = data;
    dunlin__rule_id(rules, "device_id", m->device_id, sizeof(m->device_id), 1);
    dunlin__rule_id(rules, "challenge", m->challenge, sizeof(m->challenge),
                    DUNLIN_WIRE_SECRET_CHARS_MIN);
    dunlin__rule_window(rules, "window", m->has_window, &m->window);
}
DUNLIN_DEFINE_KIND(enrol_response, "EnrolResponse", DUNLIN_V1_ENROL_RESPONSE, check_enrol_response);

static void check_checkin_request(dunlin__rules *rules, const void *data)
{
    const dunlin__checkin_request *m = data;
    dunlin__rule_number(rules, "protocol_version", m->protocol_version, 1, UINT32_MAX);
    dunlin__rule_true(rules, "capabilities", m->has_capabilities, "is missing");
    dunlin__rule_true(rules, "conditions", m->has_conditions, "is missing");
    const dunlin__capabilities *can = &m->capabilities;
    dunlin__rules_enter(rules, "capabilities");
    dunlin__rule_number(rules, "memory_log2", can->memory_log2, 0, LOG2_MAX);
    dunlin__rule_number(rules, "cores_log2", can->cores_log2, 0, LOG2_MAX);
    if (dunlin__rule_count(rules, "encodings", can->encodings_count, 0,
                           sizeof(can->encodings) / sizeof(can->encodings[0]))) {
        for (size_t i = 0; i < can->encodings_count; i++) {
            dunlin__rule_number(rules, "encodings", (uint64_t)can->encodings[i], 1,
                                OPEN_NUMBER_MAX);
        }
    }
    check_features(rules, can->features, can->features_count,
                   sizeof(can->features) / sizeof(can->features[0]), "features");
    dunlin__rules_enter(rules, "conditions");
    dunlin__rule_number(rules, "n_examples_log2", m->conditions.n_examples_log2, 0, LOG2_MAX);
    dunlin__rules_leave(rules);
}
DUNLIN_DEFINE_KIND(checkin_request, "CheckinRequest", DUNLIN_V1_CHECKIN_REQUEST,
                   check_checkin_request);

static void check_offer(dunlin__rules *rules, const dunlin__offer *offer)
{
    dunlin__rule_id(rules, "offer_id", offer->offer_id, sizeof(offer->offer_id), 1);
    dunlin__rule_id(rules, "task", offer->task, sizeof(offer->task), 1);
    dunlin__rule_number(rules, "kind", (uint64_t)offer->kind, DUNLIN_V1_KIND_TRAIN,
                        DUNLIN_V1_KIND_EVALUATE);
    dunlin__rule_number(rules, "deadline_ms", offer->deadline_ms, 1, DUNLIN_WIRE_MAX_WAIT_MS);
    dunlin__rule_number(rules, "aggregation", (uint64_t)offer->aggregation,
                        DUNLIN_V1_AGGREGATION_PLAIN, DUNLIN_V1_AGGREGATION_BUFFERED);
    dunlin__rule_true(rules, "policy", offer->has_policy, "is missing");
    dunlin__rule_number(rules, "policy.min_separation_ms", offer->policy.min_separation_ms, 0,
                        DUNLIN_WIRE_MAX_WAIT_MS);
    check_features(rules, offer->required_features, offer->required_features_count,
                   sizeof(offer->required_features) / sizeof(offer->required_features[0]),
                   "required_features");
    if (offer->has_secagg) {
        dunlin__rule_number(rules, "secagg.n_cohort", offer->secagg.n_cohort, 2,
                            DUNLIN_WIRE_SECAGG_COHORT);
        dunlin__rule_number(rules, "secagg.n_neighbours", offer->secagg.n_neighbours, 2,
                            DUNLIN_WIRE_PEERS);
        dunlin__rule_number(rules, "secagg.threshold", offer->secagg.threshold, 1,
                            offer->secagg.n_neighbours);
        dunlin__rule_number(rules, "secagg.least_devices", offer->secagg.least_devices, 2,
                            offer->secagg.n_cohort);
    }
    if (offer->has_privacy) {
        dunlin__rules_check_privacy(rules, &offer->privacy);
    }
}

static void check_checkin_response(dunlin__rules *rules, const void *data)
{
    const dunlin__checkin_response *m = data;
    dunlin__rule_number(rules, "rejection", (uint64_t)m->rejection, DUNLIN_V1_REJECTION_NONE,
                        DUNLIN_V1_REJECTION_NOT_SUITABLE);
    bool is_accepted = m->rejection == DUNLIN_V1_REJECTION_NONE;
    dunlin__rule_id(rules, "session", m->session, sizeof(m->session), is_accepted ? 1 : 0);
    dunlin__rule_id(rules, "challenge", m->challenge, sizeof(m->challenge),
                    is_accepted ? DUNLIN_WIRE_SECRET_CHARS_MIN : 0);
    size_t most = is_accepted ? sizeof(m->offers) / sizeof(m->offers[0]) : 0;
    if (dunlin__rule_count(rules, "offers", m->offers_count, is_accepted ? 1 : 0, most)) {
        for (unsigned i = 0; i < m->offers_count; i++) {
            dunlin__rules_enter_item(rules, "offers", i);
            check_offer(rules, &m->offers[i]);
        }
        dunlin__rules_leave(rules);
    }
    dunlin__rule_true(rules, "run_over",
                      !m->has_run_over || m->rejection == DUNLIN_V1_REJECTION_NO_WORK,
                      "is given, but the rejection is not NO_WORK");
    dunlin__rule_window(rules, "accepted_window", m->has_accepted_window, &m->accepted_window);
    dunlin__rule_window(rules, "rejected_window", m->has_rejected_window, &m->rejected_window);
}
DUNLIN_DEFINE_KIND(checkin_response, "CheckinResponse", DUNLIN_V1_CHECKIN_RESPONSE,
                   check_checkin_response);

static void check_run_over(dunlin__rules *rules, const void *data)
{
    const dunlin__run_over *m = data;
    dunlin__rule_id(rules, "population", m->population, sizeof(m->population), 1);
    dunlin__rule_id(rules, "task", m->task, sizeof(m->task), 1);
    dunlin__rule_id(rules, "device_id", m->device_id, sizeof(m->device_id), 1);
    dunlin__rule_number(rules, "run_epoch", m->run_epoch, 0, OVER_ROUNDS_MAX);
    dunlin__rule_number(rules, "round", m->round, 0, OVER_ROUNDS_MAX);
    dunlin__rule_given(rules, "model_manifest_sha256", m->model_manifest_sha256,
                       sizeof(m->model_manifest_sha256));
    dunlin__rule_number(rules, "model_manifest_bytes", m->model_manifest_bytes, 1,
                        DUNLIN_WIRE_MANIFEST_BYTES);
    dunlin__rule_window(rules, "window", m->has_window, &m->window);
    dunlin__rule_id(rules, "key_id", m->key_id, sizeof(m->key_id), 1);
}
DUNLIN_DEFINE_KIND(run_over, "RunOver", DUNLIN_V1_RUN_OVER, check_run_over);

static void check_accept_request(dunlin__rules *rules, const void *data)
{
    const dunlin__accept_request *m = data;
    dunlin__rule_number(rules, "decline_reason", (uint64_t)m->decline_reason,
                        DUNLIN_V1_DECLINE_REASON_NONE, DUNLIN_V1_DECLINE_REASON_PRIVACY);
    dunlin__rule_id(rules, "offer_id", m->offer_id, sizeof(m->offer_id), 0);
    bool is_declined = m->decline_reason != DUNLIN_V1_DECLINE_REASON_NONE;
    dunlin__rule_true(rules, "offer_id", is_declined == (m->offer_id[0] == '\0'),
                      "and decline_reason: exactly one must be given");
}
DUNLIN_DEFINE_KIND(accept_request, "AcceptRequest", DUNLIN_V1_ACCEPT_REQUEST, check_accept_request);

static void check_accept_response(dunlin__rules *rules, const void *data)
{
    const dunlin__accept_response *m = data;
    dunlin__rule_window(rules, "window", m->has_window, &m->window);
    if (m->has_assignment) {
        const dunlin_v1_signed_assignment_t *sealed = &m->assignment;
        dunlin__rules_enter(rules, "assignment");
        dunlin__rule_count(rules, "assignment", sealed->assignment.size, 1,
                           sizeof(sealed->assignment.bytes));
        dunlin__rule_given(rules, "signature", sealed->signature, sizeof(sealed->signature));
        dunlin__rule_id(rules, "key_id", sealed->key_id, sizeof(sealed->key_id), 1);
        dunlin__rules_leave(rules);
    }
}
DUNLIN_DEFINE_KIND(accept_response, "AcceptResponse", DUNLIN_V1_ACCEPT_RESPONSE,
                   check_accept_response);

static void check_forget_request(dunlin__rules *rules, const void *data)
{
    const dunlin__forget_request *m = data;
    dunlin__rule_number(rules, "protocol_version", m->protocol_version, 1, UINT32_MAX);
}
DUNLIN_DEFINE_KIND(forget_request, "ForgetRequest", DUNLIN_V1_FORGET_REQUEST, check_forget_request);

DUNLIN_DEFINE_KIND(forget_response, "ForgetResponse", DUNLIN_V1_FORGET_RESPONSE, NULL);
