/*
 * conv_transposed.c - transposed convolution of images and signals: each pixel adds a window to the
 * output (Dumoulin and Visin 2016, chapter 4).
 *
 * It is the gradient of a convolution's input: that convolution goes from this one's output to its
 * input, and has the same weight. So its three passes are that one's with input and output
 * exchanged, and a dense layer whose matrix is turned is the case of one pixel.
 */
#include "ops/common/maps.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

/* --- the product and the bias, for turned dense layers too --- */

/* (C), spread over the dimensions that follow the channels in the value's shape. */
static dunlin_shape bias_over(const dunlin_net_value *y, int64_t channels)
{
    dunlin_shape shape = {1, {channels}};
    if (y->layout == DUNLIN_LAYOUT_IMAGE) {
        shape.n_dims = y->shape.n_dims;
        for (int32_t i = 1; i < shape.n_dims; i++) {
            shape.dims[i] = 1;
        }
    }
    return shape;
}

void dunlin__op_emit_turned(dunlin_emit *emit, const dunlin_net_node *node,
                            const dunlin_conv_shape *shape)
{
    if (!dunlin__op_has_param(node, 1)) {
        dunlin__op_emit_transposed(emit, node, shape, dunlin__emit_output(emit, node->output));
        return;
    }
    const dunlin_net_value *y = &dunlin__emit_net(emit)->values[node->output];
    const dunlin_shape bias = bias_over(y, shape->in_c);
    const uint32_t product =
        dunlin__emit_tensor(emit, "/product", DUNLIN_F32, true,
                            dunlin__op_elements(emit, node->output), DUNLIN_MEM_ACTIVATION);
    dunlin__op_emit_transposed(emit, node, shape, product);
    const dunlin_op_place in[2] = {
        dunlin__op_place_of(emit, node->output, product),
        {.tensor = dunlin__emit_param(emit, node->params[1]), .shape = &bias, .is_fixed = true}};
    const dunlin_op_place out =
        dunlin__op_place_of(emit, node->output, dunlin__emit_output(emit, node->output));
    dunlin_walk walk = dunlin__walk_over(&y->shape, DUNLIN_WALK_ADD);
    dunlin__op_emit_walk(emit, "/bias", &walk, in, 2, &out);
}

void dunlin__op_emit_turned_grads(dunlin_emit *emit, const dunlin_net_node *node,
                                  const dunlin_conv_shape *shape)
{
    if (dunlin__op_has_param(node, 1) && dunlin__emit_is_trained(emit, node->params[1])) {
        const dunlin_net_value *y = &dunlin__emit_net(emit)->values[node->output];
        const dunlin_shape bias = bias_over(y, shape->in_c);
        const dunlin_op_place in =
            dunlin__op_place_of(emit, node->output, dunlin__emit_grad(emit, node->output));
        const dunlin_op_place out = {.tensor = dunlin__emit_param_grad(emit, node->params[1]),
                                     .shape = &bias,
                                     .is_fixed = true};
        dunlin_walk walk = dunlin__walk_over(&y->shape, DUNLIN_WALK_COPY);
        dunlin__op_emit_walk(emit, "/bias_grad", &walk, &in, 1, &out);
    }
    dunlin__op_emit_transposed_grads(emit, node, shape);
}

/* --- the row --- */

/* The convolution from the output to the input. */
static dunlin_conv_shape owner_shape(const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_conv *c = &node->u.conv;
    dunlin_conv_shape shape = {
        .kernel_h = c->kernel_h,
        .kernel_w = c->kernel_w,
        .stride_h = c->stride_h,
        .stride_w = c->stride_w,
        .pad_top = c->pad_top,
        .pad_left = c->pad_left,
        .dilation_h = c->dilation_h,
        .dilation_w = c->dilation_w,
        .groups = c->groups,
    };
    dunlin__value_hwc(&net->values[node->output], &shape.in_h, &shape.in_w, &shape.in_c);
    dunlin__value_hwc(&net->values[node->inputs[0]], &shape.out_h, &shape.out_w, &shape.out_c);
    return shape;
}

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_conv_shape shape = owner_shape(dunlin__emit_net(emit), node);
    dunlin__op_emit_turned(emit, node, &shape);
}

static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const dunlin_conv_shape shape = owner_shape(dunlin__emit_net(emit), node);
    dunlin__op_emit_turned_grads(emit, node, &shape);
}

/* One axis: MODEL if nothing is left of it. */
static dunlin_status infer_axis(const dunlin_net_node *node, const char *axis_name,
                                const dunlin_op_axis *axis, int32_t extra, int64_t *out_size,
                                dunlin_error *error)
{
    const int32_t most = axis->stride > axis->dilation ? axis->stride : axis->dilation;
    if (extra < 0 || extra >= most) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s' adds %" PRId32 " at the end of the %s, not 0 to %" PRId32
                            " (below the larger of stride and dilation)",
                            node->name, extra, axis_name, most - 1);
    }
    const int64_t reach = ((int64_t)axis->kernel - 1) * axis->dilation + 1;
    *out_size =
        ((int64_t)axis->in - 1) * axis->stride + reach + extra - axis->pad_before - axis->pad_after;
    if (*out_size < 1 || *out_size > INT32_MAX) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s' would have a %s of %" PRId64 ", not 1 to %" PRId32,
                            node->name, axis_name, *out_size, INT32_MAX);
    }
    return DUNLIN_OK;
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_image(net, node, error));
    const dunlin_net_conv *c = &node->u.conv;
    dunlin_net_value *y = &net->values[node->output];
    int32_t in_h = 0;
    int32_t in_w = 0;
    int32_t in_c = 0;
    dunlin__value_hwc(&net->values[node->inputs[0]], &in_h, &in_w, &in_c);
    if (c->groups < 1 || in_c % c->groups != 0 || c->out_channels % c->groups != 0) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': %" PRId32 " groups must divide %" PRId32
                            " input and %" PRId32 " output channels",
                            node->name, c->groups, in_c, c->out_channels);
    }
    const bool is_signal = dunlin__op_n_axes(net, node->inputs[0]) == 1;
    const int64_t out_per_group = c->out_channels / c->groups;
    dunlin_shape weight = {4, {in_c, out_per_group, c->kernel_h, c->kernel_w}};
    if (is_signal) {
        weight = (dunlin_shape){3, {in_c, out_per_group, c->kernel_w}};
    }
    DUNLIN_TRY(dunlin__op_want_param(net, node, 0, &weight, DUNLIN_PARAM_CONV, error));
    if (dunlin__op_has_param(node, 1)) {
        const dunlin_shape bias = {1, {c->out_channels}};
        DUNLIN_TRY(dunlin__op_want_param(net, node, 1, &bias, DUNLIN_PARAM_PLAIN, error));
    }
    const dunlin_op_axis axes[2] = {
        {in_h, c->kernel_h, c->stride_h, c->pad_top, c->pad_bottom, c->dilation_h, false},
        {in_w, c->kernel_w, c->stride_w, c->pad_left, c->pad_right, c->dilation_w, false}};
    int64_t height = 0;
    int64_t width = 0;
    DUNLIN_TRY(infer_axis(node, "height", &axes[0], c->extra_h, &height, error));
    DUNLIN_TRY(
        infer_axis(node, is_signal ? "length" : "width", &axes[1], c->extra_w, &width, error));
    y->layout = DUNLIN_LAYOUT_IMAGE;
    y->shape = is_signal ? (dunlin_shape){2, {c->out_channels, width}}
                         : (dunlin_shape){3, {c->out_channels, height, width}};
    return DUNLIN_OK;
}

/* --- ONNX --- */

/* The size of one axis of the output is given: what is too much of it is padding, the larger half
 * of an odd number first, or last. */
static dunlin_status fit_axis(dunlin_onnx_node *onnx, dunlin_op_window *window, int32_t axis,
                              int64_t in, int64_t out, int32_t extra, bool is_last_larger)
{
    const int64_t reach = ((int64_t)window->kernel[axis] - 1) * window->dilations[axis] + 1;
    const int64_t total = (in - 1) * window->strides[axis] + reach + extra - out;
    if (total < 0 || total > UINT16_MAX) {
        return dunlin__onnx_reject(onnx, "output_shape",
                                   "asks for a padding of %" PRId64 ", not 0 to %d", total,
                                   UINT16_MAX);
    }
    const int64_t half = total / 2;
    window->pads[axis] = (int32_t)(is_last_larger ? half : total - half);
    window->pads[axis + 2] = (int32_t)(is_last_larger ? total - half : half);
    return DUNLIN_OK;
}

/* Padding that follows from the output's size, which is given or the input's by the stride. */
static dunlin_status read_fit(dunlin_onnx_node *onnx, const dunlin_net *net,
                              const dunlin_net_node *node, const int32_t extra[2],
                              dunlin_op_window *window)
{
    const char *auto_pad = dunlin__onnx_text(onnx, "auto_pad", "NOTSET");
    const bool is_upper = strcmp(auto_pad, "SAME_UPPER") == 0;
    const bool is_same = is_upper || strcmp(auto_pad, "SAME_LOWER") == 0;
    int64_t sizes[DUNLIN_MAX_DIMS] = {0};
    const int32_t n_sizes = dunlin__onnx_ints(onnx, "output_shape", sizes, DUNLIN_MAX_DIMS);
    const int32_t n = window->n_axes;
    if (!is_same && strcmp(auto_pad, "NOTSET") != 0 && strcmp(auto_pad, "VALID") != 0) {
        return dunlin__onnx_reject(
            onnx, "auto_pad", "is %.40s, not NOTSET, VALID, SAME_UPPER or SAME_LOWER", auto_pad);
    }
    if (n_sizes != 0 && n_sizes != n) {
        return dunlin__onnx_reject(onnx, "output_shape", "has %" PRId32 " values, not %" PRId32,
                                   n_sizes, n);
    }
    const dunlin_shape *x = &net->values[node->inputs[0]].shape;
    if ((!is_same && n_sizes == 0) || x->n_dims != 1 + n) {
        return DUNLIN_OK; /* of another number of dimensions: an issue of its own */
    }
    for (int32_t i = 0; i < n; i++) {
        const int32_t axis = 2 - n + i;
        const int64_t in = x->dims[1 + i];
        const int64_t out = n_sizes != 0 ? sizes[i] : in * window->strides[axis];
        DUNLIN_TRY(fit_axis(onnx, window, axis, in, out, extra[axis], is_upper));
    }
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    node->kind = DUNLIN_OP_CONV_TRANSPOSED;
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    DUNLIN_TRY(dunlin__op_take_param(onnx, 1, "the weight", node));
    if (dunlin__onnx_has_input(onnx, 2)) {
        DUNLIN_TRY(dunlin__op_take_param(onnx, 2, "the bias", node));
    }
    dunlin_net_param *weight = &net->params[node->params[0]];
    dunlin_op_window window;
    int32_t extra[2] = {0};
    DUNLIN_TRY(dunlin__op_read_window_sizes(onnx, &weight->shape, &window));
    const int32_t n = window.n_axes;
    DUNLIN_TRY(dunlin__op_read_ints(onnx, "output_padding", n, 0, 0, extra + 2 - n));
    DUNLIN_TRY(read_fit(onnx, net, node, extra, &window));
    const int64_t groups = dunlin__onnx_int(onnx, "group", 1);
    const int64_t per_group = weight->shape.dims[1];
    if (groups < 1 || groups > INT32_MAX) {
        return dunlin__onnx_reject(onnx, "group", "is %" PRId64, groups);
    }
    if (per_group < 1 || per_group > INT32_MAX / groups) {
        return dunlin__onnx_reject(onnx, "", "its weight has a dimension of %" PRId64, per_group);
    }
    node->u.conv = (dunlin_net_conv){
        .out_channels = (int32_t)(per_group * groups),
        .kernel_h = window.kernel[0],
        .kernel_w = window.kernel[1],
        .stride_h = window.strides[0],
        .stride_w = window.strides[1],
        .pad_top = window.pads[0],
        .pad_left = window.pads[1],
        .pad_bottom = window.pads[2],
        .pad_right = window.pads[3],
        .dilation_h = window.dilations[0],
        .dilation_w = window.dilations[1],
        .groups = (int32_t)groups,
        .extra_h = extra[0],
        .extra_w = extra[1],
    };
    weight->layout = DUNLIN_PARAM_CONV;
    return DUNLIN_OK;
}

static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    const dunlin_net_conv *c = &node->u.conv;
    const int32_t n = dunlin__op_n_axes(net, node->inputs[0]);
    const dunlin_op_window window = {
        .n_axes = n,
        .kernel = {c->kernel_h, c->kernel_w},
        .strides = {c->stride_h, c->stride_w},
        .dilations = {c->dilation_h, c->dilation_w},
        .pads = {c->pad_top, c->pad_left, c->pad_bottom, c->pad_right},
    };
    const int64_t extra[2] = {c->extra_h, c->extra_w};
    dunlin__onnx_begin_node(writer, "ConvTranspose", node);
    dunlin__onnx_add_value(writer, node->inputs[0]);
    dunlin__onnx_add_param(writer, node->params[0]);
    if (dunlin__op_has_param(node, 1)) {
        dunlin__onnx_add_param(writer, node->params[1]);
    }
    dunlin__op_write_window(writer, &window, true);
    dunlin__onnx_attr_ints(writer, "output_padding", extra + 2 - n, n);
    dunlin__onnx_attr_int(writer, "group", c->groups);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {"ConvTranspose", NULL};

const dunlin_op_row dunlin__op_conv_transposed = {
    .kind = DUNLIN_OP_CONV_TRANSPOSED,
    .name = "conv_transposed",
    .onnx_names = onnx_names,
    .wish = DUNLIN_WISH_IMAGE,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
