/*
 * constants.h - what the files that compute with constants share: a constant in memory.
 */
#ifndef DUNLIN_CONVERT_CONSTANTS_H
#define DUNLIN_CONVERT_CONSTANTS_H

#include "fold.h"

/* Numbers of a type of ONNX: FLOAT, INT64 or BOOL; others are read as one of these. */
typedef struct dunlin_constant {
    int32_t type;
    dunlin_shape shape;
    int64_t n;
    double *items;
    bool is_part; /* of an initialiser that may be a weight */
} dunlin_constant;

/* Room for the shape's elements. False: the node was rejected, or the import has failed. */
bool dunlin__constant_make(dunlin_onnx_node *node, int32_t type, const dunlin_shape *shape,
                           dunlin_constant *out);
void dunlin__constant_free(const dunlin_onnx_node *node, dunlin_constant *constant);
/* An initialiser of floats that may be a weight, or a part of one. */
bool dunlin__constant_may_be_weight(const dunlin_onnx_node *node, const dunlin_onnx_binding *input);
/* The input is a constant, read or computed, whose shape is known. */
bool dunlin__constant_is(const dunlin_onnx_node *node, uint32_t index);
/* It; false if it cannot be read, or after a failure. */
bool dunlin__constant_read(dunlin_onnx_node *node, uint32_t index, dunlin_constant *out);

/* masks.c: a parameter that is never trained, named after the node's output. NONE: the node was
 * rejected, or the import has failed. */
uint32_t dunlin__constant_param(dunlin_onnx_node *node, const char *suffix,
                                const dunlin_constant *from);

/* Of two constants that are broadcast: the common shape; false if there is none. */
bool dunlin__constant_join(const dunlin_shape *a, const dunlin_shape *b, dunlin_shape *out);
/* The constant repeated to the shape, to which it can be broadcast. */
bool dunlin__constant_spread(dunlin_onnx_node *node, const dunlin_constant *from,
                             const dunlin_shape *shape, dunlin_constant *out);

/*
 * constant_items.c: element by element; constant_moves.c: parts, joints, other shapes. True: `out`
 * is the result, or the node was rejected. False: the operator is none of these, or nothing is
 * known of it.
 */
bool dunlin__constant_items(dunlin_onnx_node *node, dunlin_constant *out);
bool dunlin__constant_moves(dunlin_onnx_node *node, dunlin_constant *out);
/* constant_scatter.c: elements put into others, or taken out, by their coordinates. Likewise. */
bool dunlin__constant_scatter(dunlin_onnx_node *node, dunlin_constant *out);

#endif
