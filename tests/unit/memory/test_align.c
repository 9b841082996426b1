/*
 * test_align.c - a plan with another plan's addresses: still right, within its bytes, and what both
 * keep lies where the other keeps it.
 */
#include "planner/graphs.h"
#include "random.h"

#include <mem/plan.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define N_NETS 40

/* Two plans of one step: with all the memory it wants, and with less. */
typedef struct pair {
    test_graph *graph;
    dunlin_plan *high;
    dunlin_plan *low;
} pair;

static dunlin_plan *make_plan(const test_graph *graph, uint64_t budget_bytes,
                              const dunlin_alloc *alloc)
{
    const dunlin_plan_options options = {.batch = 16,
                                         .budget_bytes = budget_bytes,
                                         .slice_samples = 16,
                                         .is_slice_fixed = true,
                                         .policy = DUNLIN_PLAN_AUTO,
                                         .alloc = *alloc};
    dunlin_plan *plan = NULL;
    dunlin_error error = {0};
    const dunlin_status status = dunlin__plan_create(&graph->graph, &options, &plan, &error);
    cr_assert(status == DUNLIN_OK || status == DUNLIN_BUDGET, "%s", error.text);
    return plan;
}

static pair make_pair(uint64_t seed, const dunlin_alloc *alloc)
{
    pair made = {.graph = test_graph_new()};
    uint64_t rng = seed;
    const test_net_options net = {
        .n_layers = 20, .max_sample_bytes = 4096, .has_norm = seed % 2 == 0};
    test_random_net(made.graph, &net, &rng);
    made.high = make_plan(made.graph, 0, alloc);
    for (uint64_t share = 60; share <= 90 && made.low == NULL; share += 10) {
        made.low = make_plan(made.graph, made.high->arena_bytes * share / 100, alloc);
    }
    return made;
}

static void free_pair(pair *made)
{
    dunlin__plan_destroy(made->high);
    dunlin__plan_destroy(made->low);
    test_graph_free(made->graph);
}

static const dunlin_plan_allocation *first_of(const dunlin_plan *plan, uint32_t tensor)
{
    const dunlin_plan_allocation *first = NULL;
    for (uint32_t p = 0; p < plan->n_places; p++) {
        const dunlin_plan_allocation *place = &plan->places[p];
        if (place->tensor == tensor && (first == NULL || place->first_step < first->first_step)) {
            first = place;
        }
    }
    return first;
}

/* Bytes that both plans keep for a good part of the step, and of those the ones at one address. */
static uint64_t count_common(const pair *at, uint64_t *out_kept)
{
    uint64_t same = 0;
    for (uint32_t t = 0; t < at->graph->graph.n_tensors; t++) {
        const dunlin_plan_allocation *a = first_of(at->high, t);
        const dunlin_plan_allocation *b = first_of(at->low, t);
        if (a == NULL || b == NULL || a->offset_bytes < at->high->persistent_bytes ||
            a->last_step - a->first_step < at->high->n_steps / 4 ||
            b->last_step - b->first_step < at->low->n_steps / 4) {
            continue;
        }
        *out_kept += a->bytes;
        same += a->offset_bytes == b->offset_bytes ? a->bytes : 0;
    }
    return same;
}

Test(align, what_both_keep_has_one_address)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    uint64_t seed = test_seed(7);
    uint64_t kept = 0;
    uint64_t same = 0;
    uint64_t same_before = 0;
    for (int i = 0; i < N_NETS; i++, seed++) {
        pair at = make_pair(seed, &alloc);
        if (at.low != NULL) {
            uint64_t unused = 0;
            same_before += count_common(&at, &unused);
            const uint64_t room = at.high->arena_bytes + at.high->arena_bytes / 20;
            const dunlin_plan *const others[] = {at.low};
            dunlin_error error = {0};
            cr_assert_eq(dunlin__plan_align(&at.graph->graph, at.high, others, 1, room, &error),
                         DUNLIN_OK, "seed %llu: %s", (unsigned long long)seed, error.text);
            cr_assert_leq(at.high->arena_bytes, room);
            cr_assert_eq(dunlin__plan_verify(&at.graph->graph, at.high, NULL, &error), DUNLIN_OK,
                         "seed %llu: %s", (unsigned long long)seed, error.text);
            same += count_common(&at, &kept);
        }
        free_pair(&at);
    }
    cr_assert_gt(kept, 0);
    cr_assert_lt(same_before, kept / 2);
    cr_assert_gt(same, kept / 10 * 8, "%llu of %llu bytes, before %llu", (unsigned long long)same,
                 (unsigned long long)kept, (unsigned long long)same_before);
}

Test(align, without_room_nothing_changes)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    pair at = make_pair(test_seed(7), &alloc);
    cr_assert_not_null(at.low);
    const size_t n = at.high->n_places * sizeof *at.high->places;
    dunlin_plan_allocation *before = malloc(n);
    cr_assert_not_null(before);
    memcpy(before, at.high->places, n);
    const uint64_t arena_bytes = at.high->arena_bytes;
    const dunlin_plan *const others[] = {at.low};
    for (uint64_t room = 0; room < arena_bytes; room += arena_bytes / 7 + 1) {
        const uint64_t most = room < at.high->persistent_bytes + at.high->pool_lower_bound_bytes
                                  ? room
                                  : at.high->persistent_bytes;
        cr_assert_eq(dunlin__plan_align(&at.graph->graph, at.high, others, 1, most, NULL),
                     DUNLIN_OK);
        cr_assert_eq(memcmp(before, at.high->places, n), 0);
        cr_assert_eq(at.high->arena_bytes, arena_bytes);
    }
    free(before);
    free_pair(&at);
}

Test(align, every_allocation_may_fail)
{
    failing_alloc failing;
    failing_alloc_init(&failing, UINT64_MAX);
    pair at = make_pair(test_seed(7), &failing.hooks);
    cr_assert_not_null(at.low);
    const uint64_t before = failing.counter.now_bytes;
    const dunlin_plan *const others[] = {at.low};
    dunlin_status status = DUNLIN_MEMORY;
    for (uint64_t n = 0; n < 200 && status == DUNLIN_MEMORY; n++) {
        failing.n_left = n;
        status = dunlin__plan_align(&at.graph->graph, at.high, others, 1, 2 * at.high->arena_bytes,
                                    NULL);
        cr_assert_eq(failing.counter.now_bytes, before);
    }
    cr_assert_eq(status, DUNLIN_OK);
    failing.n_left = UINT64_MAX;
    free_pair(&at);
    cr_assert_eq(failing.counter.now_bytes, 0);
}
