/*
 * reduced.h - what the mean and the other reductions share: shapes with dimensions that are gone.
 */
#ifndef DUNLIN_OPS_REDUCED_H
#define DUNLIN_OPS_REDUCED_H

#include "ops/common/maps.h"

/* The shape with the dimensions that are reduced over as 1, and how many elements meet in one. */
dunlin_shape dunlin__reduced_shape(const dunlin_shape *x, uint32_t axes, int64_t *out_n);
/* Of the reduced value, or of a tensor that lies as it does: a place of `shape`, which is the one
 * above. */
dunlin_op_place dunlin__reduced_place(const dunlin_emit *emit, const dunlin_net_node *node,
                                      const dunlin_shape *shape, uint32_t tensor);
/* Checks the dimensions and sets the output's shape and layout. */
DUNLIN_NODISCARD dunlin_status dunlin__reduced_infer(dunlin_net *net, const dunlin_net_node *node,
                                                     uint32_t axes, bool keeps_dims,
                                                     dunlin_error *error);
/* Reads input, axes and keepdims. */
DUNLIN_NODISCARD dunlin_status dunlin__reduced_read(dunlin_onnx_node *onnx, const dunlin_net *net,
                                                    dunlin_net_node *node, uint32_t *out_axes,
                                                    bool *out_keeps_dims);
/* One node of the type, with axes as an attribute, or as an input. */
void dunlin__reduced_write(dunlin_onnx_writer *writer, const dunlin_net_node *node,
                           const char *op_type, uint32_t axes, bool keeps_dims);

#endif
