/*
 * pool_fused.h - pooling in a fused step, forward and backward: from a view, into a sink.
 */
#ifndef DUNLIN_OPS_POOL_FUSED_H
#define DUNLIN_OPS_POOL_FUSED_H

#include "graph/fused.h"

void dunlin__op_emit_fused_pool(dunlin_emit *emit, const dunlin_net_node *node,
                                const dunlin_pool_shape *shape);
void dunlin__op_emit_fused_pool_grad(dunlin_emit *emit, const dunlin_net_node *node,
                                     const dunlin_pool_shape *shape);

#endif
