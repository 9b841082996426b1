/*
 * functions.h - the functions that elementwise operators apply, as the network and the kernels both
 * name them.
 */
#ifndef DUNLIN_KERNELS_FUNCTIONS_H
#define DUNLIN_KERNELS_FUNCTIONS_H

/* y = f(x) with constants a and b. */
typedef enum dunlin_unary_fn {
    DUNLIN_UNARY_AFFINE = 0, /* a * x + b */
    DUNLIN_UNARY_TANH,
    DUNLIN_UNARY_ERF,
    DUNLIN_UNARY_SQRT,
    DUNLIN_UNARY_POWER,        /* x^a, a a multiple of 0.5 in [-8, 8] */
    DUNLIN_UNARY_GELU,         /* x * Phi(x), Phi by erf */
    DUNLIN_UNARY_GELU_TANH,    /* its approximation by tanh */
    DUNLIN_UNARY_SIGMOID,      /* 1 / (1 + e^-x) */
    DUNLIN_UNARY_LEAKY_RELU,   /* x above 0, else a * x */
    DUNLIN_UNARY_SILU,         /* x / (1 + e^-x) */
    DUNLIN_UNARY_HARD_SIGMOID, /* a * x + b within [0, 1] */
    DUNLIN_UNARY_HARD_SWISH    /* x * ((x + 3) / 6 within [0, 1]) */
} dunlin_unary_fn;

typedef enum dunlin_binary_fn {
    DUNLIN_BINARY_ADD = 0,
    DUNLIN_BINARY_SUB,
    DUNLIN_BINARY_MUL,
    DUNLIN_BINARY_DIV
} dunlin_binary_fn;

#endif
