/*
 * test_secagg_sum.c - a sum to the bit or nothing, whoever drops out when.
 */
#include "random.h"
#include "secagg/secagg_world.h"

#include <criterion/criterion.h>

#include <stdlib.h>

/* Where everybody is a neighbour there is a sum just if more than `threshold` stay to the end: each
 * that is in it needs as many others that tell a share. */
static void check_pattern(uint32_t n, uint32_t threshold, bool checks_consistency, uint64_t pattern,
                          uint64_t *state)
{
    dunlin__secagg_plan plan =
        secagg_terms(n, n - 1, threshold, 8 + (uint32_t)test_random_below(state, 25),
                     1 + test_random_below(state, 40));
    plan.check_consistency = checks_consistency;
    secagg_world world;
    secagg_world_open(&world, &plan, state);
    uint32_t n_stay = 0;
    uint64_t left = pattern;
    for (uint32_t i = 0; i < n; i++) {
        world.members[i].leaves = 1 + (uint32_t)(left % 6);
        left /= 6;
        n_stay += world.members[i].leaves == SECAGG_STAYS ? 1 : 0;
        /* A step that is not there is left by staying for one more. */
        if (!checks_consistency && world.members[i].leaves == DUNLIN_V1_SECAGG_STEP_CONSISTENCY) {
            world.members[i].leaves = DUNLIN_V1_SECAGG_STEP_UNMASK;
        }
    }
    const uint32_t end = secagg_world_run(&world);
    cr_assert_eq(end, n_stay > threshold ? DUNLIN_SECAGG_DONE : DUNLIN_SECAGG_FAILED,
                 "n %u, t %u, pattern %llu: ends as %u: %s", n, threshold,
                 (unsigned long long)pattern, end, world.error.text);
    if (end == DUNLIN_SECAGG_DONE) {
        cr_assert(secagg_world_sum_is_right(&world), "n %u, t %u, pattern %llu", n, threshold,
                  (unsigned long long)pattern);
    } else {
        cr_assert_null(dunlin__secagg_server_sum(world.server));
    }
    secagg_world_close(&world);
}

/* Every `stride`-th of the 6^n ways to leave; all of them where the run is a long one. */
static void check_patterns(uint32_t n, uint64_t stride, uint64_t *state)
{
    uint64_t n_patterns = 1;
    for (uint32_t i = 0; i < n; i++) {
        n_patterns *= 6;
    }
    stride = test_cases(1) >= 100 ? 1 : stride;
    for (uint64_t pattern = 0; pattern < n_patterns; pattern += stride) {
        const uint32_t least = (n - 1) / 2 + 1;
        const uint32_t threshold = least + (uint32_t)test_random_below(state, n - least);
        check_pattern(n, threshold, test_random_below(state, 2) == 0, pattern, state);
    }
    check_pattern(n, (n - 1) / 2 + 1, true, n_patterns - 1, state); /* nobody leaves */
}

Test(secagg_sum, every_pattern_of_three)
{
    uint64_t state = test_seed(301);
    check_patterns(3, 5, &state);
}

Test(secagg_sum, every_pattern_of_four)
{
    uint64_t state = test_seed(302);
    check_patterns(4, 41, &state);
}

Test(secagg_sum, every_pattern_of_five)
{
    uint64_t state = test_seed(303);
    check_patterns(5, 401, &state);
}

Test(secagg_sum, every_pattern_of_six)
{
    uint64_t state = test_seed(304);
    check_patterns(6, 3001, &state);
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
