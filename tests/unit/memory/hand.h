/*
 * hand.h - plans written by hand: allocations lie one above the other unless a test moves them.
 */
#ifndef DUNLIN_TESTS_HAND_H
#define DUNLIN_TESTS_HAND_H

#include "planner/graphs.h"

#include <mem/plan.h>

enum { HAND_NONE = -1, HAND_MAX = 32 };

/* A plan under construction. Full of pointers into itself: never copied. */
typedef struct hand_plan {
    dunlin_plan plan;
    dunlin_plan_loop loops[HAND_MAX];
    dunlin_plan_step steps[HAND_MAX];
    uint32_t operands[4 * HAND_MAX];
    dunlin_plan_allocation places[HAND_MAX];
    uint64_t top;
} hand_plan;

void hand_start(hand_plan *hand, uint64_t batch);
/* The steps that follow belong to it. */
void hand_loop(hand_plan *hand, uint64_t slice_samples);
/* Returns the allocation's number. */
int hand_place(hand_plan *hand, uint32_t tensor, uint32_t first, uint32_t last, uint64_t bytes);
/* `places`: one an access, HAND_NONE where the parts do not run. */
void hand_step(hand_plan *hand, uint32_t op, uint8_t parts, const int *places, uint32_t n);
#define HAND_STEP(hand, op, parts, ...)                                                            \
    hand_step(hand, op, parts, (const int[]){__VA_ARGS__},                                         \
              (uint32_t)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int)))
/* Sets the arena's sizes from the allocations made so far. */
void hand_finish(hand_plan *hand, uint64_t persistent_bytes);
/* NULL: it passes; else it is refused with these words in the text. */
void hand_expect(const test_graph *graph, const hand_plan *hand, const char *words);

#endif
