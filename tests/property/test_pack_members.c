/*
 * test_pack_members.c - packing of random blocks: never worse than any of its members, never below
 * the bound.
 */
#include "pack/portfolio.h"
#include "random.h"

#include <dunlin/base.h>

#include <criterion/criterion.h>

#include <inttypes.h>

static uint32_t random_blocks(dunlin_pack_block *blocks, uint32_t n_max, uint32_t n_steps,
                              uint64_t *state)
{
    uint32_t n = 1 + (uint32_t)test_random_below(state, n_max);
    for (uint32_t b = 0; b < n; b++) {
        uint32_t first = (uint32_t)test_random_below(state, n_steps);
        uint32_t life =
            (uint32_t)test_random_below(state, 1 + test_random_below(state, n_steps - first));
        blocks[b] = (dunlin_pack_block){.first_step = first,
                                        .last_step = first + life,
                                        .bytes = 64 * (1 + test_random_below(state, 50))};
    }
    return n;
}

static void check_apart(const dunlin_pack_block *blocks, uint32_t n, uint64_t height, uint64_t seed)
{
    for (uint32_t a = 0; a < n; a++) {
        cr_assert_leq(blocks[a].offset_bytes + blocks[a].bytes, height, "seed %" PRIu64, seed);
        for (uint32_t b = 0; b < a; b++) {
            bool is_together = blocks[a].first_step <= blocks[b].last_step &&
                               blocks[b].first_step <= blocks[a].last_step;
            bool is_apart = blocks[a].offset_bytes >= blocks[b].offset_bytes + blocks[b].bytes ||
                            blocks[b].offset_bytes >= blocks[a].offset_bytes + blocks[a].bytes;
            cr_assert(!is_together || is_apart, "seed %" PRIu64 ": blocks %u and %u overlap", seed,
                      (unsigned)a, (unsigned)b);
        }
    }
}

Test(plan_property, packing_is_never_worse_than_any_of_its_members)
{
    enum { N_MAX = 120, N_STEPS = 60 };
    static dunlin_pack_block blocks[N_MAX];
    uint64_t sums[N_STEPS + 1];
    uint64_t seed = test_seed(9000);
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_packer packer;
    cr_assert_eq(dunlin__packer_open(N_MAX, &counter.hooks, &packer, NULL), DUNLIN_OK);
    for (int n = 0; n < test_cases(300); n++, seed++) {
        uint64_t state = seed;
        uint32_t n_blocks = random_blocks(blocks, N_MAX, N_STEPS, &state);
        uint32_t peak = 0;
        uint64_t bound = dunlin__pack_lower_bound(blocks, n_blocks, sums, N_STEPS, &peak);
        uint64_t highest = 0;
        for (uint32_t k = 0; k < N_STEPS; k++) {
            uint64_t sum = 0;
            for (uint32_t b = 0; b < n_blocks; b++) {
                sum += blocks[b].first_step <= k && k <= blocks[b].last_step ? blocks[b].bytes : 0;
            }
            cr_assert_eq(sum, sums[k], "seed %" PRIu64, seed);
            highest = sum > highest ? sum : highest;
        }
        cr_assert_eq(highest, bound, "seed %" PRIu64, seed);
        cr_assert_eq(sums[peak], bound, "seed %" PRIu64, seed);
        const char *name = NULL;
        uint64_t height = dunlin__pack(&packer, blocks, n_blocks, bound, &name);
        cr_assert_geq(height, bound, "seed %" PRIu64, seed);
        check_apart(blocks, n_blocks, height, seed);
        uint32_t n_methods = 0;
        for (; dunlin__pack_name(n_methods) != NULL; n_methods++) {
            uint64_t single = dunlin__pack_by(&packer, n_methods, blocks, n_blocks, UINT64_MAX);
            cr_assert_leq(height, single, "seed %" PRIu64 ": %s", seed,
                          dunlin__pack_name(n_methods));
            check_apart(blocks, n_blocks, single, seed);
        }
        cr_assert_geq(n_methods, 14);
    }
    dunlin__packer_close(&packer);
    cr_assert_eq(counter.now_bytes, 0);
}
