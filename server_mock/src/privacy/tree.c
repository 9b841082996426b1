/*
 * tree.c - what tree aggregation costs when a device takes part more than once.
 *
 * Invariant: of each level the largest sum of squares that any allowed set of rounds has there.
 */
#include "tree.h"

#include <assert.h>

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The most rounds of one device in a row of `n`. */
static uint64_t fitting(uint64_t n, uint64_t separation)
{
    return n == 0 ? 0 : (n - 1) / separation + 1;
}

uint64_t dunlin__tree_sensitivity(uint64_t n_rounds, uint64_t separation, uint64_t most)
{
    const uint64_t bound = most > 0 ? most : UINT64_MAX;
    uint64_t sum = 0;
    for (uint64_t width = 1; width <= n_rounds; width *= 2) {
        const uint64_t n_nodes = n_rounds / width;
        const uint64_t in_one = at_most(fitting(width, separation), bound);
        assert(in_one > 0);
        const uint64_t in_all =
            at_most(at_most(fitting(n_nodes * width, separation), bound), n_nodes * in_one);
        /* Squares add up to most where as many nodes as can be are full. */
        const uint64_t left = in_all % in_one;
        sum += in_all / in_one * in_one * in_one + left * left;
    }
    return sum;
}
