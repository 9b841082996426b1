/*
 * join.h - what the files that join nodes share: a network whose nodes are replaced, before what is
 * not read any more is taken out.
 */
#ifndef DUNLIN_CONVERT_JOIN_H
#define DUNLIN_CONVERT_JOIN_H

#include "net/net.h"

#include <math.h>

typedef struct dunlin_joiner {
    dunlin_net *net;
    bool *is_dead; /* nodes */
} dunlin_joiner;

/* `node` becomes `made`, under its own name and with its own output. */
void dunlin__join_replace(const dunlin_joiner *j, dunlin_net_node *node,
                          const dunlin_net_node *made);

/* Nothing reads the node: it goes, and so does what it alone read. */
void dunlin__join_drop(const dunlin_joiner *j, const dunlin_net_node *node);

/* join_moves.c: reshapes, transpositions and rearrangements in a row are one. */
void dunlin__join_moves(const dunlin_joiner *j, dunlin_net_node *node);
/* A convolution without bias, and a stored number a channel that is added to it. */
bool dunlin__join_conv_bias(const dunlin_joiner *j, dunlin_net_node *node);
/* pads.c: zeros before a convolution or an average are its own padding. */
bool dunlin__join_pads(const dunlin_joiner *j, dunlin_net_node *node);

/* join_pools.c: the p-norm of windows, local response normalisation. */
bool dunlin__join_pools(const dunlin_joiner *j, dunlin_net_node *node);

/* join_attention.c: products, masks and a softmax over heads are one attention. */
bool dunlin__join_attention(const dunlin_joiner *j, dunlin_net_node *node);

/* join_functions.c: functions of one element. */
bool dunlin__join_function(const dunlin_joiner *j, dunlin_net_node *node);

static inline dunlin_net_node *join_producer(const dunlin_joiner *j, uint32_t value)
{
    const uint32_t node = j->net->values[value].producer;
    return node == DUNLIN_NET_NONE ? NULL : &j->net->nodes[node];
}

/* The node that makes the value, if it is of this kind and nothing else reads the value. */
static inline dunlin_net_node *join_sole(const dunlin_joiner *j, uint32_t value,
                                         dunlin_op_kind kind)
{
    dunlin_net_node *node = join_producer(j, value);
    return node != NULL && node->kind == kind && j->net->values[value].n_consumers == 1 ? node
                                                                                        : NULL;
}

static inline dunlin_net_node *join_unary(const dunlin_joiner *j, uint32_t value,
                                          dunlin_unary_fn fn)
{
    dunlin_net_node *node = join_sole(j, value, DUNLIN_OP_UNARY);
    return node != NULL && node->u.unary.fn == fn ? node : NULL;
}

static inline dunlin_net_node *join_binary(const dunlin_joiner *j, uint32_t value,
                                           dunlin_binary_fn fn, uint32_t n_inputs)
{
    dunlin_net_node *node = join_sole(j, value, DUNLIN_OP_BINARY);
    return node != NULL && node->u.binary.fn == fn && node->n_inputs == n_inputs ? node : NULL;
}

static inline bool join_is_near(float a, double b)
{
    return fabs((double)a - b) <= 1e-4 * fabs(b);
}

static inline bool join_is_affine(const dunlin_net_node *node, double a, double b)
{
    return node->kind == DUNLIN_OP_UNARY && node->u.unary.fn == DUNLIN_UNARY_AFFINE &&
           join_is_near(node->u.unary.a, a) && join_is_near(node->u.unary.b, b);
}

#endif
