/*
 * write_node.c - one node of an ONNX graph being written, as the operators' rows put it together.
 */
#include "writer.h"

#include <stdio.h>
#include <string.h>

void dunlin__onnx_begin_node(dunlin_onnx_writer *writer, const char *op_type,
                             const dunlin_net_node *node)
{
    writer->node.n = 0;
    writer->attributes.n = 0;
    writer->net_node = node;
    writer->op_type = op_type;
}

void dunlin__onnx_add_value(dunlin_onnx_writer *writer, uint32_t value)
{
    char room[DUNLIN_NET_MAX_NAME + 1];
    const char *name = dunlin__onnx_float_name(writer, value, room);
    char rounded[DUNLIN_NET_MAX_NAME + 1];
    dunlin__onnx_put_text(&writer->node, NODE_INPUT,
                          dunlin__onnx_rounded_name(writer, value, name, rounded));
}

void dunlin__onnx_add_samples(dunlin_onnx_writer *writer)
{
    const dunlin_net *net = writer->net;
    const char *name = net->n_ports > 1 ? net->ports[0].name : net->values[net->input].name;
    dunlin__onnx_put_text(&writer->node, NODE_INPUT, name);
}

bool dunlin__onnx_add_ids(dunlin_onnx_writer *writer, uint32_t value)
{
    if (!dunlin__onnx_is_whole(writer->net, value)) {
        return false;
    }
    dunlin__onnx_put_text(&writer->node, NODE_INPUT, writer->net->values[value].name);
    return true;
}

void dunlin__onnx_add_param(dunlin_onnx_writer *writer, uint32_t param)
{
    char room[DUNLIN_NET_MAX_NAME + 1];
    const char *name = param == DUNLIN_NET_NONE ? "" : dunlin__onnx_param_name(writer, param, room);
    dunlin__onnx_put_text(&writer->node, NODE_INPUT, name);
}

/* The name of something that is added for a node: its output's name and a suffix. */
static const char *made_name_of(dunlin_onnx_writer *writer, const dunlin_net_node *node,
                                const char *suffix, char name[DUNLIN_NET_MAX_NAME + 1])
{
    const char *output = writer->net->values[node->output].name;
    int length = snprintf(name, DUNLIN_NET_MAX_NAME + 1, "%s%s", output, suffix);
    writer->is_name_long = writer->is_name_long || length < 0 || length > DUNLIN_NET_MAX_NAME;
    return name;
}

static const char *made_name(dunlin_onnx_writer *writer, const char *suffix,
                             char name[DUNLIN_NET_MAX_NAME + 1])
{
    return made_name_of(writer, writer->net_node, suffix, name);
}

static void put_le(uint8_t *bytes, uint64_t bits, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)(bits >> (8 * i));
    }
}

void dunlin__onnx_add_scalar(dunlin_onnx_writer *writer, const char *suffix, float value)
{
    char room[DUNLIN_NET_MAX_NAME + 1];
    const char *name = made_name(writer, suffix, room);
    dunlin__onnx_put_text(&writer->node, NODE_INPUT, name);

    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    uint8_t bytes[sizeof bits];
    put_le(bytes, bits, sizeof bits);
    dunlin_onnx_buffer *tensor = &writer->scratch;
    tensor->n = 0;
    dunlin__onnx_put_int(tensor, TENSOR_TYPE, ELEMENT_FLOAT);
    dunlin__onnx_put_text(tensor, TENSOR_NAME, name);
    dunlin__onnx_put_length(tensor, TENSOR_RAW, sizeof bytes);
    dunlin__onnx_put_raw(tensor, bytes, sizeof bytes);
    dunlin__onnx_put_message(&writer->constants, GRAPH_INITIALIZER, tensor);
}

void dunlin__onnx_add_floats(dunlin_onnx_writer *writer, const char *suffix, const float *values,
                             int32_t n)
{
    char room[DUNLIN_NET_MAX_NAME + 1];
    const char *name = made_name(writer, suffix, room);
    dunlin__onnx_put_text(&writer->node, NODE_INPUT, name);
    dunlin_onnx_buffer *tensor = &writer->scratch;
    tensor->n = 0;
    dunlin__onnx_put_int(tensor, TENSOR_DIMS, n);
    dunlin__onnx_put_int(tensor, TENSOR_TYPE, ELEMENT_FLOAT);
    dunlin__onnx_put_text(tensor, TENSOR_NAME, name);
    dunlin__onnx_put_length(tensor, TENSOR_RAW, (uint64_t)n * sizeof(float));
    for (int32_t i = 0; i < n; i++) {
        uint32_t bits = 0;
        uint8_t bytes[sizeof bits];
        memcpy(&bits, &values[i], sizeof bits);
        put_le(bytes, bits, sizeof bytes);
        dunlin__onnx_put_raw(tensor, bytes, sizeof bytes);
    }
    dunlin__onnx_put_message(&writer->constants, GRAPH_INITIALIZER, tensor);
}

static void put_made_ints(dunlin_onnx_writer *writer, const char *suffix,
                          dunlin_onnx_int_fn value_fn, const void *ctx, int32_t n, bool is_list)
{
    char room[DUNLIN_NET_MAX_NAME + 1];
    const char *name = made_name(writer, suffix, room);
    dunlin__onnx_put_text(&writer->node, NODE_INPUT, name);
    dunlin_onnx_buffer *tensor = &writer->scratch;
    tensor->n = 0;
    if (is_list) {
        dunlin__onnx_put_int(tensor, TENSOR_DIMS, n);
    }
    dunlin__onnx_put_int(tensor, TENSOR_TYPE, ELEMENT_INT64);
    dunlin__onnx_put_text(tensor, TENSOR_NAME, name);
    dunlin__onnx_put_length(tensor, TENSOR_RAW, (uint64_t)n * sizeof(int64_t));
    for (int32_t i = 0; i < n; i++) {
        uint8_t bytes[sizeof(int64_t)];
        put_le(bytes, (uint64_t)value_fn(ctx, i), sizeof bytes);
        dunlin__onnx_put_raw(tensor, bytes, sizeof bytes);
    }
    dunlin__onnx_put_message(&writer->constants, GRAPH_INITIALIZER, tensor);
}

void dunlin__onnx_add_made_ints(dunlin_onnx_writer *writer, const char *suffix,
                                dunlin_onnx_int_fn value_fn, const void *ctx, int32_t n)
{
    put_made_ints(writer, suffix, value_fn, ctx, n, true);
}

static int64_t listed_int(const void *ctx, int32_t index)
{
    const int64_t *values = ctx;
    return values[index];
}

void dunlin__onnx_add_ints(dunlin_onnx_writer *writer, const char *suffix, const int64_t *values,
                           int32_t n)
{
    dunlin__onnx_add_made_ints(writer, suffix, listed_int, values, n);
}

void dunlin__onnx_add_whole(dunlin_onnx_writer *writer, const char *suffix, int64_t value)
{
    put_made_ints(writer, suffix, listed_int, &value, 1, false);
}

void dunlin__onnx_add_part(dunlin_onnx_writer *writer, const char *suffix)
{
    char room[DUNLIN_NET_MAX_NAME + 1];
    dunlin__onnx_put_text(&writer->node, NODE_INPUT, made_name(writer, suffix, room));
}

void dunlin__onnx_add_part_of(dunlin_onnx_writer *writer, const dunlin_net_node *node,
                              const char *suffix)
{
    char room[DUNLIN_NET_MAX_NAME + 1];
    dunlin__onnx_put_text(&writer->node, NODE_INPUT, made_name_of(writer, node, suffix, room));
}

void dunlin__onnx_attr_int(dunlin_onnx_writer *writer, const char *name, int64_t value)
{
    dunlin_onnx_buffer *attribute = &writer->scratch;
    attribute->n = 0;
    dunlin__onnx_put_text(attribute, ATTRIBUTE_NAME, name);
    dunlin__onnx_put_int(attribute, ATTRIBUTE_I, value);
    dunlin__onnx_put_int(attribute, ATTRIBUTE_TYPE, TYPE_INT);
    dunlin__onnx_put_message(&writer->attributes, NODE_ATTRIBUTE, attribute);
}

void dunlin__onnx_attr_float(dunlin_onnx_writer *writer, const char *name, float value)
{
    dunlin_onnx_buffer *attribute = &writer->scratch;
    attribute->n = 0;
    dunlin__onnx_put_text(attribute, ATTRIBUTE_NAME, name);
    dunlin__onnx_put_float(attribute, ATTRIBUTE_F, value);
    dunlin__onnx_put_int(attribute, ATTRIBUTE_TYPE, TYPE_FLOAT);
    dunlin__onnx_put_message(&writer->attributes, NODE_ATTRIBUTE, attribute);
}

void dunlin__onnx_attr_text(dunlin_onnx_writer *writer, const char *name, const char *value)
{
    dunlin_onnx_buffer *attribute = &writer->scratch;
    attribute->n = 0;
    dunlin__onnx_put_text(attribute, ATTRIBUTE_NAME, name);
    dunlin__onnx_put_text(attribute, ATTRIBUTE_S, value);
    dunlin__onnx_put_int(attribute, ATTRIBUTE_TYPE, TYPE_STRING);
    dunlin__onnx_put_message(&writer->attributes, NODE_ATTRIBUTE, attribute);
}

void dunlin__onnx_attr_ints(dunlin_onnx_writer *writer, const char *name, const int64_t *values,
                            int32_t n)
{
    dunlin_onnx_buffer *attribute = &writer->scratch;
    attribute->n = 0;
    dunlin__onnx_put_text(attribute, ATTRIBUTE_NAME, name);
    for (int32_t i = 0; i < n; i++) {
        dunlin__onnx_put_int(attribute, ATTRIBUTE_INTS, values[i]);
    }
    dunlin__onnx_put_int(attribute, ATTRIBUTE_TYPE, TYPE_INTS);
    dunlin__onnx_put_message(&writer->attributes, NODE_ATTRIBUTE, attribute);
}

/* `suffix` makes the names of a node that is one of several for an operator. */
static void end_node(dunlin_onnx_writer *writer, const char *output, const char *suffix)
{
    dunlin__onnx_put_text(&writer->node, NODE_OUTPUT, output);
    char name[DUNLIN_NET_MAX_NAME + 1];
    int length = snprintf(name, sizeof name, "%s%s", writer->net_node->name, suffix);
    writer->is_name_long = writer->is_name_long || length < 0 || (size_t)length >= sizeof name;
    dunlin__onnx_put_text(&writer->node, NODE_NAME, name);
    dunlin__onnx_put_text(&writer->node, NODE_OP_TYPE, writer->op_type);
    dunlin__onnx_put_raw(&writer->node, writer->attributes.bytes, writer->attributes.n);
    writer->node.has_failed = writer->node.has_failed || writer->attributes.has_failed;
    dunlin__onnx_put_message(&writer->graph, GRAPH_NODE, &writer->node);
}

void dunlin__onnx_end_node(dunlin_onnx_writer *writer)
{
    char room[DUNLIN_NET_MAX_NAME + 1];
    const uint32_t output = writer->net_node->output;
    end_node(writer, dunlin__onnx_sum_name(writer, output, room), "");
    dunlin__onnx_put_rounded(writer, output);
}

void dunlin__onnx_end_part(dunlin_onnx_writer *writer, const char *suffix)
{
    char room[DUNLIN_NET_MAX_NAME + 1];
    end_node(writer, made_name(writer, suffix, room), suffix);
}
