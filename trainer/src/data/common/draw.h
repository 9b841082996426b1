/*
 * draw.h - random draws of the data sets: SplitMix64's finaliser over (key, counter).
 *
 * A stream is a key and a counter, so any part of a data set can be drawn by itself and the same
 * key always gives the same numbers. Source: Steele, Lea, Flood, "Fast splittable pseudorandom
 * number generators", 2014.
 */
#ifndef DUNLIN_DATA_DRAW_H
#define DUNLIN_DATA_DRAW_H

#include <math.h>
#include <stdint.h>

typedef struct dunlin_draw {
    uint64_t key;
    uint64_t counter;
} dunlin_draw;

static inline uint64_t dunlin__draw_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return x ^ (x >> 31);
}

/* A stream for one thing: `purpose` tells streams of one seed apart. */
static inline dunlin_draw dunlin__draw_begin(uint64_t seed, uint64_t purpose, uint64_t index)
{
    uint64_t key = dunlin__draw_mix(seed + 0x9E3779B97F4A7C15ULL);
    key = dunlin__draw_mix(key ^ dunlin__draw_mix(purpose + 0xD1B54A32D192ED03ULL));
    key = dunlin__draw_mix(key + dunlin__draw_mix(index + 0x8CB92BA72F3D8DD7ULL));
    return (dunlin_draw){.key = key, .counter = 0};
}

static inline uint64_t dunlin__draw_u64(dunlin_draw *draw)
{
    draw->counter++;
    return dunlin__draw_mix(draw->key + draw->counter * 0x9E3779B97F4A7C15ULL);
}

/* Uniform in [0, n), n > 0; the bias of n / 2^64 is of no matter here. */
static inline uint64_t dunlin__draw_below(dunlin_draw *draw, uint64_t n)
{
    return dunlin__draw_u64(draw) % n;
}

/* Uniform in (0, 1): never 0, so that a logarithm may be taken. */
static inline double dunlin__draw_unit(dunlin_draw *draw)
{
    return ((double)(dunlin__draw_u64(draw) >> 12) + 0.5) * 0x1p-52;
}

static inline double dunlin__draw_range(dunlin_draw *draw, double low, double high)
{
    return low + (high - low) * dunlin__draw_unit(draw);
}

/* Standard normal, by Box and Muller. */
static inline double dunlin__draw_normal(dunlin_draw *draw)
{
    double radius = sqrt(-2.0 * log(dunlin__draw_unit(draw)));
    return radius * cos(6.283185307179586 * dunlin__draw_unit(draw));
}

/* The logarithm of a gamma variable: for small alpha the variable itself would underflow.
 * Source: Marsaglia, Tsang, "A simple method for generating gamma variables", 2000. */
static inline double dunlin__draw_log_gamma(dunlin_draw *draw, double alpha)
{
    double boost = 0.0;
    if (alpha < 1.0) {
        boost = log(dunlin__draw_unit(draw)) / alpha;
        alpha += 1.0;
    }
    double d = alpha - 1.0 / 3.0;
    double c = 1.0 / sqrt(9.0 * d);
    for (;;) {
        double x = dunlin__draw_normal(draw);
        double root = 1.0 + c * x;
        if (root <= 0.0) {
            continue;
        }
        double v = root * root * root;
        if (log(dunlin__draw_unit(draw)) < 0.5 * x * x + d - d * v + d * log(v)) {
            return log(d * v) + boost;
        }
    }
}

#endif
