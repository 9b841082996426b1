/*
 * test_verify.c - plans written by hand, of kinds the planner does not make yet as well:
 * rematerialisation. The right ones pass; with one defect each they are refused for the right
 * reason. Sliced regions are in test_verify_regions.c.
 */
#include "hand.h"
#include "planner/graphs.h"

#include <mem/plan.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

enum { MAP = DUNLIN_MEM_MAP, REDUCE = DUNLIN_MEM_REDUCE, FIXED = DUNLIN_MEM_FIXED };
/* --- rematerialisation: y1 is dropped after its reader and recomputed for the backward pass --- */

typedef struct {
    test_graph *graph;
    uint32_t w, x, y1, y2, dy2, dy1, dw, loss;
    hand_plan hand;
    int place_w, place_x, place_y1, place_y1_again, place_dw;
} remat;

/* Ops: 0 input, 1 first, 2 second, 3 loss, 4 back, 5 wgrad, 6 update. */
static remat *make_remat(void)
{
    remat *at = calloc(1, sizeof *at);
    test_graph *graph = at->graph = test_graph_new();
    at->w = test_persistent(graph, "w", 64, DUNLIN_MEM_WEIGHT);
    at->x = test_batched(graph, "x", 64, DUNLIN_MEM_INPUT);
    at->y1 = test_batched(graph, "y1", 128, DUNLIN_MEM_ACTIVATION);
    at->y2 = test_batched(graph, "y2", 64, DUNLIN_MEM_ACTIVATION);
    at->dy2 = test_batched(graph, "dy2", 64, DUNLIN_MEM_GRADIENT);
    at->dy1 = test_batched(graph, "dy1", 128, DUNLIN_MEM_GRADIENT);
    at->dw = test_fixed(graph, "dw", 64, DUNLIN_MEM_ACCUMULATOR);
    at->loss = test_fixed(graph, "loss", 64, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "input", MAP, "w", at->x);
    TEST_OP(graph, "first", MAP, "rrw", at->x, at->w, at->y1);
    TEST_OP(graph, "second", MAP, "rw", at->y1, at->y2);
    TEST_OP(graph, "loss", MAP | REDUCE, "rwa", at->y2, at->dy2, at->loss);
    TEST_OP(graph, "back", MAP, "rrw", at->dy2, at->y1, at->dy1);
    TEST_OP(graph, "wgrad", REDUCE, "rra", at->x, at->dy1, at->dw);
    TEST_OP(graph, "update", FIXED, "ru", at->dw, at->w);
    cr_assert_eq(dunlin__graph_check(&graph->graph, 8, NULL, NULL), DUNLIN_OK);

    hand_plan *hand = &at->hand;
    hand_start(hand, 8);
    int w = at->place_w = hand_place(hand, at->w, 0, 7, 64);
    int x = at->place_x = hand_place(hand, at->x, 0, 6, 128);
    int y1 = at->place_y1 = hand_place(hand, at->y1, 1, 2, 256);
    int y2 = hand_place(hand, at->y2, 2, 3, 128);
    int dy2 = hand_place(hand, at->dy2, 3, 5, 128);
    int loss = hand_place(hand, at->loss, 0, 6, 64);
    int dw = at->place_dw = hand_place(hand, at->dw, 0, 7, 64);
    int dy1 = hand_place(hand, at->dy1, 5, 6, 256);
    int again = at->place_y1_again = hand_place(hand, at->y1, 4, 5, 256);
    hand_finish(hand, 64);
    hand->places[again].offset_bytes = hand->places[y1].offset_bytes;
    hand_loop(hand, 2);
    HAND_STEP(hand, 0, MAP, x);
    HAND_STEP(hand, 1, MAP, x, w, y1);
    HAND_STEP(hand, 2, MAP, y1, y2);
    HAND_STEP(hand, 3, MAP | REDUCE, y2, dy2, loss);
    HAND_STEP(hand, 1, MAP, x, w, again);
    HAND_STEP(hand, 4, MAP, dy2, again, dy1);
    HAND_STEP(hand, 5, REDUCE, x, dy1, dw);
    hand_loop(hand, 0);
    HAND_STEP(hand, 6, FIXED, dw, w);
    hand->plan.n_recompute_ops = 1;
    return at;
}

static void free_remat(remat *at)
{
    test_graph_free(at->graph);
    free(at);
}

static void expect_remat(remat *at, const char *words)
{
    hand_expect(at->graph, &at->hand, words);
    free_remat(at);
}

Test(verify, a_tensor_may_be_made_twice)
{
    expect_remat(make_remat(), NULL);
}

Test(verify, what_may_not_be_recomputed)
{
    remat *at = make_remat();
    at->graph->ops[1].may_recompute = false;
    expect_remat(at, "op first: its map part runs in 2 steps and may not be recomputed");
    at = make_remat();
    at->hand.plan.n_recompute_ops = 0;
    expect_remat(at, "0 steps are listed as recomputed, 1 are");
}

Test(verify, a_dropped_tensor_cannot_be_read)
{
    remat *at = make_remat(); /* reads where y1 was at first */
    at->hand.operands[at->hand.steps[5].first_operand + 1] = (uint32_t)at->place_y1;
    expect_remat(at, "step 5 (back): tensor y1: its place 2 lives from step 1 to 2");
    at = make_remat(); /* the second making comes after its use */
    dunlin_plan_step held = at->hand.steps[4];
    at->hand.steps[4] = at->hand.steps[5];
    at->hand.steps[5] = held;
    at->hand.places[7].first_step = 4; /* dy1 earlier */
    expect_remat(at, "step 4 (back): tensor y1: place 8 holds nothing of this slice, not the "
                     "output of first");
    at = make_remat(); /* recomputed from an x that is gone */
    at->hand.places[at->place_x].last_step = 3;
    expect_remat(at, "step 4 (first): tensor x");
}

Test(verify, reductions_happen_once_and_for_all_slices)
{
    remat *at = make_remat(); /* wgrad in place of the second making */
    at->hand.steps[4] = at->hand.steps[6];
    at->hand.places[7].first_step = 4;
    expect_remat(at, "op wgrad: its reduce part runs in 2 steps");
    at = make_remat();
    at->hand.steps[3].parts = MAP;
    at->hand.operands[at->hand.steps[3].first_operand + 2] = DUNLIN_MEM_NONE;
    expect_remat(at, "op loss: its reduce part runs in 0 steps");
    at = make_remat(); /* alive from its first use on: the next slice finds other bytes there */
    at->hand.places[at->place_dw].first_step = 6;
    expect_remat(at, "step 6 (wgrad): tensor dw: its sum is not kept from slice to slice");
    at = make_remat(); /* one slice: then there is nothing to keep */
    at->hand.places[at->place_dw].first_step = 6;
    at->hand.loops[0].slice_samples = 8;
    for (int p = 1; p < 9; p++) {
        at->hand.places[p].bytes *= 4;
        at->hand.places[p].offset_bytes = 64 + (at->hand.places[p].offset_bytes - 64) * 4;
    }
    at->hand.plan.arena_bytes = 64 + at->hand.plan.pool_bytes * 4;
    at->hand.plan.pool_bytes *= 4;
    expect_remat(at, NULL);
}

Test(verify, an_update_comes_after_all_reads_of_the_old_version)
{
    /* The graph has a reader of w before the update; the plan runs it after. */
    test_graph *graph = test_graph_new();
    uint32_t w = test_persistent(graph, "w", 64, DUNLIN_MEM_WEIGHT);
    uint32_t g = test_fixed(graph, "g", 64, DUNLIN_MEM_SAVED);
    TEST_OP(graph, "decay", FIXED, "rw", w, g);
    TEST_OP(graph, "update", FIXED, "u", w);
    for (int is_right = 0; is_right < 2; is_right++) {
        hand_plan hand;
        hand_start(&hand, 1);
        int place_w = hand_place(&hand, w, 0, 1, 64);
        int place_g = hand_place(&hand, g, 0, 1, 64);
        hand_finish(&hand, 64);
        hand_loop(&hand, 0);
        if (is_right != 0) {
            HAND_STEP(&hand, 0, FIXED, place_w, place_g);
            HAND_STEP(&hand, 1, FIXED, place_w);
        } else {
            HAND_STEP(&hand, 1, FIXED, place_w);
            HAND_STEP(&hand, 0, FIXED, place_w, place_g);
        }
        hand_expect(graph, &hand,
                    is_right != 0 ? NULL
                                  : "tensor w: place 0 holds the output of update of "
                                    "this slice, not the version before the step");
    }
    test_graph_free(graph);
}

/* --- addresses --- */

Test(verify, addresses)
{
    remat *at = make_remat();
    at->hand.places[3].offset_bytes = at->hand.places[2].offset_bytes;
    expect_remat(at, "step 2 (second): tensor y2: places 2 and 3 (y1) overlap");
    at = make_remat();
    at->hand.places[3].offset_bytes += 32;
    expect_remat(at, "is not a multiple of 64");
    at = make_remat();
    at->hand.places[8].offset_bytes = at->hand.plan.arena_bytes - 192;
    expect_remat(at, "are outside of");
    at = make_remat();
    at->hand.places[8].offset_bytes = UINT64_MAX - 63;
    expect_remat(at, "are outside of");
    at = make_remat();
    at->hand.places[1].offset_bytes = 0; /* among the persistent */
    expect_remat(at, "tensor x: place 1: 128 bytes at 0 are outside of 64");
    at = make_remat();
    at->hand.places[0].last_step = 6;
    expect_remat(at, "tensor w: is persistent or pinned but has not one place for the whole plan");
    at = make_remat();
    at->hand.places[2].last_step = 100;
    expect_remat(at, "place 2 lives from step 1 to 100 of 8");
    at = make_remat();
    at->hand.places[2].tensor = 1000;
    expect_remat(at, "not of an outermost tensor");
    at = make_remat();
    at->hand.places[2].bytes = 192;
    expect_remat(at, "192 bytes do not hold 2 samples");
    at = make_remat();
    at->hand.places[2].tensor = at->y2;
    expect_remat(at, "its place 2 is of another tensor");
    at = make_remat();
    at->hand.plan.arena_bytes += 64;
    expect_remat(at, "an arena of");
}

Test(verify, structure)
{
    remat *at = make_remat();
    at->hand.plan.batch = 0;
    expect_remat(at, "no batch");
    at = make_remat();
    at->hand.loops[1].first_step = 6;
    expect_remat(at, "loop 1");
    at = make_remat();
    at->hand.loops[0].n_steps = UINT32_MAX;
    expect_remat(at, "loop 0");
    at = make_remat();
    at->hand.plan.n_loops = 1;
    expect_remat(at, "the loops hold 7 of 8 steps");
    at = make_remat();
    at->hand.loops[0].slice_samples = 9;
    expect_remat(at, "slices of 9 samples");
    at = make_remat();
    at->hand.steps[2].op = 70;
    expect_remat(at, "op 70 has no variant");
    at = make_remat();
    at->hand.steps[2].variant = 1;
    expect_remat(at, "has no variant 1");
    at = make_remat();
    at->hand.steps[2].parts = MAP | REDUCE;
    expect_remat(at, "no parts 3");
    at = make_remat();
    at->hand.steps[2].first_operand = UINT32_MAX;
    expect_remat(at, "operands from");
    at = make_remat();
    at->hand.operands[at->hand.steps[2].first_operand] = 99;
    expect_remat(at, "tensor y1: place 99 is not one of 9");
    at = make_remat();
    at->hand.operands[at->hand.steps[2].first_operand] = 9;
    expect_remat(at, "tensor y1: place 9 is not one of 9");
    at = make_remat();
    at->hand.operands[at->hand.steps[2].first_operand] = DUNLIN_MEM_NONE;
    expect_remat(at, "tensor y1: place");
    at = make_remat();
    at->hand.steps[3].parts = REDUCE; /* its read and its sum remain, its write does not run */
    expect_remat(at, "tensor dy2: has a place, but the parts that run do not touch it");
    at = make_remat();
    at->graph->variants[2][0].workspace_sample_bytes = 8;
    expect_remat(at, "step 2 (second): its workspace is missing");
}

Test(verify, workspaces)
{
    for (uint64_t bytes = 64; bytes <= 128; bytes += 64) {
        remat *at = make_remat();
        at->graph->variants[2][0].workspace_sample_bytes = 8;
        at->graph->variants[2][0].workspace_fixed_bytes = 100;
        int place = hand_place(&at->hand, DUNLIN_MEM_NONE, 2, 2, bytes);
        at->hand.steps[2].workspace = (uint32_t)place;
        hand_finish(&at->hand, 64);
        expect_remat(at, bytes == 128 ? NULL : "its workspace is missing, not alive or too small");
    }
}

/* --- in place --- */

typedef struct {
    bool is_declared;
    uint64_t shift_bytes;
    bool is_read_later;
    bool is_read_twice;
    uint64_t b_bytes;
} in_place_case;

static void check_in_place(const in_place_case *at, const char *words)
{
    test_graph *graph = test_graph_new();
    uint32_t a = test_batched(graph, "a", 128, DUNLIN_MEM_ACTIVATION);
    uint32_t b = test_batched(graph, "b", at->b_bytes, DUNLIN_MEM_ACTIVATION);
    uint32_t sum = test_fixed(graph, "sum", 64, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "input", MAP, "w", a);
    uint32_t relu = TEST_OP(graph, "relu", MAP, at->is_read_twice ? "rwr" : "rw", a, b, a);
    TEST_OP(graph, "use", REDUCE, at->is_read_later ? "rar" : "ra", b, sum, a);
    if (at->is_declared) {
        test_in_place(graph, relu, 1, 0);
    }
    hand_plan hand;
    hand_start(&hand, 1);
    int place_a = hand_place(&hand, a, 0, at->is_read_later ? 2 : 1, 128);
    int place_b = hand_place(&hand, b, 1, 2, 128);
    int place_sum = hand_place(&hand, sum, 2, 2, 64);
    hand_finish(&hand, 0);
    hand.places[place_b].offset_bytes = hand.places[place_a].offset_bytes + at->shift_bytes;
    hand_loop(&hand, 1);
    HAND_STEP(&hand, 0, MAP, place_a);
    if (at->is_read_twice) {
        HAND_STEP(&hand, 1, MAP, place_a, place_b, place_a);
    } else {
        HAND_STEP(&hand, 1, MAP, place_a, place_b);
    }
    if (at->is_read_later) {
        HAND_STEP(&hand, 2, REDUCE, place_b, place_sum, place_a);
    } else {
        HAND_STEP(&hand, 2, REDUCE, place_b, place_sum);
    }
    hand_expect(graph, &hand, words);
    test_graph_free(graph);
}

Test(verify, in_place_only_where_the_op_allows_it)
{
    const char *overlap = "tensor b: places 0 and 1 (a) overlap at";
    check_in_place(&(in_place_case){.is_declared = true, .b_bytes = 128}, NULL);
    check_in_place(&(in_place_case){.is_declared = false, .b_bytes = 128}, overlap);
    check_in_place(&(in_place_case){.is_declared = true, .b_bytes = 128, .shift_bytes = 64},
                   overlap);
    check_in_place(&(in_place_case){.is_declared = true, .b_bytes = 128, .is_read_later = true},
                   overlap);
    check_in_place(&(in_place_case){.is_declared = true, .b_bytes = 128, .is_read_twice = true},
                   overlap);
    check_in_place(&(in_place_case){.is_declared = true, .b_bytes = 124}, overlap);
    check_in_place(&(in_place_case){.b_bytes = 128, .shift_bytes = 128}, NULL);
}

/* --- versions --- */

Test(verify, a_tensor_written_twice_is_read_in_the_right_version)
{
    /* g is written, read by early, added to in place by more, read by late. */
    test_graph *graph = test_graph_new();
    uint32_t g = test_batched(graph, "g", 64, DUNLIN_MEM_GRADIENT);
    uint32_t sum = test_fixed(graph, "sum", 64, DUNLIN_MEM_ACCUMULATOR);
    uint32_t sum2 = test_fixed(graph, "sum2", 64, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "make", MAP, "w", g);
    TEST_OP(graph, "early", REDUCE, "ra", g, sum);
    TEST_OP(graph, "more", MAP, "rw", g, g);
    TEST_OP(graph, "late", REDUCE, "ra", g, sum2);
    cr_assert_eq(dunlin__graph_check(&graph->graph, 4, NULL, NULL), DUNLIN_OK);
    static const uint32_t orders[3][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {0, 1, 3, 2}};
    static const char *const words[3] = {NULL,
                                         "(early): tensor g: place 0 holds the output of more",
                                         "(late): tensor g: place 0 holds the output of make"};
    for (int i = 0; i < 3; i++) {
        hand_plan hand;
        hand_start(&hand, 4);
        int place_g = hand_place(&hand, g, 0, 3, 64);
        int places[2] = {hand_place(&hand, sum, 0, 3, 64), hand_place(&hand, sum2, 0, 3, 64)};
        hand_finish(&hand, 0);
        hand_loop(&hand, 1);
        for (int k = 0; k < 4; k++) {
            uint32_t op = orders[i][k];
            if (op == 0) {
                HAND_STEP(&hand, 0, MAP, place_g);
            } else if (op == 2) {
                HAND_STEP(&hand, 2, MAP, place_g, place_g);
            } else {
                HAND_STEP(&hand, op, REDUCE, place_g, places[op == 3]);
            }
        }
        hand_expect(graph, &hand, words[i]);
    }
    test_graph_free(graph);
}

Test(verify, no_memory_is_said)
{
    remat *at = make_remat();
    dunlin_status status = DUNLIN_MEMORY;
    uint64_t n_left = 0;
    for (; status == DUNLIN_MEMORY; n_left++) {
        failing_alloc failing;
        dunlin_error error = {0};
        failing_alloc_init(&failing, n_left);
        status = dunlin__plan_verify(&at->graph->graph, &at->hand.plan, &failing.hooks, &error);
        cr_assert_eq(failing.counter.now_bytes, 0);
        cr_assert_eq(error.status, status);
    }
    cr_assert_eq(status, DUNLIN_OK);
    cr_assert_gt(n_left, 10);
    free_remat(at);
}
