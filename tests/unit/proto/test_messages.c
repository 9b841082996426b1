/*
 * test_messages.c - every message: round trip, limits, broken bytes.
 */
#include "make_message.h"
#include "random.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static uint8_t encoded[DUNLIN_WIRE_BODY_BYTES];
static uint8_t encoded_again[DUNLIN_WIRE_BODY_BYTES];
static any_message made, decoded;

Test(proto_messages, round_trip_gives_the_same_message)
{
    uint64_t seed = test_seed(11);
    uint64_t state = seed;
    dunlin_error error = {0};
    for (int i = 0; i < test_cases(60); i++) {
        for (size_t r = 0; r < n_message_rows; r++) {
            const message_row *row = &message_rows[r];
            size_t n_bytes = 0;
            size_t n_again = 0;
            row->make_fn(&made, &state);
            cr_assert_eq(row->encode_fn(&made, encoded, row->max_bytes, &n_bytes, &error),
                         DUNLIN_OK, "seed %llu: %s: %s", (unsigned long long)seed, row->name,
                         error.text);
            memset(&decoded, 0xa5, sizeof(decoded));
            cr_assert_eq(row->decode_fn(encoded, n_bytes, &decoded, &error), DUNLIN_OK,
                         "seed %llu: %s: %s", (unsigned long long)seed, row->name, error.text);
            cr_assert_eq(row->encode_fn(&decoded, encoded_again, row->max_bytes, &n_again, &error),
                         DUNLIN_OK);
            cr_assert_eq(n_again, n_bytes);
            cr_assert_arr_eq(encoded_again, encoded, n_bytes, "seed %llu: %s",
                             (unsigned long long)seed, row->name);
            cr_assert_eq(memcmp(&decoded, &made, row->struct_bytes), 0, "seed %llu: %s",
                         (unsigned long long)seed, row->name);
        }
    }
}

Test(proto_messages, too_small_a_buffer_is_a_limit)
{
    uint64_t state = test_seed(12);
    for (size_t r = 0; r < n_message_rows; r++) {
        const message_row *row = &message_rows[r];
        dunlin_error error = {0};
        size_t n_bytes = 0;
        size_t n_written = 99;
        do {
            row->make_fn(&made, &state);
            cr_assert_eq(row->encode_fn(&made, encoded, sizeof(encoded), &n_bytes, &error),
                         DUNLIN_OK);
        } while (n_bytes == 0);
        cr_assert_eq(row->encode_fn(&made, encoded, n_bytes - 1, &n_written, &error), DUNLIN_LIMIT,
                     "%s", row->name);
        cr_assert_eq(n_written, 0);
        cr_assert_not_null(strstr(error.text, "does not fit"));
    }
}

/* Decodes bytes from an exact allocation, so that a sanitizer sees any step beyond. */
static dunlin_status decode_copy(const message_row *row, const uint8_t *bytes, size_t n_bytes,
                                 dunlin_error *error)
{
    uint8_t *copy = malloc(n_bytes + (n_bytes == 0));
    memcpy(copy, bytes, n_bytes);
    dunlin_status status = row->decode_fn(copy, n_bytes, &decoded, error);
    free(copy);
    return status;
}

/* What a failed decode leaves: a zero struct and one line that names the message. */
static void expect_clean_failure(const message_row *row, dunlin_status status,
                                 const dunlin_error *error)
{
    static const any_message zero;
    cr_assert(status == DUNLIN_PROTOCOL || status == DUNLIN_LIMIT, "%s: status %d", row->name,
              (int)status);
    cr_assert_eq(error->status, status);
    cr_assert_not_null(strchr(error->text, ':'), "%s: %s", row->name, error->text);
    cr_assert_eq(memcmp(&decoded, &zero, row->struct_bytes), 0, "%s is not cleared", row->name);
}

Test(proto_messages, truncated_bytes_never_crash)
{
    uint64_t state = test_seed(13);
    for (size_t r = 0; r < n_message_rows; r++) {
        const message_row *row = &message_rows[r];
        size_t n_bytes = 0;
        dunlin_error error = {0};
        row->make_fn(&made, &state);
        cr_assert_eq(row->encode_fn(&made, encoded, sizeof(encoded), &n_bytes, &error), DUNLIN_OK);
        size_t step = 1 + n_bytes / 400;
        for (size_t n = 0; n < n_bytes; n += step) {
            dunlin_status status = decode_copy(row, encoded, n, &error);
            if (status != DUNLIN_OK) {
                expect_clean_failure(row, status, &error);
            }
        }
    }
}

Test(proto_messages, flipped_bits_never_crash)
{
    uint64_t seed = test_seed(14);
    uint64_t state = seed;
    for (int i = 0; i < test_cases(400); i++) {
        for (size_t r = 0; r < n_message_rows; r++) {
            const message_row *row = &message_rows[r];
            size_t n_bytes = 0;
            dunlin_error error = {0};
            if (r % 4 == (size_t)i % 4 || i == 0) {
                row->make_fn(&made, &state);
                cr_assert_eq(row->encode_fn(&made, encoded, sizeof(encoded), &n_bytes, &error),
                             DUNLIN_OK);
                for (int flips = 1 + i % 3; flips > 0 && n_bytes > 0; flips--) {
                    encoded[test_random_below(&state, n_bytes)] ^=
                        (uint8_t)(1u << test_random_below(&state, 8));
                }
            } else {
                n_bytes = test_random_below(&state, 80);
                for (size_t k = 0; k < n_bytes; k++) {
                    encoded[k] = (uint8_t)test_random_u64(&state);
                }
            }
            dunlin_status status = decode_copy(row, encoded, n_bytes, &error);
            if (status != DUNLIN_OK) {
                expect_clean_failure(row, status, &error);
            }
        }
    }
}

Test(proto_messages, a_body_beyond_the_limit_is_refused)
{
    static uint8_t large[DUNLIN_WIRE_BODY_BYTES + 1];
    for (size_t r = 0; r < n_message_rows; r++) {
        dunlin_error error = {0};
        cr_assert_eq(message_rows[r].decode_fn(large, sizeof(large), &decoded, &error),
                     DUNLIN_LIMIT);
        cr_assert_not_null(strstr(error.text, "65537"));
        cr_assert_not_null(strstr(error.text, "65536"));
    }
}

/* Encodes `made` after it has been spoilt: refused, and the text holds `wanted`. */
#define EXPECT_REFUSED(name, wanted)                                                               \
    do {                                                                                           \
        dunlin_error refused_error = {0};                                                          \
        size_t refused_bytes = 0;                                                                  \
        cr_assert_eq(dunlin__##name##_encode(&made.name, encoded, sizeof(encoded), &refused_bytes, \
                                             &refused_error),                                      \
                     DUNLIN_PROTOCOL, "%s", wanted);                                               \
        cr_assert_not_null(strstr(refused_error.text, wanted), "\"%s\" is not in \"%s\"", wanted,  \
                           refused_error.text);                                                    \
    } while (0)

/* Makes a message, spoils it by `change`, and expects the refusal. */
#define SPOIL(name, change, wanted)                                                                \
    do {                                                                                           \
        memset(&made, 0, sizeof(made));                                                            \
        make_##name(&made.name, &state);                                                           \
        dunlin__##name *m = &made.name;                                                            \
        change;                                                                                    \
        EXPECT_REFUSED(name, wanted);                                                              \
    } while (0)

Test(proto_messages, fleet_limits_are_told_by_name)
{
    uint64_t state = test_seed(15);
    SPOIL(enrol_request, m->protocol_version = 0, "EnrolRequest: protocol_version is 0");
    SPOIL(enrol_request, m->public_key[0] = 3, "public_key");
    SPOIL(enrol_request, m->attestation.size = 8193, "attestation has 8193 items");
    SPOIL(enrol_request, memset(m->invitation, 'x', sizeof(m->invitation)),
          "invitation is longer than 255");
    SPOIL(enrol_request, m->invitation[0] = '\n', "invitation is not UTF-8");
    SPOIL(enrol_response, m->device_id[0] = '\0', "device_id is missing");
    SPOIL(enrol_response, m->device_id[0] = '/', "device_id is not 1 to 64");
    SPOIL(enrol_response, m->challenge[15] = '\0', "challenge is not 16 to 64");
    SPOIL(enrol_response, m->has_window = false, "window is missing");
    SPOIL(enrol_response, m->window.min_ms = m->window.max_ms + 1, "window is");
    SPOIL(checkin_request, m->has_capabilities = false, "capabilities is missing");
    SPOIL(checkin_request, m->has_conditions = false, "conditions is missing");
    SPOIL(checkin_request, m->capabilities.memory_log2 = 64, "capabilities.memory_log2 is 64");
    SPOIL(checkin_request, m->capabilities.features_count = 33, "capabilities.features has 33");
    SPOIL(checkin_request, m->capabilities.encodings_count = 9, "capabilities.encodings has 9");
    SPOIL(checkin_request, m->conditions.n_examples_log2 = 99, "conditions.n_examples_log2 is 99");
    SPOIL(checkin_response, m->rejection = 5, "rejection is 5");
    SPOIL(checkin_response, m->rejection = 0; m->session[0] = '\0', "session is missing");
    SPOIL(checkin_response, m->rejection = 1; m->offers_count = 1, "offers has 1 items");
    SPOIL(checkin_response, m->has_accepted_window = false, "accepted_window is missing");
    SPOIL(assignment, m->has_privacy = true; m->privacy.epsilon = -1, "privacy.");
    SPOIL(assignment, m->has_privacy = true;
          m->privacy = (dunlin_v1_privacy_t){0}, "privacy.mechanism is 0");
    SPOIL(assignment, m->has_privacy = true; m->privacy.noise_multiplier = 0, "privacy.");
    SPOIL(assignment, m->has_privacy = true; m->privacy.delta = 2, "privacy.");
    SPOIL(accept_request, m->offer_id[0] = 'a'; m->offer_id[1] = '\0';
          m->decline_reason = 1, "offer_id and decline_reason");
    SPOIL(accept_request, m->decline_reason = 8, "decline_reason is 8");
    SPOIL(checkin_response, m->rejection = 2; m->has_run_over = true, "run_over is given");
    SPOIL(run_over, m->device_id[0] = '\0', "device_id is");
    SPOIL(run_over, m->round = (1ULL << 53) + 1, "round is 9007199254740993");
    SPOIL(run_over, memset(m->model_manifest_sha256, 0, 32), "model_manifest_sha256 is missing");
    SPOIL(run_over, m->model_manifest_bytes = 0, "model_manifest_bytes is 0");
    SPOIL(run_over, m->has_window = false, "window is missing");
    SPOIL(run_over, m->key_id[0] = '\0', "key_id is missing");
    SPOIL(accept_response, m->has_assignment = true;
          m->assignment.assignment.size = 0, "assignment.assignment has 0");
    SPOIL(accept_response, m->has_assignment = true; m->assignment.assignment.size = 1;
          memset(m->assignment.signature, 0, 64), "assignment.signature is missing");
    SPOIL(forget_request, m->protocol_version = 0, "protocol_version is 0");
}

/* Terms of a secure aggregation in an offer, all others within their limits. */
static void make_terms(dunlin__offer *offer, uint32_t n_cohort, uint32_t n_neighbours,
                       uint32_t threshold)
{
    offer->has_secagg = true;
    offer->secagg = (dunlin_v1_secagg_terms_t){.n_cohort = n_cohort,
                                               .n_neighbours = n_neighbours,
                                               .threshold = threshold,
                                               .least_devices = 2};
}

Test(proto_messages, offer_limits_are_told_by_name)
{
    uint64_t state = test_seed(16);
    do {
        memset(&made, 0, sizeof(made));
        make_checkin_response(&made.checkin_response, &state);
    } while (made.checkin_response.offers_count < 2);
    const dunlin__checkin_response good = made.checkin_response;
#define SPOIL_OFFER(change, wanted)                                                                \
    do {                                                                                           \
        made.checkin_response = good;                                                              \
        dunlin__offer *offer = &made.checkin_response.offers[1];                                   \
        change;                                                                                    \
        EXPECT_REFUSED(checkin_response, wanted);                                                  \
    } while (0)
    SPOIL_OFFER(offer->task[0] = ' ', "offers[1].task is not");
    SPOIL_OFFER(offer->kind = 0, "offers[1].kind is 0");
    SPOIL_OFFER(offer->deadline_ms = 0, "offers[1].deadline_ms is 0");
    SPOIL_OFFER(offer->deadline_ms = UINT64_MAX, "offers[1].deadline_ms is 184");
    SPOIL_OFFER(offer->aggregation = 9, "offers[1].aggregation is 9");
    SPOIL_OFFER(offer->has_policy = false, "offers[1].policy is missing");
    SPOIL_OFFER(offer->required_features_count = 17, "offers[1].required_features has 17");
    SPOIL_OFFER(make_terms(offer, 1, 2, 2), "offers[1].secagg.n_cohort is 1");
    SPOIL_OFFER(make_terms(offer, 9, 1, 2), "offers[1].secagg.n_neighbours is 1");
    SPOIL_OFFER(make_terms(offer, 9, 4, 5), "offers[1].secagg.threshold is 5");
    SPOIL_OFFER(make_terms(offer, 9, 4, 3);
                offer->secagg.least_devices = 10, "offers[1].secagg.least_devices is 10");
    made.checkin_response = good;
    made.checkin_response.offers_count = 5;
    EXPECT_REFUSED(checkin_response, "offers has 5 items, allowed are 1 to 4");
}

static const dunlin_v1_privacy_t whole_privacy = {.mechanism = 1,
                                                  .sampling = 1,
                                                  .epsilon = 4,
                                                  .delta = 1e-5,
                                                  .noise_multiplier = 1,
                                                  .clip_norm = 1,
                                                  .n_rounds = 1,
                                                  .cohort = 1};
static const dunlin__secagg_plan whole_secagg = {.session = {.size = 16},
                                                 .n_neighbours = 10,
                                                 .threshold = 6,
                                                 .ring_bits = 32,
                                                 .peer_index = 20,
                                                 .version = 1,
                                                 .n_cohort = 20,
                                                 .least_devices = 2,
                                                 .n_values = 1,
                                                 .clip = 1.0f,
                                                 .value_limit = 1,
                                                 .weight_limit = 1};

/* A packed base with a delta, but for one member. */
static void make_packed_base(dunlin__assignment *m)
{
    m->has_packed_base = true;
    memset(&m->packed_base, 1, sizeof m->packed_base);
    m->packed_base.manifest_bytes = 400;
    m->packed_base.from_sha256.size = DUNLIN_SHA256_BYTES;
    m->packed_base.delta_manifest_sha256.size = DUNLIN_SHA256_BYTES;
    m->packed_base.delta_manifest_bytes = 60;
}
#define SPOIL_BASE(change, wanted)                                                                 \
    SPOIL(assignment, make_packed_base(m); m->packed_base.change, wanted)

Test(proto_messages, assignment_limits_are_told_by_name)
{
    uint64_t state = test_seed(17);
    SPOIL(assignment, m->population[0] = '.', "population is not");
    SPOIL(assignment, m->token[3] = '\0', "token is not 16 to 128");
    SPOIL(assignment, m->kind = 3, "kind is 3");
    SPOIL(assignment, memset(m->base_manifest_sha256, 0, 32), "base_manifest_sha256 is missing");
    SPOIL(assignment, m->base_manifest_bytes = 262145, "base_manifest_bytes is 262145");
    SPOIL(assignment, m->has_plan = false, "plan is missing");
    SPOIL(assignment, m->key_id[0] = '\0', "key_id is missing");
    SPOIL(assignment, m->plan.learner = 0, "plan.learner is 0");
    SPOIL(assignment, m->plan.n_epochs = 0, "plan.n_epochs is 0");
    SPOIL(assignment, m->plan.batch_size = 65537, "plan.batch_size is 65537");
    SPOIL(assignment, m->plan.learning_rate = NAN, "plan.learning_rate is");
    SPOIL(assignment, m->plan.learning_rate = INFINITY, "plan.learning_rate is inf");
    SPOIL(assignment, m->plan.learning_rate = 0.0f; m->plan.learner = 1, "plan.learning_rate");
    SPOIL(assignment, m->plan.momentum = 1.0f, "plan.momentum is not below 1");
    SPOIL(assignment, m->plan.weight_decay = -1.0f, "plan.weight_decay is -1");
    SPOIL(assignment, m->plan.algorithm = 1; m->plan.prox_mu = 1.0f, "plan.prox_mu is given");
    SPOIL(assignment, m->plan.clip_norm = 0.0f;
          m->plan.noise_multiplier = 1.0f, "plan.noise_multiplier is given");
    SPOIL(assignment, m->plan.max_steps = UINT64_MAX, "plan.max_steps is 18446744073709551615");
    SPOIL(assignment, m->run_epoch = UINT64_MAX, "run_epoch is 18446744073709551615");
    SPOIL(assignment, m->round = (1ULL << 53) + 1, "round is 9007199254740993");
    SPOIL(assignment, m->plan.weight_cap = 0, "plan.weight_cap is 0");
    SPOIL(assignment, m->plan.update_encoding = 6, "plan.update_encoding is 6");
    SPOIL(assignment, m->plan.chunk_bytes = 1000, "plan.chunk_bytes is 1000");
    SPOIL(assignment, m->aggregation = 2; m->plan.has_secagg = false, "plan.secagg and");
    SPOIL_BASE(manifest_bytes = 0, "packed_base.manifest_bytes is 0");
    SPOIL_BASE(manifest_bytes = 1u << 30, "packed_base.manifest_bytes is 1073741824");
    SPOIL_BASE(from_sha256.size = 31, "packed_base.from_sha256 has 31");
    SPOIL_BASE(delta_manifest_sha256.size = 0, "packed_base.delta_manifest_sha256 has 0");
    SPOIL_BASE(delta_manifest_bytes = 0, "packed_base.delta_manifest_bytes is 0");
    SPOIL_BASE(from_sha256.size = 0, "packed_base.delta_manifest_sha256 has 32");
#undef SPOIL_BASE
    SPOIL(assignment, m->aggregation = 1; m->plan.update_encoding = 5;
          m->plan.has_secagg = false, "plan.update_encoding MASKED_RING");
    SPOIL(assignment, m->plan.has_secagg = true; m->aggregation = 2; m->plan.update_encoding = 5;
          m->plan.secagg.session.size = 16; m->plan.secagg.n_neighbours = 10;
          m->plan.secagg.threshold = 5, "plan.secagg.threshold is 5");
#define SPOIL_SECAGG(change, wanted)                                                               \
    SPOIL(assignment, m->plan.has_secagg = true; m->aggregation = 2; m->plan.update_encoding = 5;  \
          m->plan.secagg = whole_secagg; change, wanted)
    SPOIL_SECAGG(m->plan.secagg.ring_bits = 7, "plan.secagg.ring_bits is 7, allowed are 8 to 32");
    SPOIL_SECAGG(m->plan.secagg.ring_bits = 33, "plan.secagg.ring_bits is 33");
    SPOIL_SECAGG(m->plan.secagg.version = 0, "plan.secagg.version is 0");
    SPOIL_SECAGG(m->plan.secagg.version = 3, "plan.secagg.version is 3, allowed are 1 to 2");
    SPOIL_SECAGG(m->plan.secagg.noise_kind = 1, "plan.secagg.noise_kind is 1");
    SPOIL_SECAGG(m->plan.secagg.noise_scale = 5, "plan.secagg.noise_scale is 5");
    SPOIL_SECAGG(m->plan.secagg.least_honest = 1, "plan.secagg.least_honest is 1");
    SPOIL_SECAGG(m->plan.secagg.version = 2, "plan.secagg.noise_kind is 0, allowed are 1 to 2");
    SPOIL_SECAGG(m->has_privacy = true; m->privacy = whole_privacy;
                 m->privacy.is_distributed = true, "privacy.is_distributed and noise of secagg");
#define SPOIL_NOISE(change, wanted)                                                                \
    SPOIL_SECAGG(m->plan.secagg.version = 2; m->plan.secagg.noise_kind = 1;                        \
                 m->plan.secagg.noise_scale = 2; m->plan.secagg.least_honest = 1; change, wanted)
    SPOIL_NOISE(m->plan.secagg.noise_scale = 1, "plan.secagg.noise_scale is 1");
    SPOIL_NOISE(m->plan.secagg.noise_scale = (1u << 24) + 1, "plan.secagg.noise_scale is 16777217");
    SPOIL_NOISE((m->plan.secagg.noise_kind = 2, m->plan.secagg.noise_scale = 1025),
                "scale is 1025");
    SPOIL_NOISE(m->plan.secagg.least_honest = 21, "plan.secagg.least_honest is 21");
    SPOIL_NOISE(m->has_privacy = false, "privacy.is_distributed and noise of secagg");
    SPOIL_SECAGG(m->plan.secagg.n_cohort = 65537, "plan.secagg.n_cohort is 65537");
    SPOIL_SECAGG(m->plan.secagg.peer_index = 21, "plan.secagg.peer_index is 21");
    SPOIL_SECAGG(m->plan.secagg.least_devices = 1, "plan.secagg.least_devices is 1");
    SPOIL_SECAGG(m->plan.secagg.n_values = 0, "plan.secagg.n_values is 0");
    SPOIL_SECAGG(m->plan.secagg.clip = 0.0f, "plan.secagg.clip is 0");
    SPOIL_SECAGG(m->plan.secagg.value_limit = 0, "plan.secagg.value_limit is 0");
    SPOIL_SECAGG(m->plan.secagg.weight_limit = 1u << 31, "plan.secagg.weight_limit is 2147483648");
#undef SPOIL_SECAGG
}

/* A plan with everything that it can order. */
static void order_all(dunlin__assignment *m)
{
    dunlin__training_plan *plan = &m->plan;
    plan->algorithm = DUNLIN_V1_ALGORITHM_FEDAVG;
    plan->prox_mu = 0.0f;
    plan->optimizer = DUNLIN_V1_OPTIMIZER_ADAM;
    plan->momentum = 0.0f;
    plan->has_parameters = true;
    plan->parameters.groups_count = 2;
    plan->has_schedule = true;
    plan->schedule =
        (dunlin_v1_schedule_t){.kind = DUNLIN_V1_SCHEDULE_KIND_STEP, .gamma = 0.5, .n_rounds = 3};
    plan->has_augmentation = true;
    plan->augmentation.flips = true;
    plan->augmentation.noise = 0.5f;
    plan->augmentation.mixup = 0.0f;
    plan->remainder = DUNLIN_V1_REMAINDER_JOIN;
    plan->gradient_clip_norm = 1.0f;
    plan->ignores_label = true;
    m->required_features_count = 0;
    for (uint32_t i = DUNLIN_V1_FEATURE_PARAMETER_CHOICE; i <= DUNLIN_V1_FEATURE_EXAMPLE_CHANGES;
         i++) {
        m->required_features[m->required_features_count++] = i;
    }
}

Test(proto_messages, limits_of_what_a_plan_orders_are_told_by_name)
{
    uint64_t state = test_seed(18);
#define SPOIL_ORDER(change, text) SPOIL(assignment, order_all(m); change, text)
    SPOIL_ORDER(m->plan.parameters.trained = 3, "plan.parameters.trained is 3");
    SPOIL_ORDER(m->plan.parameters.trained_prefixes[0] = '\n';
                m->plan.parameters.trained_prefixes[1] = '\0',
                "plan.parameters.trained_prefixes is not UTF-8");
    SPOIL_ORDER(m->plan.parameters.groups_count = 9, "plan.parameters.groups has 9");
    SPOIL_ORDER(m->plan.parameters.groups[1].lr_factor = -1.0f,
                "plan.parameters.groups[1].lr_factor is -1");
    SPOIL_ORDER(m->plan.parameters.groups[1].decay_factor = NAN,
                "plan.parameters.groups[1].decay_factor is");
    SPOIL_ORDER(m->plan.parameters.groups[0].roles = 1,
                "plan.parameters.groups[0].roles has a bit of no role");
    SPOIL_ORDER(m->plan.parameters.groups[0].roles = 256,
                "plan.parameters.groups[0].roles has a bit of no role");
    SPOIL_ORDER(m->plan.clips_layers = true;
                m->plan.clip_norm = 1.0f,
                "clips_layers or reports_clip is given, but required_features has no 20");
    SPOIL_ORDER(m->plan.reports_clip = true; m->plan.clip_norm = 0.0f;
                m->plan.noise_multiplier = 0.0f;
                m->required_features[m->required_features_count++] = DUNLIN_V1_FEATURE_CLIP_ORDERS,
                "clips_layers or reports_clip is given without a clip_norm");
    SPOIL_ORDER(m->plan.schedule.kind = 5, "plan.schedule.kind is 5");
    SPOIL_ORDER(m->plan.schedule.gamma = 0.0, "plan.schedule.gamma is not above 0");
    SPOIL_ORDER(m->plan.schedule.gamma = 1.5, "plan.schedule.gamma is 1.5");
    SPOIL_ORDER(m->plan.schedule.min_lr = INFINITY, "plan.schedule.min_lr is inf");
    SPOIL_ORDER(m->plan.schedule.n_rounds = 0, "plan.schedule.n_rounds is 0");
    SPOIL_ORDER(m->plan.schedule.warmup_steps = UINT64_MAX, "plan.schedule.warmup_steps is 184");
    SPOIL_ORDER(m->plan.augmentation.crop_padding = 4097, "plan.augmentation.crop_padding is 4097");
    SPOIL_ORDER(m->plan.augmentation.cutout = 4097, "plan.augmentation.cutout is 4097");
    SPOIL_ORDER(m->plan.augmentation.shift = 16777217, "plan.augmentation.shift is 16777217");
    SPOIL_ORDER(m->plan.augmentation.noise = NAN, "plan.augmentation.noise is");
    SPOIL_ORDER(m->plan.augmentation.mixup = 1001.0f, "plan.augmentation.mixup is 1001");
    SPOIL_ORDER(m->plan.augmentation.mixup = 0.2f,
                "plan.augmentation.mixup is given, but a label is ignored");
    SPOIL_ORDER(m->plan.remainder = 4, "plan.remainder is 4");
    SPOIL_ORDER(m->plan.gradient_clip_norm = NAN, "plan.gradient_clip_norm is");
    SPOIL_ORDER(m->plan.gradient_clip_value = -1.0f, "plan.gradient_clip_value is -1");
    SPOIL_ORDER(m->plan.algorithm = 3, "plan.optimizer is given, but the algorithm is SCAFFOLD");
    SPOIL_ORDER(m->plan.algorithm = 3;
                m->plan.optimizer = 1, "plan.parameters is given, but the algorithm is SCAFFOLD");
    SPOIL_ORDER(m->plan.momentum = 0.5f, "plan.momentum is given, but the optimizer is not SGD");
    SPOIL_ORDER(m->plan.algorithm = 3; m->plan.optimizer = 1;
                m->plan.has_parameters = false,
                "plan.schedule is given, but the algorithm is SCAFFOLD");
#undef SPOIL_ORDER
}

/* A device that does not know the feature declines; without it, it would train otherwise. */
Test(proto_messages, what_a_plan_orders_comes_with_its_feature)
{
    static const char *const fields[] = {
        "plan.parameters",         "plan.schedule",      "plan.augmentation", "plan.remainder",
        "plan.gradient_clip_norm", "plan.ignored_label", "plan.optimizer",    "plan.augmentation"};
    uint64_t state = test_seed(19);
    for (uint32_t left_out = 0; left_out < 8; left_out++) {
        char text[96];
        (void)snprintf(text, sizeof text, "%s is given, but required_features has no %u",
                       fields[left_out], left_out + DUNLIN_V1_FEATURE_PARAMETER_CHOICE);
        SPOIL(assignment, order_all(m); m->required_features[left_out] = 40, text);
    }
}

Test(proto_messages, update_limits_are_told_by_name)
{
    uint64_t state = test_seed(18);
    SPOIL(put_response, m->n_chunks = 4097, "n_chunks is 4097, allowed are 0 to 4096");
    SPOIL(put_response, m->n_chunks = 9; m->missing.size = 1, "missing has 1 items");
    SPOIL(put_response, m->n_chunks = 9; m->missing.size = 2;
          m->missing.bytes[1] = 2, "missing has bits set");
    SPOIL(commit_request, m->kind = 1; memset(m->manifest_sha256, 0, 32), "manifest_sha256 is mis");
    SPOIL(commit_request, m->kind = 2; m->manifest_sha256[0] = 1, "manifest_sha256 is given");
    SPOIL(commit_request, m->n_examples = 0, "n_examples is 0");
    SPOIL(commit_request, m->metrics_count = 17, "metrics has 17");
    SPOIL(commit_request, m->metrics_count = 3; strcpy(m->metrics[0].name, "a");
          strcpy(m->metrics[1].name, "b"); strcpy(m->metrics[2].name, "c");
          m->metrics[2].value = NAN, "metrics[2].value is not a finite");
    SPOIL(commit_request, m->n_steps = UINT64_MAX, "n_steps is 18446744073709551615");
    SPOIL(commit_request, m->n_examples = UINT64_MAX, "n_examples is 18446744073709551615");
    SPOIL(commit_request, m->app_metrics_count = 65, "app_metrics has 65");
    SPOIL(commit_request, m->app_metrics_count = 1; strcpy(m->app_metrics[0].name, "<b>f1</b>"),
                                                    "app_metrics[0].name is not 1 to 64 letters");
    SPOIL(commit_request, m->app_metrics_count = 1;
          m->app_metrics[0].name[0] = 0, "app_metrics[0].name is not 1 to 64 letters");
    SPOIL(commit_request, m->app_metrics_count = 1; strcpy(m->app_metrics[0].name, "f1");
          m->app_metrics[0].value = INFINITY, "app_metrics[0].value is not a finite");
    SPOIL(commit_request, m->app_metrics_count = 1; strcpy(m->app_metrics[0].name, "f1");
          m->app_metrics[0].value = -1e31, "app_metrics[0].value is -1e+31");
    SPOIL(commit_request, m->metrics_count = 1; strcpy(m->metrics[0].name, "loss");
          m->metrics[0].value = 1e300, "metrics[0].value is 1e+300");
    SPOIL(commit_request, m->metrics_count = 1; strcpy(m->metrics[0].name, "accuracy_after");
          m->metrics[0].value = 57.0, "metrics[0].value is 57, allowed are 0 to 1");
    SPOIL(commit_response, m->outcome = 0, "outcome is 0");
    SPOIL(commit_response, m->text[0] = '\x80', "text is not UTF-8");
    SPOIL(abort_request, m->reason = 8, "reason is 8");
    SPOIL(abort_request, m->status = 5, "status is not");
    SPOIL(telemetry_request, m->records_count = 33, "records has 33");
    SPOIL(telemetry_request, m->records[0].event = 0, "records[0].event is 0");
    SPOIL(telemetry_request, m->records[0].value = INFINITY, "records[0].value is not");
    SPOIL(telemetry_request, m->records[0].value = -1e31, "records[0].value is -1e+31");
    SPOIL(telemetry_request, m->records[0].count = INT64_MIN, "records[0].count is not");
    SPOIL(telemetry_response, m->n_stored = 33, "n_stored is 33");
    SPOIL(status, m->code = 0, "code is 0");
    SPOIL(status, m->code = 4; m->challenge[0] = '\0', "challenge is missing");
}
