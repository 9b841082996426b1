/*
 * reduced.c - see reduced.h.
 */
#include "reduced.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

dunlin_shape dunlin__reduced_shape(const dunlin_shape *x, uint32_t axes, int64_t *out_n)
{
    dunlin_shape shape = *x;
    *out_n = 1;
    for (int32_t i = 0; i < x->n_dims; i++) {
        if ((axes >> i & 1) != 0) {
            *out_n *= x->dims[i];
            shape.dims[i] = 1;
        }
    }
    return shape;
}

dunlin_op_place dunlin__reduced_place(const dunlin_emit *emit, const dunlin_net_node *node,
                                      const dunlin_shape *shape, uint32_t tensor)
{
    dunlin_op_place place = dunlin__op_place_of(emit, node->output, tensor);
    place.shape = shape;
    return place;
}

dunlin_status dunlin__reduced_infer(dunlin_net *net, const dunlin_net_node *node, uint32_t axes,
                                    bool keeps_dims, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    if (axes == 0 || axes >> x->shape.n_dims != 0) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s' reduces over dimensions (bits %" PRIx32
                            ") that its input, of %" PRId32 ", does not have",
                            node->name, axes, x->shape.n_dims);
    }
    dunlin_net_value *y = &net->values[node->output];
    y->layout = keeps_dims ? x->layout : DUNLIN_LAYOUT_PLAIN;
    y->shape = (dunlin_shape){0};
    for (int32_t i = 0; i < x->shape.n_dims; i++) {
        const bool is_gone = (axes >> i & 1) != 0;
        if (!is_gone || keeps_dims) {
            y->shape.dims[y->shape.n_dims++] = is_gone ? 1 : x->shape.dims[i];
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__reduced_read(dunlin_onnx_node *onnx, const dunlin_net *net,
                                   dunlin_net_node *node, uint32_t *out_axes, bool *out_keeps_dims)
{
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    *out_keeps_dims = dunlin__onnx_int(onnx, "keepdims", 1) != 0;
    return dunlin__op_read_axes(onnx, net->values[node->inputs[0]].shape.n_dims, out_axes);
}

void dunlin__reduced_write(dunlin_onnx_writer *writer, const dunlin_net_node *node,
                           const char *op_type, uint32_t axes, bool keeps_dims)
{
    int64_t numbers[DUNLIN_MAX_DIMS];
    int32_t n = 0;
    for (int32_t i = 0; i < DUNLIN_MAX_DIMS; i++) {
        if ((axes >> i & 1) != 0) {
            numbers[n++] = i + 1;
        }
    }
    dunlin__onnx_begin_node(writer, op_type, node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    if (strcmp(op_type, "ReduceSum") == 0) {
        dunlin__onnx_add_ints(writer, "/axes", numbers, n);
    } else {
        dunlin__onnx_attr_ints(writer, "axes", numbers, n);
    }
    dunlin__onnx_attr_int(writer, "keepdims", keeps_dims ? 1 : 0);
    dunlin__onnx_end_node(writer);
}
