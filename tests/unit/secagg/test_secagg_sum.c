/*
 * test_secagg_sum.c - a sum to the bit or nothing, whoever drops out when.
 */
#include "random.h"
#include "secagg/secagg_world.h"

#include <criterion/criterion.h>

#include <stdlib.h>

/* A device leaves before the request of one of the five steps, or after it has named a vector that
 * never comes, or stays. That is all that the server can see of it: whether it was still there for
 * the answer of a step changes nothing for anybody else. */
#define N_WAYS 7u
#define STAYS 5u

/* `way` counts the steps from 0. */
static void choose_way(secagg_member *member, uint32_t way, bool checks_consistency)
{
    member->has_lost = way == 6;
    member->leaves = member->has_lost ? DUNLIN_V1_SECAGG_STEP_CONSISTENCY
                     : way == STAYS   ? SECAGG_STAYS
                                      : way + 1;
    /* A step that is not there is left by staying for one more. */
    if (!checks_consistency && member->leaves == DUNLIN_V1_SECAGG_STEP_CONSISTENCY) {
        member->leaves = DUNLIN_V1_SECAGG_STEP_UNMASK;
    }
}

static dunlin__secagg_plan pattern_terms(uint32_t n, uint32_t n_neighbours, uint32_t threshold,
                                         bool checks_consistency, uint64_t *state)
{
    dunlin__secagg_plan plan =
        secagg_terms(n, n_neighbours, threshold, 8 + (uint32_t)test_random_below(state, 25),
                     1 + test_random_below(state, 40));
    plan.check_consistency = checks_consistency;
    return plan;
}

/* Runs a session; the sum of those whose vectors came, or nothing. Returns how many stayed. */
static uint32_t run_pattern(const dunlin__secagg_plan *plan, uint64_t pattern, uint64_t *state,
                            bool *out_is_done)
{
    secagg_world world;
    secagg_world_open(&world, plan, state);
    uint32_t n_stay = 0;
    uint64_t left = pattern;
    for (uint32_t i = 0; i < plan->n_cohort; i++) {
        choose_way(&world.members[i], (uint32_t)(left % N_WAYS), plan->check_consistency);
        left /= N_WAYS;
        n_stay += world.members[i].leaves == SECAGG_STAYS ? 1 : 0;
    }
    *out_is_done = secagg_world_run(&world) == DUNLIN_SECAGG_DONE;
    cr_assert_eq(*out_is_done, dunlin__secagg_server_sum(world.server) != NULL);
    cr_assert(!*out_is_done || secagg_world_sum_is_right(&world), "n %u, k %u, t %u, pattern %llu",
              plan->n_cohort, plan->n_neighbours, plan->threshold, (unsigned long long)pattern);
    secagg_world_close(&world);
    return n_stay;
}

/* Where everybody is a neighbour there is a sum just if more than `threshold` stay to the end: each
 * that is in it needs as many others that tell a share. */
static void check_pattern(uint32_t n, uint32_t threshold, bool checks_consistency, uint64_t pattern,
                          uint64_t *state)
{
    const dunlin__secagg_plan plan = pattern_terms(n, n - 1, threshold, checks_consistency, state);
    bool is_done = false;
    const uint32_t n_stay = run_pattern(&plan, pattern, state, &is_done);
    cr_assert_eq(is_done, n_stay > threshold, "n %u, t %u, pattern %llu", n, threshold,
                 (unsigned long long)pattern);
}

static uint64_t count_patterns(uint32_t n)
{
    return n == 0 ? 1 : N_WAYS * count_patterns(n - 1);
}

/* Of the 7^n ways to leave every `stride`-th; every `long_stride`-th where the run is a long one.
 */
static void check_patterns(uint32_t n, uint64_t stride, uint64_t long_stride, uint64_t *state)
{
    const uint64_t n_patterns = count_patterns(n);
    stride = test_cases(1) >= 100 ? long_stride : stride;
    for (uint64_t pattern = 0; pattern < n_patterns; pattern += stride) {
        const uint32_t least = (n - 1) / 2 + 1;
        const uint32_t threshold = least + (uint32_t)test_random_below(state, n - least);
        check_pattern(n, threshold, test_random_below(state, 2) == 0, pattern, state);
    }
    /* Nobody leaves. */
    check_pattern(n, (n - 1) / 2 + 1, true, (n_patterns - 1) / (N_WAYS - 1) * STAYS, state);
}

/* A long run has the patterns of three, four and five in every order, which device is which. */
Test(secagg_sum, every_pattern_of_three)
{
    uint64_t state = test_seed(301);
    check_patterns(3, 8, 1, &state);
}

Test(secagg_sum, every_pattern_of_four)
{
    uint64_t state = test_seed(302);
    check_patterns(4, 61, 1, &state);
}

Test(secagg_sum, every_pattern_of_five)
{
    uint64_t state = test_seed(303);
    check_patterns(5, 601, 1, &state);
}

/* All 117,649 orders of six take 50 minutes of processor time: every 31st of them, and each
 * pattern but for its order by the next test. 31 shares no factor with 7, so that each device
 * leaves in each way. */
Test(secagg_sum, orders_of_six)
{
    uint64_t state = test_seed(304);
    check_patterns(6, 7001, 31, &state);
}

/* Whether no device's way is above the next one's: one of all orders of the same ways. */
static bool is_sorted(uint32_t n, uint64_t pattern)
{
    for (uint32_t i = 1; i < n; i++, pattern /= N_WAYS) {
        if (pattern % N_WAYS > pattern / N_WAYS % N_WAYS) {
            return false;
        }
    }
    return true;
}

/* The same ways, of other devices: the order drawn anew. */
static uint64_t shuffle_ways(uint32_t n, uint64_t pattern, uint64_t *state)
{
    uint64_t ways[8] = {0};
    for (uint32_t i = 0; i < n; i++, pattern /= N_WAYS) {
        ways[i] = pattern % N_WAYS;
    }
    uint64_t shuffled = 0;
    for (uint32_t left = n; left > 0; left--) {
        const uint32_t chosen = (uint32_t)test_random_below(state, left);
        shuffled = shuffled * N_WAYS + ways[chosen];
        ways[chosen] = ways[left - 1];
    }
    return shuffled;
}

static uint64_t check_thresholds(uint32_t n, uint64_t pattern, uint64_t stride, uint64_t n_seen,
                                 uint64_t *state)
{
    for (uint32_t t = (n - 1) / 2 + 1; t <= n - 1; t++) {
        for (int checks = 0; checks < 2; checks++) {
            if (n_seen++ % stride == 0) {
                check_pattern(n, t, checks == 1, shuffle_ways(n, pattern, state), state);
            }
        }
    }
    return n_seen;
}

/* Every pattern of up to six devices, with every threshold, and with and without consistency.
 * Patterns that differ only in which device is which are one here: where everybody is a neighbour,
 * all have the same part, and the server draws their places on the circle in each session. So each
 * is run with its ways given to the devices in an order that is drawn. */
Test(secagg_sum, every_pattern_and_threshold)
{
    uint64_t state = test_seed(309);
    const uint64_t stride = test_cases(1) >= 100 ? 1 : 211;
    uint64_t n_seen = 0;
    for (uint32_t n = 3; n <= 6; n++) {
        for (uint64_t pattern = 0; pattern < count_patterns(n); pattern++) {
            if (is_sorted(n, pattern)) {
                n_seen = check_thresholds(n, pattern, stride, n_seen, &state);
            }
        }
    }
    /* C(n + 6, 6) numbers of ways each: 84, 210, 462 and 924. */
    cr_expect_eq(n_seen, 84 * 1 * 2 + 210 * 2 * 2 + 462 * 2 * 2 + 924 * 3 * 2);
}

/* Fewer neighbours than there are others: a sum, or none, never another. A long run has all
 * patterns of four and five, and every 41st of six, each in its order. */
Test(secagg_sum, patterns_with_fewer_neighbours)
{
    /* Devices, neighbours, threshold, stride of a long run. */
    static const uint32_t setups[][4] = {
        {4, 2, 2, 1}, {5, 2, 2, 1}, {6, 2, 2, 41}, {6, 4, 3, 41}, {6, 4, 4, 41}};
    uint64_t state = test_seed(310);
    int n_done = 0;
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        const uint32_t n = setups[i][0];
        const uint64_t n_patterns = count_patterns(n);
        const uint64_t stride = test_cases(1) >= 100 ? setups[i][3] : n_patterns / 8 + 3;
        for (uint64_t pattern = 0; pattern <= n_patterns; pattern += stride) {
            /* The last is nobody's leaving. */
            const bool is_last = pattern + stride > n_patterns;
            const uint64_t ways = is_last ? (n_patterns - 1) / (N_WAYS - 1) * STAYS : pattern;
            const dunlin__secagg_plan plan = pattern_terms(
                n, setups[i][1], setups[i][2], test_random_below(&state, 2) == 0, &state);
            bool is_done = false;
            (void)run_pattern(&plan, ways, &state, &is_done);
            cr_assert(is_done || !is_last, "n %u: nobody left, and there is no sum", n);
            n_done += is_done ? 1 : 0;
        }
    }
    cr_expect_geq(n_done, 5);
}

/* Neighbours that are not everybody: a sum, or none, never another. */
static bool check_random(uint32_t n, uint32_t n_neighbours, uint32_t threshold, uint32_t percent,
                         uint64_t *state)
{
    dunlin__secagg_plan plan =
        secagg_terms(n, n_neighbours, threshold, 8 + (uint32_t)test_random_below(state, 25),
                     1 + test_random_below(state, 300));
    plan.check_consistency = test_random_below(state, 2) == 0;
    secagg_world world;
    secagg_world_open(&world, &plan, state);
    for (uint32_t i = 0; i < n; i++) {
        world.members[i].leaves = test_random_below(state, 100) < percent
                                      ? 1 + (uint32_t)test_random_below(state, 5)
                                      : SECAGG_STAYS;
    }
    const bool is_done = secagg_world_run(&world) == DUNLIN_SECAGG_DONE;
    cr_assert_eq(is_done, dunlin__secagg_server_sum(world.server) != NULL);
    cr_assert(!is_done || secagg_world_sum_is_right(&world), "n %u, k %u", n, n_neighbours);
    secagg_world_close(&world);
    return is_done;
}

Test(secagg_sum, a_hundred_with_neighbours)
{
    uint64_t state = test_seed(305);
    cr_assert(check_random(100, 8, 5, 0, &state), "nobody left, and there is no sum");
    for (int i = 0; i < test_cases(1); i++) {
        const uint32_t n = 12 + (uint32_t)test_random_below(&state, test_cases(1) > 1 ? 89 : 30);
        (void)check_random(n, 8, 5, 15, &state);
    }
}

Test(secagg_sum, few_leave_and_there_is_a_sum)
{
    uint64_t state = test_seed(306);
    int n_done = 0;
    for (int i = 0; i < 3; i++) {
        n_done += check_random(24, 10, 6, 8, &state) ? 1 : 0;
    }
    cr_assert_gt(n_done, 0);
}

Test(secagg_sum, vectors_of_several_blocks)
{
    uint64_t state = test_seed(307);
    static const uint32_t bits[] = {8, 11, 16, 24, 31, 32};
    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
        const dunlin__secagg_plan plan =
            secagg_terms(4, 3, 2, bits[i], 2 * DUNLIN_SECAGG_BLOCK + i * 333);
        secagg_world world;
        secagg_world_open(&world, &plan, &state);
        world.members[2].leaves = DUNLIN_V1_SECAGG_STEP_MASK;
        cr_assert_eq(secagg_world_run(&world), DUNLIN_SECAGG_DONE, "%s", world.error.text);
        cr_assert(secagg_world_sum_is_right(&world), "%u bits", bits[i]);
        secagg_world_close(&world);
    }
}

/* What is sent says nothing of the vector: two masked vectors of zeros differ, and look random. */
Test(secagg_sum, a_masked_vector_is_noise)
{
    uint64_t state = test_seed(308);
    const dunlin__secagg_plan plan = secagg_terms(3, 2, 2, 32, 8191);
    secagg_world world;
    secagg_world_open(&world, &plan, &state);
    for (uint32_t i = 0; i < world.n; i++) {
        memset(world.members[i].vector, 0, 8192 * sizeof(uint32_t));
    }
    secagg_world_run_to(&world, DUNLIN_V1_SECAGG_STEP_MASK);
    for (uint32_t i = 0; i < world.n; i++) {
        uint64_t n_ones = 0;
        for (size_t j = 0; j < 32768; j++) {
            n_ones += (uint64_t)__builtin_popcount(world.members[i].packed[j]);
        }
        /* 262,144 fair bits: ten standard deviations are 2,560. */
        cr_assert(n_ones > 131072 - 2560 && n_ones < 131072 + 2560, "%llu",
                  (unsigned long long)n_ones);
    }
    secagg_world_close(&world);
}
