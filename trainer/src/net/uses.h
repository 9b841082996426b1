/*
 * uses.h - what a network uses its parameters for.
 */
#ifndef DUNLIN_NET_USES_H
#define DUNLIN_NET_USES_H

#include "net.h"

#include <dunlin/parameters.h>

/* Looks through the nodes until one reads the parameter. */
dunlin_parameter_use dunlin__net_use(const dunlin_net *net, uint32_t param);

/* The dense layer or 1 x 1 convolution that the network ends with, if only layers that keep the
 * number of channels follow it; NULL if there is none. */
const dunlin_net_node *dunlin__net_head(const dunlin_net *net);

#endif
