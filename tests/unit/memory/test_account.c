/*
 * test_account.c - what a plan retains, recomputes and costs; the floor; the drawing of both.
 */
#include "hand.h"
#include "planner/graphs.h"

#include <mem/draw.h>
#include <mem/plan.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAP = DUNLIN_MEM_MAP, REDUCE = DUNLIN_MEM_REDUCE, FIXED = DUNLIN_MEM_FIXED };

/*
 * x -> y1 -> y2 -> loss, backward, update; in slices of 2 of 8 samples, y1 dropped after its first
 * use and recomputed. Costs: 10 + 1 a sample for each op, of `first` 7 + 3.
 */
typedef struct {
    test_graph *graph;
    hand_plan hand;
    int again; /* place */
} subject;

static subject *make_subject(void)
{
    subject *at = calloc(1, sizeof *at);
    test_graph *graph = at->graph = test_graph_new();
    uint32_t w = test_persistent(graph, "w", 60, DUNLIN_MEM_WEIGHT);
    uint32_t x = test_batched(graph, "x", 64, DUNLIN_MEM_INPUT);
    uint32_t y1 = test_batched(graph, "y1", 128, DUNLIN_MEM_ACTIVATION);
    uint32_t y2 = test_batched(graph, "y2", 64, DUNLIN_MEM_ACTIVATION);
    uint32_t dy2 = test_batched(graph, "dy2", 64, DUNLIN_MEM_GRADIENT);
    uint32_t loss = test_fixed(graph, "loss", 4, DUNLIN_MEM_ACCUMULATOR);
    uint32_t dy1 = test_batched(graph, "dy1", 128, DUNLIN_MEM_GRADIENT);
    uint32_t dw = test_fixed(graph, "dw", 60, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "input", MAP, "w", x);
    uint32_t first = TEST_OP(graph, "first", MAP, "rrw", x, w, y1);
    TEST_OP(graph, "second", MAP, "rw", y1, y2);
    TEST_OP(graph, "loss", MAP | REDUCE, "rwa", y2, dy2, loss);
    TEST_OP(graph, "back", MAP, "rrw", dy2, y1, dy1);
    TEST_OP(graph, "wgrad", REDUCE, "rra", x, dy1, dw);
    TEST_OP(graph, "update", FIXED, "ru", dw, w);
    for (uint32_t i = 0; i < graph->graph.n_ops; i++) {
        graph->ops[i].is_backward = i >= 4;
        graph->variants[i][0].cost_fixed_ns = 10;
        graph->variants[i][0].cost_sample_ns = i == 6 ? 0 : 1;
    }
    graph->ops[first].may_recompute = true;
    graph->variants[first][0].cost_fixed_ns = 7;
    graph->variants[first][0].cost_sample_ns = 3;
    hand_plan *hand = &at->hand;
    hand_start(hand, 8);
    int p_w = hand_place(hand, w, 0, 7, 64);
    int p_x = hand_place(hand, x, 0, 6, 128);
    int p_y1 = hand_place(hand, y1, 1, 2, 256);
    int p_y2 = hand_place(hand, y2, 2, 3, 128);
    int p_dy2 = hand_place(hand, dy2, 3, 5, 128);
    int p_loss = hand_place(hand, loss, 0, 6, 64);
    int p_dw = hand_place(hand, dw, 0, 7, 64);
    int p_dy1 = hand_place(hand, dy1, 5, 6, 256);
    at->again = hand_place(hand, y1, 4, 5, 256);
    hand_finish(hand, 64);
    hand_loop(hand, 2);
    HAND_STEP(hand, 0, MAP, p_x);
    HAND_STEP(hand, 1, MAP, p_x, p_w, p_y1);
    HAND_STEP(hand, 2, MAP, p_y1, p_y2);
    HAND_STEP(hand, 3, MAP | REDUCE, p_y2, p_dy2, p_loss);
    HAND_STEP(hand, 1, MAP, p_x, p_w, at->again);
    HAND_STEP(hand, 4, MAP, p_dy2, at->again, p_dy1);
    HAND_STEP(hand, 5, REDUCE, p_x, p_dy1, p_dw);
    hand_loop(hand, 0);
    HAND_STEP(hand, 6, FIXED, p_dw, p_w);
    hand->plan.n_recompute_ops = 1;
    cr_assert_eq(dunlin__plan_verify(&graph->graph, &hand->plan, NULL, NULL), DUNLIN_OK);
    return at;
}

static void free_subject(subject *at)
{
    test_graph_free(at->graph);
    free(at);
}

Test(account, counts_what_is_kept_and_made_again)
{
    subject *at = make_subject();
    dunlin_plan_account account;
    dunlin__plan_account(&at->graph->graph, &at->hand.plan, &account);
    cr_expect_eq(account.n_slices, 4);
    cr_expect_eq(account.n_remade, 1);
    cr_expect_eq(account.remade_bytes, 256);
    /* Four slices of two: 4 x 7 + 8 x 3. */
    cr_expect_eq(account.recompute_ns, 52);
    /* At once: 31 of `first`, 18 of each of five ops, 10 of the update. */
    cr_expect_eq(account.ideal_ns, 31 + 5 * 18 + 10);
    /* The backward pass begins at step 5: x, dy2 and the second y1 are there. */
    cr_expect_eq(account.n_kept, 3);
    cr_expect_eq(account.kept_bytes, 128 + 128 + 256);
    free_subject(at);
}

Test(account, operand_bytes_count_every_time_an_operation_runs)
{
    subject *at = make_subject();
    const dunlin_mem_graph *graph = &at->graph->graph;
    /* Eight samples in four slices, `first` twice: what is per sample eight times, w and the sums
     * once a slice, the sums and the updated w twice. */
    const uint64_t first = 8 * 64 + 4 * 60 + 8 * 128;
    cr_expect_eq(dunlin__plan_operand_bytes(graph, &at->hand.plan, 8),
                 8 * 64 + 2 * first + 8 * (128 + 64) + (8 * (64 + 64) + 4 * 2 * 4) +
                     8 * (64 + 128 + 128) + (8 * (64 + 128) + 4 * 2 * 60) + (60 + 2 * 60));
    /* Three samples are two slices. */
    cr_expect_eq(dunlin__plan_operand_bytes(graph, &at->hand.plan, 3), 4516);
    free_subject(at);
}

Test(account, the_floor_is_the_largest_operation)
{
    subject *at = make_subject();
    const dunlin_mem_graph *graph = &at->graph->graph;
    /* w, then `back` on all it touches, the loss, which is not read again, gone. */
    cr_expect_eq(dunlin__graph_floor_bytes(graph, 2), 64 + 128 + 256 + 256);
    /* One sample: the same operation. */
    cr_expect_eq(dunlin__graph_floor_bytes(graph, 1), 64 + 64 + 128 + 128);
    at->graph->variants[1][0].workspace_fixed_bytes = 4000;
    cr_expect_eq(dunlin__graph_floor_bytes(graph, 1), 64 + 64 + 128 + 4032);
    free_subject(at);
}

/* Whatever the planner does with random networks, it stays above. */
Test(account, no_plan_is_under_the_floor)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        uint64_t state = seed;
        test_graph *graph = test_graph_new();
        test_random_net(graph,
                        &(test_net_options){.n_layers = 4 + (uint32_t)(seed % 20),
                                            .max_sample_bytes = 4096,
                                            .has_norm = seed % 2 == 0},
                        &state);
        dunlin_plan_options options = {.batch = 1 + seed % 9};
        const uint64_t floor = dunlin__graph_floor_bytes(&graph->graph, 1);
        uint64_t least = 0;
        cr_assert_eq(dunlin__plan_least_bytes(&graph->graph, &options, &least, NULL), DUNLIN_OK);
        cr_expect_leq(floor, least, "seed %llu", (unsigned long long)seed);
        options.budget_bytes = least;
        dunlin_plan *plan = NULL;
        dunlin_plan_account account;
        cr_assert_eq(dunlin__plan_create(&graph->graph, &options, &plan, NULL), DUNLIN_OK);
        dunlin__plan_account(&graph->graph, plan, &account);
        cr_expect_leq(account.ideal_ns + account.recompute_ns, plan->cost_ns);
        cr_expect_eq(account.recompute_ns > 0, plan->n_recompute_ops > 0, "seed %llu",
                     (unsigned long long)seed);
        cr_expect_eq(account.n_remade > 0, plan->n_recompute_ops > 0);
        dunlin__plan_destroy(plan);
        test_graph_free(graph);
    }
}

typedef struct {
    char text[65536];
    size_t n;
} collected;

static void collect(void *ctx, const char *piece)
{
    collected *all = ctx;
    all->n += (size_t)snprintf(all->text + all->n, sizeof all->text - all->n, "%s", piece);
    cr_assert_lt(all->n, sizeof all->text);
}

Test(account, the_drawing_marks_what_is_recomputed)
{
    subject *at = make_subject();
    collected *all = calloc(1, sizeof *all);
    const dunlin_plan_caption caption = {.title = "a <title> & more",
                                         .budget_bytes = at->hand.plan.arena_bytes + 100};
    dunlin__plan_draw(&at->graph->graph, &at->hand.plan, &caption, collect, all);
    static const char *const words[] = {
        "a &lt;title&gt; &amp; more",
        "1 tensors (256 bytes) recomputed by 1 steps, 32.9 % of the time",
        "y1: 256 bytes, recomputed at ",
        "class=\"a\"",
        ">budget</text>",
        ">forward</text>",
        ">update</text>",
        "4 x 2 samples",
    };
    at->hand.plan.cost_ns = 158;
    all->n = 0;
    dunlin__plan_draw(&at->graph->graph, &at->hand.plan, &caption, collect, all);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        cr_expect_not_null(strstr(all->text, words[i]), "no \"%s\"", words[i]);
    }
    /* A budget far above is not drawn, and nothing is squeezed for it. */
    all->n = 0;
    const dunlin_plan_caption far = {.budget_bytes = 10 * at->hand.plan.arena_bytes};
    dunlin__plan_draw(&at->graph->graph, &at->hand.plan, &far, collect, all);
    cr_expect_null(strstr(all->text, ">budget</text>"));
    free(all);
    free_subject(at);
}
