/*
 * plan_rules.h - the rules of what a plan orders beside the plain training: parameters, schedule,
 * augmentation, remainder, clipping of gradients, an ignored label; and of what is said of noise.
 */
#ifndef DUNLIN_PROTO_PLAN_RULES_H
#define DUNLIN_PROTO_PLAN_RULES_H

#include "codec/rules.h"

/* Checks those parts of the assignment's plan, and that each comes with its Feature. */
void dunlin__rules_check_orders(dunlin__rules *rules, const dunlin__assignment *m);

/* Checks what is said of a run's noise, in an offer or an assignment. */
void dunlin__rules_check_privacy(dunlin__rules *rules, const dunlin_v1_privacy_t *privacy);

#endif
