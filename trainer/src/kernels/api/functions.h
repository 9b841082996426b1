/*
 * functions.h - the functions that elementwise operators apply, as the network and the kernels both
 * name them.
 */
#ifndef DUNLIN_KERNELS_FUNCTIONS_H
#define DUNLIN_KERNELS_FUNCTIONS_H

#include <stdbool.h>

/* y = f(x) with constants a and b. */
typedef enum dunlin_unary_fn {
    DUNLIN_UNARY_AFFINE = 0, /* a * x + b */
    DUNLIN_UNARY_TANH,
    DUNLIN_UNARY_ERF,
    DUNLIN_UNARY_SQRT,
    DUNLIN_UNARY_POWER,        /* x^a; not a number below 0 where a is not whole */
    DUNLIN_UNARY_GELU,         /* x * Phi(x), Phi by erf */
    DUNLIN_UNARY_GELU_TANH,    /* its approximation by tanh */
    DUNLIN_UNARY_SIGMOID,      /* 1 / (1 + e^-x) */
    DUNLIN_UNARY_LEAKY_RELU,   /* x above 0, else a * x */
    DUNLIN_UNARY_SILU,         /* x / (1 + e^-x) */
    DUNLIN_UNARY_HARD_SIGMOID, /* a * x + b within [0, 1] */
    DUNLIN_UNARY_HARD_SWISH,   /* x * ((x + 3) / 6 within [0, 1]) */
    DUNLIN_UNARY_ELU,          /* x above 0, else a * (e^x - 1) */
    DUNLIN_UNARY_SELU,         /* b * ELU(x) */
    DUNLIN_UNARY_CELU,         /* x above 0, else a * (e^(x / a) - 1); a is not 0 */
    DUNLIN_UNARY_SOFTPLUS,     /* log(1 + e^x) */
    DUNLIN_UNARY_SOFTSIGN,     /* x / (1 + |x|) */
    DUNLIN_UNARY_MISH,         /* x * tanh(softplus(x)) */
    DUNLIN_UNARY_ABS,
    DUNLIN_UNARY_EXP,
    DUNLIN_UNARY_LOG,
    DUNLIN_UNARY_SIN,
    DUNLIN_UNARY_COS,
    DUNLIN_UNARY_THRESHOLD, /* x above a, else 0 */
    DUNLIN_UNARY_SIGN,      /* -1, 0 or 1; its slope is 0 */
    DUNLIN_UNARY_ABS_POWER  /* |x|^a; its slope at 0 is 0 */
} dunlin_unary_fn;

/* What the view of a batch norm does to the normalised value. */
typedef enum dunlin_view_fn {
    DUNLIN_VIEW_CLIP = 0, /* to a range, which may be all numbers */
    DUNLIN_VIEW_HARD_SWISH,
    DUNLIN_VIEW_SILU
} dunlin_view_fn;

typedef enum dunlin_binary_fn {
    DUNLIN_BINARY_ADD = 0,
    DUNLIN_BINARY_SUB,
    DUNLIN_BINARY_MUL,
    DUNLIN_BINARY_DIV,
    DUNLIN_BINARY_MAX, /* the gradient is the larger one's; each has half of it where they tie */
    DUNLIN_BINARY_MIN
} dunlin_binary_fn;

/* Whether the derivative is made from the output, so that the input may die. */
static inline bool dunlin__unary_is_from_output(dunlin_unary_fn fn, float a, float b)
{
    switch (fn) {
    case DUNLIN_UNARY_TANH:
    case DUNLIN_UNARY_SQRT:
    case DUNLIN_UNARY_SIGMOID:
    case DUNLIN_UNARY_HARD_SIGMOID:
    case DUNLIN_UNARY_SOFTPLUS:
    case DUNLIN_UNARY_SOFTSIGN:
    case DUNLIN_UNARY_EXP:
        return true;
    case DUNLIN_UNARY_LEAKY_RELU: /* of these the constants must keep signs */
    case DUNLIN_UNARY_ELU:
    case DUNLIN_UNARY_CELU:
    case DUNLIN_UNARY_THRESHOLD:
        return a >= 0.0F;
    case DUNLIN_UNARY_SELU:
        return a >= 0.0F && b >= 0.0F;
    case DUNLIN_UNARY_AFFINE:
    case DUNLIN_UNARY_ERF:
    case DUNLIN_UNARY_POWER:
    case DUNLIN_UNARY_GELU:
    case DUNLIN_UNARY_GELU_TANH:
    case DUNLIN_UNARY_SILU:
    case DUNLIN_UNARY_HARD_SWISH:
    case DUNLIN_UNARY_MISH:
    case DUNLIN_UNARY_ABS:
    case DUNLIN_UNARY_LOG:
    case DUNLIN_UNARY_SIN:
    case DUNLIN_UNARY_COS:
    case DUNLIN_UNARY_SIGN:
    case DUNLIN_UNARY_ABS_POWER:
        break;
    }
    return false;
}

/* Over some dimensions of a sample. */
typedef enum dunlin_reduce_fn {
    DUNLIN_REDUCE_SUM = 0,
    DUNLIN_REDUCE_LARGEST, /* the gradient is shared evenly among those that are it */
    DUNLIN_REDUCE_SMALLEST,
    DUNLIN_REDUCE_L1,         /* sum of |x| */
    DUNLIN_REDUCE_L2,         /* root of the sum of squares; its gradient at 0 is 0 */
    DUNLIN_REDUCE_SUM_SQUARE, /* sum of x^2 */
    DUNLIN_REDUCE_LOG_SUM_EXP
} dunlin_reduce_fn;

#endif
