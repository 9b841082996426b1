/*
 * vecmath.h - exponentials, logarithms, erf, tanh, the normal distribution, sine and cosine of a
 * vector, within about two units in the last place of float.
 *
 * Polynomials were fitted by us to the functions in double precision (reweighted least squares, so
 * that the largest error is least); ranges are reduced as is usual (Muller, "Elementary Functions",
 * 3rd edition). Not-a-number passes through. An element's bits depend on that element alone.
 */
#ifndef DUNLIN_KERNELS_VECMATH_H
#define DUNLIN_KERNELS_VECMATH_H

#include "vec.h"

#include <string.h>

typedef int32_t vint __attribute__((vector_size(VEC * 4)));
/* The same bits where sums may pass the ends: those of what is selected away, above all. */
typedef uint32_t vbits __attribute__((vector_size(VEC * 4)));

/* a < b ? yes : no */
ALWAYS_INLINE vfloat vselect_less(vfloat a, vfloat b, vfloat yes, vfloat no)
{
#if defined(__AVX512F__)
    const __mmask16 mask = _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_LT_OQ);
    return (vfloat)_mm512_mask_mov_ps((__m512)no, mask, (__m512)yes);
#else
    const vint mask = a < b;
    return (vfloat)(((vint)yes & mask) | ((vint)no & ~mask));
#endif
}

ALWAYS_INLINE vfloat vmax(vfloat a, vfloat b)
{
#if defined(__AVX512F__)
    return (vfloat)_mm512_max_ps((__m512)a, (__m512)b);
#else
    return vselect_less(b, a, a, b);
#endif
}

/* Not-a-number passes. */
ALWAYS_INLINE vfloat vmost(vfloat x, float most)
{
#if defined(__AVX512F__)
    return (vfloat)_mm512_min_ps((__m512)vset1(most), (__m512)x);
#else
    return vselect_less(vset1(most), x, vset1(most), x);
#endif
}

ALWAYS_INLINE vfloat vabs(vfloat x)
{
    return (vfloat)((vint)x & 0x7FFFFFFF);
}

ALWAYS_INLINE vfloat vcopysign(vfloat x, vfloat sign)
{
    return (vfloat)(((vint)x & 0x7FFFFFFF) | ((vint)sign & ~0x7FFFFFFF));
}

/* p[0] + p[1] x + ... + p[n - 1] x^(n - 1) */
ALWAYS_INLINE vfloat vpoly(vfloat x, const float *p, int n)
{
    vfloat y = vset1(p[n - 1]);
    UNROLL
    for (int i = n - 2; i >= 0; i--) {
        y = vfma(y, x, vset1(p[i]));
    }
    return y;
}

/* Adding and taking away this rounds to a whole number, which also lies in the low bits. */
#define VEC_ROUND 12582912.0F

/*
 * exp(x) = 2^n exp(r), |r| <= ln 2 / 2. Below -87.3 it is 0 and above 88.3 the largest of there: so
 * 2^n is never denormal.
 */
ALWAYS_INLINE vfloat vexp(vfloat x)
{
    static const float p[5] = {0.5F, 0.166665181517601F, 0.04166620597243309F,
                               0.008368889801204205F, 0.0013950486900284886F};
    const vfloat in = vclip(x, vset1(-87.3F), vset1(88.3F));
    const vfloat shifted = in * 1.44269504F + VEC_ROUND;
    const vfloat n = shifted - VEC_ROUND;
    /* ln 2 in two parts; the first has so few digits that its product with n is exact */
    vfloat r = vfma(n, vset1(-0.693359375F), in);
    r = vfma(n, vset1(2.12194440e-4F), r);
    const vfloat y = vfma(vpoly(r, p, 5), r * r, r) + 1.0F;
    const vbits exponent = ((vbits)shifted - 0x4B400000U + 127U) << 23;
    const vfloat scaled = y * (vfloat)exponent;
    /* not-a-number times any power of two is one still */
    return vselect_less(x, vset1(-87.3F), vzero(), scaled);
}

/* Of a whole number that VEC_ROUND was added to. */
ALWAYS_INLINE vint vwhole(vfloat shifted)
{
    return (vint)((vbits)shifted - 0x4B400000U);
}

ALWAYS_INLINE vfloat vtwo_to(vint n)
{
    return (vfloat)(((vbits)n + 127U) << 23);
}

/* exp(r) - 1 for |r| <= ln 2 / 2, its error relative to itself. */
ALWAYS_INLINE vfloat vexpm1_near(vfloat r)
{
    static const float p[5] = {0.4999999701976776F, 0.16666541993618011F, 0.04166720435023308F,
                               0.008366691879928112F, 0.0013882488710805774F};
    return vfma(vpoly(r, p, 5), r * r, r);
}

/* exp(x) - 1 = 2^n (exp(r) - 1) + (2^n - 1). Below -87.3 it is -1, above 88.3 as exp is. */
ALWAYS_INLINE vfloat vexpm1(vfloat x)
{
    const vfloat in = vclip(x, vset1(-87.3F), vset1(88.3F));
    const vfloat shifted = in * 1.44269504F + VEC_ROUND;
    const vfloat n = shifted - VEC_ROUND;
    vfloat r = vfma(n, vset1(-0.693359375F), in);
    r = vfma(n, vset1(2.12194440e-4F), r);
    const vfloat scale = vtwo_to(vwhole(shifted));
    return vfma(vexpm1_near(r), scale, scale - 1.0F);
}

/* exp() without its limits: infinite where float ends, and as small as the processor's numbers are.
 * 2^n goes in by halves, for it may be no number itself. */
ALWAYS_INLINE vfloat vexp_all(vfloat x)
{
    const vfloat in = vclip(x, vset1(-105.0F), vset1(90.0F));
    const vfloat shifted = in * 1.44269504F + VEC_ROUND;
    const vfloat n = shifted - VEC_ROUND;
    vfloat r = vfma(n, vset1(-0.693359375F), in);
    r = vfma(n, vset1(2.12194440e-4F), r);
    const vint half = vwhole(shifted) >> 1;
    const vfloat y = (vexpm1_near(r) + 1.0F) * vtwo_to(half);
    return y * vtwo_to(vwhole(shifted) - half);
}

/* x = 2^*out_n * m, m within [sqrt(0.5), sqrt(2)); x above 0 and finite. */
ALWAYS_INLINE vfloat vsplit(vfloat x, vint *out_n)
{
    const vint is_small = x < 1.17549435e-38F;
    const vfloat large = (vfloat)((is_small & (vint)(x * 8388608.0F)) | (~is_small & (vint)x));
    const vint bits = (vint)((vbits)large + (0x3F800000U - 0x3F3504F3U));
    *out_n = (bits >> 23) - 127 - (is_small & 23);
    return (vfloat)((bits & 0x7FFFFF) + 0x3F3504F3);
}

/* log(m) = 2 atanh(s), s = (m - 1) / (m + 1). Of 0 it is -infinity, below it not a number. */
ALWAYS_INLINE vfloat vlog(vfloat x)
{
    static const float p[3] = {0.6666677594184875F, 0.399774432182312F, 0.2987459599971771F};
    vint whole;
    const vfloat m = vsplit(x, &whole);
    const vfloat n = __builtin_convertvector(whole, vfloat);
    const vfloat s = (m - 1.0F) / (m + 1.0F);
    const vfloat z = s * s;
    const vfloat rest = vfma(s * z, vpoly(z, p, 3), n * -2.12194440e-4F);
    vfloat y = vfma(n, vset1(0.693359375F), (s + s) + rest);
    y = vselect_less(x, vset1(__builtin_inff()), y, x); /* infinity, not-a-number */
    y = vselect_less(vzero(), x, y, x - __builtin_inff());
    return vselect_less(x, vzero(), vset1(__builtin_nanf("")), y);
}

/* log(1 + x) for x within [0, 1], its error relative to itself. */
ALWAYS_INLINE vfloat vlog1p_near(vfloat x)
{
    static const float p[5] = {0.6666667461395264F, 0.3999887704849243F, 0.2861688435077667F,
                               0.21427658200263977F, 0.24300937354564667F};
    const vfloat s = x / (2.0F + x);
    const vfloat z = s * s;
    return vfma(s * z, vpoly(z, p, 5), s + s);
}

/* Up to 0.9 a polynomial in x^2; above it 1 - erfc(x), the logarithm of erfc being a polynomial. */
ALWAYS_INLINE vfloat verf(vfloat x)
{
    static const float low[6] = {0.12837915122509003F,  -0.3761253356933594F,
                                 0.11282230168581009F,  -0.02678195759654045F,
                                 0.005016228184103966F, -0.0006111289258114994F};
    static const float high[8] = {-1.1285449266433716F,    -0.6356565356254578F,
                                  -0.10520291328430176F,   0.022612011060118675F,
                                  -0.0028923023492097855F, 3.606542668421753e-05F,
                                  4.8202084144577384e-05F, -5.15086730956682e-06F};
    const vfloat t = vabs(x);
    const vfloat small = vfma(vpoly(x * x, low, 6), x, x);
    const vfloat near = vmost(t, 4.0F);
    const vfloat large = vcopysign(1.0F - vexp(vpoly(near, high, 8) * near), x);
    return vselect_less(vset1(0.9F), t, large, small);
}

/*
 * The share of a normal distribution below x, its error relative to one; the bell e^(-x^2 / 2) goes
 * to *out_bell. A tail is the bell times a polynomial, which beyond 5.75 no longer matters.
 */
ALWAYS_INLINE vfloat vnormal(vfloat x, vfloat *out_bell)
{
    static const float p[13] = {
        0.5F,
        -0.3989409804344177F,
        0.2499789595603943F,
        -0.13284705579280853F,
        0.06205881014466286F,
        -0.025725778192281723F,
        0.009299659170210361F,
        -0.0028114537708461285F,
        0.0006715509807690978F,
        -0.00011871106835315004F,
        1.4328566066978965e-05F,
        -1.0413083373350673e-06F,
        3.408905158153175e-08F,
    };
    const vfloat t = vabs(x);
    const vfloat near = vmost(t, 5.75F);
    *out_bell = vexp(-0.5F * x * x);
    const vfloat tail = vpoly(near, p, 13) * *out_bell;
    return vselect_less(vzero(), x, 1.0F - tail, tail);
}

ALWAYS_INLINE vfloat vtanh(vfloat x)
{
    static const float p[5] = {-0.3333328366279602F, 0.13331490755081177F, -0.05374348908662796F,
                               0.02065056376159191F, -0.005717020947486162F};
    const vfloat t = vabs(x);
    const vfloat s = x * x;
    const vfloat small = vfma(vpoly(s, p, 5) * s, x, x);
    const vfloat large = vcopysign(1.0F - 2.0F / (vexp(t + t) + 1.0F), x);
    return vselect_less(vset1(0.625F), t, large, small);
}

/*
 * The sine of x + quarters * pi / 2. pi / 2 is taken away in three parts, of which the first two
 * have so few digits that up to 8192 their products with whole numbers are exact; what is larger
 * is the caller's.
 */
#define VEC_MAX_ANGLE 8192.0F

ALWAYS_INLINE vfloat vsine(vfloat x, int32_t quarters)
{
    static const float odd[3] = {-0.16666653752326965F, 0.008332149125635624F,
                                 -0.00019513620645739138F};
    static const float even[3] = {0.04166664555668831F, -0.001388730015605688F,
                                  2.44312577706296e-05F};
    const vfloat shifted = x * 0.636619772F + VEC_ROUND;
    const vfloat n = shifted - VEC_ROUND;
    vfloat r = vfma(n, vset1(-1.5703125F), x);
    r = vfma(n, vset1(-4.837512969970703125e-4F), r);
    r = vfma(n, vset1(-7.54978995489188216e-8F), r);
    const vfloat z = r * r;
    const vfloat sine = vfma(vpoly(z, odd, 3) * z, r, r);
    const vfloat cosine = vfma(vpoly(z, even, 3) * z, z, 1.0F - 0.5F * z);
    const vbits at = (vbits)vwhole(shifted) + (uint32_t)quarters;
    const vbits is_cosine = -(at & 1U);
    const vbits y = (is_cosine & (vbits)cosine) | (~is_cosine & (vbits)sine);
    return (vfloat)(y ^ ((at & 2U) << 30));
}

typedef float vquad __attribute__((vector_size(16)));
typedef int32_t vquad_int __attribute__((vector_size(16)));

/* The sum in a fixed order: halves upon each other. */
ALWAYS_INLINE float vsum(vfloat v)
{
    vquad part[VEC / 4];
    memcpy(part, &v, sizeof part);
    UNROLL
    for (int half = VEC / 8; half > 0; half /= 2) {
        UNROLL
        for (int i = 0; i < half; i++) {
            part[i] += part[i + half];
        }
    }
    const vquad both = part[0] + __builtin_shufflevector(part[0], part[0], 2, 3, 0, 1);
    return both[0] + both[1];
}

ALWAYS_INLINE vquad vquad_max(vquad a, vquad b)
{
    const vquad_int mask = a > b;
    return (vquad)(((vquad_int)a & mask) | ((vquad_int)b & ~mask));
}

ALWAYS_INLINE float vlargest(vfloat v)
{
    vquad part[VEC / 4];
    memcpy(part, &v, sizeof part);
    UNROLL
    for (int half = VEC / 8; half > 0; half /= 2) {
        UNROLL
        for (int i = 0; i < half; i++) {
            part[i] = vquad_max(part[i], part[i + half]);
        }
    }
    const vquad both = vquad_max(part[0], __builtin_shufflevector(part[0], part[0], 2, 3, 0, 1));
    return both[0] > both[1] ? both[0] : both[1];
}

#endif
