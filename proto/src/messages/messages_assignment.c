/*
 * messages_assignment.c - the rules of an assignment and its plan, and its signature.
 *
 * What a device follows is decoded only after the signature over its exact bytes has been verified.
 */
#include "codec/codec.h"
#include "plan_rules.h"

#include <mem/support.h>
#include <wire/secagg_noise.h>
#include <wire/signature.h>

#include <string.h>

/* Far beyond any sensible plan; they keep arithmetic on the device from overflowing. */
#define EPOCHS_MAX 10000u
#define BATCH_MAX 65536u
#define LEARNING_RATE_MAX 1000.0
#define NORM_MAX 1e6
#define EXAMPLES_MAX (UINT64_C(1) << 40)
#define ROUNDS_MAX (UINT64_C(1) << 53) /* a device never takes a lower one than it has seen */

/* Names the use, so that no signature of ours fits another purpose. */
#define ASSIGNMENT_TAG "dunlin.v1.assignment"

static void check_secagg_plan(dunlin__rules *rules, const dunlin__secagg_plan *plan)
{
    dunlin__rule_count(rules, "secagg.session", plan->session.size, 16,
                       sizeof(plan->session.bytes));
    dunlin__rule_number(rules, "secagg.n_neighbours", plan->n_neighbours, 2, DUNLIN_WIRE_PEERS);
    dunlin__rule_number(rules, "secagg.threshold", plan->threshold, plan->n_neighbours / 2 + 1,
                        plan->n_neighbours);
    dunlin__rule_number(rules, "secagg.ring_bits", plan->ring_bits, 8, 32);
    dunlin__rule_number(rules, "secagg.version", plan->version, 1, 2);
    const bool has_noise = plan->version == 2;
    dunlin__rule_number(rules, "secagg.noise_kind", (uint64_t)plan->noise_kind, has_noise ? 1 : 0,
                        has_noise ? DUNLIN_V1_SECAGG_NOISE_SKELLAM : 0);
    dunlin__rule_number(rules, "secagg.noise_scale", plan->noise_scale,
                        has_noise ? DUNLIN_SECAGG_SCALE_LEAST : 0,
                        has_noise ? dunlin__secagg_scale_most(plan->noise_kind) : 0);
    dunlin__rule_number(rules, "secagg.least_honest", plan->least_honest, has_noise ? 1 : 0,
                        has_noise ? plan->least_devices : 0);
    dunlin__rule_number(rules, "secagg.n_cohort", plan->n_cohort, 2, DUNLIN_WIRE_SECAGG_COHORT);
    dunlin__rule_number(rules, "secagg.peer_index", plan->peer_index, 1, plan->n_cohort);
    dunlin__rule_number(rules, "secagg.least_devices", plan->least_devices, 2, plan->n_cohort);
    dunlin__rule_number(rules, "secagg.n_values", plan->n_values, 1, DUNLIN_WIRE_SECAGG_VALUES);
    dunlin__rule_real(rules, "secagg.clip", (double)plan->clip, 1e-30, 1e30);
    dunlin__rule_number(rules, "secagg.value_limit", plan->value_limit, 1, INT32_MAX);
    dunlin__rule_number(rules, "secagg.weight_limit", plan->weight_limit, 1, INT32_MAX);
}

/* What only training needs. */
static void check_training(dunlin__rules *rules, const dunlin__training_plan *plan)
{
    bool is_builtin = plan->learner == DUNLIN_V1_LEARNER_KIND_BUILTIN;
    dunlin__rule_number(rules, "n_epochs", plan->n_epochs, 1, EPOCHS_MAX);
    dunlin__rule_number(rules, "optimizer", (uint64_t)plan->optimizer, is_builtin ? 1 : 0,
                        DUNLIN_V1_OPTIMIZER_ADAMW);
    const bool has_rate = plan->learning_rate > 0.0f || plan->precision[0] != '\0';
    dunlin__rule_true(rules, "learning_rate", !is_builtin || has_rate, "is not above 0");
    dunlin__rule_number(rules, "algorithm", (uint64_t)plan->algorithm, DUNLIN_V1_ALGORITHM_FEDAVG,
                        DUNLIN_V1_ALGORITHM_SCAFFOLD);
    dunlin__rule_number(rules, "weight_cap", plan->weight_cap, 1, EXAMPLES_MAX);
    dunlin__rule_number(rules, "update_form", (uint64_t)plan->update_form,
                        DUNLIN_V1_UPDATE_FORM_DELTA, DUNLIN_V1_UPDATE_FORM_WEIGHTS);
    dunlin__rule_number(
        rules, "update_encoding", (uint64_t)plan->update_encoding, DUNLIN_V1_ENCODING_F32,
        plan->update_encoding == DUNLIN_V1_ENCODING_PACKED ? DUNLIN_V1_ENCODING_PACKED
                                                           : DUNLIN_V1_ENCODING_MASKED_RING);
    dunlin__rule_number(rules, "chunk_bytes", plan->chunk_bytes, DUNLIN_WIRE_CHUNK_MIN_BYTES,
                        DUNLIN_WIRE_CHUNK_MAX_BYTES);
    dunlin__rule_true(rules, "prox_mu",
                      !(plan->prox_mu > 0.0f) || plan->algorithm == DUNLIN_V1_ALGORITHM_FEDPROX,
                      "is given, but the algorithm is not FEDPROX");
    dunlin__rule_real(rules, "partial_share", (double)plan->partial_share, 0.0, 1.0);
    dunlin__rule_true(rules, "partial_share",
                      !(plan->partial_share > 0.0f) ||
                          plan->algorithm != DUNLIN_V1_ALGORITHM_SCAFFOLD,
                      "is given, but the algorithm is SCAFFOLD");
    dunlin__rule_true(rules, "noise_multiplier",
                      !(plan->noise_multiplier > 0.0f) || plan->clip_norm > 0.0f,
                      "is given without a clip_norm");
}

static void check_plan(dunlin__rules *rules, const dunlin__assignment *m)
{
    const dunlin__training_plan *plan = &m->plan;
    dunlin__rule_number(rules, "learner", (uint64_t)plan->learner, DUNLIN_V1_LEARNER_KIND_BUILTIN,
                        DUNLIN_V1_LEARNER_KIND_APPLICATION);
    dunlin__rule_number(rules, "batch_size", plan->batch_size, 1, BATCH_MAX);
    dunlin__rule_number(rules, "max_examples", plan->max_examples, 0, EXAMPLES_MAX);
    dunlin__rule_number(rules, "max_steps", plan->max_steps, 0, EXAMPLES_MAX);
    dunlin__rule_real(rules, "learning_rate", (double)plan->learning_rate, 0.0, LEARNING_RATE_MAX);
    dunlin__rule_real(rules, "momentum", (double)plan->momentum, 0.0, 1.0);
    dunlin__rule_true(rules, "momentum", plan->momentum < 1.0f, "is not below 1");
    dunlin__rule_real(rules, "weight_decay", (double)plan->weight_decay, 0.0, 1.0);
    dunlin__rule_real(rules, "prox_mu", (double)plan->prox_mu, 0.0, LEARNING_RATE_MAX);
    dunlin__rule_real(rules, "clip_norm", (double)plan->clip_norm, 0.0, NORM_MAX);
    dunlin__rule_real(rules, "noise_multiplier", (double)plan->noise_multiplier, 0.0, NORM_MAX);
    dunlin__rule_count(rules, "learner_config", plan->learner_config.size, 0,
                       sizeof(plan->learner_config.bytes));
    if (m->kind == DUNLIN_V1_KIND_TRAIN) {
        check_training(rules, plan);
        bool is_secure = m->aggregation == DUNLIN_V1_AGGREGATION_SECURE;
        dunlin__rule_true(rules, "secagg", is_secure == plan->has_secagg,
                          "and aggregation SECURE must come together");
        dunlin__rule_true(rules, "update_encoding",
                          is_secure == (plan->update_encoding == DUNLIN_V1_ENCODING_MASKED_RING),
                          "MASKED_RING and aggregation SECURE must come together");
    }
    if (plan->has_secagg) {
        check_secagg_plan(rules, &plan->secagg);
    }
    dunlin__rules_check_orders(rules, m);
}

/* The delta is there whole or not at all. */
static void check_packed_base(dunlin__rules *rules, const dunlin_v1_packed_base_t *base)
{
    const bool has_delta = base->from_sha256.size > 0;
    const size_t wanted = has_delta ? DUNLIN_SHA256_BYTES : 0;
    dunlin__rules_enter(rules, "packed_base");
    dunlin__rule_given(rules, "manifest_sha256", base->manifest_sha256,
                       sizeof(base->manifest_sha256));
    dunlin__rule_number(rules, "manifest_bytes", base->manifest_bytes, 1,
                        DUNLIN_WIRE_MANIFEST_BYTES);
    dunlin__rule_count(rules, "from_sha256", base->from_sha256.size, wanted, wanted);
    dunlin__rule_count(rules, "delta_manifest_sha256", base->delta_manifest_sha256.size, wanted,
                       wanted);
    dunlin__rule_number(rules, "delta_manifest_bytes", base->delta_manifest_bytes,
                        has_delta ? 1 : 0, has_delta ? DUNLIN_WIRE_MANIFEST_BYTES : 0);
    dunlin__rules_leave(rules);
}

static void check_assignment(dunlin__rules *rules, const void *data)
{
    const dunlin__assignment *m = data;
    dunlin__rule_id(rules, "population", m->population, sizeof(m->population), 1);
    dunlin__rule_id(rules, "task", m->task, sizeof(m->task), 1);
    dunlin__rule_number(rules, "run_epoch", m->run_epoch, 0, ROUNDS_MAX);
    dunlin__rule_number(rules, "round", m->round, 0, ROUNDS_MAX);
    dunlin__rule_id(rules, "assignment_id", m->assignment_id, sizeof(m->assignment_id), 1);
    dunlin__rule_id(rules, "device_id", m->device_id, sizeof(m->device_id), 1);
    dunlin__rule_number(rules, "kind", (uint64_t)m->kind, DUNLIN_V1_KIND_TRAIN,
                        DUNLIN_V1_KIND_EVALUATE);
    dunlin__rule_number(rules, "deadline_ms", m->deadline_ms, 1, DUNLIN_WIRE_MAX_WAIT_MS);
    dunlin__rule_id(rules, "token", m->token, sizeof(m->token), DUNLIN_WIRE_SECRET_CHARS_MIN);
    dunlin__rule_given(rules, "base_manifest_sha256", m->base_manifest_sha256,
                       sizeof(m->base_manifest_sha256));
    dunlin__rule_number(rules, "base_manifest_bytes", m->base_manifest_bytes, 1,
                        DUNLIN_WIRE_MANIFEST_BYTES);
    dunlin__rule_number(rules, "aggregation", (uint64_t)m->aggregation, DUNLIN_V1_AGGREGATION_PLAIN,
                        DUNLIN_V1_AGGREGATION_BUFFERED);
    if (dunlin__rule_count(rules, "required_features", m->required_features_count, 0,
                           sizeof(m->required_features) / sizeof(m->required_features[0]))) {
        for (size_t i = 0; i < m->required_features_count; i++) {
            dunlin__rule_number(rules, "required_features", m->required_features[i], 1, UINT16_MAX);
        }
    }
    dunlin__rule_id(rules, "key_id", m->key_id, sizeof(m->key_id), 1);
    if (m->has_packed_base) {
        check_packed_base(rules, &m->packed_base);
    }
    dunlin__rule_true(rules, "plan", m->has_plan, "is missing");
    dunlin__rules_enter(rules, "plan");
    check_plan(rules, m);
    dunlin__rules_leave(rules);
    if (m->has_privacy) {
        dunlin__rules_check_privacy(rules, &m->privacy);
    }
    const bool has_noise = m->plan.has_secagg && m->plan.secagg.version == 2;
    dunlin__rule_true(rules, "privacy.is_distributed",
                      has_noise == (m->has_privacy && m->privacy.is_distributed),
                      "and noise of secagg must come together");
}
DUNLIN_DEFINE_KIND(assignment, "Assignment", DUNLIN_V1_ASSIGNMENT, check_assignment);

typedef struct signed_message {
    uint8_t bytes[sizeof(ASSIGNMENT_TAG) +
                  sizeof(((dunlin_v1_signed_assignment_t *)0)->assignment.bytes)];
    size_t n_bytes;
} signed_message;

/* The tag with its ending 0, then the assignment's bytes. */
static void make_signed_message(const dunlin_v1_signed_assignment_t *sealed, signed_message *out)
{
    memcpy(out->bytes, ASSIGNMENT_TAG, sizeof(ASSIGNMENT_TAG));
    memcpy(out->bytes + sizeof(ASSIGNMENT_TAG), sealed->assignment.bytes, sealed->assignment.size);
    out->n_bytes = sizeof(ASSIGNMENT_TAG) + sealed->assignment.size;
}

dunlin_status dunlin__assignment_seal(const dunlin__assignment *assignment,
                                      const uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES],
                                      dunlin_v1_signed_assignment_t *out_signed,
                                      dunlin_error *error)
{
    size_t n_bytes = 0;
    memset(out_signed, 0, sizeof(*out_signed));
    DUNLIN_TRY(dunlin__assignment_encode(assignment, out_signed->assignment.bytes,
                                         sizeof(out_signed->assignment.bytes), &n_bytes, error));
    out_signed->assignment.size = (pb_size_t)n_bytes;
    memcpy(out_signed->key_id, assignment->key_id, sizeof(out_signed->key_id));
    signed_message message;
    make_signed_message(out_signed, &message);
    return dunlin__sign(private_key, message.bytes, message.n_bytes, out_signed->signature, error);
}

dunlin_status dunlin__assignment_open(const dunlin_v1_signed_assignment_t *sealed,
                                      const dunlin__trusted_key *keys, size_t n_keys,
                                      dunlin__assignment *out_assignment, dunlin_error *error)
{
    memset(out_assignment, 0, sizeof(*out_assignment));
    const dunlin__trusted_key *key = NULL;
    for (size_t i = 0; i < n_keys && key == NULL; i++) {
        if (strncmp(keys[i].key_id, sealed->key_id, sizeof(sealed->key_id)) == 0) {
            key = &keys[i];
        }
    }
    if (key == NULL || sealed->assignment.size > sizeof(sealed->assignment.bytes)) {
        return dunlin__fail(error, DUNLIN_SIGNATURE, "assignment", 0,
                            "the assignment is signed by the key \"%.64s\", which is not one of "
                            "the %zu trusted ones",
                            sealed->key_id, n_keys);
    }
    signed_message message;
    make_signed_message(sealed, &message);
    DUNLIN_TRY(
        dunlin__verify(key->public_key, message.bytes, message.n_bytes, sealed->signature, error));
    DUNLIN_TRY(dunlin__assignment_decode(sealed->assignment.bytes, sealed->assignment.size,
                                         out_assignment, error));
    if (strcmp(out_assignment->key_id, key->key_id) != 0) {
        const dunlin_status status =
            dunlin__fail(error, DUNLIN_SIGNATURE, "assignment", 0,
                         "the assignment names the key %.32s and is signed by %.32s",
                         out_assignment->key_id, key->key_id);
        memset(out_assignment, 0, sizeof(*out_assignment));
        return status;
    }
    return DUNLIN_OK;
}
