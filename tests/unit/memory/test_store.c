/*
 * test_store.c - plans as bytes: what was written is read to the same plan; what is cut, changed,
 * or of another step is not.
 */
#include "planner/graphs.h"
#include "random.h"

#include <mem/hash.h>
#include <mem/store.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct kept {
    unsigned char *bytes;
    size_t n, capacity;
    size_t n_calls_left; /* then writing fails */
} kept;

static dunlin_status append(void *ctx, const void *bytes, size_t n)
{
    kept *to = ctx;
    if (to->n_calls_left-- == 0) {
        return DUNLIN_SPACE;
    }
    cr_assert_leq(to->n + n, to->capacity);
    memcpy(to->bytes + to->n, bytes, n);
    to->n += n;
    return DUNLIN_OK;
}

static kept keep(const test_graph *graph, const dunlin_plan_options *options,
                 const dunlin_plan *plan)
{
    kept made = {.capacity = (size_t)dunlin__plan_stored_bytes(plan), .n_calls_left = SIZE_MAX};
    made.bytes = malloc(made.capacity);
    cr_assert_eq(dunlin__plan_write(&graph->graph, options, plan, append, &made), DUNLIN_OK);
    cr_assert_eq(made.n, made.capacity);
    return made;
}

static test_graph *random_graph(uint64_t seed, uint32_t n_layers)
{
    test_graph *graph = test_graph_new();
    const test_net_options net = {
        .n_layers = n_layers, .max_sample_bytes = 4096, .has_norm = seed % 3 == 0};
    test_random_net(graph, &net, &seed);
    return graph;
}

static dunlin_plan *make_plan(const test_graph *graph, dunlin_plan_options *options,
                              uint64_t quarter)
{
    dunlin_error error = {0};
    dunlin_plan *plan = NULL;
    uint64_t least = 0;
    cr_assert_eq(dunlin__plan_create(&graph->graph, options, &plan, &error), DUNLIN_OK, "%s",
                 error.text);
    const uint64_t most = plan->arena_bytes;
    cr_assert_eq(dunlin__plan_least_bytes(&graph->graph, options, &least, &error), DUNLIN_OK);
    if (quarter < 4 && least < most) {
        dunlin__plan_destroy(plan);
        options->budget_bytes = least + (most - least) / 4 * quarter;
        cr_assert_eq(dunlin__plan_create(&graph->graph, options, &plan, &error), DUNLIN_OK, "%s",
                     error.text);
    }
    return plan;
}

static void expect_same(const dunlin_plan *a, const dunlin_plan *b)
{
    cr_assert_eq(a->batch, b->batch);
    cr_assert_eq(a->arena_bytes, b->arena_bytes);
    cr_assert_eq(a->persistent_bytes, b->persistent_bytes);
    cr_assert_eq(a->pool_bytes, b->pool_bytes);
    cr_assert_eq(a->pool_lower_bound_bytes, b->pool_lower_bound_bytes);
    cr_assert_eq(a->table_bytes, b->table_bytes);
    cr_assert_eq(a->cost_ns, b->cost_ns);
    cr_assert_eq(a->n_recompute_ops, b->n_recompute_ops);
    cr_assert_eq(a->policy, b->policy);
    cr_assert_eq(a->n_loops, b->n_loops);
    cr_assert_eq(a->n_steps, b->n_steps);
    cr_assert_eq(a->n_operands, b->n_operands);
    cr_assert_eq(a->n_places, b->n_places);
    for (uint32_t i = 0; i < a->n_loops; i++) {
        cr_assert_eq(a->loops[i].first_step, b->loops[i].first_step);
        cr_assert_eq(a->loops[i].n_steps, b->loops[i].n_steps);
        cr_assert_eq(a->loops[i].slice_samples, b->loops[i].slice_samples);
    }
    for (uint32_t i = 0; i < a->n_steps; i++) {
        cr_assert_eq(a->steps[i].op, b->steps[i].op);
        cr_assert_eq(a->steps[i].variant, b->steps[i].variant);
        cr_assert_eq(a->steps[i].parts, b->steps[i].parts);
        cr_assert_eq(a->steps[i].first_operand, b->steps[i].first_operand);
        cr_assert_eq(a->steps[i].workspace, b->steps[i].workspace);
    }
    for (uint32_t i = 0; i < a->n_places; i++) {
        cr_assert_eq(a->places[i].tensor, b->places[i].tensor);
        cr_assert_eq(a->places[i].first_step, b->places[i].first_step);
        cr_assert_eq(a->places[i].last_step, b->places[i].last_step);
        cr_assert_eq(a->places[i].is_whole, b->places[i].is_whole);
        cr_assert_eq(a->places[i].offset_bytes, b->places[i].offset_bytes);
        cr_assert_eq(a->places[i].bytes, b->places[i].bytes);
    }
    cr_assert_arr_eq(a->operands, b->operands, a->n_operands * sizeof *a->operands);
}

Test(store, crc_is_the_common_one)
{
    cr_expect_eq(dunlin__crc32(0, "123456789", 9), 0xcbf43926);
    cr_expect_eq(dunlin__crc32(dunlin__crc32(0, "1234", 4), "56789", 5), 0xcbf43926);
}

Test(store, a_plan_comes_back_as_it_was)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        test_graph *graph = random_graph(seed, 1 + (uint32_t)(seed % 12));
        dunlin_plan_options options = {
            .batch = 1 + seed % 33, .policy = seed % 5 == 0 ? DUNLIN_PLAN_NONE : DUNLIN_PLAN_AUTO};
        dunlin_plan *plan = make_plan(graph, &options, seed % 5);
        kept bytes = keep(graph, &options, plan);
        dunlin_plan *again = NULL;
        dunlin_error error = {0};
        cr_assert_eq(
            dunlin__plan_read(&graph->graph, &options, bytes.bytes, bytes.n, &again, &error),
            DUNLIN_OK, "seed %" PRIu64 ": %s", seed, error.text);
        expect_same(plan, again);
        kept bytes_again = keep(graph, &options, again);
        cr_expect_eq(bytes.n, bytes_again.n);
        cr_expect_arr_eq(bytes.bytes, bytes_again.bytes, bytes.n);
        free(bytes.bytes);
        free(bytes_again.bytes);
        dunlin__plan_destroy(plan);
        dunlin__plan_destroy(again);
        test_graph_free(graph);
    }
}

/* One plan, in a block of exactly its bytes. */
typedef struct fixture {
    test_graph *graph;
    dunlin_plan_options options;
    dunlin_plan *plan;
    kept bytes;
} fixture;

static fixture make_fixture(void)
{
    fixture made = {.graph = random_graph(2, 2), .options = {.batch = 6}};
    made.plan = make_plan(made.graph, &made.options, 1);
    made.bytes = keep(made.graph, &made.options, made.plan);
    return made;
}

static void free_fixture(fixture *made)
{
    free(made->bytes.bytes);
    dunlin__plan_destroy(made->plan);
    test_graph_free(made->graph);
}

/* Reads a copy of its own size, so that reading past the end is seen. */
static dunlin_status read_of(const fixture *from, const unsigned char *bytes, size_t n,
                             dunlin_plan **out_plan)
{
    dunlin_error error = {0};
    unsigned char *copy = malloc(n > 0 ? n : 1);
    memcpy(copy, bytes, n);
    const dunlin_status status =
        dunlin__plan_read(&from->graph->graph, &from->options, copy, n, out_plan, &error);
    free(copy);
    cr_assert_eq(*out_plan != NULL, status == DUNLIN_OK);
    cr_assert(status == DUNLIN_OK || (error.status == status && error.text[0] != '\0'));
    return status;
}

Test(store, what_is_cut_or_flipped_is_refused)
{
    fixture at = make_fixture();
    dunlin_plan *plan = NULL;
    for (size_t n = 0; n < at.bytes.n; n++) {
        cr_assert_neq(read_of(&at, at.bytes.bytes, n, &plan), DUNLIN_OK, "cut to %zu", n);
    }
    for (size_t bit = 0; bit < 8 * at.bytes.n; bit++) {
        at.bytes.bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        cr_assert_neq(read_of(&at, at.bytes.bytes, at.bytes.n, &plan), DUNLIN_OK, "bit %zu", bit);
        at.bytes.bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
    free_fixture(&at);
}

static void mend_sum(kept *bytes)
{
    const uint32_t crc = dunlin__crc32(0, bytes->bytes, bytes->n - 4);
    for (size_t i = 0; i < 4; i++) {
        bytes->bytes[bytes->n - 4 + i] = (unsigned char)(crc >> (8 * i));
    }
}

/* With a checksum that is right the verifier is the last line: what it lets pass is a right plan,
 * and is written again to the same bytes. */
Test(store, a_flipped_bit_under_a_right_checksum_is_verified)
{
    fixture at = make_fixture();
    size_t n_passed = 0;
    for (size_t bit = 0; bit < 8 * (at.bytes.n - 4); bit++) {
        dunlin_plan *plan = NULL;
        at.bytes.bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
        mend_sum(&at.bytes);
        if (read_of(&at, at.bytes.bytes, at.bytes.n, &plan) == DUNLIN_OK) {
            n_passed++;
            cr_assert_eq(dunlin__plan_verify(&at.graph->graph, plan, NULL, NULL), DUNLIN_OK);
            kept again = keep(at.graph, &at.options, plan);
            cr_assert_arr_eq(again.bytes, at.bytes.bytes, at.bytes.n);
            free(again.bytes);
            dunlin__plan_destroy(plan);
        }
        at.bytes.bytes[bit / 8] ^= (unsigned char)(1U << bit % 8);
    }
    cr_expect_lt(n_passed, at.bytes.n, "%zu changed bits pass", n_passed);
    free_fixture(&at);
}

Test(store, of_another_step_or_options_is_refused)
{
    fixture at = make_fixture();
    const dunlin_plan_options options = at.options;
    dunlin_plan *plan = NULL;
    dunlin_plan_options others[5] = {options, options, options, options, options};
    others[0].batch++;
    others[1].budget_bytes += 64;
    others[2].slice_samples = 3;
    others[3].policy = DUNLIN_PLAN_POOL;
    for (size_t i = 0; i < 4; i++) {
        at.options = others[i];
        cr_expect_eq(read_of(&at, at.bytes.bytes, at.bytes.n, &plan), DUNLIN_MISMATCH, "%zu", i);
    }
    at.options = options;
    at.graph->variants[1][0].cost_fixed_ns++;
    cr_expect_eq(read_of(&at, at.bytes.bytes, at.bytes.n, &plan), DUNLIN_MISMATCH);
    at.graph->variants[1][0].cost_fixed_ns--;
    /* Under a key that lies, the budget is looked at once more. */
    at.options.budget_bytes = at.plan->arena_bytes - 1;
    const uint64_t key = dunlin__plan_key(&at.graph->graph, &at.options);
    for (size_t i = 0; i < 8; i++) {
        at.bytes.bytes[12 + i] = (unsigned char)(key >> (8 * i));
    }
    mend_sum(&at.bytes);
    cr_expect_eq(read_of(&at, at.bytes.bytes, at.bytes.n, &plan), DUNLIN_BUDGET);
    free_fixture(&at);
}

Test(store, every_field_of_a_graph_counts)
{
    test_graph *graph = random_graph(5, 3);
    const uint64_t hash = dunlin__graph_hash(&graph->graph, true);
    const uint64_t without = dunlin__graph_hash(&graph->graph, false);
    dunlin_mem_variant *variant = &graph->variants[2][0];
    cr_expect_eq(dunlin__graph_hash(&graph->graph, true), hash);
    variant->cost_sample_ns++;
    cr_expect_neq(dunlin__graph_hash(&graph->graph, true), hash);
    cr_expect_eq(dunlin__graph_hash(&graph->graph, false), without);
    variant->cost_sample_ns--;
    variant->workspace_sample_bytes++;
    cr_expect_neq(dunlin__graph_hash(&graph->graph, false), without);
    variant->workspace_sample_bytes--;
    graph->ops[2].may_recompute = !graph->ops[2].may_recompute;
    cr_expect_neq(dunlin__graph_hash(&graph->graph, false), without);
    graph->ops[2].may_recompute = !graph->ops[2].may_recompute;
    graph->accesses[3].parts ^= 3;
    cr_expect_neq(dunlin__graph_hash(&graph->graph, false), without);
    graph->accesses[3].parts ^= 3;
    graph->tensors[1].sample_bytes ^= 64;
    cr_expect_neq(dunlin__graph_hash(&graph->graph, false), without);
    graph->tensors[1].sample_bytes ^= 64;
    cr_expect_eq(dunlin__graph_hash(&graph->graph, true), hash);
    test_graph_free(graph);
}

/* Costs of one batch serve for others; plans do not. */
Test(store, sizes_that_follow_the_batch)
{
    test_graph *graph = random_graph(5, 3);
    const uint64_t before = dunlin__graph_hash(&graph->graph, false);
    graph->tensors[1].follows_batch = true;
    const uint64_t hash = dunlin__graph_hash(&graph->graph, true);
    const uint64_t without = dunlin__graph_hash(&graph->graph, false);
    cr_expect_neq(without, before);
    graph->tensors[1].fixed_bytes += 64;
    cr_expect_neq(dunlin__graph_hash(&graph->graph, true), hash);
    cr_expect_eq(dunlin__graph_hash(&graph->graph, false), without);
    graph->tensors[1].sample_bytes += 64;
    cr_expect_neq(dunlin__graph_hash(&graph->graph, false), without);
    test_graph_free(graph);
}

Test(store, failures_on_the_way_are_told)
{
    fixture at = make_fixture();
    kept out = {.capacity = at.bytes.n, .bytes = malloc(at.bytes.n)};
    for (size_t n = 0; n < 5; n++) {
        out.n = 0;
        out.n_calls_left = n;
        cr_expect_eq(dunlin__plan_write(&at.graph->graph, &at.options, at.plan, append, &out),
                     DUNLIN_SPACE);
    }
    free(out.bytes);
    dunlin_status status = DUNLIN_MEMORY;
    for (uint64_t n = 0; status != DUNLIN_OK; n++) {
        failing_alloc failing;
        failing_alloc_init(&failing, n);
        dunlin_plan_options options = at.options;
        options.alloc = failing.hooks;
        dunlin_plan *plan = NULL;
        status =
            dunlin__plan_read(&at.graph->graph, &options, at.bytes.bytes, at.bytes.n, &plan, NULL);
        cr_assert(status == DUNLIN_OK || status == DUNLIN_MEMORY);
        dunlin__plan_destroy(plan);
        cr_assert_eq(failing.counter.now_bytes, 0);
    }
    free_fixture(&at);
}
