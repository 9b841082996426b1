/*
 * test_swap.c - plans that write tensors out and read them back: right at every budget, the same
 * every time, and refused with one defect each.
 */
#include "planner/graphs.h"
#include "random.h"

#include <mem/baselines.h>
#include <mem/plan.h>
#include <mem/store.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SEED(seed) "seed %" PRIu64 ": %s", seed, error.text

/* A pair that swaps a tensor, after all ops: nothing may be added to the graph any more. */
static void add_swap(test_graph *graph, uint32_t tensor, uint64_t ns)
{
    const uint32_t n_ops = graph->graph.n_ops;
    graph->graph.n_ops += 2 * graph->graph.n_swaps;
    const uint32_t out = TEST_OP(graph, "out", DUNLIN_MEM_MAP, "r", tensor);
    const uint32_t in = TEST_OP(graph, "in", DUNLIN_MEM_MAP, "w", tensor);
    for (int i = 0; i < 2; i++) {
        dunlin_mem_variant *variant = &graph->variants[i == 0 ? out : in][0];
        graph->ops[i == 0 ? out : in].n_variants = 1;
        variant->cost_fixed_ns = 0;
        variant->cost_sample_ns = ns * (2 - (uint64_t)i);
        variant->workspace_fixed_bytes = 128;
    }
    graph->graph.n_ops = n_ops;
    graph->graph.n_swaps++;
}

/* All ops after the first that writes a gradient. */
static void mark_backward(test_graph *graph)
{
    bool is_backward = false;
    for (uint32_t i = 0; i < graph->graph.n_ops; i++) {
        const dunlin_mem_variant *variant = &graph->variants[i][0];
        graph->ops[i].is_backward = is_backward;
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            is_backward = is_backward || graph->tensors[variant->accesses[a].tensor].mem_class ==
                                             DUNLIN_MEM_GRADIENT;
        }
    }
}

static test_graph *random_graph(uint64_t *state)
{
    test_graph *graph = test_graph_new();
    const test_net_options net = {.n_layers = 2 + (uint32_t)test_random_below(state, 24),
                                  .max_sample_bytes = 64u << test_random_below(state, 8),
                                  .has_norm = test_random_below(state, 3) == 0};
    test_random_net(graph, &net, state);
    mark_backward(graph);
    for (uint32_t t = 0; t < graph->graph.n_tensors; t++) {
        const dunlin_mem_tensor *tensor = &graph->tensors[t];
        if (tensor->sample_bytes != 0 && tensor->parent == DUNLIN_MEM_NONE &&
            tensor->mem_class == DUNLIN_MEM_ACTIVATION && test_random_below(state, 4) != 0) {
            add_swap(graph, t, 1 + test_random_below(state, 2000));
        }
    }
    return graph;
}

static dunlin_plan *make(const test_graph *graph, const dunlin_plan_options *options, uint64_t seed)
{
    dunlin_error error = {0};
    dunlin_plan *plan = NULL;
    cr_assert_eq(dunlin__plan_create(&graph->graph, options, &plan, &error), DUNLIN_OK, SEED(seed));
    cr_assert_eq(dunlin__plan_verify(&graph->graph, plan, NULL, &error), DUNLIN_OK, SEED(seed));
    if (options->budget_bytes != 0) {
        cr_assert_leq(plan->arena_bytes, options->budget_bytes, SEED(seed));
    }
    return plan;
}

typedef struct kept {
    unsigned char *bytes;
    size_t n;
} kept;

static dunlin_status append(void *ctx, const void *bytes, size_t n)
{
    kept *to = ctx;
    memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
    return DUNLIN_OK;
}

/* As bytes and back. */
static void check_kept(const test_graph *graph, const dunlin_plan_options *options,
                       const dunlin_plan *plan, uint64_t seed)
{
    dunlin_error error = {0};
    dunlin_plan *back = NULL;
    kept to = {.bytes = malloc((size_t)dunlin__plan_stored_bytes(plan))};
    cr_assert_eq(dunlin__plan_write(&graph->graph, options, plan, append, &to), DUNLIN_OK);
    cr_assert_eq(dunlin__plan_read(&graph->graph, options, to.bytes, to.n, &back, &error),
                 DUNLIN_OK, SEED(seed));
    cr_expect_eq(back->cost_ns, plan->cost_ns, SEED(seed));
    cr_expect_eq(memcmp(back->steps, plan->steps, plan->n_steps * sizeof *plan->steps), 0);
    dunlin__plan_destroy(back);
    free(to.bytes);
}

Test(swap, every_budget_from_the_least_upward)
{
    static const dunlin_plan_policy policies[] = {DUNLIN_PLAN_VDNN, DUNLIN_PLAN_CAPUCHIN};
    uint64_t seed = test_seed(20260000);
    uint64_t n_swapped[2] = {0, 0};
    uint64_t n_mixed = 0;
    for (int n = 0; n < test_cases(120); n++, seed++) {
        uint64_t state = seed;
        test_graph *graph = random_graph(&state);
        dunlin_plan_options options = {.batch = 1 + test_random_below(&state, 60)};
        for (int p = 0; p < 2; p++) {
            dunlin_error error = {0};
            uint64_t least = 0;
            options.policy = policies[p];
            options.baseline_fn = dunlin__try_policy;
            options.budget_bytes = 0;
            dunlin_plan *plan = make(graph, &options, seed);
            const uint64_t most = plan->arena_bytes;
            dunlin__plan_destroy(plan);
            cr_assert_eq(dunlin__plan_least_bytes(&graph->graph, &options, &least, &error),
                         DUNLIN_OK, SEED(seed));
            for (int b = 0; b < 3; b++) {
                options.budget_bytes =
                    b == 0 ? least : least + test_random_below(&state, most - least + 1);
                plan = make(graph, &options, seed);
                dunlin_plan *again = make(graph, &options, seed);
                cr_expect_eq(
                    memcmp(plan->places, again->places, plan->n_places * sizeof *plan->places), 0);
                dunlin_plan_account account;
                dunlin__plan_account(&graph->graph, plan, &account);
                cr_expect_eq(account.swap_out_bytes > 0, account.n_swapped > 0);
                cr_expect_eq(account.swap_in_bytes, account.swap_out_bytes, SEED(seed));
                cr_expect_geq(plan->cost_ns, account.swap_ns + account.recompute_ns);
                n_swapped[p] += account.n_swapped;
                n_mixed += account.n_swapped > 0 && plan->n_recompute_ops > 0;
                check_kept(graph, &options, plan, seed);
                dunlin__plan_destroy(again);
                dunlin__plan_destroy(plan);
            }
        }
        test_graph_free(graph);
    }
    cr_expect_gt(n_swapped[0], 0);
    cr_expect_gt(n_swapped[1], 0);
    cr_expect_gt(n_mixed, 0, "nothing was swapped beside something recomputed");
}

/* --- one step by hand --- */

typedef struct hand {
    test_graph *graph;
    uint32_t y1, y2, dw;
    dunlin_plan_options options;
    dunlin_plan *plan;
    uint32_t out, in; /* steps of y1 */
} hand;

/* y1 is large and lies between the passes for long. */
static hand make_hand(uint64_t swap_ns, dunlin_plan_policy policy, uint64_t budget_bytes)
{
    enum { MAP = DUNLIN_MEM_MAP, REDUCE = DUNLIN_MEM_REDUCE, FIXED = DUNLIN_MEM_FIXED };
    hand at = {.graph = test_graph_new(),
               .options = {.batch = 4, .policy = policy, .baseline_fn = dunlin__try_policy}};
    test_graph *graph = at.graph;
    const uint32_t w = test_persistent(graph, "w", 64, DUNLIN_MEM_WEIGHT);
    const uint32_t x = test_batched(graph, "x", 64, DUNLIN_MEM_INPUT);
    at.y1 = test_batched(graph, "y1", 1024, DUNLIN_MEM_ACTIVATION);
    at.y2 = test_batched(graph, "y2", 64, DUNLIN_MEM_ACTIVATION);
    const uint32_t y3 = test_batched(graph, "y3", 1024, DUNLIN_MEM_ACTIVATION);
    const uint32_t dy2 = test_batched(graph, "dy2", 64, DUNLIN_MEM_GRADIENT);
    const uint32_t dy1 = test_batched(graph, "dy1", 64, DUNLIN_MEM_GRADIENT);
    at.dw = test_fixed(graph, "dw", 64, DUNLIN_MEM_ACCUMULATOR);
    const uint32_t loss = test_fixed(graph, "loss", 64, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "input", MAP, "w", x);
    const uint32_t first = TEST_OP(graph, "first", MAP, "rrw", x, w, at.y1);
    TEST_OP(graph, "second", MAP, "rw", at.y1, at.y2);
    TEST_OP(graph, "third", MAP, "rw", at.y2, y3);
    TEST_OP(graph, "loss", MAP | REDUCE, "rwa", y3, dy2, loss);
    TEST_OP(graph, "back", MAP, "rrw", dy2, at.y1, dy1);
    TEST_OP(graph, "wgrad", REDUCE, "ra", dy1, at.dw);
    TEST_OP(graph, "update", FIXED, "ru", at.dw, w);
    graph->variants[first][0].cost_sample_ns = 1000;
    mark_backward(graph);
    add_swap(graph, at.y1, swap_ns);
    at.options.budget_bytes = budget_bytes;
    at.plan = make(graph, &at.options, 0);
    for (uint32_t k = 0; k < at.plan->n_steps; k++) {
        const dunlin_mem_swap swap = dunlin__mem_swap_of(&graph->graph, at.plan->steps[k].op);
        at.out = swap == DUNLIN_MEM_SWAP_OUT ? k : at.out;
        at.in = swap == DUNLIN_MEM_SWAP_IN ? k : at.in;
    }
    return at;
}

static void close_hand(hand *at)
{
    dunlin__plan_destroy(at->plan);
    test_graph_free(at->graph);
}

static uint64_t hand_least(dunlin_plan_policy policy)
{
    hand at = make_hand(1, policy, 0);
    dunlin_error error = {0};
    uint64_t least = 0;
    cr_assert_eq(dunlin__plan_least_bytes(&at.graph->graph, &at.options, &least, &error),
                 DUNLIN_OK);
    cr_expect_lt(least, at.plan->arena_bytes);
    cr_expect_eq(at.plan->n_steps, at.graph->graph.n_ops, "something is swapped without a limit");
    close_hand(&at);
    return least;
}

Test(swap, the_cheaper_of_swapping_and_making_again)
{
    dunlin_plan_account account;
    const uint64_t least = hand_least(DUNLIN_PLAN_CAPUCHIN);
    hand at = make_hand(100, DUNLIN_PLAN_CAPUCHIN, least + 512); /* of 300 ns a sample, not 1000 */
    dunlin__plan_account(&at.graph->graph, at.plan, &account);
    cr_expect_eq(account.n_swapped, 1);
    cr_expect_eq(at.plan->n_recompute_ops, 0);
    cr_expect_eq(account.swap_ns, 4 * 300);
    cr_expect_eq(account.swap_out_bytes, 4 * 1024);
    close_hand(&at);
    at = make_hand(1000, DUNLIN_PLAN_CAPUCHIN, least + 512); /* 3000 ns */
    dunlin__plan_account(&at.graph->graph, at.plan, &account);
    cr_expect_eq(account.n_swapped, 0);
    cr_expect_eq(at.plan->n_recompute_ops, 2, "%u", at.plan->n_recompute_ops); /* with the input */
    close_hand(&at);
}

static void expect_refused(const hand *at, const char *words)
{
    dunlin_error error = {0};
    const dunlin_status status = dunlin__plan_verify(&at->graph->graph, at->plan, NULL, &error);
    cr_expect_eq(status, DUNLIN_MISMATCH, "passes, but should not: %s", words);
    cr_expect_not_null(strstr(error.text, words), "no \"%s\" in: %s", words, error.text);
}

Test(swap, verifier_sees_what_is_wrong)
{
    const uint64_t least = hand_least(DUNLIN_PLAN_VDNN);
    hand at = make_hand(1, DUNLIN_PLAN_VDNN, least);
    dunlin_plan *plan = at.plan;
    cr_assert_lt(at.out, at.in);
    const dunlin_plan_step out = plan->steps[at.out];
    const dunlin_plan_step in = plan->steps[at.in];
    /* Read back, but never written out. */
    plan->steps[at.out].op = in.op;
    expect_refused(&at, "was not written out");
    plan->steps[at.out] = out;
    /* Written out for a second time instead of read: the allocation is a new one, and empty. */
    plan->steps[at.in].op = out.op;
    expect_refused(&at, "holds nothing");
    plan->steps[at.in] = in;
    /* Another tensor's allocation. */
    const uint32_t operand = plan->operands[in.first_operand];
    plan->operands[in.first_operand] = plan->operands[plan->steps[0].first_operand];
    expect_refused(&at, "is of another tensor");
    plan->operands[in.first_operand] = operand;
    plan->steps[at.in].op = at.graph->graph.n_ops + 2 * at.graph->graph.n_swaps;
    expect_refused(&at, "has no variant");
    plan->steps[at.in] = in;
    plan->loops[0].slice_samples = 2;
    expect_refused(&at, "its loop runs in slices");
    plan->loops[0].slice_samples = 4;
    dunlin_error error = {0};
    cr_expect_eq(dunlin__plan_verify(&at.graph->graph, plan, NULL, &error), DUNLIN_OK);
    close_hand(&at);
}

Test(swap, graph_check_wants_pairs)
{
    hand at = make_hand(1, DUNLIN_PLAN_POOL, 0);
    dunlin_error error = {0};
    dunlin_mem_graph *graph = &at.graph->graph;
    dunlin_mem_access *in =
        (dunlin_mem_access *)(uintptr_t)graph->ops[graph->n_ops + 1].variants[0].accesses;
    in->tensor = at.y2;
    cr_expect_eq(dunlin__graph_check(graph, 4, NULL, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "op in does not"), "%s", error.text);
    in->tensor = at.y1;
    in->mode = DUNLIN_MEM_READ;
    cr_expect_eq(dunlin__graph_check(graph, 4, NULL, &error), DUNLIN_ARGUMENT);
    in->mode = DUNLIN_MEM_WRITE;
    cr_expect_eq(dunlin__graph_check(graph, 4, NULL, &error), DUNLIN_OK, "%s", error.text);
    close_hand(&at);
}
