/*
 * outputs.h - the outputs of a network, and a network without some of its nodes.
 */
#ifndef DUNLIN_NET_OUTPUTS_H
#define DUNLIN_NET_OUTPUTS_H

#include "net.h"

/* 1 or more; the first is net->output. */
uint32_t dunlin__net_n_outputs(const dunlin_net *net);
uint32_t dunlin__net_output_at(const dunlin_net *net, uint32_t index);
/* Whether the value is one of them. */
bool dunlin__net_is_output(const dunlin_net *net, uint32_t value);

/* Of the ports those that are inputs; they come first. */
size_t dunlin__net_n_input_ports(const dunlin_net *net);

/* Nodes that are not dead and their values close ranks; inputs and outputs are not dead. `map` has
 * room for all values: where each has gone. Producers are not kept up; inference sets them. */
void dunlin__net_compact(dunlin_net *net, const bool *is_dead, uint32_t *map);

#endif
