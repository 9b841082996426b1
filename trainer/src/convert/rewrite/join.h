/*
 * join.h - what the files that join nodes share: a network whose nodes are replaced, before what is
 * not read any more is taken out.
 */
#ifndef DUNLIN_CONVERT_JOIN_H
#define DUNLIN_CONVERT_JOIN_H

#include "net/net.h"

typedef struct dunlin_joiner {
    dunlin_net *net;
    bool *is_dead; /* nodes */
} dunlin_joiner;

/* `node` becomes `made`, under its own name and with its own output. */
void dunlin__join_replace(const dunlin_joiner *j, dunlin_net_node *node,
                          const dunlin_net_node *made);

/* join_moves.c: reshapes, transpositions and rearrangements in a row are one. */
void dunlin__join_moves(const dunlin_joiner *j, dunlin_net_node *node);
/* A convolution without bias, and a stored number a channel that is added to it. */
bool dunlin__join_conv_bias(const dunlin_joiner *j, dunlin_net_node *node);

#endif
