/*
 * test_slices.c - plans written by hand for steps with statistics of slices: a slice's tensors stay
 * in its loop, and all loops have the same slices.
 */
#include "hand.h"
#include "planner/graphs.h"

#include <mem/plan.h>

#include <criterion/criterion.h>

#include <string.h>

enum { MAP = DUNLIN_MEM_MAP, REDUCE = DUNLIN_MEM_REDUCE };

/* Ops: 0 input, 1 gather, 2 norm, 3 use. `n_first` steps in slices of `first`, the others of 2. */
static void expect_slices(uint32_t n_first, uint64_t first, const char *words)
{
    test_graph *graph = test_graph_new();
    uint32_t x = test_batched(graph, "x", 64, DUNLIN_MEM_INPUT);
    uint32_t z = test_batched(graph, "z", 64, DUNLIN_MEM_ACTIVATION);
    uint32_t sums = test_per_slice(graph, "sums", 64);
    uint32_t total = test_fixed(graph, "total", 64, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "input", MAP, "w", x);
    TEST_OP(graph, "gather", MAP, "rw", x, sums);
    TEST_OP(graph, "norm", MAP, "rrw", x, sums, z);
    TEST_OP(graph, "use", REDUCE, "ra", z, total);
    hand_plan hand;
    hand_start(&hand, 6);
    const int place_x = hand_place(&hand, x, 0, 3, 384);
    hand.places[place_x].is_whole = true;
    const int place_sums = hand_place(&hand, sums, n_first > 1 ? 0 : 1, 2, 64);
    const int place_z = hand_place(&hand, z, 2, 3, 128);
    const int place_total = hand_place(&hand, total, n_first > 0 ? n_first : 0, 3, 64);
    hand_finish(&hand, 0);
    hand_loop(&hand, first);
    HAND_STEP(&hand, 0, MAP, place_x);
    if (n_first == 1) {
        hand_loop(&hand, 2);
    }
    HAND_STEP(&hand, 1, MAP, place_x, place_sums);
    if (n_first == 2) {
        hand_loop(&hand, 2);
    }
    HAND_STEP(&hand, 2, MAP, place_x, place_sums, place_z);
    HAND_STEP(&hand, 3, REDUCE, place_z, place_total);
    dunlin_error error = {0};
    const dunlin_status status = dunlin__plan_verify(&graph->graph, &hand.plan, NULL, &error);
    cr_expect_eq(status, words == NULL ? DUNLIN_OK : DUNLIN_MISMATCH, "%s", error.text);
    cr_expect(words == NULL || strstr(error.text, words) != NULL, "%s", error.text);
    test_graph_free(graph);
}

Test(slices, what_is_of_a_slice_stays_in_its_loop)
{
    expect_slices(0, 2, NULL);
    expect_slices(1, 2, NULL);
    expect_slices(2, 2, "step 2 (norm): tensor sums: place 1 holds nothing of this slice");
    expect_slices(1, 3, "step has statistics of slices");
}
