/*
 * op.h - one row per operator: its shapes, its ONNX form, and the kernels that it puts into a step,
 * forward and backward.
 *
 * An operator is one file, ops/NAME.c, which defines its row; ops/table.c lists the rows.
 */
#ifndef DUNLIN_OPS_OP_H
#define DUNLIN_OPS_OP_H

#include "graph/emitter.h"
#include "onnx/node/node.h"

/* How inputs of two and three dimensions must lie; the reader of files rearranges those that do
 * not. */
typedef enum dunlin_op_wish {
    DUNLIN_WISH_NONE = 0, /* either way, or the row refuses what it cannot read */
    DUNLIN_WISH_PLAIN,
    DUNLIN_WISH_IMAGE,
    DUNLIN_WISH_ALIKE /* as images if one of them is one */
} dunlin_op_wish;

/* Of an operator with one input: whether an element of its output lies at a bound of a range just
 * where what it was made of did, so that a gradient may be masked by either. */
typedef enum dunlin_op_bounds {
    DUNLIN_BOUNDS_LOST = 0,
    DUNLIN_BOUNDS_KEPT,    /* it takes the largest, or moves elements */
    DUNLIN_BOUNDS_OF_ZERO, /* the bound 0 alone: it scales them, or drops them with their gradient
                            */
} dunlin_op_bounds;

typedef struct dunlin_op_row {
    dunlin_op_kind kind;
    const char *name; /* for reports: "conv" */
    const char *const
        *onnx_names; /* op types this row reads, NULL-terminated: {"Relu", "Clip", NULL} */

    /* In a fused step its output may be a part of a concatenation; may be clipped as it is stored.
     */
    bool stores_parts;
    bool stores_clipped;
    dunlin_op_wish wish;
    dunlin_op_bounds bounds;

    /* Sets the output value's shape and layout from the inputs'; checks parameters' shapes. MODEL
     * with a text. */
    dunlin_status (*infer_fn)(dunlin_net *net, dunlin_net_node *node, dunlin_error *error);

    /*
     * Fills `node` (kind, inputs, params and their layouts, attributes) from an ONNX node; or
     * rejects it. The reader has made the output value.
     */
    dunlin_status (*from_onnx_fn)(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node);
    void (*to_onnx_fn)(dunlin_onnx_writer *writer, const dunlin_net *net,
                       const dunlin_net_node *node);

    void (*forward_fn)(dunlin_emit *emit, const dunlin_net_node *node);
    /* Called in reverse order for nodes whose output has a gradient and that need one for an input
     * or a parameter. */
    void (*backward_fn)(dunlin_emit *emit, const dunlin_net_node *node);
} dunlin_op_row;

/* By kind; by ONNX op type (NULL if unknown). */
const dunlin_op_row *dunlin__op_row(dunlin_op_kind kind);
const dunlin_op_row *dunlin__op_row_for_onnx(const char *op_type);

#endif
