/*
 * pool_shapes.h - windows of pooling, as all its operators read, check and write them.
 */
#ifndef DUNLIN_OPS_POOL_SHAPES_H
#define DUNLIN_OPS_POOL_SHAPES_H

#include "ops/common/support.h"

/* The place of the largest element in its window is kept in one byte. */
#define DUNLIN_MAX_POOL_AREA 255
#define DUNLIN_MAX_POOL_PARTS 4

/* The window of a node of one of these operators over its input. */
dunlin_pool_shape dunlin__op_pool_shape(const dunlin_net *net, const dunlin_net_node *node);
/* Bytes a sample of the places of its maxima. */
int64_t dunlin__op_place_bytes(const dunlin_pool_shape *shape);
/* The output of such a node; MODEL if the padding is as large as the window, or no window fits. */
DUNLIN_NODISCARD dunlin_status dunlin__op_infer_pool(dunlin_net *net, dunlin_net_node *node,
                                                     dunlin_error *error);

/* The attributes and the input of an ONNX node that has a window, or one over all of the input. */
DUNLIN_NODISCARD dunlin_status dunlin__op_read_pool(dunlin_onnx_node *onnx, const dunlin_net *net,
                                                    dunlin_net_node *node);
DUNLIN_NODISCARD dunlin_status dunlin__op_read_global_pool(dunlin_onnx_node *onnx,
                                                           const dunlin_net *net,
                                                           dunlin_net_node *node);
void dunlin__op_write_pool_window(dunlin_onnx_writer *writer, const dunlin_net *net,
                                  const dunlin_net_node *node);

/* A window over all of an input of (channels, height, width) or (channels, length). */
dunlin_net_pool dunlin__op_global_window(const dunlin_shape *shape);

/*
 * The largest of a window of any area by windows of at most DUNLIN_MAX_POOL_AREA, one after the
 * other: along the width, then along the height; one that covers all of a long dimension in two
 * steps. The largest is the same, and so is which of several that tie: the first. Returns how many
 * they are; 0: the window cannot be made so, being longer than that area and not over everything,
 * or the input does not fit it.
 */
int dunlin__op_pool_parts(const dunlin_net_pool *pool, const dunlin_shape *in,
                          dunlin_net_pool parts[DUNLIN_MAX_POOL_PARTS]);

#endif
