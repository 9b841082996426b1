/*
 * support.c - checks and readers that several operators share.
 *
 * Invariant: what passes here fits the 32-bit fields of the net, so rows may compute with it.
 */
#include "support.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *dunlin__op_shape_text(const dunlin_shape *shape, char text[DUNLIN_OP_SHAPE_TEXT_BYTES])
{
    size_t used = 0;
    text[used++] = '(';
    for (int32_t i = 0; i < shape->n_dims && i < DUNLIN_MAX_DIMS; i++) {
        /* 8 dimensions of at most 20 digits and a separator may pass the limit: cut, never over. */
        size_t room = DUNLIN_OP_SHAPE_TEXT_BYTES - used;
        int n = snprintf(text + used, room, "%s%" PRId64, i > 0 ? ", " : "", shape->dims[i]);
        if (n < 0 || (size_t)n + 2 > room) {
            break;
        }
        used += (size_t)n;
    }
    text[used++] = ')';
    text[used] = '\0';
    return text;
}

dunlin_status dunlin__op_want_inputs(const dunlin_net_node *node, uint32_t n, dunlin_error *error)
{
    if (node->n_inputs == n) {
        return DUNLIN_OK;
    }
    return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                        "node '%.120s' has %" PRIu32 " inputs, needs %" PRIu32, node->name,
                        node->n_inputs, n);
}

dunlin_status dunlin__op_want_image(const dunlin_net *net, const dunlin_net_node *node,
                                    dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    if (x->layout == DUNLIN_LAYOUT_IMAGE && (x->shape.n_dims == 3 || x->shape.n_dims == 2)) {
        return DUNLIN_OK;
    }
    char text[DUNLIN_OP_SHAPE_TEXT_BYTES];
    return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                        "node '%.90s' needs an image (channels, height, width) or a signal "
                        "(channels, length), its input is %.60s",
                        node->name, dunlin__op_shape_text(&x->shape, text));
}

bool dunlin__op_has_param(const dunlin_net_node *node, uint32_t slot)
{
    return slot < node->n_params && node->params[slot] != DUNLIN_NET_NONE;
}

static bool is_same_shape(const dunlin_shape *a, const dunlin_shape *b)
{
    return a->n_dims == b->n_dims &&
           memcmp(a->dims, b->dims, (size_t)a->n_dims * sizeof a->dims[0]) == 0;
}

dunlin_status dunlin__op_want_param(dunlin_net *net, const dunlin_net_node *node, uint32_t slot,
                                    const dunlin_shape *shape, dunlin_param_layout layout,
                                    dunlin_error *error)
{
    if (!dunlin__op_has_param(node, slot)) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0, "node '%.120s' lacks parameter %" PRIu32,
                            node->name, slot);
    }
    dunlin_net_param *param = &net->params[node->params[slot]];
    if (!is_same_shape(&param->shape, shape)) {
        char has[DUNLIN_OP_SHAPE_TEXT_BYTES];
        char needs[DUNLIN_OP_SHAPE_TEXT_BYTES];
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.60s': parameter '%.60s' is %.60s, must be %.60s", node->name,
                            param->name, dunlin__op_shape_text(&param->shape, has),
                            dunlin__op_shape_text(shape, needs));
    }
    param->layout = layout;
    return DUNLIN_OK;
}

dunlin_status dunlin__op_slide(const dunlin_net_node *node, const char *axis_name,
                               const dunlin_op_axis *axis, int64_t *out_size, dunlin_error *error)
{
    int64_t padded = (int64_t)axis->in + axis->pad_before + axis->pad_after;
    int64_t reach = ((int64_t)axis->kernel - 1) * axis->dilation + 1;
    if (padded < reach) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': the window spans %" PRId64
                            " in %s, the padded image has only %" PRId64,
                            node->name, reach, axis_name, padded);
    }
    int64_t room = padded - reach;
    int64_t size = room / axis->stride + 1;
    if (axis->is_ceil && room % axis->stride != 0 &&
        size * axis->stride < (int64_t)axis->in + axis->pad_before) {
        size++;
    }
    *out_size = size;
    return DUNLIN_OK;
}

dunlin_status dunlin__op_slide_both(dunlin_net *net, const dunlin_net_node *node,
                                    const dunlin_op_axis axes[2], int64_t channels,
                                    dunlin_error *error)
{
    const dunlin_net_value *x = &net->values[node->inputs[0]];
    dunlin_net_value *y = &net->values[node->output];
    const bool is_signal = x->shape.n_dims == 2;
    int64_t height = 1;
    int64_t width = 1;
    DUNLIN_TRY(dunlin__op_slide(node, "height", &axes[0], &height, error));
    DUNLIN_TRY(dunlin__op_slide(node, is_signal ? "length" : "width", &axes[1], &width, error));
    y->layout = DUNLIN_LAYOUT_IMAGE;
    y->shape = is_signal ? (dunlin_shape){2, {channels, width}}
                         : (dunlin_shape){3, {channels, height, width}};
    return DUNLIN_OK;
}

dunlin_status dunlin__op_read_ints(dunlin_onnx_node *onnx, const char *name, int32_t n, int32_t low,
                                   int32_t fallback, int32_t *out)
{
    int64_t values[4] = {0};
    int32_t found = dunlin__onnx_ints(onnx, name, values, n);
    if (found != 0 && found != n) {
        return dunlin__onnx_reject(onnx, name, "has %" PRId32 " values, not %" PRId32, found, n);
    }
    for (int32_t i = 0; i < n; i++) {
        int64_t value = found == 0 ? fallback : values[i];
        if (value < low || value > UINT16_MAX) {
            return dunlin__onnx_reject(onnx, name, "is %" PRId64 ", not %" PRId32 " to %d", value,
                                       low, UINT16_MAX);
        }
        out[i] = (int32_t)value;
    }
    return DUNLIN_OK;
}

/*
 * So much padding that there is a window for each stride of the input, as far as it is whole; of an
 * odd number the larger half comes last, or first.
 */
static dunlin_status pad_alike(dunlin_onnx_node *onnx, int32_t axis, int64_t in, bool is_upper,
                               dunlin_op_window *window)
{
    const int64_t stride = window->strides[axis];
    const int64_t reach = ((int64_t)window->kernel[axis] - 1) * window->dilations[axis] + 1;
    const int64_t n_windows = (in + stride - 1) / stride;
    const int64_t total = (n_windows - 1) * stride + reach - in;
    const int64_t half = total / 2;
    if (total > UINT16_MAX) {
        return dunlin__onnx_reject(
            onnx, "auto_pad", "asks for a padding of %" PRId64 ", not 0 to %d", total, UINT16_MAX);
    }
    if (total > 0) {
        window->pads[axis] = (int32_t)(is_upper ? half : total - half);
        window->pads[axis + 2] = (int32_t)(is_upper ? total - half : half);
    }
    return DUNLIN_OK;
}

static dunlin_status read_auto_pad(dunlin_onnx_node *onnx, uint32_t value, const dunlin_net *net,
                                   dunlin_op_window *window)
{
    const char *auto_pad = dunlin__onnx_text(onnx, "auto_pad", "NOTSET");
    const bool is_upper = strcmp(auto_pad, "SAME_UPPER") == 0;
    if (strcmp(auto_pad, "NOTSET") == 0) {
        return DUNLIN_OK;
    }
    if (strcmp(auto_pad, "VALID") != 0 && strcmp(auto_pad, "SAME_LOWER") != 0 && !is_upper) {
        return dunlin__onnx_reject(
            onnx, "auto_pad", "is %.40s, not NOTSET, VALID, SAME_UPPER or SAME_LOWER", auto_pad);
    }
    const int32_t *pads = window->pads;
    if ((pads[0] | pads[1] | pads[2] | pads[3]) != 0) {
        return dunlin__onnx_reject(onnx, "pads", "is not zero though auto_pad is %.40s", auto_pad);
    }
    const dunlin_shape *shape = value != DUNLIN_NET_NONE ? &net->values[value].shape : NULL;
    if (strcmp(auto_pad, "VALID") == 0 || shape == NULL || shape->n_dims != 1 + window->n_axes) {
        return DUNLIN_OK; /* of another number of dimensions: an issue of its own, or depends on one
                           */
    }
    if (window->n_axes == 2) {
        DUNLIN_TRY(pad_alike(onnx, 0, shape->dims[1], is_upper, window));
    }
    return pad_alike(onnx, 1, shape->dims[window->n_axes], is_upper, window);
}

dunlin_status dunlin__op_read_window_sizes(dunlin_onnx_node *onnx, const dunlin_shape *weight,
                                           dunlin_op_window *out_window)
{
    int64_t given[DUNLIN_MAX_DIMS] = {0};
    const int32_t n_given = dunlin__onnx_ints(onnx, "kernel_shape", given, DUNLIN_MAX_DIMS);
    const int32_t n = weight != NULL ? weight->n_dims - 2 : n_given;
    *out_window = (dunlin_op_window){.n_axes = n, .kernel = {1, 1}, .strides = {1, 1}};
    out_window->dilations[0] = 1;
    if (n != 1 && n != 2) {
        return dunlin__onnx_reject(onnx, weight != NULL ? "" : "kernel_shape",
                                   "its window goes over %" PRId32
                                   " axes; one (signals) or two (images) are trained",
                                   n < 0 ? 0 : n);
    }
    const int32_t at = 2 - n;
    int32_t pads[4] = {0};
    DUNLIN_TRY(dunlin__op_read_ints(onnx, "kernel_shape", n, 1, 1, out_window->kernel + at));
    DUNLIN_TRY(dunlin__op_read_ints(onnx, "strides", n, 1, 1, out_window->strides + at));
    DUNLIN_TRY(dunlin__op_read_ints(onnx, "dilations", n, 1, 1, out_window->dilations + at));
    DUNLIN_TRY(dunlin__op_read_ints(onnx, "pads", 2 * n, 0, 0, pads));
    for (int32_t i = 0; i < n; i++) {
        out_window->pads[at + i] = pads[i];
        out_window->pads[2 + at + i] = pads[n + i];
        if (weight == NULL) {
            continue;
        }
        const int64_t wanted = weight->dims[2 + i];
        if (wanted < 1 || wanted > UINT16_MAX) {
            return dunlin__onnx_reject(onnx, "", "its weight has a dimension of %" PRId64, wanted);
        }
        if (n_given != 0 && out_window->kernel[at + i] != wanted) {
            return dunlin__onnx_reject(onnx, "kernel_shape", "has %" PRId32 ", its weight %" PRId64,
                                       out_window->kernel[at + i], wanted);
        }
        out_window->kernel[at + i] = (int32_t)wanted;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__op_read_window(dunlin_onnx_node *onnx, const dunlin_net *net,
                                     const dunlin_shape *weight, dunlin_op_window *out_window)
{
    DUNLIN_TRY(dunlin__op_read_window_sizes(onnx, weight, out_window));
    return read_auto_pad(onnx, dunlin__onnx_value_input(onnx, 0), net, out_window);
}

dunlin_status dunlin__op_read_axes(dunlin_onnx_node *onnx, int32_t n_dims, uint32_t *out_axes)
{
    int64_t axes[DUNLIN_MAX_DIMS];
    const bool is_input = dunlin__onnx_opset(onnx) >= 18 || dunlin__onnx_has_input(onnx, 1);
    int32_t n = is_input ? 0 : dunlin__onnx_ints(onnx, "axes", axes, DUNLIN_MAX_DIMS);
    if (is_input && dunlin__onnx_has_input(onnx, 1)) {
        n = dunlin__onnx_ints_input(onnx, 1, axes, DUNLIN_MAX_DIMS);
    }
    if (is_input) {
        (void)dunlin__onnx_int(onnx, "noop_with_empty_axes", 0); /* they are not empty */
    }
    *out_axes = 0;
    for (int32_t i = 0; i < n && i < DUNLIN_MAX_DIMS; i++) {
        const int64_t axis = axes[i] < 0 ? axes[i] + n_dims + 1 : axes[i];
        if (axis < 1 || axis > n_dims) {
            return dunlin__onnx_reject(onnx, "axes", "has %" PRId64 ", the batch's or not there",
                                       axes[i]);
        }
        *out_axes |= 1U << (axis - 1);
    }
    return n > 0 && n <= DUNLIN_MAX_DIMS
               ? DUNLIN_OK
               : dunlin__onnx_reject(onnx, "axes", "must be given, as constants");
}

static void write_ints(dunlin_onnx_writer *writer, const char *name, const int32_t *values,
                       int32_t n)
{
    int64_t wide[4] = {0};
    for (int32_t i = 0; i < n; i++) {
        wide[i] = values[i];
    }
    dunlin__onnx_attr_ints(writer, name, wide, n);
}

void dunlin__op_write_window(dunlin_onnx_writer *writer, const dunlin_op_window *window,
                             bool has_dilations)
{
    const int32_t n = window->n_axes;
    const int32_t at = 2 - n;
    const int32_t *pads = window->pads;
    const int32_t along[2] = {pads[1], pads[3]};
    write_ints(writer, "kernel_shape", window->kernel + at, n);
    write_ints(writer, "strides", window->strides + at, n);
    if (has_dilations) {
        write_ints(writer, "dilations", window->dilations + at, n);
    }
    write_ints(writer, "pads", n == 1 ? along : pads, 2 * n);
}

dunlin_status dunlin__op_take_value(dunlin_onnx_node *onnx, uint32_t index, dunlin_net_node *node)
{
    uint32_t value = dunlin__onnx_value_input(onnx, index);
    if (value == DUNLIN_NET_NONE) {
        return dunlin__onnx_reject(
            onnx, "", "input %" PRIu32 " is not an activation (a constant, or not there)", index);
    }
    node->inputs[node->n_inputs++] = value;
    return DUNLIN_OK;
}

dunlin_status dunlin__op_take_param(dunlin_onnx_node *onnx, uint32_t index, const char *what,
                                    dunlin_net_node *node)
{
    uint32_t param = dunlin__onnx_param_input(onnx, index);
    if (param == DUNLIN_NET_NONE) {
        return dunlin__onnx_reject(onnx, "", "input %" PRIu32 " (%s) is not a stored parameter",
                                   index, what);
    }
    node->params[node->n_params++] = param;
    return DUNLIN_OK;
}

int64_t dunlin__op_elements(const dunlin_emit *emit, uint32_t value)
{
    return dunlin__value_elements(&dunlin__emit_net(emit)->values[value]);
}

int32_t dunlin__op_n_axes(const dunlin_net *net, uint32_t value)
{
    return net->values[value].shape.n_dims == 2 ? 1 : 2;
}
