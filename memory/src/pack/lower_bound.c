/*
 * lower_bound.c - the height no packing can be under: the greatest sum of bytes alive at one step.
 */
#include "portfolio.h"

#include <string.h>

uint64_t dunlin__pack_lower_bound(const dunlin_pack_block *blocks, uint32_t n_blocks,
                                  uint64_t *sums, uint32_t n_steps, uint32_t *out_peak_step)
{
    memset(sums, 0, ((size_t)n_steps + 1) * sizeof *sums);
    /* Differences first; they wrap below zero in between, which unsigned numbers undo. */
    for (uint32_t b = 0; b < n_blocks; b++) {
        sums[blocks[b].first_step] += blocks[b].bytes;
        sums[blocks[b].last_step + 1] -= blocks[b].bytes;
    }
    uint64_t highest = 0;
    *out_peak_step = 0;
    for (uint32_t k = 0; k < n_steps; k++) {
        if (k > 0) {
            sums[k] += sums[k - 1];
        }
        if (sums[k] > highest) {
            highest = sums[k];
            *out_peak_step = k;
        }
    }
    return highest;
}
