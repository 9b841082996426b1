/*
 * hand.c - builds plans by hand.
 */
#include "hand.h"

#include <criterion/criterion.h>

#include <string.h>

void hand_start(hand_plan *hand, uint64_t batch)
{
    memset(hand, 0, sizeof *hand);
    hand->plan.batch = batch;
    hand->plan.loops = hand->loops;
    hand->plan.steps = hand->steps;
    hand->plan.operands = hand->operands;
    hand->plan.places = hand->places;
}

void hand_loop(hand_plan *hand, uint64_t slice_samples)
{
    hand->loops[hand->plan.n_loops++] =
        (dunlin_plan_loop){.first_step = hand->plan.n_steps, .slice_samples = slice_samples};
}

int hand_place(hand_plan *hand, uint32_t tensor, uint32_t first, uint32_t last, uint64_t bytes)
{
    hand->places[hand->plan.n_places] = (dunlin_plan_allocation){.tensor = tensor,
                                                                 .first_step = first,
                                                                 .last_step = last,
                                                                 .offset_bytes = hand->top,
                                                                 .bytes = bytes};
    hand->top += bytes;
    return (int)hand->plan.n_places++;
}

void hand_step(hand_plan *hand, uint32_t op, uint8_t parts, const int *places, uint32_t n)
{
    hand->steps[hand->plan.n_steps++] = (dunlin_plan_step){.op = op,
                                                           .parts = parts,
                                                           .first_operand = hand->plan.n_operands,
                                                           .workspace = DUNLIN_MEM_NONE};
    hand->loops[hand->plan.n_loops - 1].n_steps++;
    for (uint32_t i = 0; i < n; i++) {
        hand->operands[hand->plan.n_operands++] =
            places[i] == HAND_NONE ? DUNLIN_MEM_NONE : (uint32_t)places[i];
    }
}

void hand_finish(hand_plan *hand, uint64_t persistent_bytes)
{
    hand->plan.persistent_bytes = persistent_bytes;
    hand->plan.pool_bytes = hand->top - persistent_bytes;
    hand->plan.arena_bytes = hand->top;
}

void hand_expect(const test_graph *graph, const hand_plan *hand, const char *words)
{
    dunlin_error error = {0};
    dunlin_status status = dunlin__plan_verify(&graph->graph, &hand->plan, NULL, &error);
    if (words == NULL) {
        cr_assert_eq(status, DUNLIN_OK, "%s", error.text);
    } else {
        cr_assert_eq(status, DUNLIN_MISMATCH, "passes, but should not: %s", words);
        cr_assert_not_null(strstr(error.text, words), "no \"%s\" in: %s", words, error.text);
    }
}
