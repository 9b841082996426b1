/*
 * depthwise.h - what both directions of a fused depthwise convolution share: a
 * source's rows, passed once through their view or gradient into a ring of
 * zero-padded rows that stays in the cache, and how work is cut.
 *
 * A unit is a strip of rows of one sample, cut by the shape alone, and some of
 * its channels; with few rows a sample it is some channels of all samples, one
 * after the other. Channels never meet, so their cuts change no bit.
 */
#ifndef DUNLIN_KERNELS_DEPTHWISE_H
#define DUNLIN_KERNELS_DEPTHWISE_H

#include "kernels/epilogue/sink.h"
#include "kernels/parallel/ranges.h"

#define STRIP_PIXELS 1536       /* of a strip, at least */
#define STRIP_ROWS 24           /* a strip's first rows are read twice: not too often */
#define RING_FLOATS (64 * 1024) /* what a worker keeps warm */
#define PART_CHANNELS 32        /* the least to be cut off for another thread */

/* A source's rows y - n_rows < row <= y, each with zeros on both sides. */
typedef struct row_ring {
    float *rows;
    const float *zeros; /* stands for a row outside the image */
    int64_t n_rows;
    int64_t pixels; /* of a row, with what is zero */
    int64_t left;   /* zero pixels in front */
    int64_t width;  /* floats of a pixel: the part's channels in whole vectors */
    int64_t n_source;
    int64_t next; /* the row that is loaded next */
} row_ring;

static inline float *ring_slot(const row_ring *ring, int64_t y)
{
    return ring->rows + y % ring->n_rows * ring->pixels * ring->width;
}

static inline const float *ring_row(const row_ring *ring, int64_t y)
{
    return y < 0 || y >= ring->n_source ? ring->zeros : ring_slot(ring, y);
}

typedef struct strip_units {
    bool is_few; /* a unit runs over all samples */
    int64_t n_strips, strip_rows;
    int64_t n_parts, part_channels;
    int64_t n_units;
} strip_units;

/* Strips of a sample of `rows` x `pixels`. */
static inline strip_units strips_of(int64_t rows, int64_t pixels)
{
    strip_units units = {.is_few = rows * pixels < DUNLIN_KERNEL_ROWS_PER_PARTIAL};
    const int64_t n = min_i64(rows * pixels / STRIP_PIXELS, rows / STRIP_ROWS);
    units.strip_rows = ceil_div(rows, max_i64(1, n));
    units.n_strips = ceil_div(rows, units.strip_rows);
    return units;
}

/* Channels that a worker takes at most, when each costs it `floats`. */
static inline int64_t part_most(int64_t channels, int64_t floats)
{
    const int64_t room = max_i64(VEC, RING_FLOATS / floats / VEC * VEC);
    return round_up(ceil_div(channels, ceil_div(channels, room)), VEC);
}

/* Floats of a pixel in a worker's rows: pixels a power of two apart fight for
 * one set of the cache.
 */
static inline int64_t part_width(int64_t part)
{
    return part % 256 == 0 ? part + VEC : part;
}

/* Room for n pointers. */
static inline int64_t pointer_floats(int64_t n)
{
    return round_up(n * (int64_t)sizeof(float *) / (int64_t)sizeof(float), 16);
}

/* Narrower parts where there are not enough units for all threads. */
static inline void units_share(strip_units *units, int64_t channels, int64_t most,
                               int64_t n_samples, dunlin_threads *threads)
{
    const int64_t n_threads = (int64_t)task_threads(threads);
    const int64_t rows = units->is_few ? 1 : n_samples * units->n_strips;
    int64_t part = most;
    if (n_threads > 1 && rows * ceil_div(channels, most) < 2 * n_threads) {
        const int64_t wanted = ceil_div(2 * n_threads, rows);
        part = min_i64(most, max_i64(PART_CHANNELS, round_up(ceil_div(channels, wanted), VEC)));
        /* fewer and wider, where what a thread gets at most is not more */
        const int64_t wide = round_up(ceil_div(channels, n_threads), VEC);
        if (rows == 1 && wide <= most &&
            ceil_div(ceil_div(channels, part), n_threads) * part >= wide) {
            part = wide;
        }
    }
    units->part_channels = part;
    units->n_parts = ceil_div(channels, part);
    units->n_units = rows * units->n_parts;
}

/* What a unit is: rows [first, end) of samples [sample, end_sample), some
 * channels. */
typedef struct strip_unit {
    int64_t sample, end_sample;
    int64_t first, end;
    int64_t channel, n_channels;
    int64_t index; /* of the strip, over all samples */
} strip_unit;

static inline strip_unit unit_at(const strip_units *units, int64_t i, int64_t rows,
                                 int64_t channels, int64_t n_samples)
{
    strip_unit unit = {.end = rows, .end_sample = n_samples};
    unit.channel = i % units->n_parts * units->part_channels;
    unit.n_channels = min_i64(units->part_channels, channels - unit.channel);
    if (!units->is_few) {
        unit.index = i / units->n_parts;
        unit.sample = unit.index / units->n_strips;
        unit.end_sample = unit.sample + 1;
        unit.first = unit.index % units->n_strips * units->strip_rows;
        unit.end = min_i64(rows, unit.first + units->strip_rows);
    }
    return unit;
}

/* How many rows of `pixels` a chain in float takes before double takes over. */
static inline bool chain_is_full(int64_t count, int64_t pixels, int64_t most)
{
    return count + pixels > most;
}

#endif
