/*
 * own.h - what all data sets of a user's own files share: which examples are held out for testing,
 * which ones the mean and the deviation of bytes are taken over.
 */
#ifndef DUNLIN_DATA_OWN_H
#define DUNLIN_DATA_OWN_H

#include "draw.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DUNLIN_OWN_MOMENTS 1024
#define DUNLIN_OWN_SHARE 0.2
#define DUNLIN_OWN_PURPOSE 0x484F4C44ULL

/* Draws one example after the other, each with the share of what is still wanted among those left,
 * so that exactly n_wanted are drawn. */
typedef struct dunlin_own_draw {
    dunlin_draw draw;
    int64_t n_left, n_wanted;
} dunlin_own_draw;

static inline dunlin_own_draw dunlin__own_draw_begin(uint64_t seed, int64_t n, double share)
{
    int64_t n_wanted = (int64_t)(share * (double)n + 0.5);
    n_wanted = n_wanted < 1 ? 1 : n_wanted;
    return (dunlin_own_draw){.draw = dunlin__draw_begin(seed, DUNLIN_OWN_PURPOSE, 0),
                             .n_left = n,
                             .n_wanted = n_wanted > n - 1 ? n - 1 : n_wanted};
}

static inline bool dunlin__own_draw_next(dunlin_own_draw *held)
{
    const bool is_drawn =
        dunlin__draw_unit(&held->draw) * (double)held->n_left < (double)held->n_wanted;
    held->n_left--;
    held->n_wanted -= is_drawn ? 1 : 0;
    return is_drawn;
}

/* Whether example i of n is one of those that moments are taken over. */
static inline bool dunlin__own_is_sampled(int64_t i, int64_t n)
{
    const int64_t most = n < DUNLIN_OWN_MOMENTS ? n : DUNLIN_OWN_MOMENTS;
    return (i + 1) * most / n > i * most / n;
}

/* Of the bytes of one channel: exact sums. */
typedef struct dunlin_own_sums {
    uint64_t n, sum, squares;
} dunlin_own_sums;

static inline void dunlin__own_sums_add(dunlin_own_sums *sums, const uint8_t *bytes, size_t n)
{
    uint64_t sum = 0;
    uint64_t squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += bytes[i];
        squares += (uint64_t)bytes[i] * bytes[i];
    }
    sums->n += n;
    sums->sum += sum;
    sums->squares += squares;
}

/* Mean and deviation of the bytes as 0 to 1; a channel that never changes has deviation 1. */
static inline void dunlin__own_sums_end(const dunlin_own_sums *sums, float *out_mean,
                                        float *out_std)
{
    const double n = sums->n == 0 ? 1.0 : (double)sums->n;
    const double mean = (double)sums->sum / n;
    const double variance = (double)sums->squares / n - mean * mean;
    *out_mean = (float)(mean / 255.0);
    *out_std = variance > 1e-9 ? (float)(sqrt(variance) / 255.0) : 1.0F;
}

#endif
