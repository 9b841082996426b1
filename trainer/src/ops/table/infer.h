/*
 * infer.h - shape inference node by node, for those who build a network.
 */
#ifndef DUNLIN_OPS_INFER_H
#define DUNLIN_OPS_INFER_H

#include "net/net.h"

/*
 * Checks and infers one node whose inputs are already inferred; sets its output's shape and
 * producer and counts it as a consumer of its inputs.
 */
DUNLIN_NODISCARD dunlin_status dunlin__net_infer_node(dunlin_net *net, uint32_t node_index,
                                                      dunlin_error *error);

#endif
