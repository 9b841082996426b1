/*
 * net_double_moves.h - moves of images in double precision, for net_double.c.
 */
#ifndef DUNLIN_TESTS_NET_DOUBLE_MOVES_H
#define DUNLIN_TESTS_NET_DOUBLE_MOVES_H

#include "net_double.h"

/* Fills the output of a node of those operators; false: it is another one. */
bool net_double_run_moves(net_double *reference, const dunlin_net_node *node);

#endif
