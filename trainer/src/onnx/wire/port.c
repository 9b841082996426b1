/*
 * port.c - inputs and outputs of an ONNX graph: name, element type, dimensions.
 *
 * Invariant: a dimension is positive, or DUNLIN_ONNX_DYNAMIC when the file gives no number for it.
 */
#include "reader.h"

#include <onnx.pb.h>
#include <pb_decode.h>

typedef struct port_state {
    dunlin_onnx_reader *reader;
    dunlin_onnx_port *port;
} port_state;

/* The name of a dimension; one that is too long is none. */
static bool dim_name_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    (void)field;
    port_state *state = *arg;
    const int32_t at = state->port->shape.n_dims;
    if (at >= DUNLIN_MAX_DIMS || stream->bytes_left > DUNLIN_ONNX_MAX_NAME) {
        return dunlin__onnx_skip(stream);
    }
    return dunlin__onnx_read_text(state->reader, stream, DUNLIN_ONNX_MAX_NAME,
                                  &state->port->dim_names[at]);
}

static bool shape_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    (void)field;
    port_state *state = *arg;
    dunlin_shape *shape = &state->port->shape;
    dunlin_onnx_DimensionProto dim = {.dim_param = {.funcs.decode = dim_name_field, .arg = state}};
    if (!pb_decode(stream, dunlin_onnx_DimensionProto_fields, &dim)) {
        return false;
    }
    if (shape->n_dims >= DUNLIN_MAX_DIMS) {
        return dunlin__onnx_reader_refuse(
            state->reader, "an input or output has too many dimensions", DUNLIN_MAX_DIMS);
    }
    bool is_fixed = dim.has_dim_value && dim.dim_value > 0;
    shape->dims[shape->n_dims++] = is_fixed ? dim.dim_value : DUNLIN_ONNX_DYNAMIC;
    return true;
}

static bool tensor_type_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    (void)field;
    port_state *state = *arg;
    state->port->has_shape = true;
    dunlin_onnx_TensorShapeProto shape = {.dim = {.funcs.decode = shape_field, .arg = state}};
    return pb_decode(stream, dunlin_onnx_TensorShapeProto_fields, &shape);
}

static bool type_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    (void)field;
    port_state *state = *arg;
    dunlin_onnx_TensorTypeProto type = {.shape = {.funcs.decode = tensor_type_field, .arg = state}};
    if (!pb_decode(stream, dunlin_onnx_TensorTypeProto_fields, &type)) {
        return false;
    }
    state->port->type = type.elem_type;
    return true;
}

static bool port_field(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    port_state *state = *arg;
    if (field->tag == dunlin_onnx_ValueInfoProto_name_tag) {
        return dunlin__onnx_read_text(state->reader, stream, DUNLIN_ONNX_MAX_NAME,
                                      &state->port->name);
    }
    dunlin_onnx_TypeProto type = {.tensor_type = {.funcs.decode = type_field, .arg = state}};
    return pb_decode(stream, dunlin_onnx_TypeProto_fields, &type);
}

bool dunlin__onnx_read_port(dunlin_onnx_reader *reader, pb_istream_t *stream,
                            dunlin_onnx_port *port)
{
    *port = (dunlin_onnx_port){0};
    port_state state = {.reader = reader, .port = port};
    pb_callback_t callback = {.funcs.decode = port_field, .arg = &state};
    dunlin_onnx_ValueInfoProto info = {.name = callback, .type = callback};
    return pb_decode(stream, dunlin_onnx_ValueInfoProto_fields, &info);
}
