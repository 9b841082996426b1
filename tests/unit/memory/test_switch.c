/*
 * test_switch.c - simulated migrations from every point of one plan to another: what is left runs
 * to its end, within the new plan's bytes, and what the system waits for does not take long to
 * move.
 */
#include "planner/graphs.h"
#include "random.h"

#include <mem/baselines.h>
#include <mem/plan.h>
#include <mem/support.h>
#include <mem/switch.h>

#include <criterion/criterion.h>

#include <inttypes.h>

#define N_LAYERS 24
#define BATCH 16
#define MIB (1ULL << 20)
/* 40 ms at four bytes a nanosecond. */
#define MOST_TAIL_BYTES 160000000ULL

/*
 * A training step as trainers that may change their budget have it: gradients of weights keep one
 * address, weights change at the end. Layers read the one before them and, now and then, an older
 * one; every third is a barrier if it is asked for.
 */
static test_graph *make_step(uint64_t *rng, bool has_norm)
{
    test_graph *step = test_graph_new();
    uint32_t y[N_LAYERS + 1];
    uint32_t dy[N_LAYERS + 1];
    uint32_t w[N_LAYERS + 1];
    uint32_t dw[N_LAYERS + 1];
    uint32_t skip[N_LAYERS + 1];
    for (uint32_t i = 1; i <= N_LAYERS; i++) {
        w[i] = test_persistent(step, "w", MIB, DUNLIN_MEM_WEIGHT);
    }
    y[0] = test_batched(step, "x", 2 * MIB, DUNLIN_MEM_INPUT);
    dy[0] = DUNLIN_MEM_NONE;
    TEST_OP(step, "input", DUNLIN_MEM_MAP, "w", y[0]);
    for (uint32_t i = 1; i <= N_LAYERS; i++) {
        const uint64_t bytes = (1 + test_random_below(rng, 6)) * MIB;
        y[i] = test_batched(step, "y", bytes, DUNLIN_MEM_ACTIVATION);
        dy[i] = test_batched(step, "dy", bytes, DUNLIN_MEM_GRADIENT);
        dw[i] = test_fixed(step, "dw", MIB, DUNLIN_MEM_ACCUMULATOR);
        step->tensors[dw[i]].is_pinned = true;
        skip[i] = i > 4 && test_random_below(rng, 3) == 0 ? i - 3 : i - 1;
        if (has_norm && i % 3 == 0) {
            const uint32_t mean = test_fixed(step, "mean", 4096, DUNLIN_MEM_ACCUMULATOR);
            step->tensors[mean].is_pinned = true;
            TEST_OP(step, "statistics", DUNLIN_MEM_REDUCE, "ra", y[i - 1], mean);
            TEST_OP(step, "norm", DUNLIN_MEM_MAP, "rrrw", y[i - 1], y[skip[i]], mean, y[i]);
        } else {
            TEST_OP(step, "layer", DUNLIN_MEM_MAP, "rrrw", y[i - 1], y[skip[i]], w[i], y[i]);
        }
    }
    TEST_OP(step, "loss", DUNLIN_MEM_MAP, "rw", y[N_LAYERS], dy[N_LAYERS]);
    for (uint32_t i = N_LAYERS; i > 0; i--) {
        TEST_OP(step, "weights", DUNLIN_MEM_REDUCE, "rrra", dy[i], y[i - 1], y[skip[i]], dw[i]);
        if (i > 1) {
            TEST_OP(step, "back", DUNLIN_MEM_MAP, "rrrw", dy[i], y[i], w[i], dy[i - 1]);
        }
    }
    for (uint32_t i = 1; i <= N_LAYERS; i++) {
        TEST_OP(step, "update", DUNLIN_MEM_FIXED, "ru", dw[i], w[i]);
    }
    for (uint32_t i = 0; i < step->graph.n_ops; i++) {
        step->variants[i][0].cost_sample_ns = 1000000 + test_random_below(rng, 9000000);
    }
    return step;
}

static dunlin_plan *make_plan(const test_graph *step, uint64_t budget_bytes,
                              dunlin_plan_policy policy)
{
    const dunlin_plan_options options = {.batch = BATCH,
                                         .budget_bytes = budget_bytes,
                                         .policy = policy,
                                         .baseline_fn = dunlin__try_policy,
                                         .alloc = dunlin__alloc_or_default(NULL)};
    dunlin_plan *plan = NULL;
    dunlin_error error = {0};
    const dunlin_status status = dunlin__plan_create(&step->graph, &options, &plan, &error);
    cr_assert(status == DUNLIN_OK || status == DUNLIN_BUDGET, "%s", error.text);
    return plan;
}

/* What was seen on all ways. */
typedef struct tally {
    uint64_t n_ways, n_late, n_long;
} tally;

/* No step that writes to the allocation is the first of its op: the plan makes it a second time. */
static bool is_second_life(const test_graph *step, const dunlin_plan *plan, uint32_t place)
{
    bool has_run[TEST_MAX_OPS] = {false};
    for (uint32_t k = 0; k < plan->n_steps; k++) {
        const dunlin_plan_step *at = &plan->steps[k];
        const dunlin_mem_variant *variant = &step->variants[at->op][at->variant];
        for (uint32_t a = 0; a < variant->n_accesses && !has_run[at->op]; a++) {
            if (plan->operands[at->first_operand + a] == place &&
                variant->accesses[a].mode == DUNLIN_MEM_WRITE) {
                return false;
            }
        }
        has_run[at->op] = true;
    }
    return true;
}

/* What would be recomputed anyway does not delay what the system waits for. */
static void check_tail(const test_graph *step, const dunlin_plan *to, const dunlin_switch *entry,
                       tally *seen)
{
    uint64_t all = 0;
    uint64_t again = 0;
    for (uint32_t i = 0; i < entry->n_moves; i++) {
        const dunlin_switch_move *move = &entry->moves[i];
        if (move->from_bytes + move->bytes > to->arena_bytes) {
            all += move->bytes;
            again += is_second_life(step, to, move->place) ? move->bytes : 0;
        }
    }
    cr_assert(all <= MOST_TAIL_BYTES || again == 0, "%" PRIu64 " of %" PRIu64 " bytes", again, all);
    seen->n_long += all > MOST_TAIL_BYTES ? 1 : 0;
}

static void look(const test_graph *step, const dunlin_switch_from *from, const dunlin_plan *to,
                 dunlin_switch *entry, tally *seen)
{
    dunlin_error error = {0};
    const uint64_t old_bytes = from->plan->arena_bytes;
    const uint64_t limit = to->arena_bytes > old_bytes ? to->arena_bytes : old_bytes;
    dunlin__switch_find(&step->graph, from, to, limit, entry);
    cr_assert_eq(dunlin__switch_verify(&step->graph, from, to, entry, NULL, &error), DUNLIN_OK,
                 "loop %" PRIu32 ", step %" PRIu32 ": %s", from->point.loop, from->point.step,
                 error.text);
    for (uint32_t i = 0; i < entry->n_moves; i++) {
        const dunlin_switch_move *move = &entry->moves[i];
        cr_assert_leq(move->to_bytes + move->bytes, limit);
        cr_assert(i < entry->n_tail_moves || move->to_bytes + move->bytes <= to->arena_bytes);
    }
    for (uint32_t i = 0; i < entry->n_late; i++) {
        const dunlin_switch_move *late = &entry->late[i];
        cr_assert(late->from_bytes + late->bytes <= to->arena_bytes);
        cr_assert_eq(late->to_bytes, to->places[late->place].offset_bytes);
    }
    seen->n_ways++;
    seen->n_late += entry->n_late;
    check_tail(step, to, entry, seen);
}

/* Simulates `plan` and migrates to `to` before each op on each slice. */
static void look_from(const test_graph *step, const dunlin_plan *plan, const dunlin_plan *to,
                      dunlin_switch *entry, tally *seen)
{
    uint64_t taken[TEST_MAX_OPS] = {0};
    dunlin_switch_from from = {.plan = plan, .n_taken = taken, .n_batch = BATCH};
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        const dunlin_plan_loop *loop = &plan->loops[l];
        const uint64_t length = loop->slice_samples == 0 ? BATCH : loop->slice_samples;
        for (uint64_t first = 0; first < BATCH; first += length) {
            const uint64_t end = first + length < BATCH ? first + length : BATCH;
            for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
                from.point = (dunlin_plan_point){.loop = l, .step = k, .first_sample = first};
                look(step, &from, to, entry, seen);
                const uint8_t parts = plan->steps[k].parts;
                if ((parts & ~DUNLIN_MEM_MAP) != 0) {
                    taken[plan->steps[k].op] = parts == DUNLIN_MEM_FIXED ? 1 : end;
                }
            }
        }
    }
}

static void check_steps(bool has_norm, dunlin_plan_policy policy, uint64_t seed, int n_steps,
                        tally *seen)
{
    uint64_t rng = test_seed(seed);
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    for (int i = 0; i < n_steps; i++) {
        test_graph *step = make_step(&rng, has_norm);
        dunlin_plan *plans[3] = {make_plan(step, 0, policy)};
        for (int j = 1; j < 3; j++) {
            plans[j] =
                make_plan(step, plans[0]->arena_bytes * (uint64_t)(j == 1 ? 65 : 40) / 100, policy);
        }
        for (int a = 0; a < 3; a++) {
            for (int b = 0; b < 3; b++) {
                if (a == b || plans[a] == NULL || plans[b] == NULL) {
                    continue;
                }
                dunlin_switch_sizes sizes = {0};
                dunlin__switch_measure(plans[a], &sizes);
                dunlin__switch_measure(plans[b], &sizes);
                dunlin_switch entry = {.n_ops = 0};
                cr_assert_eq(dunlin__switch_open(&step->graph, &sizes, &alloc, &entry, NULL),
                             DUNLIN_OK);
                look_from(step, plans[a], plans[b], &entry, seen);
                dunlin__switch_close(&entry);
            }
        }
        for (int j = 0; j < 3; j++) {
            dunlin__plan_destroy(plans[j]);
        }
        test_graph_free(step);
    }
}

/* Slices of the whole step: whoever goes on takes over what there is, and nothing waits. */
Test(switch_plans, slices, .timeout = 600)
{
    tally seen = {0};
    check_steps(false, DUNLIN_PLAN_AUTO, 71, 1, &seen);
    cr_expect_gt(seen.n_ways, 1000);
}

Test(switch_plans, regions_in_slices, .timeout = 600)
{
    tally seen = {0};
    check_steps(true, DUNLIN_PLAN_AUTO, 79, 1, &seen);
    cr_expect_gt(seen.n_ways, 1000);
    cr_expect_gt(seen.n_late, 100);
}

Test(switch_plans, made_again, .timeout = 600)
{
    tally seen = {0};
    check_steps(false, DUNLIN_PLAN_WHOLE, 72, 6, &seen);
    cr_expect_gt(seen.n_ways, 1000);
    cr_expect_gt(seen.n_late, 100);
    cr_expect_gt(seen.n_long, 10);
}
