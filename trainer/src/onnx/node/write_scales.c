/*
 * write_scales.c - the integers of an ONNX graph being written: QuantizeLinear and DequantizeLinear
 * around what is rounded, int8 parameters, scales that are powers of two.
 *
 * Invariant: whoever reads a value or a parameter reads what a DequantizeLinear gives; values keep
 * their names, what a node sums up has one of its own.
 */
#include "writer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ZERO_NAME "dunlin/zero"
#define ROUNDED_SUFFIX "/rounded"

/* The network's own name for something else. */
static const char *find_name(const dunlin_net *net, const char *name)
{
    for (uint32_t i = 0; i < net->n_params; i++) {
        if (strcmp(net->params[i].name, name) == 0) {
            return net->params[i].name;
        }
    }
    for (uint32_t i = 0; i < net->n_values; i++) {
        if (strcmp(net->values[i].name, name) == 0) {
            return net->values[i].name;
        }
    }
    return NULL;
}

/* A made-up name, which no other tensor may have. */
static const char *suffixed(dunlin_onnx_writer *writer, const char *name, const char *suffix,
                            char room[DUNLIN_NET_MAX_NAME + 1])
{
    const int n = snprintf(room, DUNLIN_NET_MAX_NAME + 1, "%s%s", name, suffix);
    writer->is_name_long = writer->is_name_long || n < 0 || n > DUNLIN_NET_MAX_NAME;
    writer->taken = writer->taken != NULL ? writer->taken : find_name(writer->net, room);
    return room;
}

/* A constant without dimensions. */
static void put_constant(dunlin_onnx_writer *writer, const char *name, int type, const void *bytes,
                         size_t n_bytes)
{
    dunlin_onnx_buffer *tensor = &writer->scratch;
    tensor->n = 0;
    dunlin__onnx_put_int(tensor, TENSOR_TYPE, type);
    dunlin__onnx_put_text(tensor, TENSOR_NAME, name);
    dunlin__onnx_put_length(tensor, TENSOR_RAW, n_bytes);
    dunlin__onnx_put_raw(tensor, bytes, n_bytes);
    dunlin__onnx_put_message(&writer->constants, GRAPH_INITIALIZER, tensor);
}

static void put_scale(dunlin_onnx_writer *writer, const char *name, int32_t exponent)
{
    const float scale = ldexpf(1.0F, exponent);
    uint32_t bits = 0;
    memcpy(&bits, &scale, sizeof bits);
    const uint8_t bytes[] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16),
                             (uint8_t)(bits >> 24)};
    put_constant(writer, name, ELEMENT_FLOAT, bytes, sizeof bytes);
}

/* A node that converts `from` to `to` with this scale; its name is that of its output. */
static void put_conversion(dunlin_onnx_writer *writer, const char *op_type, const char *from,
                           const char *scale, const char *to)
{
    dunlin_onnx_buffer *node = &writer->node;
    node->n = 0;
    dunlin__onnx_put_text(node, NODE_INPUT, from);
    dunlin__onnx_put_text(node, NODE_INPUT, scale);
    dunlin__onnx_put_text(node, NODE_INPUT, ZERO_NAME);
    dunlin__onnx_put_text(node, NODE_OUTPUT, to);
    dunlin__onnx_put_text(node, NODE_NAME, to);
    dunlin__onnx_put_text(node, NODE_OP_TYPE, op_type);
    dunlin__onnx_put_message(&writer->graph, GRAPH_NODE, node);
}

/* `from` rounded to int8 and back is `to`. */
static void put_rounding(dunlin_onnx_writer *writer, uint32_t value, const char *from,
                         const char *to)
{
    char scale[DUNLIN_NET_MAX_NAME + 1];
    char whole[DUNLIN_NET_MAX_NAME + 1];
    const char *name = writer->net->values[value].name;
    (void)suffixed(writer, name, "/scale", scale);
    (void)suffixed(writer, name, "/int8", whole);
    put_scale(writer, scale, writer->scales->values[value]);
    put_conversion(writer, "QuantizeLinear", from, scale, whole);
    put_conversion(writer, "DequantizeLinear", whole, scale, to);
}

bool dunlin__onnx_is_rounded(const dunlin_onnx_writer *writer, uint32_t value)
{
    return writer->scales != NULL && writer->scales->values[value] != DUNLIN_ONNX_NO_EXPONENT;
}

const char *dunlin__onnx_rounded_name(dunlin_onnx_writer *writer, uint32_t value, const char *name,
                                      char room[DUNLIN_NET_MAX_NAME + 1])
{
    const bool is_input = writer->scales != NULL && value == writer->net->input;
    return is_input ? suffixed(writer, writer->net->values[value].name, ROUNDED_SUFFIX, room)
                    : name;
}

const char *dunlin__onnx_param_name(dunlin_onnx_writer *writer, uint32_t param,
                                    char room[DUNLIN_NET_MAX_NAME + 1])
{
    const char *name = writer->net->params[param].name;
    return writer->scales != NULL ? suffixed(writer, name, "/dequantized", room) : name;
}

const char *dunlin__onnx_sum_name(dunlin_onnx_writer *writer, uint32_t value,
                                  char room[DUNLIN_NET_MAX_NAME + 1])
{
    const char *name = writer->net->values[value].name;
    return dunlin__onnx_is_rounded(writer, value) ? suffixed(writer, name, "/sum", room) : name;
}

void dunlin__onnx_put_rounded(dunlin_onnx_writer *writer, uint32_t value)
{
    char sum[DUNLIN_NET_MAX_NAME + 1];
    if (dunlin__onnx_is_rounded(writer, value)) {
        put_rounding(writer, value, dunlin__onnx_sum_name(writer, value, sum),
                     writer->net->values[value].name);
    }
}

void dunlin__onnx_put_scales(dunlin_onnx_writer *writer)
{
    const dunlin_net *net = writer->net;
    const uint8_t zero = 0;
    char name[DUNLIN_NET_MAX_NAME + 1];
    char scale[DUNLIN_NET_MAX_NAME + 1];
    if (writer->scales == NULL) {
        return;
    }
    writer->taken = find_name(net, ZERO_NAME);
    put_constant(writer, ZERO_NAME, ELEMENT_INT8, &zero, sizeof zero);
    for (uint32_t i = 0; i < net->n_params; i++) {
        (void)suffixed(writer, net->params[i].name, "/scale", scale);
        put_scale(writer, scale, writer->scales->params[i]);
        put_conversion(writer, "DequantizeLinear", net->params[i].name, scale,
                       dunlin__onnx_param_name(writer, i, name));
    }
    put_rounding(writer, net->input, net->values[net->input].name,
                 dunlin__onnx_rounded_name(writer, net->input, NULL, name));
}
