/*
 * messages_plan.c - the rules of what a plan orders beside the plain training.
 *
 * Invariant: what a device must know about has a Feature, so a device that does not know it
 * declines, and never trains differently from its orders.
 */
#include "plan_rules.h"

#include <wire/compress.h>

#define FACTOR_MAX 1e6
#define GRADIENT_MAX 1e30
#define STEPS_MAX (UINT64_C(1) << 40)
#define RATE_MAX 1000.0
#define PADDING_MAX 4096u
#define SHIFT_MAX (1u << 24)
#define CHANGE_MAX 1000.0
#define FEEDBACK_MAX 100000u
#define GRAD_BITS_MAX 7u
#define RUN_ROUNDS_MAX (UINT64_C(1) << 24)
#define ROLES_MAX                                                                                  \
    ((UINT32_C(1) << (DUNLIN_V1_ROLE_FACTOR + 1)) - (UINT32_C(1) << DUNLIN_V1_ROLE_WEIGHT))

static bool has_feature(const dunlin__assignment *m, dunlin_v1_feature_t feature)
{
    const size_t room = sizeof m->required_features / sizeof m->required_features[0];
    for (size_t i = 0; i < m->required_features_count && i < room; i++) {
        if (m->required_features[i] == (uint32_t)feature) {
            return true;
        }
    }
    return false;
}

static void check_group(dunlin__rules *rules, const dunlin_v1_parameter_group_t *group)
{
    dunlin__rule_text(rules, "name", group->name, sizeof group->name);
    dunlin__rule_text(rules, "patterns", group->patterns, sizeof group->patterns);
    dunlin__rule_true(rules, "roles", (group->roles & ~ROLES_MAX) == 0, "has a bit of no role");
    dunlin__rule_real(rules, "lr_factor", (double)group->lr_factor, 0.0, FACTOR_MAX);
    dunlin__rule_real(rules, "decay_factor", (double)group->decay_factor, 0.0, FACTOR_MAX);
}

static void check_parameters(dunlin__rules *rules, const dunlin_v1_parameter_choice_t *choice)
{
    dunlin__rules_enter(rules, "plan.parameters");
    dunlin__rule_number(rules, "trained", (uint64_t)choice->trained, DUNLIN_V1_TRAINED_ALL,
                        DUNLIN_V1_TRAINED_BIASES_AND_NORMS);
    dunlin__rule_text(rules, "trained_prefixes", choice->trained_prefixes,
                      sizeof choice->trained_prefixes);
    dunlin__rule_text(rules, "frozen_prefixes", choice->frozen_prefixes,
                      sizeof choice->frozen_prefixes);
    const size_t room = sizeof choice->groups / sizeof choice->groups[0];
    if (dunlin__rule_count(rules, "groups", choice->groups_count, 0, room)) {
        for (unsigned i = 0; i < choice->groups_count; i++) {
            dunlin__rules_enter_item(rules, "plan.parameters.groups", i);
            check_group(rules, &choice->groups[i]);
        }
    }
    dunlin__rules_enter(rules, "plan");
}

static void check_schedule(dunlin__rules *rules, const dunlin_v1_schedule_t *schedule)
{
    const dunlin_v1_schedule_kind_t kind = schedule->kind;
    const bool has_gamma =
        kind == DUNLIN_V1_SCHEDULE_KIND_STEP || kind == DUNLIN_V1_SCHEDULE_KIND_EXPONENTIAL;
    dunlin__rules_enter(rules, "plan.schedule");
    dunlin__rule_number(rules, "kind", (uint64_t)kind, DUNLIN_V1_SCHEDULE_KIND_CONSTANT,
                        DUNLIN_V1_SCHEDULE_KIND_LINEAR);
    dunlin__rule_number(rules, "warmup_steps", schedule->warmup_steps, 0, STEPS_MAX);
    dunlin__rule_number(rules, "period_steps", schedule->period_steps, 0, STEPS_MAX);
    dunlin__rule_real(rules, "gamma", schedule->gamma, 0.0, 1.0);
    dunlin__rule_true(rules, "gamma", !has_gamma || schedule->gamma > 0.0, "is not above 0");
    dunlin__rule_real(rules, "min_lr", schedule->min_lr, 0.0, RATE_MAX);
    dunlin__rule_number(rules, "n_rounds", schedule->n_rounds, 1, RUN_ROUNDS_MAX);
    dunlin__rules_enter(rules, "plan");
}

/* A part that is there comes with its feature, and not with SCAFFOLD if that needs plain steps. */
static void check_order(dunlin__rules *rules, const dunlin__assignment *m, const char *field,
                        dunlin_v1_feature_t feature, bool changes_steps)
{
    if (!has_feature(m, feature)) {
        dunlin__rules_break(rules, field, "is given, but required_features has no %d",
                            (int)feature);
    }
    dunlin__rule_true(rules, field,
                      !changes_steps || m->plan.algorithm != DUNLIN_V1_ALGORITHM_SCAFFOLD,
                      "is given, but the algorithm is SCAFFOLD");
}

/* An update in fewer bytes: how, in all that a device needs to know of it. */
static void check_packing(dunlin__rules *rules, const dunlin__assignment *m)
{
    const dunlin__training_plan *plan = &m->plan;
    const bool is_packed = plan->update_encoding == DUNLIN_V1_ENCODING_PACKED;
    dunlin__rule_true(rules, "packing", plan->has_packing == is_packed,
                      "and update_encoding PACKED must come together");
    dunlin__rule_number(rules, "feedback_rounds", plan->feedback_rounds, 0, FEEDBACK_MAX);
    dunlin__rule_true(rules, "feedback_rounds", is_packed || plan->feedback_rounds == 0,
                      "is given without a packing");
    if (!is_packed || rules->status != DUNLIN_OK) {
        return;
    }
    check_order(rules, m, "packing", DUNLIN_V1_FEATURE_ENCODING_PACKED, true);
    dunlin__rule_true(rules, "packing", plan->update_form == DUNLIN_V1_UPDATE_FORM_DELTA,
                      "is given, but whole weights are to be sent");
    dunlin_error error = {0};
    if (rules->status == DUNLIN_OK && dunlin__packing_check(&plan->packing, &error) != DUNLIN_OK) {
        dunlin__rules_break(rules, "packing", "is none: %.150s", error.text);
    }
}

/* Training in other numbers than float32. Either its rate are the bits of an update, and whole
 * weights may go up in int8; or it has a learning rate, and float32 weights. */
static void check_precision(dunlin__rules *rules, const dunlin__assignment *m)
{
    const dunlin__training_plan *plan = &m->plan;
    const bool is_given = plan->precision[0] != '\0';
    const bool is_int8 = plan->update_encoding == DUNLIN_V1_ENCODING_INT8_SCALE;
    const bool has_rate = plan->learning_rate > 0.0f;
    dunlin__rule_number(rules, "grad_bits", plan->grad_bits, 0, GRAD_BITS_MAX);
    dunlin__rule_true(rules, "grad_bits", is_given || plan->grad_bits == 0,
                      "is given without a precision");
    if (!is_given) {
        return;
    }
    dunlin__rule_text(rules, "precision", plan->precision, sizeof plan->precision);
    check_order(rules, m, "precision",
                has_rate ? DUNLIN_V1_FEATURE_PRODUCT_PRECISION : DUNLIN_V1_FEATURE_PRECISION, true);
    dunlin__rule_true(rules, "learning_rate", !has_rate || plan->grad_bits == 0,
                      "is given, but grad_bits is the rate");
    if (m->kind == DUNLIN_V1_KIND_TRAIN && is_int8) {
        dunlin__rule_true(rules, "update_encoding", !has_rate,
                          "is INT8_SCALE, but with a learning rate weights are float32");
        dunlin__rule_true(rules, "update_encoding",
                          plan->update_form == DUNLIN_V1_UPDATE_FORM_WEIGHTS,
                          "is INT8_SCALE, but differences are to be sent");
        dunlin__rule_true(rules, "clip_norm", !(plan->clip_norm > 0.0f),
                          "is given, but a clipped update is no int8");
    }
}

/* What a step keeps in fewer bits than float32, which a precision of integers has its own way for.
 */
static void check_storage(dunlin__rules *rules, const dunlin__assignment *m)
{
    const dunlin__training_plan *plan = &m->plan;
    dunlin__rule_number(rules, "storage", (uint64_t)plan->storage, DUNLIN_V1_STORAGE_EXACT,
                        DUNLIN_V1_STORAGE_INT8);
    if (plan->storage == DUNLIN_V1_STORAGE_EXACT) {
        return;
    }
    check_order(rules, m, "storage", DUNLIN_V1_FEATURE_STORAGE, false);
    dunlin__rule_true(rules, "storage", plan->precision[0] == '\0',
                      "is given, but so is a precision");
}

/* Windows and flips come with one feature, what else is changed in examples with another. */
static void check_augmentation(dunlin__rules *rules, const dunlin__assignment *m)
{
    const dunlin_v1_augmentation_t *of = &m->plan.augmentation;
    const bool has_changes =
        of->cutout > 0 || of->shift > 0 || of->mixup > 0.0f || of->noise > 0.0f;
    dunlin__rule_number(rules, "augmentation.crop_padding", of->crop_padding, 0, PADDING_MAX);
    dunlin__rule_number(rules, "augmentation.cutout", of->cutout, 0, PADDING_MAX);
    dunlin__rule_number(rules, "augmentation.shift", of->shift, 0, SHIFT_MAX);
    dunlin__rule_real(rules, "augmentation.mixup", (double)of->mixup, 0.0, CHANGE_MAX);
    dunlin__rule_real(rules, "augmentation.noise", (double)of->noise, 0.0, CHANGE_MAX);
    dunlin__rule_true(rules, "augmentation.mixup", !(of->mixup > 0.0f && m->plan.ignores_label),
                      "is given, but a label is ignored");
    if (of->flips || of->crops || !has_changes) {
        check_order(rules, m, "augmentation", DUNLIN_V1_FEATURE_AUGMENTATION, false);
    }
    if (has_changes) {
        check_order(rules, m, "augmentation", DUNLIN_V1_FEATURE_EXAMPLE_CHANGES, false);
    }
}

void dunlin__rules_check_orders(dunlin__rules *rules, const dunlin__assignment *m)
{
    const dunlin__training_plan *plan = &m->plan;
    dunlin__rule_real(rules, "gradient_clip_norm", (double)plan->gradient_clip_norm, 0.0,
                      GRADIENT_MAX);
    dunlin__rule_real(rules, "gradient_clip_value", (double)plan->gradient_clip_value, 0.0,
                      GRADIENT_MAX);
    dunlin__rule_number(rules, "remainder", (uint64_t)plan->remainder,
                        DUNLIN_V1_REMAINDER_UNSPECIFIED, DUNLIN_V1_REMAINDER_JOIN);
    if (m->kind == DUNLIN_V1_KIND_TRAIN && plan->optimizer > DUNLIN_V1_OPTIMIZER_SGD) {
        check_order(rules, m, "optimizer", DUNLIN_V1_FEATURE_ADAPTIVE_OPTIMIZER, true);
        dunlin__rule_true(rules, "momentum", !(plan->momentum > 0.0f),
                          "is given, but the optimizer is not SGD");
    }
    if (plan->clips_layers || plan->reports_clip) {
        check_order(rules, m, "clips_layers or reports_clip", DUNLIN_V1_FEATURE_CLIP_ORDERS, false);
        dunlin__rule_true(rules, "clips_layers or reports_clip", plan->clip_norm > 0.0f,
                          "is given without a clip_norm");
    }
    check_packing(rules, m);
    check_precision(rules, m);
    check_storage(rules, m);
    if (plan->has_parameters) {
        check_parameters(rules, &plan->parameters);
        check_order(rules, m, "parameters", DUNLIN_V1_FEATURE_PARAMETER_CHOICE, true);
    }
    if (plan->has_schedule) {
        check_schedule(rules, &plan->schedule);
        check_order(rules, m, "schedule", DUNLIN_V1_FEATURE_SCHEDULE, true);
    }
    if (plan->has_augmentation) {
        check_augmentation(rules, m);
    }
    if (plan->remainder > DUNLIN_V1_REMAINDER_KEEP) {
        check_order(rules, m, "remainder", DUNLIN_V1_FEATURE_REMAINDER, false);
    }
    if (plan->gradient_clip_norm > 0.0f || plan->gradient_clip_value > 0.0f) {
        check_order(rules, m, "gradient_clip_norm", DUNLIN_V1_FEATURE_GRADIENT_CLIPPING, true);
    }
    if (plan->ignores_label) {
        check_order(rules, m, "ignored_label", DUNLIN_V1_FEATURE_IGNORED_LABEL, false);
    }
}
