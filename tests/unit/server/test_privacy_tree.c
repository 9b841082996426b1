/*
 * test_privacy_tree.c - the sensitivity of tree aggregation beside all sets of rounds that a device
 * may choose.
 */
#include "privacy/tree.h"

#include <criterion/criterion.h>

#define MOST_ROUNDS 16u

/* Of one set of rounds, a bit each: the squares of how many are under each whole node. */
static uint64_t of_set(uint64_t n_rounds, uint32_t set)
{
    uint64_t sum = 0;
    for (uint64_t width = 1; width <= n_rounds; width *= 2) {
        for (uint64_t first = 0; first + width <= n_rounds; first += width) {
            uint64_t n = 0;
            for (uint64_t i = first; i < first + width; i++) {
                n += set >> i & 1;
            }
            sum += n * n;
        }
    }
    return sum;
}

static bool is_allowed(uint64_t n_rounds, uint32_t set, uint64_t separation, uint64_t most)
{
    uint64_t n = 0;
    uint64_t last = 0;
    for (uint64_t i = 0; i < n_rounds; i++) {
        if ((set >> i & 1) == 0) {
            continue;
        }
        if (n > 0 && i - last < separation) {
            return false;
        }
        last = i;
        n++;
    }
    return most == 0 || n <= most;
}

Test(privacy_tree, no_allowed_set_of_rounds_moves_more)
{
    uint64_t n_trees = 0;
    uint64_t n_exact = 0;
    for (uint64_t n_rounds = 1; n_rounds <= MOST_ROUNDS; n_rounds++) {
        for (uint64_t separation = 1; separation <= n_rounds; separation++) {
            for (uint64_t most = 0; most <= 4; most++) {
                uint64_t worst = 0;
                for (uint32_t set = 0; set < 1u << n_rounds; set++) {
                    if (is_allowed(n_rounds, set, separation, most)) {
                        const uint64_t found = of_set(n_rounds, set);
                        worst = found > worst ? found : worst;
                    }
                }
                const uint64_t bound = dunlin__tree_sensitivity(n_rounds, separation, most);
                cr_assert_geq(bound, worst, "%d rounds, %d apart, at most %d", (int)n_rounds,
                              (int)separation, (int)most);
                cr_assert_leq(bound * 4, worst * 5, "%d rounds, %d apart, at most %d: %d, not %d",
                              (int)n_rounds, (int)separation, (int)most, (int)bound, (int)worst);
                const bool is_power = (separation & (separation - 1)) == 0;
                if ((is_power && most == 0) || most == 1 || separation == n_rounds) {
                    cr_assert_eq(bound, worst, "%d rounds, %d apart, at most %d: %d, not %d",
                                 (int)n_rounds, (int)separation, (int)most, (int)bound, (int)worst);
                }
                n_trees++;
                n_exact += bound == worst;
            }
        }
    }
    cr_log_info("%d of %d bounds are the sensitivity itself", (int)n_exact, (int)n_trees);
    cr_assert_geq(n_exact * 10, n_trees * 8);
}

/* Once: a node of each level. Always: a level of nodes of width w has n / w times w^2. */
Test(privacy_tree, by_hand)
{
    cr_assert_eq(dunlin__tree_sensitivity(1, 1, 0), 1);
    cr_assert_eq(dunlin__tree_sensitivity(8, 8, 0), 4);
    cr_assert_eq(dunlin__tree_sensitivity(1024, 1024, 0), 11);
    cr_assert_eq(dunlin__tree_sensitivity(8, 1, 0), 8 + 16 + 32 + 64);
    cr_assert_eq(dunlin__tree_sensitivity(8, 4, 0), 2 + 2 + 2 + 4);
    cr_assert_eq(dunlin__tree_sensitivity(DUNLIN_TREE_ROUNDS, DUNLIN_TREE_ROUNDS, 0), 20);
}
