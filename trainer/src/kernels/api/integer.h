/*
 * integer.h - everything that computes in integers: one table of functions per instruction set,
 * beside that of kernels.h.
 *
 * Tensors are int8 in [-127, 127], NHWC and compact, with one exponent a tensor that the caller
 * keeps: value = q * 2^exponent. Products are summed in int32 and rounded where they are stored, by
 * a shift that is given before: the sums of one tile are all that is in memory. Kernels know no
 * graph, allocate nothing, and take workspace from the caller; `threads` may be NULL: serial.
 *
 * Bits: all sums are exact, so every result is the same on every instruction set, with every number
 * of threads and however a batch is cut. Statistics are a maximum and a count: no order.
 *
 * Source of the arithmetic: Wang et al., NITI, IEEE TPDS 2022 (arXiv 2009.13108); scales fixed
 * before a batch as in Mandheling (Xu et al., MobiCom 2022).
 */
#ifndef DUNLIN_KERNELS_INTEGER_H
#define DUNLIN_KERNELS_INTEGER_H

#include "image_calls.h"
#include "kernels/parallel/threads.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DUNLIN_INT_MOST 127
#define DUNLIN_INT_MOST_PAIR (DUNLIN_INT_MOST * 128) /* of 128 * high + low */
/* Products of two int8 that an int32 surely holds: 127 * 127 * n < 2^31. The caller refuses a
 * forward pass or an input gradient of more, and has weight gradients of more in 64 bits. */
#define DUNLIN_INT_MOST_TERMS 133144
/* Fraction bits of `largest` where an average is what is rounded. */
#define DUNLIN_INT_AVERAGE_BITS 8
/* Room for the shift of an average, to either side. */
#define DUNLIN_INT_MOST_AVERAGE_SHIFT 16

/* What was rounded: for the scale of the next batch. */
typedef struct dunlin_int_stats {
    int64_t largest;   /* magnitude before rounding */
    int64_t n_clipped; /* values that were beyond +-127 after it */
} dunlin_int_stats;

/*
 * RoundShift: q = v / 2^shift, half away from zero, then within +-127; with shift <= 0 q = v within
 * +-127.
 */
typedef struct dunlin_int_rounding {
    int32_t shift;           /* at most 31, of `round` 62; of averages: either sign, see there */
    dunlin_int_stats *stats; /* NULL: not wanted; one that many calls share is added to */
    bool is_reset;           /* stats start from zero */
} dunlin_int_rounding;

/*
 * A convolution or dense layer (see dunlin_conv_shape; weights [kh][kw][in_c / groups][out_c]).
 *
 * Forward: y = RoundShift(bias + sum of x w), then within [low, high].
 * Input gradient: d = RoundShift(sum of dy w); with an addend d = that + RoundShift(addend,
 *   addend_shift), within +-127 again and counted if it was not; with a mask 0 where not mask_low <
 *   mask < mask_high. Statistics: `largest` is that of the sums of products, before all this.
 *   `out` NULL: statistics alone.
 * Both of them with `out_real`: float(sum of products) * unit, two roundings of float32, with
 *   neither bias, addend, mask nor clipping; `out` and `rounding` are not looked at but for stats.
 * Weight gradient: sums += sum of dy x over the samples; out_bias += sum of dy.
 */
typedef struct dunlin_int_conv_call {
    const dunlin_conv_shape *shape;
    int64_t n_samples;
    const int8_t *x;     /* forward, weight gradient */
    const int8_t *w;     /* forward, input gradient */
    const int32_t *bias; /* forward: of the sums' exponent; may be NULL */
    const int8_t *dy;    /* both gradients */
    int8_t *out;         /* forward: y; input gradient: dx */
    float *out_real;     /* or instead of it: the products as floats; else NULL */
    float unit;          /* of out_real */
    bool is_added;       /* out_real += that */
    dunlin_int_rounding rounding;
    int32_t low, high;    /* forward: -127 and 127 for none, low = 0: ReLU */
    const int8_t *addend; /* input gradient: may be NULL, and may be `out` */
    int32_t addend_shift; /* from the addend's exponent to that of `out` */
    const int8_t *mask;   /* input gradient: the stored output that a ReLU's mask is made of; may be
                             NULL, and may be `out` */
    int32_t mask_low, mask_high; /* exclusive; a ReLU without bound: 0 and 128 */
    int32_t *sums;      /* weight gradient: at most DUNLIN_INT_MOST_TERMS terms (pixels of dy) over
                           all calls since the reset */
    int64_t *wide_sums; /* or instead of it, for any number of terms */
    int32_t *out_bias;  /* weight gradient: may be NULL; 2^31 / 127 terms at most */
    bool is_reset;      /* weight gradient: sums and out_bias start from zero */
    void *workspace;    /* conv_workspace_bytes(), 64-byte aligned */
    dunlin_threads *threads;
} dunlin_int_conv_call;

typedef enum dunlin_int_mode {
    DUNLIN_INT_NEAREST = 0, /* RoundShift */
    /* StoShift: up in magnitude with probability remainder / 2^shift, by a draw of (key, element)
     */
    DUNLIN_INT_STOCHASTIC,
    /* PstoShift: the remainder's high half is compared with its low half (doubled if shift is odd),
     * up if it is larger */
    DUNLIN_INT_PSEUDO
} dunlin_int_mode;

/* Sums to int8, or to an update. */
typedef struct dunlin_int_round_call {
    int64_t n;
    const int32_t *sums;
    const int64_t *wide_sums; /* or instead of it */
    dunlin_int_mode mode;
    uint64_t key;       /* DUNLIN_INT_STOCHASTIC: dunlin__int_key() */
    uint64_t first;     /* the number of element 0 */
    int32_t low, high;  /* -127 and 127 for none */
    int8_t *out;        /* n */
    bool is_subtracted; /* out = out - q within +-127 (counted if it was not): an update */
    dunlin_int_rounding rounding;
    dunlin_threads *threads;
} dunlin_int_round_call;

/* The largest weight of 16 bits: its upper byte, rounded, is 127. */
#define DUNLIN_INT_PAIR_MOST 32639

/*
 * An update of weights of 16 bits, each 256 high + low with -128 <= low <= 127: W = W -
 * PstoShift(sum, shift) within +-DUNLIN_INT_PAIR_MOST. So `high` is W / 256 to the nearest, halves
 * upwards.
 */
typedef struct dunlin_int_pairs_call {
    int64_t n;
    const int32_t *sums;
    const int64_t *wide_sums; /* or instead of it */
    int32_t shift;            /* -8 to 62; below 0 sums are multiplied, and fit 22 bits then */
    int8_t *high, *low;       /* n of each */
    dunlin_threads *threads;
} dunlin_int_pairs_call;

/* out = RoundShift(RoundShift(a, a_shift) + RoundShift(b, b_shift)), then within [low, high]; one
 * of a_shift and b_shift aligns the exponents. b NULL: a alone. */
typedef struct dunlin_int_add_call {
    int64_t n;
    const int8_t *a, *b;
    int32_t a_shift, b_shift;
    int32_t low, high;
    int8_t *out; /* may be a or b */
    dunlin_int_rounding rounding;
    dunlin_threads *threads;
} dunlin_int_add_call;

/* Rows of `width` from one pitch to another, RoundShift of each: concat and its gradient, and a
 * change of exponent. */
typedef struct dunlin_int_rows_call {
    int64_t n_rows, width;
    const int8_t *from;
    int64_t from_pitch;
    int8_t *to;
    int64_t to_pitch;
    dunlin_int_rounding rounding;
    dunlin_threads *threads;
} dunlin_int_rows_call;

/*
 * Pooling (is_sum: no division). Max: y = the largest, the first of equals; dx = RoundShift of the
 * sum of dy over the windows that it won.
 *
 * Average: y = sum / (count * 2^shift) as one exact fraction, half away from zero, within +-127;
 * count is that of dunlin_pool_shape. dx: t = dy * 2^16 / count of each window, half away from
 * zero; their sum over the windows is divided by 2^(16 + shift), half away from zero. Here shift
 * may be negative, within +-DUNLIN_INT_MOST_AVERAGE_SHIFT: a gradient that 49 pixels share keeps
 * its bits so. `largest` is in units of 2^-DUNLIN_INT_AVERAGE_BITS, of what would be rounded with
 * shift 0, rounded down.
 */
typedef struct dunlin_int_pool_call {
    const dunlin_pool_shape *shape;
    bool is_max;
    int64_t n_samples;
    const int8_t *x;              /* forward */
    int8_t *y;                    /* forward */
    uint8_t *index;               /* max: the winners' places in their windows (kernel area <= 255),
                                     dunlin__int_place_bytes() of a pixel; forward: NULL if not wanted */
    const int8_t *dy;             /* backward */
    int8_t *dx;                   /* backward */
    dunlin_int_rounding rounding; /* max forward: nothing is rounded, stats alone are those of y */
    dunlin_threads *threads;
} dunlin_int_pool_call;

#define DUNLIN_INT_PLACE_RUN 256 /* channels whose places lie together */

/* Bits of a winner's place: 2, 4 or 8. */
static inline int32_t dunlin__int_place_bits(const dunlin_pool_shape *shape)
{
    const int64_t area = (int64_t)shape->kernel_h * shape->kernel_w;
    return area <= 4 ? 2 : area <= 16 ? 4 : 8;
}

/*
 * Bytes of the places of n channels of a pixel. Each DUNLIN_INT_PLACE_RUN channels of a pixel, and
 * what is left of them, are a run: of b bytes, channel c's place is in byte c mod b, from bit
 * bits * (c / b) on.
 */
static inline int64_t dunlin__int_place_bytes(const dunlin_pool_shape *shape, int64_t n)
{
    return (n * dunlin__int_place_bits(shape) + 7) / 8;
}

/* Whether an input pixel may lie in several windows. */
static inline bool dunlin__int_windows_overlap(const dunlin_pool_shape *shape)
{
    const int32_t step_h = shape->dilation_h > 1 ? shape->dilation_h : 1;
    const int32_t step_w = shape->dilation_w > 1 ? shape->dilation_w : 1;
    return shape->stride_h < (int64_t)(shape->kernel_h - 1) * step_h + 1 ||
           shape->stride_w < (int64_t)(shape->kernel_w - 1) * step_w + 1;
}

typedef struct dunlin_int_quantise_call {
    int64_t n;
    const float *x;
    int32_t exponent; /* of out, within +-250: q = x * 2^-exponent, half away from zero, within
                         +-127 */
    int8_t *out;
    int64_t *out_clipped; /* added to: values that were beyond; may be NULL */
    float *out_largest;   /* the largest finite magnitude of x; may be NULL */
    dunlin_threads *threads;
} dunlin_int_quantise_call;

/* What is counted of the floats of one unit. Order-free: a maximum and whole numbers, also in
 * `squares`, exact below 2^53. */
typedef struct dunlin_int_spread {
    double squares;    /* sum of floor(64 * min(|x| / unit, 127.5))^2 */
    int64_t n;         /* values */
    int64_t n_clipped; /* beyond +-127 units after rounding */
    int64_t n_beyond;  /* whose magnitude is above `limits` */
    int64_t fines;     /* one unit, has_sums: sum of floor(64 * min(|x| / unit, 127.5)) */
    int64_t wholes;    /* one unit, has_sums: sum of the magnitudes as they were rounded */
    int32_t largest;   /* bits of the largest magnitude; 0x7F800000 or more: one is not finite */
} dunlin_int_spread;

/*
 * Rows of floats to int8, with real units: q = |x| * (1 / unit), half away from zero, within +-127,
 * with the sign of x; 0 for not-a-number. One unit for all, or one a channel.
 *
 * With `out_low` q is within +-DUNLIN_INT_MOST_PAIR, and two int8: q = 128 * out + out_low, where
 * the magnitude of out_low is up to 64; `fines` and `wholes` are not counted then.
 */
typedef struct dunlin_int_real_call {
    int64_t n_rows, channels;
    bool is_by_channel;
    const float *x;
    const float *units;  /* above 0; `channels`, or one */
    const float *limits; /* by channel: of n_beyond; NULL: neither it nor squares are wanted */
    bool has_sums;       /* one unit: `fines` and `wholes` are wanted */
    bool finds_largest;  /* one unit: nothing is rounded, and `n` and `largest` alone are counted */
    int8_t *out;         /* NULL: it is only counted */
    int8_t *out_low;     /* one unit, with `out`; may be NULL */
    dunlin_int_spread *spreads; /* `channels`, or one; added to; may be NULL */
    dunlin_threads *threads;
} dunlin_int_real_call;

/* Rows of sums to floats: out = sum * factors[channel], of pairs (128 sum + low sum) *
 * factors[channel], in double precision and rounded once. */
typedef struct dunlin_int_scale_call {
    int64_t n_rows, channels;
    const int32_t *sums, *low_sums;           /* low NULL: no pairs */
    const int64_t *wide_sums, *wide_low_sums; /* or instead of them */
    const double *factors;                    /* channels */
    float *out;
    dunlin_threads *threads;
} dunlin_int_scale_call;

typedef struct dunlin_int_kernels {
    const char *isa; /* the set, then "+vnni", "-vnni", "+dotprod" or "-dotprod" where it has two */

    /* Packed weights of a part of the outputs, and a block of pixels for each thread: as much as
     * any batch takes (n_samples 0), or calls of at most so many samples. */
    uint64_t (*conv_workspace_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                                     int64_t n_samples, size_t n_threads);
    void (*conv_forward)(const dunlin_int_conv_call *call);
    void (*conv_input_grad)(const dunlin_int_conv_call *call);
    void (*conv_weight_grad)(const dunlin_int_conv_call *call);

    void (*round)(const dunlin_int_round_call *call);
    void (*update_pairs)(const dunlin_int_pairs_call *call);
    /* The largest magnitude; of `wide` if x is NULL. */
    int64_t (*largest)(int64_t n, const int32_t *x, const int64_t *wide, dunlin_threads *threads);
    /* How many weights are as large as there are, of either sign: +-127, with `low` (which may be
     * NULL) +-DUNLIN_INT_PAIR_MOST. */
    int64_t (*count_ends)(int64_t n, const int8_t *high, const int8_t *low,
                          dunlin_threads *threads);
    /* Weights / 2, halves to the even neighbour; with `low` those of 16 bits. */
    void (*halve)(int64_t n, int8_t *high, int8_t *low, dunlin_threads *threads);
    void (*add)(const dunlin_int_add_call *call);
    void (*copy_rows)(const dunlin_int_rows_call *call);
    /* y within [low, high]; dx = dy where low < y < high, else 0. y may be x, dx may be dy. */
    void (*clip)(int64_t n, const int8_t *x, int32_t low, int32_t high, int8_t *y,
                 dunlin_threads *threads);
    void (*clip_grad)(int64_t n, const int8_t *dy, const int8_t *y, int32_t low, int32_t high,
                      int8_t *dx, dunlin_threads *threads);
    void (*pool_forward)(const dunlin_int_pool_call *call);
    void (*pool_backward)(const dunlin_int_pool_call *call);
    /* per sample: a (rows x columns) matrix transposed: NHWC <-> NCHW */
    void (*transpose)(int64_t n, int64_t rows, int64_t columns, const int8_t *x, int8_t *y,
                      dunlin_threads *threads);

    /* False: a value is not finite; `out` then holds 0 for not-a-number. */
    bool (*quantise)(const dunlin_int_quantise_call *call);
    void (*quantise_real)(const dunlin_int_real_call *call);
    void (*scale_sums)(const dunlin_int_scale_call *call);
    /* values = 2^-14 q with |values| * scale rounded to q within +-127, up if the fraction is above
     * a draw of (key, element); |values| * scale below 2^31, and `scale` a power of two. */
    void (*keep_proportions)(int64_t n, float *values, double scale, uint64_t key,
                             dunlin_threads *threads);
    /* out = x * 2^exponent, exact where a float holds it */
    void (*dequantise)(int64_t n, const int8_t *x, int32_t exponent, float *out,
                       dunlin_threads *threads);
} dunlin_int_kernels;

/* Terms of a sum of a pass over so many samples, which DUNLIN_INT_MOST_TERMS bounds. */
static inline int64_t dunlin__int_conv_terms(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                                             int64_t n_samples)
{
    const int64_t taps = (int64_t)shape->kernel_h * shape->kernel_w;
    if (pass == DUNLIN_CONV_WEIGHT_GRAD) {
        return n_samples * shape->out_h * shape->out_w;
    }
    return taps * (pass == DUNLIN_CONV_FORWARD ? shape->in_c : shape->out_c) / shape->groups;
}

/* 64 bits of a key and a counter: the finaliser of SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t dunlin__int_draw(uint64_t key, uint64_t counter)
{
    uint64_t z = key + (counter + 1) * 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
}

/* The key of stochastic rounding of one tensor in one step. */
static inline uint64_t dunlin__int_key(uint64_t seed, uint64_t step, uint64_t tensor)
{
    return dunlin__int_draw(dunlin__int_draw(seed, step), tensor);
}

/*
 * The table for an instruction set by name: one of those of dunlin__kernels_isa(), which gives the
 * best that the machine has of it, or one of dunlin__int_kernels_isa(). For the best one of this
 * machine `isa` is NULL or ""; NULL if the name is unknown or the machine does not have it.
 * `dunlin__int_kernels_isa(i)` lists the usable ones, best first, NULL past the last.
 */
const dunlin_int_kernels *dunlin__int_kernels_select(const char *isa);
const char *dunlin__int_kernels_isa(int index);

#endif
