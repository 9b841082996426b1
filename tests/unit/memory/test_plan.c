/*
 * test_plan.c - plans of steps small enough to work out by hand.
 */
#include "planner/graphs.h"

#include <mem/plan.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <string.h>

enum { MAP = DUNLIN_MEM_MAP, REDUCE = DUNLIN_MEM_REDUCE, FIXED = DUNLIN_MEM_FIXED };

/*
 * A layer and its update. Whole batch of 4 (bytes alive by step):
 *   input 256 | layer 256+512 | loss 256+512+512+64 = 1344 | wgrad 256+512+64 | update 64
 * Slices of n samples, the accumulators kept throughout: 64n + 128n + 128n + 128.
 */
typedef struct {
    test_graph *graph;
    uint32_t x, y, dy, w, dw, loss;
} tiny;

static tiny make_tiny(void)
{
    tiny made = {.graph = test_graph_new()};
    made.w = test_persistent(made.graph, "w", 60, DUNLIN_MEM_WEIGHT);
    made.x = test_batched(made.graph, "x", 64, DUNLIN_MEM_INPUT);
    made.y = test_batched(made.graph, "y", 128, DUNLIN_MEM_ACTIVATION);
    made.dy = test_batched(made.graph, "dy", 128, DUNLIN_MEM_GRADIENT);
    made.dw = test_fixed(made.graph, "dw", 60, DUNLIN_MEM_ACCUMULATOR);
    made.loss = test_fixed(made.graph, "loss", 8, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(made.graph, "input", MAP, "w", made.x);
    TEST_OP(made.graph, "layer", MAP, "rrw", made.x, made.w, made.y);
    TEST_OP(made.graph, "loss", MAP | REDUCE, "rwa", made.y, made.dy, made.loss);
    TEST_OP(made.graph, "wgrad", REDUCE, "rra", made.x, made.dy, made.dw);
    TEST_OP(made.graph, "update", FIXED, "ru", made.dw, made.w);
    return made;
}

static dunlin_plan *create(const test_graph *graph, const dunlin_plan_options *options)
{
    dunlin_error error = {0};
    dunlin_plan *plan = NULL;
    cr_assert_eq(dunlin__plan_create(&graph->graph, options, &plan, &error), DUNLIN_OK, "%s",
                 error.text);
    return plan;
}

Test(plan, without_a_budget_the_whole_batch_runs_at_once)
{
    tiny at = make_tiny();
    dunlin_plan *plan = create(at.graph, &(dunlin_plan_options){.batch = 4});
    cr_assert_eq(plan->n_loops, 1);
    cr_assert_eq(plan->loops[0].slice_samples, 4);
    cr_assert_eq(plan->n_steps, 5);
    cr_assert_eq(plan->persistent_bytes, 64);
    cr_assert_eq(plan->pool_lower_bound_bytes, 1344);
    cr_assert_eq(plan->pool_bytes, 1344);
    cr_assert_eq(plan->arena_bytes, 1408);
    cr_assert_eq(plan->n_places, 6);
    cr_assert_eq(plan->cost_ns, 4 * 1000 + 4 * 4 * 100 + 1000);
    cr_assert_eq(plan->n_recompute_ops, 0);
    for (uint32_t k = 0; k < 5; k++) {
        cr_assert_eq(plan->steps[k].op, k);
        cr_assert_eq(plan->steps[k].parts, at.graph->ops[k].parts);
        cr_assert_eq(plan->steps[k].workspace, DUNLIN_MEM_NONE);
    }
    dunlin_plan_summary summary;
    dunlin__plan_summarize(&at.graph->graph, plan, &summary);
    cr_assert_eq(summary.peak_step, 2);
    cr_assert_eq(summary.padding_bytes, 0);
    cr_assert_eq(summary.class_bytes[DUNLIN_MEM_WEIGHT], 64);
    cr_assert_eq(summary.class_bytes[DUNLIN_MEM_INPUT], 256);
    cr_assert_eq(summary.class_bytes[DUNLIN_MEM_ACTIVATION], 512);
    cr_assert_eq(summary.class_bytes[DUNLIN_MEM_GRADIENT], 512);
    cr_assert_eq(summary.class_bytes[DUNLIN_MEM_ACCUMULATOR], 64);
    dunlin__plan_destroy(plan);
    test_graph_free(at.graph);
}

Test(plan, smaller_budgets_take_smaller_slices)
{
    static const struct {
        uint64_t budget_bytes;
        uint64_t slice_samples;
        uint64_t arena_bytes;
    } rows[] = {{1408, 4, 1408}, {1407, 2, 832}, {832, 2, 832}, {831, 1, 512}, {512, 1, 512}};
    tiny at = make_tiny();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dunlin_plan_options options = {
            .batch = 4, .budget_bytes = rows[i].budget_bytes, .policy = DUNLIN_PLAN_MICROBATCH};
        dunlin_plan *plan = create(at.graph, &options);
        cr_assert_eq(plan->arena_bytes, rows[i].arena_bytes);
        cr_assert_eq(plan->loops[0].slice_samples, rows[i].slice_samples);
        if (rows[i].slice_samples < 4) {
            cr_assert_eq(plan->n_loops, 2);
            cr_assert_eq(plan->loops[0].n_steps, 4);
            cr_assert_eq(plan->loops[1].n_steps, 1);
            cr_assert_eq(plan->loops[1].slice_samples, 0);
            cr_assert_eq(plan->steps[4].op, 4);
        }
        dunlin__plan_destroy(plan);
    }
    dunlin_error error = {0};
    dunlin_plan *plan = NULL;
    dunlin_plan_options options = {
        .batch = 4, .budget_bytes = 511, .policy = DUNLIN_PLAN_MICROBATCH};
    cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, &error), DUNLIN_BUDGET);
    cr_assert_eq(error.needed_bytes, 512);
    cr_assert_null(plan);
    uint64_t least = 0;
    cr_assert_eq(dunlin__plan_least_bytes(&at.graph->graph, &options, &least, &error), DUNLIN_OK);
    cr_assert_eq(least, 512);
    test_graph_free(at.graph);
}

Test(plan, slices_are_as_even_as_they_can_be)
{
    tiny at = make_tiny();
    /* Room for slices of 9: 320 * 9 + 128 + 64; ten samples in two slices are slices of 5. */
    dunlin_plan_options options = {
        .batch = 10, .budget_bytes = 3072, .policy = DUNLIN_PLAN_MICROBATCH};
    dunlin_plan *plan = create(at.graph, &options);
    cr_assert_eq(plan->loops[0].slice_samples, 5);
    dunlin__plan_destroy(plan);
    test_graph_free(at.graph);
}

Test(plan, slices_asked_for)
{
    tiny at = make_tiny();
    dunlin_plan_options options = {
        .batch = 4, .slice_samples = 3, .policy = DUNLIN_PLAN_MICROBATCH};
    dunlin_plan *plan = create(at.graph, &options);
    cr_assert_eq(plan->loops[0].slice_samples, 3);
    cr_assert_eq(plan->pool_bytes, 320 * 3 + 128);
    dunlin__plan_destroy(plan);
    dunlin_error error = {0};
    options.budget_bytes = 1000;
    cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, &error), DUNLIN_BUDGET);
    cr_assert_eq(error.needed_bytes, 320 * 3 + 128 + 64);
    /* The same as a limit: smaller ones will do. */
    options.policy = DUNLIN_PLAN_AUTO;
    plan = create(at.graph, &options);
    cr_assert_eq(plan->loops[0].slice_samples, 2);
    dunlin__plan_destroy(plan);
    options.slice_samples = 1;
    options.budget_bytes = 0;
    plan = create(at.graph, &options);
    cr_assert_eq(plan->loops[0].slice_samples, 1);
    dunlin__plan_destroy(plan);
    test_graph_free(at.graph);
}

Test(plan, policies_without_slices)
{
    tiny at = make_tiny();
    dunlin_plan_options options = {.batch = 4, .policy = DUNLIN_PLAN_NONE};
    dunlin_plan *plan = create(at.graph, &options);
    cr_assert_eq(plan->pool_bytes, 256 + 512 + 512 + 64 + 64);
    cr_assert_eq(plan->pool_lower_bound_bytes, 1344);
    dunlin__plan_destroy(plan);
    dunlin_error error = {0};
    options.budget_bytes = 1000;
    cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, &error), DUNLIN_BUDGET);
    cr_assert_eq(error.needed_bytes, 1408 + 64);
    options.policy = DUNLIN_PLAN_POOL;
    cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, &error), DUNLIN_BUDGET);
    cr_assert_eq(error.needed_bytes, 1408);
    test_graph_free(at.graph);
}

Test(plan, a_barrier_forbids_slices_and_is_named)
{
    tiny at = make_tiny();
    uint32_t z = test_batched(at.graph, "z", 64, DUNLIN_MEM_ACTIVATION);
    TEST_OP(at.graph, "norm", MAP, "rrw", at.x, at.loss, z);
    dunlin_error error = {0};
    dunlin_plan *plan = NULL;
    dunlin_plan_options options = {.batch = 4, .slice_samples = 3};
    for (int p = 0; p < 2; p++) {
        options.policy = p == 0 ? DUNLIN_PLAN_AUTO : DUNLIN_PLAN_MICROBATCH;
        options.is_slice_fixed = p == 0;
        cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, &error),
                     DUNLIN_UNSUPPORTED);
        cr_assert_not_null(strstr(error.text, "norm"), "%s", error.text);
    }
    /* As an upper limit they are those of the regions. */
    for (uint64_t most = 1; most <= 3; most++) {
        options = (dunlin_plan_options){.batch = 4, .slice_samples = most};
        cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, &error), DUNLIN_OK,
                     "%s", error.text);
        uint64_t largest = 0;
        for (uint32_t l = 0; l < plan->n_loops; l++) {
            const uint64_t slice = plan->loops[l].slice_samples;
            largest = slice > largest ? slice : largest;
        }
        cr_assert_eq(largest, most == 3 ? 2 : most); /* 2 and 2 rather than 3 and 1 */
        dunlin__plan_destroy(plan);
    }
    options = (dunlin_plan_options){.batch = 4, .budget_bytes = 300};
    cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, &error), DUNLIN_BUDGET);
    uint64_t needed = error.needed_bytes;
    cr_assert_geq(needed, 64 + 128 + 128 + 64); /* what the loss touches of a sample */
    cr_assert_lt(needed, 64 + 512 + 512 + 64);  /* and of the batch */
    options.budget_bytes = needed - 1;
    cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, &error), DUNLIN_BUDGET);
    cr_assert_eq(error.needed_bytes, needed);
    options.budget_bytes = needed;
    plan = create(at.graph, &options);
    cr_assert_leq(plan->arena_bytes, needed);
    cr_assert_gt(plan->n_loops, 1); /* before the barrier and after it */
    dunlin__plan_destroy(plan);
    test_graph_free(at.graph);
}

Test(plan, fixed_ops_before_the_slices_get_a_loop_in_front)
{
    tiny at = make_tiny();
    test_graph *graph = test_graph_new();
    uint32_t w = test_persistent(graph, "w", 64, DUNLIN_MEM_WEIGHT);
    uint32_t packed = test_fixed(graph, "packed", 64, DUNLIN_MEM_SAVED);
    uint32_t x = test_batched(graph, "x", 64, DUNLIN_MEM_INPUT);
    uint32_t sum = test_fixed(graph, "sum", 64, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "input", MAP, "w", x);
    TEST_OP(graph, "pack", FIXED, "rw", w, packed);
    TEST_OP(graph, "use", REDUCE, "rra", x, packed, sum);
    TEST_OP(graph, "update", FIXED, "ru", sum, w);
    dunlin_plan_options options = {
        .batch = 6, .slice_samples = 2, .policy = DUNLIN_PLAN_MICROBATCH};
    dunlin_plan *plan = create(graph, &options);
    cr_assert_eq(plan->n_loops, 3);
    cr_assert_eq(plan->steps[0].op, 1);
    cr_assert_eq(plan->steps[1].op, 0);
    cr_assert_eq(plan->steps[2].op, 2);
    cr_assert_eq(plan->steps[3].op, 3);
    /* packed is alive to the loop's end, sum from its start: x, packed and sum at once. */
    cr_assert_eq(plan->pool_bytes, 128 + 64 + 64);
    dunlin__plan_destroy(plan);
    test_graph_free(graph);
    test_graph_free(at.graph);
}

/* a -> b in place -> c: what the in-place pair saves, and when it must not be used. */
static uint64_t in_place_pool(bool is_read_later, uint64_t b_bytes, bool is_read_twice)
{
    test_graph *graph = test_graph_new();
    uint32_t a = test_batched(graph, "a", 64, DUNLIN_MEM_ACTIVATION);
    uint32_t b = test_batched(graph, "b", b_bytes, DUNLIN_MEM_ACTIVATION);
    uint32_t sum = test_fixed(graph, "sum", 64, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "input", MAP, "w", a);
    uint32_t op = is_read_twice ? TEST_OP(graph, "relu", MAP, "rwr", a, b, a)
                                : TEST_OP(graph, "relu", MAP, "rw", a, b);
    test_in_place(graph, op, 1, 0);
    TEST_OP(graph, "add_up", REDUCE, is_read_later ? "rar" : "ra", b, sum, a);
    dunlin_plan *plan = create(graph, &(dunlin_plan_options){.batch = 1});
    uint64_t bytes = plan->pool_bytes;
    cr_assert_eq(plan->pool_lower_bound_bytes, bytes);
    dunlin__plan_destroy(plan);
    test_graph_free(graph);
    return bytes;
}

Test(plan, outputs_lie_on_inputs_that_die)
{
    cr_assert_eq(in_place_pool(false, 64, false), 128);
    cr_assert_eq(in_place_pool(true, 64, false), 192);
    cr_assert_eq(in_place_pool(false, 60, false), 128, "another size: both at once");
    cr_assert_eq(in_place_pool(false, 64, true), 128, "read again by the same op: both at once");
    cr_assert_eq(in_place_pool(true, 192, false), 320);
}

Test(plan, parts_live_in_their_parent)
{
    test_graph *graph = test_graph_new();
    uint32_t whole = test_batched(graph, "whole", 128, DUNLIN_MEM_ACTIVATION);
    uint32_t left = test_part(graph, "left", whole, 0, 64);
    uint32_t right = test_part(graph, "right", whole, 64, 64);
    uint32_t sum = test_fixed(graph, "sum", 64, DUNLIN_MEM_ACCUMULATOR);
    TEST_OP(graph, "a", MAP, "w", left);
    TEST_OP(graph, "b", MAP, "rw", left, right);
    TEST_OP(graph, "use", REDUCE, "ra", whole, sum);
    dunlin_plan *plan = create(graph, &(dunlin_plan_options){.batch = 2});
    cr_assert_eq(plan->n_places, 2);
    cr_assert_eq(plan->pool_bytes, 256 + 64);
    uint32_t place = plan->operands[plan->steps[0].first_operand];
    cr_assert_eq(plan->places[place].tensor, whole);
    cr_assert_eq(plan->places[place].first_step, 0);
    cr_assert_eq(plan->places[place].last_step, 2);
    cr_assert_eq(plan->operands[plan->steps[1].first_operand + 1], place);
    dunlin__plan_destroy(plan);
    test_graph_free(graph);
}

Test(plan, workspace_variants_give_way_where_the_peak_is)
{
    /* A fast variant with 1000 bytes of workspace, a slow one with none. */
    tiny at = make_tiny();
    at.graph->ops[2].n_variants = 2;
    at.graph->variants[2][0].workspace_fixed_bytes = 1000;
    at.graph->variants[2][1].cost_sample_ns = 120;
    dunlin_plan_options options = {.batch = 4, .policy = DUNLIN_PLAN_MICROBATCH};
    dunlin_plan *plan = create(at.graph, &options);
    cr_assert_eq(plan->steps[2].variant, 0);
    cr_assert_eq(plan->pool_bytes, 1344 + 1024);
    cr_assert_eq(plan->places[plan->steps[2].workspace].bytes, 1024);
    uint64_t fast_ns = plan->cost_ns;
    dunlin__plan_destroy(plan);
    /* One byte less: slower by 4 * 20 ns in the whole batch, by a whole slice's 4000 ns in two. */
    options.budget_bytes = 64 + 1344 + 1023;
    plan = create(at.graph, &options);
    cr_assert_eq(plan->n_loops, 1);
    cr_assert_eq(plan->steps[2].variant, 1);
    cr_assert_eq(plan->cost_ns, fast_ns + 80);
    cr_assert_eq(plan->pool_bytes, 1344);
    dunlin__plan_destroy(plan);
    /* Very slow without workspace: then slices with it are faster. */
    at.graph->variants[2][1].cost_sample_ns = 100000;
    plan = create(at.graph, &options);
    cr_assert_eq(plan->loops[0].slice_samples, 2);
    cr_assert_eq(plan->steps[2].variant, 0);
    dunlin__plan_destroy(plan);
    /* The least counts the small variant: 512 as without workspace. */
    uint64_t least = 0;
    cr_assert_eq(dunlin__plan_least_bytes(&at.graph->graph, &options, &least, NULL), DUNLIN_OK);
    cr_assert_eq(least, 512);
    test_graph_free(at.graph);
}

Test(plan, an_op_nobody_listens_to_still_runs)
{
    test_graph *graph = test_graph_new();
    uint32_t x = test_batched(graph, "x", 64, DUNLIN_MEM_INPUT);
    uint32_t y = test_batched(graph, "y", 64, DUNLIN_MEM_ACTIVATION);
    TEST_OP(graph, "input", MAP, "w", x);
    TEST_OP(graph, "report", MAP, "rw", x, y);
    dunlin_plan *plan = create(graph, &(dunlin_plan_options){.batch = 3});
    cr_assert_eq(plan->n_steps, 2);
    cr_assert_eq(plan->pool_bytes, 384);
    dunlin__plan_destroy(plan);
    test_graph_free(graph);
}

Test(plan, wrong_graphs_and_batches_are_refused)
{
    tiny at = make_tiny();
    dunlin_plan *plan = NULL;
    dunlin_error error = {0};
    dunlin_plan_options options = {.batch = 0};
    cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, &error), DUNLIN_ARGUMENT);
    options.batch = UINT64_MAX / 2;
    cr_assert_eq(dunlin__plan_create(&at.graph->graph, &options, &plan, &error), DUNLIN_OVERFLOW);
    cr_assert_null(plan);
    dunlin__plan_destroy(NULL);
    test_graph_free(at.graph);
}

Test(plan, all_memory_comes_from_the_hooks)
{
    tiny at = make_tiny();
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_plan_options options = {.batch = 4, .alloc = counter.hooks};
    dunlin_plan *plan = create(at.graph, &options);
    cr_assert_eq(counter.now_bytes, plan->table_bytes);
    cr_assert_gt(counter.peak_bytes, plan->table_bytes);
    dunlin__plan_destroy(plan);
    cr_assert_eq(counter.now_bytes, 0);
    test_graph_free(at.graph);
}
