/*
 * unary_kernel.c - one function applied to every element, and its gradient.
 *
 * Each element is read before it is written, so the output may be an input's memory.
 */
#include "kernels/gemm/gemm.h"
#include "kernels/simd/vecact.h"
#include "kernels/simd/vecpow.h"

#include <math.h>

#define SQRT_2_OVER_PI 0.79788456F
#define INV_SQRT_2_PI 0.39894228F
#define GELU_CUBIC 0.044715F
#define MAX_PLAIN_POWER 8.0F
#define LINE 16 /* floats of a cache line: a whole number of vectors */

/* Square roots are the compiler's, which are correctly rounded. */
ALWAYS_INLINE vfloat vsqrt(vfloat x)
{
    vfloat y = vzero();
    UNROLL
    for (int i = 0; i < VEC; i++) {
        y[i] = sqrtf(x[i]);
    }
    return y;
}

/* x^a for a multiple of 0.5: products, a root, one division. */
ALWAYS_INLINE vfloat power(vfloat x, float a)
{
    const float size = a < 0.0F ? -a : a;
    const int32_t whole = (int32_t)size;
    vfloat y = (float)whole == size ? vset1(1.0F) : vsqrt(x);
    for (int32_t i = 0; i < whole; i++) {
        y *= x;
    }
    return a < 0.0F ? 1.0F / y : y;
}

/* Above 0 by, below it below * (e^(factor * x) - 1): ELU and its kin. */
typedef struct elu_constants {
    float by, below, factor;
} elu_constants;

ALWAYS_INLINE elu_constants elu_of(dunlin_unary_fn fn, float a, float b)
{
    return (elu_constants){.by = fn == DUNLIN_UNARY_SELU ? b : 1.0F,
                           .below = fn == DUNLIN_UNARY_SELU ? a * b : a,
                           .factor = fn == DUNLIN_UNARY_CELU ? 1.0F / a : 1.0F};
}

ALWAYS_INLINE vfloat elu(elu_constants c, vfloat x)
{
    return vselect_less(vzero(), x, c.by * x, c.below * vexpm1(c.factor * x));
}

ALWAYS_INLINE vfloat elu_slope(elu_constants c, bool is_from_output, vfloat x)
{
    const vfloat below =
        is_from_output ? c.factor * (x + c.below) : c.factor * c.below * vexp(c.factor * x);
    return vselect_less(vzero(), x, vset1(c.by), below);
}

/* With e = e^x: tanh(log(1 + e)) = n / (n + 2), n = e (e + 2). */
ALWAYS_INLINE vfloat mish_gate(vfloat x, vfloat *out_e, vfloat *out_below)
{
    const vfloat e = vexp(vmost(x, 20.0F)); /* beyond it is 1 */
    const vfloat n = e * (e + 2.0F);
    *out_e = e;
    *out_below = 1.0F / (n + 2.0F);
    return n * *out_below;
}

ALWAYS_INLINE vfloat mish(vfloat x)
{
    vfloat e;
    vfloat below;
    return x * mish_gate(x, &e, &below);
}

ALWAYS_INLINE vfloat mish_slope(vfloat x)
{
    vfloat e;
    vfloat below;
    const vfloat gate = mish_gate(x, &e, &below);
    return vfma(x * below, 4.0F * e * (e + 1.0F) * below, gate);
}

ALWAYS_INLINE vfloat softplus(vfloat x)
{
    return vmax(x, vzero()) + vlog1p_near(vexp(-vabs(x)));
}

/* Angles that are too large for vectors one by one, as the C library has it. */
ALWAYS_INLINE vfloat sine(vfloat x, int32_t quarters)
{
    vfloat y = vsine(x, quarters);
    if (vlargest(vabs(x)) > VEC_MAX_ANGLE) {
        for (int i = 0; i < VEC; i++) {
            if (fabsf(x[i]) > VEC_MAX_ANGLE) {
                const double size = quarters % 2 == 0 ? sin((double)x[i]) : cos((double)x[i]);
                y[i] = (float)(quarters < 2 ? size : -size);
            }
        }
    }
    return y;
}

/* Zero where x is not above `limit`; not-a-number passes. */
ALWAYS_INLINE vfloat above(vfloat x, float limit, vfloat v)
{
    const vint is_below = x <= vset1(limit);
    return (vfloat)((vint)v & ~is_below);
}

/* v with the sign of x as a factor; 0 where x is 0. */
ALWAYS_INLINE vfloat signed_by(vfloat x, vfloat v)
{
    const vint is_zero = x == vzero();
    return (vfloat)((vint)(v * vcopysign(vset1(1.0F), x)) & ~is_zero);
}

ALWAYS_INLINE vfloat gelu_inner(vfloat x)
{
    return SQRT_2_OVER_PI * vfma(GELU_CUBIC * x * x, x, x);
}

ALWAYS_INLINE vfloat value_of(dunlin_unary_fn fn, float a, float b, vfloat x)
{
    vfloat bell;
    switch (fn) {
    case DUNLIN_UNARY_AFFINE:
        return vfma(x, vset1(a), vset1(b));
    case DUNLIN_UNARY_TANH:
        return vtanh(x);
    case DUNLIN_UNARY_ERF:
        return verf(x);
    case DUNLIN_UNARY_SQRT:
        return vsqrt(x);
    case DUNLIN_UNARY_POWER:
        return power(x, a);
    case DUNLIN_UNARY_GELU:
        return x * vnormal(x, &bell);
    case DUNLIN_UNARY_GELU_TANH:
        return 0.5F * x * (1.0F + vtanh(gelu_inner(x)));
    case DUNLIN_UNARY_SIGMOID:
        return 1.0F / (1.0F + vexp(-x));
    case DUNLIN_UNARY_LEAKY_RELU:
        return vselect_less(vzero(), x, x, a * x);
    case DUNLIN_UNARY_SILU:
        return vsilu(x);
    case DUNLIN_UNARY_HARD_SIGMOID:
        return vclip(vfma(x, vset1(a), vset1(b)), vzero(), vset1(1.0F));
    case DUNLIN_UNARY_HARD_SWISH:
        return vhard_swish(x);
    case DUNLIN_UNARY_ELU:
    case DUNLIN_UNARY_SELU:
    case DUNLIN_UNARY_CELU:
        return elu(elu_of(fn, a, b), x);
    case DUNLIN_UNARY_SOFTPLUS:
        return softplus(x);
    case DUNLIN_UNARY_SOFTSIGN:
        return x / (1.0F + vabs(x));
    case DUNLIN_UNARY_MISH:
        return mish(x);
    case DUNLIN_UNARY_ABS:
        return vabs(x);
    case DUNLIN_UNARY_EXP:
        return vexp_all(x);
    case DUNLIN_UNARY_LOG:
        return vlog(x);
    case DUNLIN_UNARY_SIN:
        return sine(x, 0);
    case DUNLIN_UNARY_COS:
        return sine(x, 1);
    case DUNLIN_UNARY_THRESHOLD:
        return above(x, a, x);
    case DUNLIN_UNARY_SIGN:
        return (vfloat)((vint)vcopysign(vset1(1.0F), x) & ((x < vzero()) | (x > vzero())));
    case DUNLIN_UNARY_ABS_POWER:
        return power(vabs(x), a);
    }
    return x;
}

/* The derivative, from x, which is the output if dunlin__unary_is_from_output(). */
ALWAYS_INLINE vfloat slope_of(dunlin_unary_fn fn, float a, float b, vfloat x)
{
    vfloat bell;
    switch (fn) {
    case DUNLIN_UNARY_AFFINE:
        return vset1(a);
    case DUNLIN_UNARY_TANH:
        return 1.0F - x * x;
    case DUNLIN_UNARY_ERF:
        return 1.12837917F * vexp(-x * x);
    case DUNLIN_UNARY_SQRT:
        return 0.5F / x;
    case DUNLIN_UNARY_POWER:
        return a == 0.0F ? vzero() : a * power(x, a - 1.0F);
    case DUNLIN_UNARY_GELU: {
        const vfloat below = vnormal(x, &bell);
        return vfma(x * INV_SQRT_2_PI, bell, below);
    }
    case DUNLIN_UNARY_GELU_TANH: {
        const vfloat t = vtanh(gelu_inner(x));
        const vfloat inner = SQRT_2_OVER_PI * vfma(3.0F * GELU_CUBIC * x, x, vset1(1.0F));
        return 0.5F * vfma(x * inner, 1.0F - t * t, 1.0F + t);
    }
    case DUNLIN_UNARY_SIGMOID:
        return x * (1.0F - x);
    case DUNLIN_UNARY_LEAKY_RELU: /* from the output, too: with a >= 0 it is above 0 where x is */
        return vselect_less(vzero(), x, vset1(1.0F), vset1(a));
    case DUNLIN_UNARY_SILU:
        return vsilu_slope(x);
    case DUNLIN_UNARY_HARD_SIGMOID:
        return vmasked(vset1(a), x, vzero(), vset1(1.0F));
    case DUNLIN_UNARY_HARD_SWISH:
        return vhard_swish_slope(x);
    case DUNLIN_UNARY_ELU:
    case DUNLIN_UNARY_SELU:
    case DUNLIN_UNARY_CELU:
        return elu_slope(elu_of(fn, a, b), dunlin__unary_is_from_output(fn, a, b), x);
    case DUNLIN_UNARY_SOFTPLUS: /* the sigmoid */
        return -vexpm1(-x);
    case DUNLIN_UNARY_SOFTSIGN: {
        const vfloat rest = 1.0F - vabs(x);
        return rest * rest;
    }
    case DUNLIN_UNARY_MISH:
        return mish_slope(x);
    case DUNLIN_UNARY_ABS:
        return (vfloat)((vint)vcopysign(vset1(1.0F), x) & ((x < vzero()) | (x > vzero())));
    case DUNLIN_UNARY_EXP:
        return x;
    case DUNLIN_UNARY_LOG:
        return 1.0F / x;
    case DUNLIN_UNARY_SIN:
        return sine(x, 1);
    case DUNLIN_UNARY_COS:
        return sine(x, 2);
    case DUNLIN_UNARY_THRESHOLD:
        return above(x, a, vset1(1.0F));
    case DUNLIN_UNARY_SIGN:
        return vzero();
    case DUNLIN_UNARY_ABS_POWER:
        return signed_by(x, a * power(vabs(x), a - 1.0F));
    }
    return x;
}

/* Powers that power() makes. */
static bool is_plain_power(float a)
{
    return fabsf(a) <= MAX_PLAIN_POWER && floorf(2.0F * a) == 2.0F * a;
}

/* Any other, which is never 0. */
static void run_any_power(const dunlin_unary_call *call, int64_t first, int64_t end)
{
    const float *dy = call->dy;
    const double a = (double)call->a;
    const bool is_of_size = call->fn == DUNLIN_UNARY_ABS_POWER;
    for (int64_t i = first; i < end; i += VEC) {
        const int32_t n = vec_left(end, i);
        const vfloat x = vload_n(call->x + i, n);
        const vfloat base = is_of_size ? vabs(x) : x;
        if (dy == NULL) {
            vstore_n(call->out + i, vpow(base, a), n);
            continue;
        }
        const vfloat slope = call->a * vpow(base, a - 1.0);
        vstore_n(call->out + i, vload_n(dy + i, n) * (is_of_size ? signed_by(x, slope) : slope), n);
    }
}

/* The vector at i, or its first n elements. */
ALWAYS_INLINE void run_vector(const dunlin_unary_call *call, dunlin_unary_fn fn, float a, int64_t i,
                              int32_t n)
{
    const vfloat x = vload_n(call->x + i, n);
    const vfloat y = call->dy == NULL ? value_of(fn, a, call->b, x)
                                      : vload_n(call->dy + i, n) * slope_of(fn, a, call->b, x);
    vstore_n(call->out + i, y, n);
}

ALWAYS_INLINE void run_block(const dunlin_unary_call *call, dunlin_unary_fn fn, float a,
                             int64_t first, int64_t end)
{
    int64_t i = first;
    for (; i + LINE <= end; i += LINE) {
        UNROLL
        for (int k = 0; k < LINE; k += VEC) {
            run_vector(call, fn, a, i + k, VEC);
        }
    }
    for (; i < end; i += VEC) {
        run_vector(call, fn, a, i, vec_left(end, i));
    }
}

/* Each function has a loop with it inlined. */
#define RUN_CASE(fn)                                                                               \
    case fn:                                                                                       \
        run_block(&call, fn, call.a, first, end);                                                  \
        break

static void unary_task(void *ctx, size_t task)
{
    const dunlin_unary_call call = *(const dunlin_unary_call *)ctx; /* nothing stored can be it */
    const int64_t first = (int64_t)task * TASK_BLOCK;
    const int64_t end = min_i64(call.n, first + TASK_BLOCK);
    switch (call.fn) {
        RUN_CASE(DUNLIN_UNARY_AFFINE);
        RUN_CASE(DUNLIN_UNARY_TANH);
        RUN_CASE(DUNLIN_UNARY_ERF);
        RUN_CASE(DUNLIN_UNARY_SQRT);
        RUN_CASE(DUNLIN_UNARY_GELU);
        RUN_CASE(DUNLIN_UNARY_GELU_TANH);
        RUN_CASE(DUNLIN_UNARY_SIGMOID);
        RUN_CASE(DUNLIN_UNARY_LEAKY_RELU);
        RUN_CASE(DUNLIN_UNARY_SILU);
        RUN_CASE(DUNLIN_UNARY_HARD_SIGMOID);
        RUN_CASE(DUNLIN_UNARY_HARD_SWISH);
        RUN_CASE(DUNLIN_UNARY_ELU);
        RUN_CASE(DUNLIN_UNARY_SELU);
        RUN_CASE(DUNLIN_UNARY_CELU);
        RUN_CASE(DUNLIN_UNARY_SOFTPLUS);
        RUN_CASE(DUNLIN_UNARY_SOFTSIGN);
        RUN_CASE(DUNLIN_UNARY_MISH);
        RUN_CASE(DUNLIN_UNARY_ABS);
        RUN_CASE(DUNLIN_UNARY_EXP);
        RUN_CASE(DUNLIN_UNARY_LOG);
        RUN_CASE(DUNLIN_UNARY_SIN);
        RUN_CASE(DUNLIN_UNARY_COS);
        RUN_CASE(DUNLIN_UNARY_THRESHOLD);
        RUN_CASE(DUNLIN_UNARY_SIGN);
    case DUNLIN_UNARY_ABS_POWER:
        if (is_plain_power(call.a)) {
            run_block(&call, DUNLIN_UNARY_ABS_POWER, call.a, first, end);
        } else {
            run_any_power(&call, first, end);
        }
        break;
    case DUNLIN_UNARY_POWER:
        if (call.a == 2.0F) {
            run_block(&call, DUNLIN_UNARY_POWER, 2.0F, first, end);
        } else if (is_plain_power(call.a)) {
            run_block(&call, DUNLIN_UNARY_POWER, call.a, first, end);
        } else {
            run_any_power(&call, first, end);
        }
        break;
    }
}

void K(unary)(const dunlin_unary_call *call)
{
    dunlin_unary_call copy = *call;
    run_tasks(call->threads, unary_task, &copy, ceil_div(call->n, TASK_BLOCK), call->n);
}
