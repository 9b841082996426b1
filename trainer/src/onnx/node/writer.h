/*
 * writer.h - what the files of the ONNX writer share: field numbers and the graph being written.
 */
#ifndef DUNLIN_ONNX_WRITER_H
#define DUNLIN_ONNX_WRITER_H

#include "net/net.h"
#include "node.h"
#include "onnx/wire/encode.h"

/* Field numbers: onnx.proto (ONNX, version 1.12). */
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OP_TYPE = 4, NODE_ATTRIBUTE = 5 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_F = 2, ATTRIBUTE_I = 3, ATTRIBUTE_S = 4, ATTRIBUTE_INTS = 8 };
enum { ATTRIBUTE_TYPE = 20, TYPE_FLOAT = 1, TYPE_INT = 2, TYPE_STRING = 3, TYPE_INTS = 7 };
enum { TENSOR_DIMS = 1, TENSOR_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { ELEMENT_FLOAT = 1, ELEMENT_INT8 = 3, ELEMENT_INT64 = 7 };
enum { INFO_NAME = 1, INFO_TYPE = 2, TYPE_TENSOR = 1, TENSOR_TYPE_ELEMENT = 1 };
enum { TENSOR_TYPE_SHAPE = 2, SHAPE_DIM = 1, DIM_VALUE = 1, DIM_PARAM = 2 };

struct dunlin_onnx_writer {
    const dunlin_net *net;
    const dunlin_onnx_scales *scales; /* NULL: float32 throughout */
    dunlin_onnx_buffer graph;         /* all of the graph but the parameters */
    dunlin_onnx_buffer constants;     /* scalars that nodes read, as initialisers */
    dunlin_onnx_buffer node;          /* being written: inputs, output, name, type */
    dunlin_onnx_buffer attributes;
    dunlin_onnx_buffer scratch, inner;
    const dunlin_net_node *net_node;
    const char *op_type;
    bool is_name_long; /* a made-up name passed the limit that readers of ours accept */
    const char *taken; /* a name of the network that a made-up one is, too; NULL: none */
};

/*
 * border.c. The inputs and the output: those of the file that the network was read from, else one
 * float32 (N, ...) each.
 */
void dunlin__onnx_put_border(dunlin_onnx_writer *writer);
/* Makes float32 of the inputs of whole numbers that layers compute with; before all other nodes. */
void dunlin__onnx_put_casts(dunlin_onnx_writer *writer);
/* The value is an input of whole numbers. */
bool dunlin__onnx_is_whole(const dunlin_net *net, uint32_t value);
/* The name of a value as float32. */
const char *dunlin__onnx_float_name(dunlin_onnx_writer *writer, uint32_t value,
                                    char room[DUNLIN_NET_MAX_NAME + 1]);

/* --- write_scales.c: nothing without scales --- */

/* The parameters as float32, and the network's input rounded; before all other nodes. */
void dunlin__onnx_put_scales(dunlin_onnx_writer *writer);
/* The current node's output is rounded: what it gives has this name, and the value its own behind
 * the rounding, which dunlin__onnx_put_rounded() writes. */
bool dunlin__onnx_is_rounded(const dunlin_onnx_writer *writer, uint32_t value);
const char *dunlin__onnx_sum_name(dunlin_onnx_writer *writer, uint32_t value,
                                  char room[DUNLIN_NET_MAX_NAME + 1]);
void dunlin__onnx_put_rounded(dunlin_onnx_writer *writer, uint32_t value);
/* What nodes read of a value that has this name in float32, and of a parameter. */
const char *dunlin__onnx_rounded_name(dunlin_onnx_writer *writer, uint32_t value, const char *name,
                                      char room[DUNLIN_NET_MAX_NAME + 1]);
const char *dunlin__onnx_param_name(dunlin_onnx_writer *writer, uint32_t param,
                                    char room[DUNLIN_NET_MAX_NAME + 1]);

#endif
