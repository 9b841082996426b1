/*
 * net_double_tokens.h - the operators of transformers in double precision, for net_double.c.
 */
#ifndef DUNLIN_TESTS_NET_DOUBLE_TOKENS_H
#define DUNLIN_TESTS_NET_DOUBLE_TOKENS_H

#include "net_double.h"

/* Fills the output of a node of those operators; false: it is another one. */
bool net_double_run_tokens(net_double *reference, const dunlin_net_node *node);

#endif
