/*
 * test_shares.c - every unit is taken once, whichever worker takes it; a worker begins with its own
 * run, and continues with the others'.
 */
#include "kernels/parallel/ranges.h"

#include <criterion/criterion.h>

TestSuite(shares, .timeout = 900);

#define N_UNITS 101

/* Slot 0 takes alone, or all slots in turn. */
static void check_once(int64_t n_units, int64_t n_workers, bool is_alone)
{
    shares s;
    int counts[N_UNITS] = {0};
    shares_open(&s, n_units, n_workers);
    int64_t n_done = 0;
    for (int64_t i = 0; n_done < n_workers; i++) {
        const int64_t unit = shares_take(&s, is_alone ? 0 : i % n_workers);
        if (unit < n_units) {
            counts[unit]++;
            n_done = 0;
        } else {
            n_done++;
        }
    }
    for (int64_t i = 0; i < n_units; i++) {
        cr_assert_eq(counts[i], 1, "unit %d of %d, %d workers: taken %d times", (int)i,
                     (int)n_units, (int)n_workers, counts[i]);
    }
}

Test(shares, every_unit_is_taken_once)
{
    const int64_t workers[] = {1, 2, 3, SHARES_MOST, SHARES_MOST + 4};
    for (int64_t n = 0; n <= N_UNITS; n++) {
        for (size_t i = 0; i < sizeof workers / sizeof workers[0]; i++) {
            check_once(n, workers[i], true);
            check_once(n, workers[i], false);
        }
    }
}

Test(shares, a_worker_begins_with_its_own_run)
{
    shares s;
    shares_open(&s, 10, 2);
    for (int64_t i = 0; i < 4; i++) {
        cr_assert_eq(shares_take(&s, 0), i);
        cr_assert_eq(shares_take(&s, 1), 5 + i);
    }
    cr_assert_eq(shares_take(&s, 1), 9);
    cr_assert_eq(shares_take(&s, 1), 4);
    cr_assert_eq(shares_take(&s, 0), 10);
}
