/*
 * parts.h - the inputs of a network that has several.
 *
 * Invariant: the network has one input value, an example. Where it has several inputs they lie one
 * after another in it, in the order of the ports, and each is cut out by a slice and given its
 * shape by one node more, which makes the port's value. Nothing else reads the example
 * but to count its samples.
 */
#ifndef DUNLIN_NET_PARTS_H
#define DUNLIN_NET_PARTS_H

#include "net.h"

/* An input: its elements [first, first + n) of an example, as ONNX has them in order. */
typedef struct dunlin_net_part {
    uint32_t value; /* that layers read */
    const char *name;
    int64_t first, n;
} dunlin_net_part;

/* 1 or more. */
uint32_t dunlin__net_n_parts(const dunlin_net *net);
/* `index` is below that. */
dunlin_net_part dunlin__net_part_at(const dunlin_net *net, uint32_t index);

/* The node cuts an input out of an example of several. */
bool dunlin__net_cuts_input(const dunlin_net *net, const dunlin_net_node *node);

/*
 * Adds the nodes that cut elements [first, first + n) out of the example and make `value` of them,
 * of that shape and layout; neither is inferred. False when out of memory.
 */
bool dunlin__net_add_part(dunlin_net *net, uint32_t value, int64_t first, int64_t n,
                          const dunlin_shape *shape, dunlin_net_layout layout);

/* How many nodes that adds. */
#define DUNLIN_NET_PART_NODES 2

#endif
