/*
 * border.c - inputs and outputs of a graph being written: as the file had them that the network was
 * read from.
 *
 * Invariant: what the file's inputs are in the network is written under their names and types, and
 * nothing that is written reads the example that they were joined to. Whole numbers stay whole for
 * tables and are cast for all else.
 */
#include "net/outputs.h"
#include "onnx/wire/file.h"
#include "writer.h"

#include <stdio.h>

#define FLOAT_SUFFIX "/float"

/* --- what is an input --- */

/* The input of the file that the value is; NULL if it is none. The last ports are outputs. */
static const dunlin_net_port *input_of(const dunlin_net *net, uint32_t value)
{
    for (size_t i = 0; i < dunlin__net_n_input_ports(net); i++) {
        if (net->ports[i].value == value) {
            return &net->ports[i];
        }
    }
    return NULL;
}

bool dunlin__onnx_is_whole(const dunlin_net *net, uint32_t value)
{
    const dunlin_net_port *port = input_of(net, value);
    return port != NULL && port->type != DUNLIN_ONNX_FLOAT;
}

const char *dunlin__onnx_float_name(dunlin_onnx_writer *writer, uint32_t value,
                                    char room[DUNLIN_NET_MAX_NAME + 1])
{
    const char *name = writer->net->values[value].name;
    if (!dunlin__onnx_is_whole(writer->net, value)) {
        return name;
    }
    const int n = snprintf(room, DUNLIN_NET_MAX_NAME + 1, "%s" FLOAT_SUFFIX, name);
    writer->is_name_long = writer->is_name_long || n < 0 || n > DUNLIN_NET_MAX_NAME;
    return room;
}

/* --- casts --- */

/* A layer computes with the value; tables take whole numbers, ramps only count samples. */
static bool is_computed_with(const dunlin_net *net, uint32_t value)
{
    for (size_t i = 0; i < net->n_nodes; i++) {
        const dunlin_net_node *node = &net->nodes[i];
        const bool is_computing = node->kind != DUNLIN_OP_EMBEDDING && node->kind != DUNLIN_OP_RAMP;
        for (uint32_t k = 0; is_computing && k < node->n_inputs; k++) {
            if (node->inputs[k] == value) {
                return true;
            }
        }
    }
    return false;
}

void dunlin__onnx_put_casts(dunlin_onnx_writer *writer)
{
    const dunlin_net *net = writer->net;
    for (size_t i = 0; i < dunlin__net_n_input_ports(net); i++) {
        const dunlin_net_port *port = &net->ports[i];
        if (port->value == DUNLIN_NET_NONE || port->type == DUNLIN_ONNX_FLOAT ||
            !is_computed_with(net, port->value)) {
            continue;
        }
        char room[DUNLIN_NET_MAX_NAME + 1];
        const char *name = dunlin__onnx_float_name(writer, port->value, room);
        dunlin_onnx_buffer *node = &writer->node;
        dunlin_onnx_buffer *attribute = &writer->scratch;
        node->n = 0;
        attribute->n = 0;
        dunlin__onnx_put_text(node, NODE_INPUT, port->name);
        dunlin__onnx_put_text(node, NODE_OUTPUT, name);
        dunlin__onnx_put_text(node, NODE_NAME, name);
        dunlin__onnx_put_text(node, NODE_OP_TYPE, "Cast");
        dunlin__onnx_put_text(attribute, ATTRIBUTE_NAME, "to");
        dunlin__onnx_put_int(attribute, ATTRIBUTE_I, DUNLIN_ONNX_FLOAT);
        dunlin__onnx_put_int(attribute, ATTRIBUTE_TYPE, TYPE_INT);
        dunlin__onnx_put_message(node, NODE_ATTRIBUTE, attribute);
        dunlin__onnx_put_message(&writer->graph, GRAPH_NODE, node);
    }
}

/* --- inputs and outputs --- */

static void put_dim(dunlin_onnx_writer *writer, int64_t size, const char *name)
{
    dunlin_onnx_buffer *dim = &writer->inner;
    dim->n = 0;
    if (size > 0) {
        dunlin__onnx_put_int(dim, DIM_VALUE, size);
    } else if (name != NULL) {
        dunlin__onnx_put_text(dim, DIM_PARAM, name);
    }
    dunlin__onnx_put_message(&writer->scratch, SHAPE_DIM, dim);
}

static void put_port(dunlin_onnx_writer *writer, uint32_t field, const dunlin_net_port *port)
{
    dunlin_onnx_buffer *shape = &writer->scratch;
    dunlin_onnx_buffer *inner = &writer->inner;
    shape->n = 0;
    for (int32_t i = 0; i < port->shape.n_dims; i++) {
        put_dim(writer, port->shape.dims[i], port->dim_names[i]);
    }
    inner->n = 0;
    dunlin__onnx_put_int(inner, TENSOR_TYPE_ELEMENT, port->type);
    if (port->has_shape) {
        dunlin__onnx_put_message(inner, TENSOR_TYPE_SHAPE, shape);
    }
    shape->n = 0;
    dunlin__onnx_put_message(shape, TYPE_TENSOR, inner);
    inner->n = 0;
    dunlin__onnx_put_text(inner, INFO_NAME, port->name);
    dunlin__onnx_put_message(inner, INFO_TYPE, shape);
    dunlin__onnx_put_message(&writer->graph, field, inner);
}

/* (N, ...) float32. */
static dunlin_net_port port_of(const dunlin_net_value *value)
{
    dunlin_net_port port = {.name = value->name, .type = DUNLIN_ONNX_FLOAT, .has_shape = true};
    port.shape.n_dims = value->shape.n_dims + 1;
    port.shape.dims[0] = DUNLIN_ONNX_DYNAMIC;
    port.dim_names[0] = "N";
    for (int32_t i = 0; i < value->shape.n_dims; i++) {
        port.shape.dims[i + 1] = value->shape.dims[i];
    }
    return port;
}

/* An output as the file has it. A number that is no longer true, after the head was replaced, is
 * ours. */
static dunlin_net_port output_port(const dunlin_net *net, uint32_t index)
{
    const dunlin_net_port ours = port_of(&net->values[dunlin__net_output_at(net, index)]);
    if (net->n_ports == 0) {
        return ours;
    }
    dunlin_net_port port = net->ports[dunlin__net_n_input_ports(net) + index];
    port.type = DUNLIN_ONNX_FLOAT;
    if (!port.has_shape || port.shape.n_dims != ours.shape.n_dims) {
        return ours;
    }
    for (int32_t i = 1; i < port.shape.n_dims; i++) {
        if (port.shape.dims[i] > 0) {
            port.shape.dims[i] = ours.shape.dims[i];
        }
    }
    return port;
}

void dunlin__onnx_put_border(dunlin_onnx_writer *writer)
{
    const dunlin_net *net = writer->net;
    if (net->n_ports == 0) {
        const dunlin_net_port input = port_of(&net->values[net->input]);
        put_port(writer, GRAPH_INPUT, &input);
    }
    for (size_t i = 0; i < dunlin__net_n_input_ports(net); i++) {
        put_port(writer, GRAPH_INPUT, &net->ports[i]);
    }
    for (uint32_t i = 0; i < dunlin__net_n_outputs(net); i++) {
        const dunlin_net_port output = output_port(net, i);
        put_port(writer, GRAPH_OUTPUT, &output);
    }
}
