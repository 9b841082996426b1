/*
 * messages_privacy.c - the rules of what a server says of a run's noise.
 */
#include "plan_rules.h"

#include <wire/messages.h>

#define EPSILON_MAX 1e9
#define NUMBER_MAX 1e9

void dunlin__rules_check_privacy(dunlin__rules *rules, const dunlin_v1_privacy_t *privacy)
{
    dunlin__rules_enter(rules, "privacy");
    dunlin__rule_number(rules, "mechanism", (uint64_t)privacy->mechanism,
                        DUNLIN_V1_PRIVACY_MECHANISM_GAUSSIAN, DUNLIN_V1_PRIVACY_MECHANISM_TREE);
    dunlin__rule_number(rules, "sampling", (uint64_t)privacy->sampling,
                        DUNLIN_V1_PRIVACY_SAMPLING_ARRIVAL, DUNLIN_V1_PRIVACY_SAMPLING_FIXED);
    dunlin__rule_real(rules, "epsilon", privacy->epsilon, 0.0, EPSILON_MAX);
    dunlin__rule_real(rules, "delta", privacy->delta, 0.0, 1.0);
    dunlin__rule_real(rules, "noise_multiplier", privacy->noise_multiplier, 0.0, NUMBER_MAX);
    dunlin__rule_real(rules, "clip_norm", privacy->clip_norm, 0.0, NUMBER_MAX);
    dunlin__rule_true(rules, "noise_multiplier", privacy->noise_multiplier > 0.0,
                      "is 0: there is no noise");
    dunlin__rule_true(rules, "clip_norm", privacy->clip_norm > 0.0, "is 0: nothing is clipped");
    dunlin__rule_number(rules, "n_rounds", privacy->n_rounds, 1, UINT32_MAX);
    dunlin__rule_number(rules, "cohort", privacy->cohort, 1, UINT32_MAX);
    dunlin__rules_leave(rules);
}
