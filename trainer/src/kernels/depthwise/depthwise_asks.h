/*
 * depthwise_asks.h - the software prefetches of a depthwise backward pass while it computes a chunk
 * of the input, vector by vector of channels.
 *
 * No value depends on it.
 */
#ifndef DUNLIN_KERNELS_DEPTHWISE_PREFETCHES_H
#define DUNLIN_KERNELS_DEPTHWISE_PREFETCHES_H

#include "kernels/parallel/tasks.h"
#include "kernels/simd/prefetch.h"
#include "kernels/simd/stored.h"

#define GROUP_LINES 4 /* of a pixel that are asked for together */

/* A tensor at the chunk's first row and column, which may lie outside. */
typedef struct back_plane {
    const float *at;
    int64_t row, pixel; /* steps, in elements */
    int64_t chunk;      /* to the next chunk */
    bool is_half;       /* it holds bfloat16 */
} back_plane;

/*
 * What is asked for while a vector passes the chunk: its share of the next group of channels, or of
 * the next chunk's first. All lines of a pixel's group one after the other: memory gives them half
 * as fast again as lines that are pixels apart.
 */
typedef struct back_soon {
    int64_t lines;           /* of a pixel */
    int64_t share, n_shares; /* of a row's pixels; none past the last */
    int64_t channel;
    bool is_here; /* in this chunk */
    bool is_near; /* asked for into the first cache */
} back_soon;

/* For vector c. The last group of channels has what a whole one does not hold. */
ALWAYS_INLINE back_soon back_look_prefetch(int64_t c, int64_t n_channels)
{
    const int64_t n_lines = ceil_div(n_channels, LINE_FLOATS);
    const int64_t last = max_i64(n_lines / GROUP_LINES, 1) - 1;
    const int64_t line = c / LINE_FLOATS;
    const int64_t group = min_i64(line / GROUP_LINES, last);
    const int64_t next = group < last ? group + 1 : 0;
    const int64_t rest = n_lines - last * GROUP_LINES;
    back_soon soon = {.lines = next < last ? GROUP_LINES : rest,
                      .share = line - group * GROUP_LINES,
                      .n_shares = group < last ? GROUP_LINES : min_i64(GROUP_LINES, rest),
                      .channel = next * GROUP_LINES * LINE_FLOATS,
                      .is_here = group < last,
                      .is_near = prefetch_is_near_for_tiles()};
    if (c % LINE_FLOATS != 0) {
        soon.share = GROUP_LINES; /* the line's first vector has asked */
    }
    return soon;
}

/* The vector's share of the n pixels of each row that comes soon, asked for in n_steps steps. */
typedef struct back_prefetches {
    const float *at; /* of the first */
    int64_t row, pixel;
    int64_t lines;      /* of a pixel */
    int64_t step, left; /* pixels: of a step, of the share and what follows it */
    bool is_half, is_near;
} back_prefetches;

ALWAYS_INLINE back_prefetches back_prefetches_of(const back_plane *plane, const float *at,
                                                 const back_soon *soon, int64_t n_steps, int64_t n)
{
    back_prefetches prefetches = {.row = plane->row,
                                  .pixel = plane->pixel,
                                  .lines = soon->lines,
                                  .is_half = plane->is_half,
                                  .is_near = soon->is_near};
    prefetches.step = ceil_div(n, n_steps * soon->n_shares);
    const int64_t first = soon->share * n_steps * prefetches.step;
    prefetches.left = soon->share < soon->n_shares ? n - first : 0;
    prefetches.at =
        stored_at(at, soon->channel + (soon->is_here ? 0 : plane->chunk) + first * plane->pixel,
                  plane->is_half);
    return prefetches;
}

/* The pixel's line. */
ALWAYS_INLINE void back_ask_line(const back_prefetches *prefetches, const float *at, int64_t line)
{
    at = stored_at(at, line * LINE_FLOATS, prefetches->is_half);
    prefetch_line((const char *)at, prefetches->is_near);
}

/* Step t of row r. */
ALWAYS_INLINE void back_ask(const back_prefetches *prefetches, int64_t r, int64_t t)
{
    const float *at =
        stored_at(prefetches->at, r * prefetches->row + t * prefetches->step * prefetches->pixel,
                  prefetches->is_half);
    for (int64_t i = min_i64(prefetches->step, prefetches->left - t * prefetches->step); i > 0;
         i--) {
        back_ask_line(prefetches, at, 0);
        if (prefetches->lines >= GROUP_LINES) {
            back_ask_line(prefetches, at, 1);
            back_ask_line(prefetches, at, 2);
            back_ask_line(prefetches, at, 3);
        }
        for (int64_t line = prefetches->lines >= GROUP_LINES ? GROUP_LINES : 1;
             line < prefetches->lines; line++) {
            back_ask_line(prefetches, at, line);
        }
        at = stored_at(at, prefetches->pixel, prefetches->is_half);
    }
}

#endif
