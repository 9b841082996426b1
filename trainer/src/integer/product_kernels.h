/*
 * product_kernels.h - what the ops of products compute; products.c puts them into a step.
 */
#ifndef DUNLIN_INTEGER_PRODUCT_KERNELS_H
#define DUNLIN_INTEGER_PRODUCT_KERNELS_H

#include "operand_ranges.h"

/* Ranges of one operand that a step counts. */
typedef struct dunlin_product_link {
    const dunlin_operand *operand;
    uint32_t first, n;
} dunlin_product_link;

/* Operands: weights, int8 weights, their unit. */
typedef struct dunlin_round_weights_params {
    int64_t n_elements;
    const dunlin_operand *operand;
} dunlin_round_weights_params;

/* Operands: floats, int8, ranges, then units an example, the low halves of pairs, and counts. */
typedef struct dunlin_round_params {
    dunlin_product_link link;
    int64_t rows_per_sample, channels;
    int32_t units_operand;  /* -1: by channel */
    int32_t low_operand;    /* -1: never pairs */
    int32_t counts_operand; /* -1: it does not count */
    bool is_training, is_backward;
    const char *name; /* of the node; the graph's copy */
} dunlin_round_params;

/*
 * Operands: values int8, their units, weights int8, their unit, output, bias. Of the error of the
 * input: errors int8, their units, weights int8, their unit, output, then low halves and ranges.
 */
typedef struct dunlin_product_params {
    dunlin_conv_shape shape;
    bool has_bias;
    bool may_be_wide; /* errors: they have low halves, in use if their range says so */
    uint32_t range;   /* of the errors */
    const dunlin_int_kernels *integers; /* whose workspace it is */
    int64_t batch;                      /* the most samples of a slice; 0: any number */
} dunlin_product_params;

/* Operands: values int8, errors int8, then sums of the weights and of the bias as far as they are
 * wanted, and of pairs the low halves, ranges, and as many sums again. */
typedef struct dunlin_product_sums_params {
    dunlin_product_params product;      /* first */
    int32_t sums_operand, bias_operand; /* -1: not wanted */
    int32_t low_operand;                /* -1: never pairs; ranges are the next one */
    int32_t low_sums_operand, low_bias_operand;
    bool has_wide_sums;
} dunlin_product_sums_params;

/* Operands: ranges, then sums, low sums and gradient of the weights, the same of the bias; without
 * pairs there are no low ones. */
typedef struct dunlin_product_close_params {
    const dunlin_operand *values, *errors;
    uint32_t values_range, errors_range; /* the first of the latter */
    int64_t n_weights, channels;
    bool has_weights, has_bias, has_wide_sums;
    bool may_be_wide; /* there are low sums */
    bool has_constant_gradients;
    uint32_t param; /* of the weights: a key of their rounding */
} dunlin_product_close_params;

/* Operands: ranges, counts. */
typedef struct dunlin_product_adapt_params {
    const dunlin_product_link *links; /* the graph's copy */
    size_t n_links;
} dunlin_product_adapt_params;

extern const dunlin_step_kernel dunlin__product_round_weights;
extern const dunlin_step_kernel dunlin__product_round;
extern const dunlin_step_kernel dunlin__product_round_counting;
extern const dunlin_step_kernel dunlin__product_forward;
extern const dunlin_step_kernel dunlin__product_error;
extern const dunlin_step_kernel dunlin__product_sums;
extern const dunlin_step_kernel dunlin__product_gradient;
extern const dunlin_step_kernel dunlin__product_adapt;

#endif
