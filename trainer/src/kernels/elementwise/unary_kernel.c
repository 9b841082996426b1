/*
 * unary_kernel.c - one function applied to every element, and its gradient.
 *
 * Each element is read before it is written, so the output may be an input's memory.
 */
#include "kernels/gemm/gemm.h"
#include "kernels/simd/vecmath.h"

#include <math.h>

#define SQRT_2_OVER_PI 0.79788456F
#define INV_SQRT_2_PI 0.39894228F
#define GELU_CUBIC 0.044715F
#define ONE_SIXTH 0.16666667F
#define ONE_THIRD 0.33333334F
#define UNARY_AHEAD 1024 /* floats: functions take so long that few lines are under way else */

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
        return x / (1.0F + vexp(-x));
    case DUNLIN_UNARY_HARD_SIGMOID:
        return vclip(vfma(x, vset1(a), vset1(b)), vzero(), vset1(1.0F));
    case DUNLIN_UNARY_HARD_SWISH:
        return x * (vclip(x + 3.0F, vzero(), vset1(6.0F)) * ONE_SIXTH);
    }
    return x;
}

ALWAYS_INLINE vfloat hard_swish_slope(vfloat x)
{
    const vfloat low =
        vselect_less(x, vset1(-3.0F), vzero(), vfma(x, vset1(ONE_THIRD), vset1(0.5F)));
    return vselect_less(x, vset1(3.0F), low, vset1(1.0F));
}

/* The derivative, from x; of tanh, square root, sigmoid and hard sigmoid from the output. */
ALWAYS_INLINE vfloat slope_of(dunlin_unary_fn fn, float a, vfloat x)
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
    case DUNLIN_UNARY_SILU: {
        const vfloat s = 1.0F / (1.0F + vexp(-x));
        return s * vfma(x, 1.0F - s, vset1(1.0F));
    }
    case DUNLIN_UNARY_HARD_SIGMOID:
        return vmasked(vset1(a), x, vzero(), vset1(1.0F));
    case DUNLIN_UNARY_HARD_SWISH:
        return hard_swish_slope(x);
    }
    return x;
}

ALWAYS_INLINE void run_block(const dunlin_unary_call *call, dunlin_unary_fn fn, int64_t first,
                             int64_t end)
{
    const float *dy = call->dy;
    const float a = call->a;
    for (int64_t i = first; i < end; i += VEC) {
        const int32_t n = vec_left(end, i);
        __builtin_prefetch(call->x + i + UNARY_AHEAD, 0, 2);
        __builtin_prefetch(call->out + i + UNARY_AHEAD, 1, 3);
        const vfloat x = vload_n(call->x + i, n);
        vfloat y;
        if (dy == NULL) {
            y = value_of(fn, a, call->b, x);
        } else {
            __builtin_prefetch(dy + i + UNARY_AHEAD, 0, 2);
            y = vload_n(dy + i, n) * slope_of(fn, a, x);
        }
        vstore_n(call->out + i, y, n);
    }
}

static void unary_task(void *ctx, size_t task)
{
    const dunlin_unary_call *call = ctx;
    const int64_t first = (int64_t)task * TASK_BLOCK;
    const int64_t end = min_i64(call->n, first + TASK_BLOCK);
    switch (call->fn) {
    case DUNLIN_UNARY_AFFINE:
        run_block(call, DUNLIN_UNARY_AFFINE, first, end);
        break;
    case DUNLIN_UNARY_TANH:
        run_block(call, DUNLIN_UNARY_TANH, first, end);
        break;
    case DUNLIN_UNARY_ERF:
        run_block(call, DUNLIN_UNARY_ERF, first, end);
        break;
    case DUNLIN_UNARY_SQRT:
        run_block(call, DUNLIN_UNARY_SQRT, first, end);
        break;
    case DUNLIN_UNARY_POWER:
        run_block(call, DUNLIN_UNARY_POWER, first, end);
        break;
    case DUNLIN_UNARY_GELU:
        run_block(call, DUNLIN_UNARY_GELU, first, end);
        break;
    case DUNLIN_UNARY_GELU_TANH:
        run_block(call, DUNLIN_UNARY_GELU_TANH, first, end);
        break;
    case DUNLIN_UNARY_SIGMOID:
        run_block(call, DUNLIN_UNARY_SIGMOID, first, end);
        break;
    case DUNLIN_UNARY_LEAKY_RELU:
        run_block(call, DUNLIN_UNARY_LEAKY_RELU, first, end);
        break;
    case DUNLIN_UNARY_SILU:
        run_block(call, DUNLIN_UNARY_SILU, first, end);
        break;
    case DUNLIN_UNARY_HARD_SIGMOID:
        run_block(call, DUNLIN_UNARY_HARD_SIGMOID, first, end);
        break;
    case DUNLIN_UNARY_HARD_SWISH:
        run_block(call, DUNLIN_UNARY_HARD_SWISH, first, end);
        break;
    }
}

void K(unary)(const dunlin_unary_call *call)
{
    dunlin_unary_call copy = *call;
    run_tasks(call->threads, unary_task, &copy, ceil_div(call->n, TASK_BLOCK), call->n);
}
