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

/* Fewer classes are no vocabulary: their logits are small beside what else a network keeps. */
#define DUNLIN_NET_VOCABULARY 1024

/* The dense layer over the rows (tokens) of a sample that makes `output`, which nothing else reads,
 * if it has DUNLIN_NET_VOCABULARY classes or more and its weight is a table of embeddings besides
 * or nothing else: then the weight lies as ONNX has it, and a loss over the output may make the
 * product itself. Else DUNLIN_NET_NONE. The network is inferred. */
uint32_t dunlin__net_class_layer(const dunlin_net *net, uint32_t output);
/* The same of the network's own output, or of what a softmax makes it of. */
uint32_t dunlin__net_last_class_layer(const dunlin_net *net);

#endif
