/*
 * make_message.c - random messages that keep every rule.
 */
#include "make_message.h"

#include "random.h"

#include <stdio.h>
#include <string.h>

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))
#define MAKE_ID(state, field, min) make_id(state, field, sizeof(field), min)
#define MAKE_BYTES(state, field) make_bytes(state, field, sizeof(field))
/* Of a byte field with a length: some, at least `min`. */
#define MAKE_SOME(state, field, min)                                                               \
    do {                                                                                           \
        (field).size = (pb_size_t)((min) + below(state, sizeof((field).bytes) - (min) + 1));       \
        make_bytes(state, (field).bytes, (field).size);                                            \
    } while (0)

static uint64_t below(uint64_t *state, uint64_t n)
{
    return test_random_below(state, n);
}

static bool coin(uint64_t *state)
{
    return below(state, 2) == 1;
}

static uint32_t between(uint64_t *state, uint32_t min, uint32_t max)
{
    return min + (uint32_t)below(state, (uint64_t)max - min + 1);
}

static float real(uint64_t *state, double max)
{
    return (float)test_random_range(0.0, max, state);
}

static void make_id(uint64_t *state, char *id, size_t room, size_t min_chars)
{
    static const char alphabet[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_~.";
    size_t n_chars = min_chars + below(state, room - min_chars);
    for (size_t i = 0; i < n_chars; i++) {
        id[i] = alphabet[below(state, (i == 0) ? sizeof(alphabet) - 2 : sizeof(alphabet) - 1)];
    }
    id[n_chars] = '\0';
}

static void make_text(uint64_t *state, char *text, size_t room)
{
    static const char *const pieces[] = {
        "a", "Z", " ", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\xa6"};
    size_t n_chars = 0;
    size_t wanted = below(state, room);
    while (n_chars < wanted) {
        const char *piece = pieces[below(state, LENGTH(pieces))];
        size_t n_bytes = strlen(piece);
        if (n_chars + n_bytes >= room) {
            break;
        }
        memcpy(text + n_chars, piece, n_bytes);
        n_chars += n_bytes;
    }
    text[n_chars] = '\0';
}

static void make_bytes(uint64_t *state, uint8_t *bytes, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        bytes[i] = (uint8_t)(1 + below(state, 255));
    }
}

static dunlin__window make_window(uint64_t *state)
{
    uint64_t max_ms = below(state, DUNLIN_WIRE_MAX_WAIT_MS + 1);
    return (dunlin__window){.min_ms = below(state, max_ms + 1), .max_ms = max_ms};
}

static pb_size_t make_features(uint64_t *state, uint32_t *features, size_t max)
{
    size_t count = below(state, max + 1);
    for (size_t i = 0; i < count; i++) {
        features[i] = between(state, 1, 65535);
    }
    return (pb_size_t)count;
}

void make_enrol_request(dunlin__enrol_request *m, uint64_t *state)
{
    m->protocol_version = between(state, 1, UINT32_MAX);
    m->client_version = (uint32_t)test_random_u64(state);
    MAKE_BYTES(state, m->public_key);
    m->public_key[0] = 0x04;
    MAKE_SOME(state, m->attestation, 0u);
    make_text(state, m->invitation, sizeof(m->invitation));
}

void make_enrol_response(dunlin__enrol_response *m, uint64_t *state)
{
    MAKE_ID(state, m->device_id, 1);
    MAKE_ID(state, m->challenge, 16);
    m->has_window = true;
    m->window = make_window(state);
}

void make_checkin_request(dunlin__checkin_request *m, uint64_t *state)
{
    m->protocol_version = between(state, 1, UINT32_MAX);
    m->client_version = (uint32_t)test_random_u64(state);
    m->has_capabilities = true;
    m->capabilities.memory_log2 = between(state, 0, 63);
    m->capabilities.cores_log2 = between(state, 0, 63);
    m->capabilities.encodings_count = (pb_size_t)below(state, 9);
    for (size_t i = 0; i < m->capabilities.encodings_count; i++) {
        m->capabilities.encodings[i] = (dunlin_v1_encoding_t)between(state, 1, 6);
    }
    m->capabilities.features_count =
        make_features(state, m->capabilities.features, LENGTH(m->capabilities.features));
    m->has_conditions = true;
    m->conditions.charging = coin(state);
    m->conditions.unmetered = coin(state);
    m->conditions.idle = coin(state);
    m->conditions.n_examples_log2 = between(state, 0, 63);
}

static void make_privacy(dunlin_v1_privacy_t *privacy, uint64_t *state)
{
    privacy->mechanism = (dunlin_v1_privacy_mechanism_t)between(state, 1, 2);
    privacy->sampling = (dunlin_v1_privacy_sampling_t)between(state, 1, 3);
    privacy->epsilon = test_random_range(0.0, 100.0, state);
    privacy->delta = test_random_range(0.0, 1.0, state);
    privacy->noise_multiplier = test_random_range(0.05, 100.0, state);
    privacy->clip_norm = test_random_range(0.001, 100.0, state);
    privacy->n_rounds = between(state, 1, UINT32_MAX);
    privacy->cohort = between(state, 1, UINT32_MAX);
    privacy->min_separation_rounds = (uint32_t)test_random_u64(state);
    privacy->max_rounds = test_random_u64(state);
    privacy->is_repeatable = coin(state);
}

static void make_offer(dunlin__offer *offer, uint64_t *state)
{
    MAKE_ID(state, offer->offer_id, 1);
    MAKE_ID(state, offer->task, 1);
    offer->kind = coin(state) ? DUNLIN_V1_KIND_TRAIN : DUNLIN_V1_KIND_EVALUATE;
    offer->run_epoch = test_random_u64(state);
    offer->round = test_random_u64(state);
    offer->has_policy = true;
    offer->policy.min_examples = test_random_u64(state);
    offer->policy.min_separation_ms = below(state, DUNLIN_WIRE_MAX_WAIT_MS);
    offer->policy.min_separation_rounds = (uint32_t)test_random_u64(state);
    offer->policy.requires_charging = coin(state);
    offer->policy.requires_unmetered = coin(state);
    offer->policy.requires_idle = coin(state);
    offer->deadline_ms = 1 + below(state, DUNLIN_WIRE_MAX_WAIT_MS);
    offer->download_bytes = test_random_u64(state);
    offer->upload_bytes = test_random_u64(state);
    offer->aggregation = (dunlin_v1_aggregation_t)between(state, 1, 3);
    offer->required_features_count =
        make_features(state, offer->required_features, LENGTH(offer->required_features));
    offer->has_privacy = coin(state);
    if (offer->has_privacy) {
        make_privacy(&offer->privacy, state);
    }
    offer->has_secagg = coin(state);
    if (offer->has_secagg) {
        offer->secagg.n_cohort = between(state, 2, 65536);
        offer->secagg.n_neighbours = between(state, 2, 255);
        offer->secagg.threshold = between(state, 1, offer->secagg.n_neighbours);
        offer->secagg.least_devices = between(state, 2, offer->secagg.n_cohort);
        offer->secagg.check_consistency = coin(state);
    }
}

void make_checkin_response(dunlin__checkin_response *m, uint64_t *state)
{
    m->rejection = (dunlin_v1_rejection_t)between(state, 0, 4);
    if (m->rejection == DUNLIN_V1_REJECTION_NONE) {
        m->offers_count = (pb_size_t)between(state, 1, 4);
        for (size_t i = 0; i < m->offers_count; i++) {
            make_offer(&m->offers[i], state);
        }
        MAKE_ID(state, m->session, 1);
        MAKE_ID(state, m->challenge, 16);
    }
    m->has_run_over = m->rejection == DUNLIN_V1_REJECTION_NO_WORK && coin(state);
    if (m->has_run_over) {
        MAKE_SOME(state, m->run_over.statement, 1u);
        MAKE_BYTES(state, m->run_over.signature);
        MAKE_ID(state, m->run_over.key_id, 1);
    }
    m->has_accepted_window = true;
    m->accepted_window = make_window(state);
    m->has_rejected_window = true;
    m->rejected_window = make_window(state);
}

void make_run_over(dunlin__run_over *m, uint64_t *state)
{
    MAKE_ID(state, m->population, 1);
    MAKE_ID(state, m->task, 1);
    MAKE_ID(state, m->device_id, 1);
    m->run_epoch = below(state, (1ULL << 53) + 1);
    m->round = below(state, (1ULL << 53) + 1);
    MAKE_BYTES(state, m->model_manifest_sha256);
    m->model_manifest_bytes = between(state, 1, DUNLIN_WIRE_MANIFEST_BYTES);
    m->has_window = true;
    m->window = make_window(state);
    MAKE_ID(state, m->key_id, 1);
}

void make_accept_request(dunlin__accept_request *m, uint64_t *state)
{
    m->decline_reason = (dunlin_v1_decline_reason_t)between(state, 0, 7);
    if (m->decline_reason == DUNLIN_V1_DECLINE_REASON_NONE) {
        MAKE_ID(state, m->offer_id, 1);
    }
}

void make_accept_response(dunlin__accept_response *m, uint64_t *state)
{
    m->has_assignment = coin(state);
    if (m->has_assignment) {
        MAKE_SOME(state, m->assignment.assignment, 1u);
        MAKE_BYTES(state, m->assignment.signature);
        MAKE_ID(state, m->assignment.key_id, 1);
    }
    m->has_window = true;
    m->window = make_window(state);
}

static void make_parameters(dunlin_v1_parameter_choice_t *choice, uint64_t *state)
{
    choice->trained = (dunlin_v1_trained_t)between(state, 0, 2);
    make_text(state, choice->trained_prefixes, sizeof(choice->trained_prefixes));
    make_text(state, choice->frozen_prefixes, sizeof(choice->frozen_prefixes));
    choice->no_norm_decay = coin(state);
    choice->groups_count = (pb_size_t)below(state, LENGTH(choice->groups) + 1);
    for (size_t i = 0; i < choice->groups_count; i++) {
        dunlin_v1_parameter_group_t *group = &choice->groups[i];
        make_text(state, group->name, sizeof(group->name));
        make_text(state, group->patterns, sizeof(group->patterns));
        group->roles = 2u * between(state, 0, 127);
        group->lr_factor = real(state, 1e6);
        group->decay_factor = real(state, 1e6);
    }
}

/* What a plan orders beside the plain training, with the features that stand for it. */
static void make_orders(dunlin__assignment *m, uint64_t *state)
{
    static const uint32_t features[] = {
        DUNLIN_V1_FEATURE_PARAMETER_CHOICE,   DUNLIN_V1_FEATURE_SCHEDULE,
        DUNLIN_V1_FEATURE_AUGMENTATION,       DUNLIN_V1_FEATURE_REMAINDER,
        DUNLIN_V1_FEATURE_GRADIENT_CLIPPING,  DUNLIN_V1_FEATURE_IGNORED_LABEL,
        DUNLIN_V1_FEATURE_ADAPTIVE_OPTIMIZER, DUNLIN_V1_FEATURE_EXAMPLE_CHANGES};
    dunlin__training_plan *plan = &m->plan;
    bool is_plain = plan->algorithm == DUNLIN_V1_ALGORITHM_SCAFFOLD;
    if (is_plain) {
        plan->optimizer = DUNLIN_V1_OPTIMIZER_SGD;
    }
    plan->has_parameters = !is_plain && coin(state);
    if (plan->has_parameters) {
        make_parameters(&plan->parameters, state);
    }
    plan->has_schedule = !is_plain && coin(state);
    if (plan->has_schedule) {
        plan->schedule.kind = (dunlin_v1_schedule_kind_t)between(state, 0, 4);
        plan->schedule.warmup_steps = test_random_u64(state) >> 24;
        plan->schedule.period_steps = test_random_u64(state) >> 24;
        plan->schedule.gamma = test_random_range(0.001, 1.0, state);
        plan->schedule.min_lr = test_random_range(0.0, 1000.0, state);
        plan->schedule.n_rounds = 1 + below(state, 1u << 24);
    }
    plan->has_augmentation = coin(state);
    plan->augmentation.flips = plan->has_augmentation && coin(state);
    plan->augmentation.crops = plan->has_augmentation && coin(state);
    plan->augmentation.crop_padding = plan->has_augmentation ? between(state, 0, 4096) : 0;
    plan->augmentation.cutout = plan->has_augmentation ? between(state, 0, 4096) : 0;
    plan->augmentation.shift = plan->has_augmentation ? between(state, 0, 1 << 24) : 0;
    plan->augmentation.noise = plan->has_augmentation ? real(state, 1000.0) : 0.0f;
    plan->remainder = (dunlin_v1_remainder_t)between(state, 0, 3);
    plan->gradient_clip_norm = is_plain ? 0.0f : real(state, 10.0);
    plan->gradient_clip_value = is_plain ? 0.0f : real(state, 10.0);
    plan->ignores_label = coin(state);
    plan->ignored_label = (int32_t)test_random_u64(state);
    plan->augmentation.mixup =
        plan->has_augmentation && !plan->ignores_label ? real(state, 1000.0) : 0.0f;
    memcpy(m->required_features, features, sizeof(features));
    m->required_features_count = LENGTH(features);
}

static void make_plan(dunlin__assignment *m, uint64_t *state)
{
    dunlin__training_plan *plan = &m->plan;
    bool is_secure = m->aggregation == DUNLIN_V1_AGGREGATION_SECURE;
    plan->learner = (dunlin_v1_learner_kind_t)between(state, 1, 2);
    plan->n_epochs = between(state, 1, 10000);
    plan->batch_size = between(state, 1, 65536);
    plan->max_steps = test_random_u64(state) >> 24;
    plan->max_examples = below(state, 1ull << 40);
    plan->optimizer = (dunlin_v1_optimizer_t)between(state, 1, 3);
    plan->learning_rate = 0.001f + real(state, 10.0);
    plan->momentum = plan->optimizer == DUNLIN_V1_OPTIMIZER_SGD ? real(state, 0.99) : 0.0f;
    plan->weight_decay = real(state, 1.0);
    plan->algorithm = (dunlin_v1_algorithm_t)between(state, 1, 3);
    plan->prox_mu = (plan->algorithm == DUNLIN_V1_ALGORITHM_FEDPROX) ? real(state, 5.0) : 0.0f;
    plan->seed = test_random_u64(state);
    plan->clip_norm = 1.0f + real(state, 100.0);
    plan->noise_multiplier = real(state, 2.0);
    plan->weight_cap = 1 + below(state, 1ull << 40);
    plan->update_form = (dunlin_v1_update_form_t)between(state, 1, 2);
    plan->update_encoding =
        is_secure ? DUNLIN_V1_ENCODING_MASKED_RING : (dunlin_v1_encoding_t)between(state, 1, 4);
    plan->chunk_bytes = between(state, DUNLIN_WIRE_CHUNK_MIN_BYTES, DUNLIN_WIRE_CHUNK_MAX_BYTES);
    plan->has_secagg = is_secure;
    if (is_secure) {
        MAKE_SOME(state, plan->secagg.session, 16u);
        plan->secagg.n_neighbours = between(state, 2, 255);
        plan->secagg.threshold =
            between(state, plan->secagg.n_neighbours / 2 + 1, plan->secagg.n_neighbours);
        plan->secagg.ring_bits = between(state, 8, 32);
        plan->secagg.version = 1;
        plan->secagg.n_cohort = between(state, 2, DUNLIN_WIRE_SECAGG_COHORT);
        plan->secagg.peer_index = between(state, 1, plan->secagg.n_cohort);
        plan->secagg.least_devices = between(state, 2, plan->secagg.n_cohort);
        plan->secagg.n_values = 1 + below(state, DUNLIN_WIRE_SECAGG_VALUES);
        plan->secagg.clip = (float)between(state, 1, 1000) / 8.0f;
        plan->secagg.value_limit = between(state, 1, INT32_MAX);
        plan->secagg.weight_limit = between(state, 1, INT32_MAX);
        plan->secagg.check_consistency = coin(state);
        if (coin(state)) {
            plan->secagg.version = 2;
            const bool is_skellam = coin(state);
            plan->secagg.noise_kind =
                is_skellam ? DUNLIN_V1_SECAGG_NOISE_SKELLAM : DUNLIN_V1_SECAGG_NOISE_GAUSSIAN;
            plan->secagg.noise_scale = between(state, 2, is_skellam ? 1u << 10 : 1u << 24);
            plan->secagg.least_honest = between(state, 1, plan->secagg.least_devices);
        }
    }
    MAKE_SOME(state, plan->learner_config, 0u);
}

void make_assignment(dunlin__assignment *m, uint64_t *state)
{
    MAKE_ID(state, m->population, 1);
    MAKE_ID(state, m->task, 1);
    MAKE_ID(state, m->assignment_id, 1);
    MAKE_ID(state, m->device_id, 1);
    m->run_epoch = test_random_u64(state) >> 11;
    m->round = test_random_u64(state) >> 11;
    m->kind = DUNLIN_V1_KIND_TRAIN;
    m->deadline_ms = 1 + below(state, DUNLIN_WIRE_MAX_WAIT_MS);
    MAKE_ID(state, m->token, 16);
    m->aggregation = (dunlin_v1_aggregation_t)between(state, 1, 3);
    m->has_plan = true;
    make_plan(m, state);
    make_orders(m, state);
    MAKE_BYTES(state, m->base_manifest_sha256);
    m->base_manifest_bytes = between(state, 1, DUNLIN_WIRE_MANIFEST_BYTES);
    MAKE_ID(state, m->key_id, 1);
    const bool is_distributed = m->plan.has_secagg && m->plan.secagg.version == 2;
    m->has_privacy = is_distributed || coin(state);
    if (m->has_privacy) {
        make_privacy(&m->privacy, state);
        m->privacy.is_distributed = is_distributed;
    }
}

void make_put_response(dunlin__put_response *m, uint64_t *state)
{
    MAKE_BYTES(state, m->manifest_sha256);
    m->n_chunks = between(state, 0, DUNLIN_WIRE_CHUNKS);
    m->missing.size = (pb_size_t)((m->n_chunks + 7) / 8);
    MAKE_BYTES(state, m->missing.bytes);
    memset(m->missing.bytes + m->missing.size, 0, sizeof(m->missing.bytes) - m->missing.size);
    if (m->n_chunks % 8 != 0) {
        m->missing.bytes[m->missing.size - 1] &= (uint8_t)((1u << (m->n_chunks % 8)) - 1u);
    }
}

void make_commit_request(dunlin__commit_request *m, uint64_t *state)
{
    m->kind = coin(state) ? DUNLIN_V1_KIND_TRAIN : DUNLIN_V1_KIND_EVALUATE;
    if (m->kind == DUNLIN_V1_KIND_TRAIN) {
        MAKE_BYTES(state, m->manifest_sha256);
        m->encoding = (dunlin_v1_encoding_t)between(state, 1, 5);
    }
    m->n_examples = 1 + below(state, 1ull << 40);
    m->n_steps = test_random_u64(state) >> 24;
    m->train_ms = below(state, DUNLIN_WIRE_MAX_WAIT_MS);
    m->metrics_count = (pb_size_t)below(state, LENGTH(m->metrics) + 1);
    for (size_t i = 0; i < m->metrics_count; i++) {
        MAKE_ID(state, m->metrics[i].name, 1);
        m->metrics[i].value = test_random_range(-1e9, 1e9, state);
    }
    m->app_metrics_count = (pb_size_t)below(state, LENGTH(m->app_metrics) + 1);
    for (size_t i = 0; i < m->app_metrics_count; i++) {
        (void)snprintf(m->app_metrics[i].name, sizeof m->app_metrics[i].name, "class/%u.f1_%u-%u",
                       (unsigned)i, between(state, 0, 99999), between(state, 0, 99999));
        m->app_metrics[i].value = test_random_range(-1e30, 1e30, state);
    }
}

void make_commit_response(dunlin__commit_response *m, uint64_t *state)
{
    m->outcome = (dunlin_v1_commit_outcome_t)between(state, 1, 4);
    make_text(state, m->text, sizeof(m->text));
    m->has_window = true;
    m->window = make_window(state);
}

void make_abort_request(dunlin__abort_request *m, uint64_t *state)
{
    m->reason = (dunlin_v1_abort_reason_t)between(state, 1, 7);
    m->status = -(int32_t)below(state, 100);
}

void make_abort_response(dunlin__abort_response *m, uint64_t *state)
{
    m->has_window = true;
    m->window = make_window(state);
}

void make_telemetry_request(dunlin__telemetry_request *m, uint64_t *state)
{
    MAKE_ID(state, m->batch_id, 16);
    m->client_version = (uint32_t)test_random_u64(state);
    m->records_count = (pb_size_t)between(state, 1, (uint32_t)LENGTH(m->records));
    for (size_t i = 0; i < m->records_count; i++) {
        m->records[i].event = between(state, 1, UINT32_MAX);
        m->records[i].age_ms = below(state, DUNLIN_WIRE_MAX_WAIT_MS);
        m->records[i].count = (int64_t)(test_random_u64(state) >> 11) - (INT64_C(1) << 52);
        m->records[i].value = test_random_range(-1e3, 1e3, state);
    }
}

void make_telemetry_response(dunlin__telemetry_response *m, uint64_t *state)
{
    m->n_stored = between(state, 0, 32);
}

void make_forget_request(dunlin__forget_request *m, uint64_t *state)
{
    m->protocol_version = between(state, 1, UINT32_MAX);
}

void make_forget_response(dunlin__forget_response *m, uint64_t *state)
{
    m->was_known = coin(state);
}

void make_status(dunlin__status *m, uint64_t *state)
{
    m->code = (dunlin_v1_status_code_t)between(state, 1, 17);
    make_text(state, m->text, sizeof(m->text));
    m->retry_after_ms = below(state, DUNLIN_WIRE_MAX_WAIT_MS);
    m->upload_offset = below(state, DUNLIN_WIRE_CHUNK_MAX_BYTES);
    if (m->code == DUNLIN_V1_STATUS_CODE_STALE_CHALLENGE) {
        MAKE_ID(state, m->challenge, 16);
    }
}

void make_secagg(dunlin__secagg_message *message, bool is_request, dunlin__secagg_peer *peers,
                 uint32_t capacity, uint64_t *state)
{
    *message = (dunlin__secagg_message){.peers = peers, .peer_capacity = capacity};
    message->step = between(state, 1, 5);
    if (is_request) {
        message->has_manifest = coin(state);
        if (message->has_manifest) {
            MAKE_BYTES(state, message->manifest_sha256);
        }
    } else {
        message->ready = coin(state);
        message->retry_ms = below(state, DUNLIN_WIRE_MAX_WAIT_MS);
    }
    message->n_peers = (uint32_t)below(state, capacity + 1);
    memset(peers, 0, capacity * sizeof(*peers));
    for (uint32_t i = 0; i < message->n_peers; i++) {
        dunlin__secagg_peer *peer = &peers[i];
        peer->peer_index = between(state, 1, UINT32_MAX);
        peer->encryption_key.size = coin(state) ? 32 : 0;
        make_bytes(state, peer->encryption_key.bytes, peer->encryption_key.size);
        peer->signature.size = coin(state) ? 64 : 0;
        make_bytes(state, peer->signature.bytes, peer->signature.size);
        peer->device_key.size = coin(state) ? DUNLIN_PUBLIC_KEY_BYTES : 0;
        make_bytes(state, peer->device_key.bytes, peer->device_key.size);
        MAKE_SOME(state, peer->ciphertext, 0u);
        peer->share_kind = (dunlin_v1_share_kind_t)between(state, 0, 2);
        if (peer->share_kind != DUNLIN_V1_SHARE_KIND_NONE) {
            MAKE_SOME(state, peer->share, 1u);
        }
    }
}
