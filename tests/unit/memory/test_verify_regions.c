/*
 * test_verify_regions.c - plans of sliced regions, written by hand: the right one passes; with one
 * defect each it is refused for the right reason.
 */
#include "hand.h"
#include "planner/graphs.h"

#include <mem/plan.h>

#include <criterion/criterion.h>

#include <stdlib.h>

enum { MAP = DUNLIN_MEM_MAP, REDUCE = DUNLIN_MEM_REDUCE, FIXED = DUNLIN_MEM_FIXED };

/* --- sliced regions: batch norm, the input kept whole, the convolution done again --- */

typedef struct {
    test_graph *graph;
    hand_plan hand;
    int x, sums, y, stats, y_again, z, dz, loss, dw, w;
} regions;

/* Ops: 0 input, 1 conv, 2 sum, 3 finish, 4 norm, 5 loss, 6 wgrad, 7 update. */
static regions *make_regions(void)
{
    regions *at = calloc(1, sizeof *at);
    test_graph *graph = at->graph = test_graph_new();
    uint32_t w = test_persistent(graph, "w", 64, DUNLIN_MEM_WEIGHT);
    uint32_t x = test_batched(graph, "x", 64, DUNLIN_MEM_INPUT);
    uint32_t y = test_batched(graph, "y", 64, DUNLIN_MEM_ACTIVATION);
    uint32_t z = test_batched(graph, "z", 64, DUNLIN_MEM_ACTIVATION);
    uint32_t dz = test_batched(graph, "dz", 64, DUNLIN_MEM_GRADIENT);
    uint32_t sums = test_fixed(graph, "sums", 64, DUNLIN_MEM_ACCUMULATOR);
    uint32_t stats = test_fixed(graph, "stats", 64, DUNLIN_MEM_SAVED);
    uint32_t dw = test_fixed(graph, "dw", 64, DUNLIN_MEM_ACCUMULATOR);
    uint32_t loss = test_fixed(graph, "loss", 64, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "input", MAP, "w", x);
    TEST_OP(graph, "conv", MAP, "rrw", x, w, y);
    TEST_OP(graph, "sum", REDUCE, "ra", y, sums);
    TEST_OP(graph, "finish", FIXED, "rw", sums, stats);
    TEST_OP(graph, "norm", MAP, "rrw", y, stats, z);
    TEST_OP(graph, "loss", MAP | REDUCE, "rwa", z, dz, loss);
    TEST_OP(graph, "wgrad", REDUCE, "rra", y, dz, dw);
    TEST_OP(graph, "update", FIXED, "ru", dw, w);
    cr_assert_eq(dunlin__graph_check(&graph->graph, 10, NULL, NULL), DUNLIN_OK);
    cr_assert_not(dunlin__graph_is_sliceable(&graph->graph, NULL));

    hand_plan *hand = &at->hand;
    hand_start(hand, 10);
    at->w = hand_place(hand, w, 0, 8, 64);
    at->x = hand_place(hand, x, 0, 7, 640);
    hand->places[at->x].is_whole = true;
    at->sums = hand_place(hand, sums, 0, 3, 64);
    at->stats = hand_place(hand, stats, 3, 7, 64);
    at->y = hand_place(hand, y, 1, 2, 128);
    at->y_again = hand_place(hand, y, 4, 7, 256);
    at->z = hand_place(hand, z, 5, 6, 256);
    at->dz = hand_place(hand, dz, 6, 7, 256);
    at->loss = hand_place(hand, loss, 4, 7, 64);
    at->dw = hand_place(hand, dw, 4, 8, 64);
    hand_finish(hand, 64);
    hand_loop(hand, 2); /* 5 slices */
    HAND_STEP(hand, 0, MAP, at->x);
    HAND_STEP(hand, 1, MAP, at->x, at->w, at->y);
    HAND_STEP(hand, 2, REDUCE, at->y, at->sums);
    hand_loop(hand, 0);
    HAND_STEP(hand, 3, FIXED, at->sums, at->stats);
    hand_loop(hand, 4); /* 3 slices, the last of 2 samples */
    HAND_STEP(hand, 1, MAP, at->x, at->w, at->y_again);
    HAND_STEP(hand, 4, MAP, at->y_again, at->stats, at->z);
    HAND_STEP(hand, 5, MAP | REDUCE, at->z, at->dz, at->loss);
    /* wgrad is the 8th step, 7 */
    HAND_STEP(hand, 6, REDUCE, at->y_again, at->dz, at->dw);
    hand_loop(hand, 0);
    HAND_STEP(hand, 7, FIXED, at->dw, at->w);
    hand->plan.n_recompute_ops = 1;
    return at;
}

static void expect_regions(regions *at, const char *words)
{
    hand_expect(at->graph, &at->hand, words);
    test_graph_free(at->graph);
    free(at);
}

Test(verify, regions_may_be_sliced_differently)
{
    expect_regions(make_regions(), NULL);
}

Test(verify, what_crosses_a_region_must_be_whole)
{
    regions *at = make_regions(); /* holds a slice at a time */
    at->hand.places[at->x].is_whole = false;
    expect_regions(at, "step 4 (conv): tensor x: place 1 holds nothing of this slice");
    at = make_regions(); /* too small for the batch */
    at->hand.places[at->x].bytes = 576;
    expect_regions(at, "step 0 (input): tensor x: 576 bytes do not hold 10 samples");
    at = make_regions(); /* begins within the loop that fills it: earlier slices are lost */
    at->hand.loops[0].slice_samples = 10;
    at->hand.places[at->y].bytes = 640;
    at->hand.places[at->y].offset_bytes = at->hand.plan.arena_bytes;
    at->hand.plan.arena_bytes += 640;
    at->hand.plan.pool_bytes += 640;
    expect_regions(at, NULL);
    at = make_regions(); /* y kept whole instead of recomputed: then conv need not run twice */
    at->hand.steps[4] = at->hand.steps[0];
    expect_regions(at, "step 5 (norm): tensor y: place 5 holds nothing of this slice");
}

Test(verify, a_whole_tensor_lives_through_the_loop_that_fills_it)
{
    /* input fills x slice by slice after another step of the same loop. */
    test_graph *graph = test_graph_new();
    uint32_t x = test_batched(graph, "x", 64, DUNLIN_MEM_INPUT);
    uint32_t y = test_batched(graph, "y", 64, DUNLIN_MEM_INPUT);
    uint32_t sum = test_fixed(graph, "sum", 64, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "other", MAP, "w", y);
    TEST_OP(graph, "input", MAP, "w", x);
    TEST_OP(graph, "use", REDUCE, "ra", x, sum);
    for (uint32_t first = 0; first < 2; first++) {
        hand_plan hand;
        hand_start(&hand, 6);
        int place_x = hand_place(&hand, x, first, 2, 384);
        hand.places[place_x].is_whole = true;
        int place_y = hand_place(&hand, y, 0, 0, 128);
        int place_sum = hand_place(&hand, sum, 2, 2, 64);
        hand_finish(&hand, 0);
        hand_loop(&hand, 2);
        HAND_STEP(&hand, 0, MAP, place_y);
        HAND_STEP(&hand, 1, MAP, place_x);
        hand_loop(&hand, 6);
        HAND_STEP(&hand, 2, REDUCE, place_x, place_sum);
        hand_expect(graph, &hand, first == 0 ? NULL : "step 2 (use): tensor x");
    }
    test_graph_free(graph);
}

Test(verify, barriers_hold)
{
    regions *at = make_regions(); /* finish before the sums are there */
    dunlin_plan_step finish = at->hand.steps[3];
    at->hand.steps[3] = at->hand.steps[2];
    at->hand.steps[2] = at->hand.steps[1];
    at->hand.steps[1] = at->hand.steps[0];
    at->hand.steps[0] = finish;
    at->hand.loops[0] = (dunlin_plan_loop){.first_step = 0, .n_steps = 1, .slice_samples = 0};
    at->hand.loops[1] = (dunlin_plan_loop){.first_step = 1, .n_steps = 3, .slice_samples = 2};
    at->hand.places[at->stats].first_step = 0;
    at->hand.places[at->y].last_step = 3;
    expect_regions(at, "step 0 (finish): tensor sums: is read after 0 of 1 reductions");
    at = make_regions(); /* finish in the loop of the slices */
    at->hand.loops[0].n_steps = 4;
    at->hand.loops[1] = at->hand.loops[2];
    at->hand.loops[2] = at->hand.loops[3];
    at->hand.plan.n_loops = 3;
    expect_regions(at, "step 3 (finish): is fixed, but its loop runs once a slice");
    at = make_regions(); /* statistics gone between the slices */
    at->hand.places[at->stats].last_step = 5;
    expect_regions(at, "step 5 (norm): tensor stats: place 3 holds nothing");
    at = make_regions();
    at->hand.loops[1].slice_samples = 10;
    expect_regions(at, NULL); /* once, in one slice, is the same */
    at = make_regions();
    at->hand.loops[0].slice_samples = 0;
    expect_regions(at, "its loop has no slices");
}

Test(verify, the_two_makings_hold_slices_of_their_own_loops)
{
    regions *at = make_regions(); /* the first y, prolonged, is of other slices */
    at->hand.places[at->y].last_step = 7;
    at->hand.places[at->y].bytes = 256;
    at->hand.places[at->y].offset_bytes = at->hand.plan.arena_bytes;
    at->hand.plan.arena_bytes += 256;
    at->hand.plan.pool_bytes += 256;
    at->hand.operands[at->hand.steps[5].first_operand] = (uint32_t)at->y;
    expect_regions(at, "step 5 (norm): tensor y: place 4 holds nothing of this slice");
}
