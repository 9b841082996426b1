/*
 * test_plan.c - random training steps: for every graph, batch and budget, a plan that is found is
 * valid and fits, and the least budget is exact.
 */
#include "planner/graphs.h"
#include "random.h"

#include <dunlin/base.h>
#include <mem/baselines.h>
#include <mem/plan.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define SEED(seed) "seed %" PRIu64 ": %s", seed, error.text

typedef struct {
    test_graph *graph;
    dunlin_plan_options options;
    uint64_t state;
    uint64_t seed;
} random_case;

static random_case make_case(uint64_t seed)
{
    random_case made = {.graph = test_graph_new(), .state = seed, .seed = seed};
    test_net_options net = {.n_layers = 1 + (uint32_t)test_random_below(&made.state, 24),
                            .max_sample_bytes = 16u << test_random_below(&made.state, 9),
                            .has_norm = test_random_below(&made.state, 4) == 0,
                            .is_ghost = seed % 2 == 0};
    test_random_net(made.graph, &net, &made.state);
    made.options.batch = 1 + test_random_below(&made.state, 100);
    made.options.policy = DUNLIN_PLAN_AUTO;
    return made;
}

static void check_plan(const random_case *at, const dunlin_plan *plan)
{
    dunlin_error error = {0};
    cr_assert_eq(dunlin__plan_verify(&at->graph->graph, plan, NULL, &error), DUNLIN_OK,
                 SEED(at->seed));
    cr_assert_eq(plan->arena_bytes, plan->persistent_bytes + plan->pool_bytes, SEED(at->seed));
    cr_assert_geq(plan->pool_bytes, plan->pool_lower_bound_bytes, SEED(at->seed));
    if (at->options.budget_bytes != 0) {
        cr_assert_leq(plan->arena_bytes, at->options.budget_bytes, SEED(at->seed));
    }
    uint64_t top = 0;
    for (uint32_t p = 0; p < plan->n_places; p++) {
        uint64_t end = plan->places[p].offset_bytes + plan->places[p].bytes;
        top = end > top ? end : top;
    }
    cr_assert_eq(top, plan->arena_bytes, SEED(at->seed));
    /* The bound that the plan states is the sum of its own allocations at their fullest step. */
    dunlin_plan_summary summary;
    dunlin__plan_summarize(&at->graph->graph, plan, &summary);
    cr_assert_eq(summary.padding_bytes, plan->pool_bytes - plan->pool_lower_bound_bytes,
                 SEED(at->seed));
}

Test(plan_property, every_budget_from_the_least_upward)
{
    uint64_t seed = test_seed(1);
    uint32_t n_least = 0;
    for (int n = 0; n < test_cases(120); n++, seed++) {
        random_case at = make_case(seed);
        dunlin_error error = {0};
        dunlin_plan *plan = NULL;
        cr_assert_eq(dunlin__plan_create(&at.graph->graph, &at.options, &plan, &error), DUNLIN_OK,
                     SEED(seed));
        check_plan(&at, plan);
        uint64_t most = plan->arena_bytes;
        uint64_t fastest_ns = plan->cost_ns;
        dunlin__plan_destroy(plan);

        uint64_t least = 0;
        cr_assert_eq(dunlin__plan_least_bytes(&at.graph->graph, &at.options, &least, &error),
                     DUNLIN_OK, SEED(seed));
        cr_assert_leq(least, most, SEED(seed));
        uint64_t same = 0;
        cr_assert_eq(dunlin__plan_create_least(&at.graph->graph, &at.options, &same, &plan, &error),
                     DUNLIN_OK, SEED(seed));
        cr_assert_eq(same, least, SEED(seed));
        if (plan != NULL) {
            cr_assert_leq(plan->arena_bytes, least, SEED(seed));
            check_plan(&at, plan);
            n_least++;
            dunlin__plan_destroy(plan);
        }
        at.options.budget_bytes = least - 1;
        /* Below the least nothing is promised: no plan and that number, or a plan that fits. */
        if (dunlin__plan_create(&at.graph->graph, &at.options, &plan, &error) == DUNLIN_OK) {
            check_plan(&at, plan);
            dunlin__plan_destroy(plan);
        } else {
            cr_assert_eq(error.status, DUNLIN_BUDGET, SEED(seed));
            cr_assert_eq(error.needed_bytes, least, SEED(seed));
        }
        for (int b = 0; b < 4; b++) {
            at.options.budget_bytes =
                b == 0 ? least : least + test_random_below(&at.state, most - least + 1);
            cr_assert_eq(dunlin__plan_create(&at.graph->graph, &at.options, &plan, &error),
                         DUNLIN_OK, SEED(seed));
            check_plan(&at, plan);
            cr_assert_geq(plan->cost_ns, fastest_ns, SEED(seed));
            dunlin__plan_destroy(plan);
        }
        test_graph_free(at.graph);
    }
    cr_expect_gt(n_least, 0);
}

static bool same_plans(const dunlin_plan *a, const dunlin_plan *b)
{
    return a->table_bytes == b->table_bytes && a->pool_bytes == b->pool_bytes &&
           memcmp(a->loops, b->loops, a->n_loops * sizeof *a->loops) == 0 &&
           memcmp(a->places, b->places, a->n_places * sizeof *a->places) == 0 &&
           memcmp(a->steps, b->steps, a->n_steps * sizeof *a->steps) == 0 &&
           memcmp(a->operands, b->operands, a->n_operands * sizeof *a->operands) == 0;
}

Test(plan_property, every_policy_is_right_and_repeatable)
{
    uint64_t seed = test_seed(5000);
    for (int n = 0; n < test_cases(200); n++, seed++) {
        random_case at = make_case(seed);
        dunlin_error error = {0};
        uint64_t arena[4] = {0};
        uint32_t barrier = 0;
        bool is_sliceable = dunlin__graph_is_sliceable(&at.graph->graph, &barrier);
        cr_assert_eq(is_sliceable, barrier == DUNLIN_MEM_NONE, SEED(seed));
        for (int p = 0; p < 4; p++) {
            static const dunlin_plan_policy policies[] = {DUNLIN_PLAN_NONE, DUNLIN_PLAN_POOL,
                                                          DUNLIN_PLAN_AUTO, DUNLIN_PLAN_MICROBATCH};
            dunlin_plan *plan = NULL;
            dunlin_plan *again = NULL;
            at.options.policy = policies[p];
            at.options.baseline_fn = dunlin__try_policy;
            at.options.slice_samples =
                p == 3 ? 1 + test_random_below(&at.state, at.options.batch) : 0;
            dunlin_status status =
                dunlin__plan_create(&at.graph->graph, &at.options, &plan, &error);
            if (p == 3 && !is_sliceable && at.options.slice_samples < at.options.batch) {
                cr_assert_eq(status, DUNLIN_UNSUPPORTED, SEED(seed));
                cr_assert(strstr(error.text, at.graph->ops[barrier].name) != NULL, SEED(seed));
                continue;
            }
            cr_assert_eq(status, DUNLIN_OK, SEED(seed));
            check_plan(&at, plan);
            arena[p] = plan->arena_bytes;
            cr_assert_eq(dunlin__plan_create(&at.graph->graph, &at.options, &again, &error),
                         DUNLIN_OK, SEED(seed));
            cr_assert(same_plans(plan, again), SEED(seed));
            dunlin__plan_destroy(again);
            dunlin__plan_destroy(plan);
        }
        cr_assert_leq(arena[1], arena[0], SEED(seed));
        test_graph_free(at.graph);
    }
}

static void check_slices(const random_case *at, const dunlin_plan *plan)
{
    const uint64_t asked = at->options.slice_samples;
    const uint64_t slice = asked < plan->batch ? asked : plan->batch;
    check_plan(at, plan);
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        const uint64_t found = plan->loops[l].slice_samples;
        cr_assert(found == 0 || found == slice,
                  "seed %" PRIu64 ", policy %d: slices of %" PRIu64 ", not %" PRIu64, at->seed,
                  (int)at->options.policy, found, slice);
    }
}

/* Under every policy, from the least bytes to no limit. */
Test(plan_property, fixed_slices_stay_as_they_are)
{
    uint64_t seed = test_seed(9000);
    uint64_t n_recompute_ops = 0;
    for (int n = 0; n < test_cases(60); n++, seed++) {
        random_case at = {.graph = test_graph_new(), .state = seed, .seed = seed};
        const test_net_options net = {.n_layers = 1 + (uint32_t)test_random_below(&at.state, 16),
                                      .max_sample_bytes = 16u << test_random_below(&at.state, 9),
                                      .has_norm = true,
                                      .is_ghost = true};
        test_random_net(at.graph, &net, &at.state);
        at.options.batch = 1 + test_random_below(&at.state, 50);
        at.options.is_slice_fixed = true;
        at.options.slice_samples = 1 + test_random_below(&at.state, at.options.batch + 3);
        for (int p = DUNLIN_PLAN_AUTO; p <= DUNLIN_PLAN_CAPUCHIN; p++) {
            dunlin_error error = {0};
            dunlin_plan *plan = NULL;
            uint64_t least = 0;
            at.options.policy = (dunlin_plan_policy)p;
            at.options.baseline_fn = dunlin__try_policy;
            at.options.budget_bytes = 0;
            cr_assert_eq(dunlin__plan_create(&at.graph->graph, &at.options, &plan, &error),
                         DUNLIN_OK, SEED(seed));
            check_slices(&at, plan);
            dunlin__plan_destroy(plan);
            cr_assert_eq(dunlin__plan_least_bytes(&at.graph->graph, &at.options, &least, &error),
                         DUNLIN_OK, SEED(seed));
            at.options.budget_bytes = p == DUNLIN_PLAN_IDEAL ? 0 : least;
            cr_assert_eq(dunlin__plan_create(&at.graph->graph, &at.options, &plan, &error),
                         DUNLIN_OK, SEED(seed));
            check_slices(&at, plan);
            n_recompute_ops += plan->n_recompute_ops;
            dunlin__plan_destroy(plan);
        }
        test_graph_free(at.graph);
    }
    cr_expect_gt(n_recompute_ops, 0);
}

/* Published policies at budgets from their least to that of the plain step: right, and not faster
 * than AUTO; AUTO's least is never larger. */
Test(plan_property, no_published_policy_is_faster_than_auto)
{
    static const dunlin_plan_policy policies[] = {
        DUNLIN_PLAN_RECOMPUTE, DUNLIN_PLAN_SGC,  DUNLIN_PLAN_SAGE,       DUNLIN_PLAN_MELON,
        DUNLIN_PLAN_POOL,      DUNLIN_PLAN_NONE, DUNLIN_PLAN_MICROBATCH, DUNLIN_PLAN_SUBLINEAR};
    uint64_t seed = test_seed(7000);
    uint64_t n_recompute_ops = 0;
    uint64_t n_compared = 0;
    uint64_t n_slower = 0;
    for (int n = 0; n < test_cases(40); n++, seed++) {
        random_case at = make_case(seed);
        dunlin_error error = {0};
        uint64_t auto_least = 0;
        uint64_t most = 0;
        dunlin_plan *plan = NULL;
        cr_assert_eq(dunlin__plan_least_bytes(&at.graph->graph, &at.options, &auto_least, &error),
                     DUNLIN_OK, SEED(seed));
        cr_assert_eq(dunlin__plan_create(&at.graph->graph, &at.options, &plan, &error), DUNLIN_OK,
                     SEED(seed));
        most = plan->arena_bytes;
        dunlin__plan_destroy(plan);
        for (size_t p = 0; p < sizeof policies / sizeof policies[0]; p++) {
            uint64_t least = 0;
            at.options.policy = policies[p];
            at.options.baseline_fn = dunlin__try_policy;
            at.options.budget_bytes = 0;
            cr_assert_eq(dunlin__plan_least_bytes(&at.graph->graph, &at.options, &least, &error),
                         DUNLIN_OK, SEED(seed));
            cr_assert_leq(auto_least, least,
                          "seed %" PRIu64 ": policy %d works with %" PRIu64 " of %" PRIu64, seed,
                          (int)policies[p], least, auto_least);
            uint64_t budget =
                least + (most > least ? test_random_below(&at.state, most - least) : 0);
            uint64_t cost_ns[2] = {0};
            for (int is_auto = 0; is_auto < 2; is_auto++) {
                at.options.policy = is_auto ? DUNLIN_PLAN_AUTO : policies[p];
                at.options.baseline_fn = dunlin__try_policy;
                at.options.budget_bytes = budget;
                cr_assert_eq(dunlin__plan_create(&at.graph->graph, &at.options, &plan, &error),
                             DUNLIN_OK, SEED(seed));
                check_plan(&at, plan);
                cost_ns[is_auto] = plan->cost_ns;
                n_recompute_ops += plan->n_recompute_ops;
                dunlin__plan_destroy(plan);
            }
            /* A policy that fails at a budget falls back on the plan of its least, which the
             * search does not look at: seen once in a thousand, on the smallest steps. */
            n_compared++;
            n_slower += cost_ns[1] > cost_ns[0];
            cr_assert_leq(cost_ns[1], cost_ns[0] + cost_ns[0] / 5,
                          "seed %" PRIu64 ": policy %d is faster with %" PRIu64 " bytes", seed,
                          (int)policies[p], budget);
        }
        test_graph_free(at.graph);
    }
    cr_assert_gt(n_recompute_ops, 0);
    cr_assert_leq(n_slower, 1 + n_compared / 200);
}

/* --- damage --- */

/* A copy of a plan whose arrays may be changed. */
static dunlin_plan *copy_plan(const dunlin_plan *plan)
{
    dunlin_plan *copy = malloc(plan->table_bytes);
    cr_assert_not_null(copy);
    memcpy(copy, plan, plan->table_bytes);
    unsigned char *base = (unsigned char *)copy;
    copy->loops = (void *)(base + ((unsigned char *)plan->loops - (const unsigned char *)plan));
    copy->places = (void *)(base + ((unsigned char *)plan->places - (const unsigned char *)plan));
    copy->steps = (void *)(base + ((unsigned char *)plan->steps - (const unsigned char *)plan));
    copy->operands =
        (void *)(base + ((unsigned char *)plan->operands - (const unsigned char *)plan));
    return copy;
}

/* Does the step's op leave anything that another reads, or is it counted? Always: each op has to
 * run. */
static void drop_step(dunlin_plan *plan, uint32_t step)
{
    memmove(&plan->steps[step], &plan->steps[step + 1],
            (plan->n_steps - step - 1) * sizeof *plan->steps);
    plan->n_steps--;
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        dunlin_plan_loop *loop = &plan->loops[l];
        if (step >= loop->first_step && step < loop->first_step + loop->n_steps) {
            loop->n_steps--;
        } else if (loop->first_step > step) {
            loop->first_step--;
        }
    }
    for (uint32_t p = 0; p < plan->n_places; p++) {
        dunlin_plan_allocation *place = &plan->places[p];
        place->first_step -= place->first_step > step;
        place->last_step -= place->last_step >= step && place->last_step > 0;
        place->last_step =
            place->last_step < place->first_step ? place->first_step : place->last_step;
    }
}

/* One change that makes any plan wrong; false: this plan has no room for it. */
static bool damage(const test_graph *graph, dunlin_plan *plan, uint32_t kind, uint64_t *state)
{
    uint32_t step = (uint32_t)test_random_below(state, plan->n_steps);
    uint32_t index = (uint32_t)test_random_below(state, plan->n_places);
    dunlin_plan_allocation *place = &plan->places[index];
    dunlin_plan_step *at = &plan->steps[step];
    const dunlin_mem_variant *variant = &graph->ops[at->op].variants[at->variant];
    switch (kind) {
    case 0: /* out of the arena */
        place->offset_bytes = plan->arena_bytes - place->bytes + 64;
        return true;
    case 1: /* off its alignment */
        place->offset_bytes += 4;
        return place->offset_bytes + place->bytes <= plan->arena_bytes;
    case 2: /* a step is missing */
        if (plan->n_steps < 2 || plan->n_loops > 1) {
            return false;
        }
        drop_step(plan, step);
        return true;
    case 3: /* dies a step early */
        if (place->first_step == place->last_step) {
            return false;
        }
        place->last_step--;
        return true;
    case 4: /* born a step late */
        if (place->first_step == place->last_step) {
            return false;
        }
        place->first_step++;
        return true;
    case 5: /* an operand in another's allocation */
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            uint32_t *operand = &plan->operands[at->first_operand + a];
            if (*operand != DUNLIN_MEM_NONE && *operand != index) {
                *operand = index;
                return true;
            }
        }
        return false;
    case 6: /* a part that does not run */
        at->parts = (uint8_t)(at->parts ^ DUNLIN_MEM_REDUCE);
        return true;
    case 7: /* too small */
        place->bytes = 64;
        return plan->places[index].tensor != DUNLIN_MEM_NONE &&
               graph->tensors[place->tensor].fixed_bytes +
                       graph->tensors[place->tensor].sample_bytes >
                   64;
    case 8: /* the workspace is forgotten */
        if (at->workspace == DUNLIN_MEM_NONE) {
            return false;
        }
        at->workspace = DUNLIN_MEM_NONE;
        return true;
    case 9: /* the same op once more in place of another */
        if (step + 1 >= plan->n_steps || plan->steps[step + 1].op == at->op) {
            return false;
        }
        plan->steps[step + 1] = *at;
        return true;
    case 10: /* on top of another that is alive with it */
        for (uint32_t p = 0; p < plan->n_places; p++) {
            const dunlin_plan_allocation *other = &plan->places[p];
            if (p != index && other->first_step < place->last_step &&
                place->first_step < other->last_step &&
                other->offset_bytes != place->offset_bytes) {
                place->offset_bytes = other->offset_bytes;
                return true;
            }
        }
        return false;
    default: /* larger slices than there are samples */
        plan->loops[0].slice_samples = plan->batch + 1;
        return true;
    }
}

Test(plan_property, damaged_plans_are_refused)
{
    uint64_t n_damaged[12] = {0};
    uint64_t seed = test_seed(20000);
    for (int n = 0; n < test_cases(150); n++, seed++) {
        random_case at = make_case(seed);
        dunlin_error error = {0};
        dunlin_plan *plan = NULL;
        uint64_t least = 0;
        cr_assert_eq(dunlin__plan_least_bytes(&at.graph->graph, &at.options, &least, &error),
                     DUNLIN_OK, SEED(seed));
        at.options.budget_bytes = test_random_below(&at.state, 2) == 0 ? 0 : least;
        cr_assert_eq(dunlin__plan_create(&at.graph->graph, &at.options, &plan, &error), DUNLIN_OK,
                     SEED(seed));
        for (uint32_t kind = 0; kind < 12; kind++) {
            for (int i = 0; i < 4; i++) {
                dunlin_plan *copy = copy_plan(plan);
                if (damage(at.graph, copy, kind, &at.state)) {
                    n_damaged[kind]++;
                    cr_assert_eq(dunlin__plan_verify(&at.graph->graph, copy, NULL, &error),
                                 DUNLIN_MISMATCH, "seed %" PRIu64 ": damage %u was not seen", seed,
                                 (unsigned)kind);
                }
                free(copy);
            }
        }
        dunlin__plan_destroy(plan);
        test_graph_free(at.graph);
    }
    for (uint32_t kind = 0; kind < 12; kind++) {
        cr_assert_gt(n_damaged[kind], 0, "damage %u was never done", (unsigned)kind);
    }
}

Test(plan_property, a_failed_allocation_leaves_nothing)
{
    uint64_t seed = test_seed(30000);
    for (int n = 0; n < test_cases(20); n++, seed++) {
        random_case at = make_case(seed);
        dunlin_status status = DUNLIN_MEMORY;
        uint64_t n_left = 0;
        for (; status == DUNLIN_MEMORY; n_left++) {
            failing_alloc failing;
            dunlin_error error = {0};
            dunlin_plan *plan = NULL;
            failing_alloc_init(&failing, n_left);
            at.options.alloc = failing.hooks;
            status = dunlin__plan_create(&at.graph->graph, &at.options, &plan, &error);
            if (status == DUNLIN_MEMORY) {
                cr_assert_null(plan);
                cr_assert_eq(error.status, DUNLIN_MEMORY);
            } else {
                cr_assert_eq(status, DUNLIN_OK, SEED(seed));
                cr_assert_eq(failing.counter.now_bytes, plan->table_bytes, SEED(seed));
                dunlin__plan_destroy(plan);
            }
            cr_assert_eq(failing.counter.now_bytes, 0, SEED(seed));
        }
        cr_assert_gt(n_left, 20);
        test_graph_free(at.graph);
    }
}
