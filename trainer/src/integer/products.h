/*
 * products.h - a float step whose convolutions and dense layers multiply integers: the rows of such
 * a precision, in place of those of ops/.
 *
 * A product's operands are rounded to int8 as it begins, and its sums leave it as floats. Kept for
 * the backward pass is the rounded input. The gradient of the weights is an exact sum over the
 * whole batch, brought to float32 once; so is that of a bias, the sum of the rounded errors. Ranges
 * are those of the batches before (operand_ranges.h).
 */
#ifndef DUNLIN_INTEGER_PRODUCTS_H
#define DUNLIN_INTEGER_PRODUCTS_H

#include "graph/emit.h"
#include "product_kernels.h"

/* Where a node's ranges are in the table of all, in this order. */
enum { DUNLIN_PRODUCT_VALUES = 0, DUNLIN_PRODUCT_ERRORS, DUNLIN_PRODUCT_CHANNELS };

/* Tensors of a product; DUNLIN_STEP_NONE: not made. */
typedef struct dunlin_product {
    uint32_t first_range;
    uint32_t weights, weights_unit; /* int8, and a float */
    uint32_t values, values_unit;   /* int8, and a float an example */
} dunlin_product;

struct dunlin_products {
    const dunlin_precision *precision;
    dunlin_product *nodes; /* net->n_nodes */
    size_t n_nodes;
    uint32_t counts;            /* tensor; DUNLIN_STEP_NONE: nothing is counted */
    dunlin_product_link *links; /* ranges that a step counts */
    size_t n_links, links_capacity;
};

/* The ranges of a network's products, and a last one whose range says that a step has calibrated:
 * 1, else 0. */
size_t dunlin__products_n_ranges(const dunlin_precision *precision, const dunlin_net *net);

/* Before anything else of a step is emitted: the weights as integers. MEMORY in emit->status. */
void dunlin__products_open(dunlin_emit *emit, struct dunlin_products *products);
void dunlin__products_close(dunlin_emit *emit);

/* The current node, for which dunlin__emit_is_product() is true. */
void dunlin__products_forward(dunlin_emit *emit, const dunlin_net_node *node);
void dunlin__products_backward(dunlin_emit *emit, const dunlin_net_node *node);
/* After all nodes: the ranges of the next batch. */
void dunlin__products_emit_adapt(dunlin_emit *emit);

/* --- what both passes have --- */

/* A rounded copy of a batched tensor of floats, rows of `channels`. */
typedef struct dunlin_product_rounding {
    const dunlin_operand *operand;
    uint32_t first_range;
    uint32_t from;
    int64_t rows_per_sample, channels;
    const char *suffix;
    dunlin_mem_class mem_class;
} dunlin_product_rounding;

/* What it becomes: tensors. */
typedef struct dunlin_product_rounded {
    uint32_t tensor, units; /* units NONE: by channel */
    uint32_t low;           /* of pairs; NONE: never */
} dunlin_product_rounded;

dunlin_product_rounded dunlin__product_emit_rounding(dunlin_emit *emit,
                                                     const dunlin_product_rounding *of);
/* The current node's. */
dunlin_product *dunlin__product_of(const dunlin_emit *emit);
dunlin_conv_shape dunlin__product_shape(const dunlin_net *net, const dunlin_net_node *node);
double dunlin__product_flops(const dunlin_conv_shape *shape);
dunlin_product_params dunlin__product_begin(const dunlin_emit *emit,
                                            const dunlin_conv_shape *shape);

#endif
