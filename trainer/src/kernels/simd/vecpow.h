/*
 * vecpow.h - x^a of a vector, computed in double: an error of float's size in a * log2(x) would be
 * magnified by the size of the result's exponent.
 */
#ifndef DUNLIN_KERNELS_VECPOW_H
#define DUNLIN_KERNELS_VECPOW_H

#include "vecmath.h"

#include <math.h>

/* Half as many doubles as a vector has floats: a register's width. */
typedef double vdouble __attribute__((vector_size(VEC * 4)));
typedef int64_t vlong __attribute__((vector_size(VEC * 4)));
typedef uint64_t vlong_bits __attribute__((vector_size(VEC * 4)));
typedef float vhalf __attribute__((vector_size(VEC * 2)));
typedef int32_t vhalf_int __attribute__((vector_size(VEC * 2)));

/* 2^(a * (n + log2(m))); log2(m) = 2 atanh((m - 1) / (m + 1)) / ln 2. */
ALWAYS_INLINE vhalf vpow_half(vhalf m, vhalf_int n, double a)
{
    static const double logs[5] = {2.885390081790167, 0.961796673248062, 0.5770836018405756,
                                   0.4116717503291586, 0.3407474308649808};
    static const double powers[7] = {
        1.0000000005541705,  0.6931472057374017,    0.24022646890616894,   0.05550328776677027,
        0.00961848895793116, 0.0013399931336137705, 0.00015345812055578278};
    const double round = 6755399441055744.0; /* as VEC_ROUND */
    const vdouble wide = __builtin_convertvector(m, vdouble);
    const vdouble s = (wide - 1.0) / (wide + 1.0);
    const vdouble z = s * s;
    vdouble y = z * logs[4] + logs[3];
    UNROLL
    for (int i = 2; i >= 0; i--) {
        y = y * z + logs[i];
    }
    vdouble exponent = a * (__builtin_convertvector(n, vdouble) + s * y);
    /* far beyond what float holds */
    const vdouble least = (vdouble){0} - 300.0;
    const vlong is_least = exponent < least;
    const vlong is_most = exponent > -least;
    exponent = (vdouble)((~is_least & (vlong)exponent) | (is_least & (vlong)least));
    exponent = (vdouble)((~is_most & (vlong)exponent) | (is_most & (vlong)-least));
    const vdouble shifted = exponent + round;
    const vdouble r = exponent - (shifted - round);
    y = r * powers[6] + powers[5];
    UNROLL
    for (int i = 4; i >= 0; i--) {
        y = y * r + powers[i];
    }
    const vdouble scale = (vdouble)(((vlong_bits)shifted + 1023U) << 52);
    return __builtin_convertvector(y * scale, vhalf);
}

/* As pow(): of 0 it is 0, or infinite for a below 0; below 0 not a number unless a is whole. */
ALWAYS_INLINE vfloat vpow(vfloat x, double a)
{
    const vfloat size = vabs(x);
    const float infinite = __builtin_inff();
    const bool is_whole = floor(a) == a;
    const bool is_odd = is_whole && floor(a / 2.0) * 2.0 != a;
    vint n;
    const vfloat m = vsplit(size, &n);
    vhalf halves[2];
    vhalf_int whole[2];
    memcpy(halves, &m, sizeof halves);
    memcpy(whole, &n, sizeof whole);
    UNROLL
    for (int i = 0; i < 2; i++) {
        halves[i] = vpow_half(halves[i], whole[i], a);
    }
    vfloat y;
    memcpy(&y, halves, sizeof y);
    y = vselect_less(vzero(), size, y, vset1(a > 0.0 ? 0.0F : infinite));
    y = vselect_less(size, vset1(infinite), y, a > 0.0 ? size : 1.0F / size);
    const vfloat below = is_odd ? -y : y;
    return vselect_less(x, vzero(), is_whole ? below : vset1(__builtin_nanf("")), y);
}

#endif
