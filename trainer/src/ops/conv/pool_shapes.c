/*
 * pool_shapes.c - see pool_shapes.h.
 */
#include "pool_shapes.h"

#include "kernels/api/place_bits.h"

#include <mem/support.h>

#include <inttypes.h>

static int32_t step_of(int32_t dilation)
{
    return dilation > 1 ? dilation : 1;
}

dunlin_net_pool dunlin__op_global_window(const dunlin_shape *shape)
{
    const int32_t width = (int32_t)shape->dims[shape->n_dims - 1];
    const int32_t height = shape->n_dims == 3 ? (int32_t)shape->dims[1] : 1;
    return (dunlin_net_pool){.kernel_h = height, .kernel_w = width, .stride_h = 1, .stride_w = 1};
}

dunlin_pool_shape dunlin__op_pool_shape(const dunlin_net *net, const dunlin_net_node *node)
{
    dunlin_pool_shape shape = {0};
    int32_t out_c = 0;
    dunlin__value_hwc(&net->values[node->inputs[0]], &shape.in_h, &shape.in_w, &shape.channels);
    dunlin__value_hwc(&net->values[node->output], &shape.out_h, &shape.out_w, &out_c);
    if (node->kind == DUNLIN_OP_GLOBAL_AVERAGE_POOL) {
        shape.kernel_h = shape.in_h;
        shape.kernel_w = shape.in_w;
        shape.stride_h = shape.in_h;
        shape.stride_w = shape.in_w;
        return shape;
    }
    const dunlin_net_pool *p = &node->u.pool;
    shape.kernel_h = p->kernel_h;
    shape.kernel_w = p->kernel_w;
    shape.stride_h = p->stride_h;
    shape.stride_w = p->stride_w;
    shape.pad_top = p->pad_top;
    shape.pad_left = p->pad_left;
    shape.pad_bottom = p->pad_bottom;
    shape.pad_right = p->pad_right;
    shape.dilation_h = p->dilation_h;
    shape.dilation_w = p->dilation_w;
    shape.counts_padding = p->counts_padding;
    return shape;
}

int64_t dunlin__op_place_bytes(const dunlin_pool_shape *shape)
{
    return (int64_t)shape->out_h * shape->out_w *
           dunlin__place_bytes(dunlin__place_bits(shape), shape->channels);
}

dunlin_status dunlin__op_infer_pool(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    const dunlin_net_pool *p = &node->u.pool;
    const int32_t step_h = step_of(p->dilation_h);
    const int32_t step_w = step_of(p->dilation_w);
    const int64_t reach_h = ((int64_t)p->kernel_h - 1) * step_h + 1;
    const int64_t reach_w = ((int64_t)p->kernel_w - 1) * step_w + 1;
    int32_t in_h = 0;
    int32_t in_w = 0;
    int32_t channels = 0;
    dunlin__value_hwc(&net->values[node->inputs[0]], &in_h, &in_w, &channels);
    if (p->pad_top >= reach_h || p->pad_bottom >= reach_h || p->pad_left >= reach_w ||
        p->pad_right >= reach_w) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.100s': padding must be smaller than the window of %" PRId64
                            "x%" PRId64,
                            node->name, reach_h, reach_w);
    }
    const dunlin_op_axis axes[2] = {
        {in_h, p->kernel_h, p->stride_h, p->pad_top, p->pad_bottom, step_h, p->is_ceil},
        {in_w, p->kernel_w, p->stride_w, p->pad_left, p->pad_right, step_w, p->is_ceil}};
    return dunlin__op_slide_both(net, node, axes, channels, error);
}

/* --- ONNX --- */

dunlin_status dunlin__op_read_pool(dunlin_onnx_node *onnx, const dunlin_net *net,
                                   dunlin_net_node *node)
{
    dunlin_op_window window;
    DUNLIN_TRY(dunlin__op_read_window(onnx, net, NULL, &window));
    if (dunlin__onnx_n_outputs(onnx) > 1) {
        return dunlin__onnx_reject(onnx, "", "its second output (indices) is not supported");
    }
    node->u.pool = (dunlin_net_pool){
        .kernel_h = window.kernel[0],
        .kernel_w = window.kernel[1],
        .stride_h = window.strides[0],
        .stride_w = window.strides[1],
        .pad_top = window.pads[0],
        .pad_left = window.pads[1],
        .pad_bottom = window.pads[2],
        .pad_right = window.pads[3],
        .is_ceil = dunlin__onnx_int(onnx, "ceil_mode", 0) != 0,
        .counts_padding = dunlin__onnx_int(onnx, "count_include_pad", 0) != 0,
        .dilation_h = window.dilations[0] > 1 ? window.dilations[0] : 0,
        .dilation_w = window.dilations[1] > 1 ? window.dilations[1] : 0,
    };
    return dunlin__op_take_value(onnx, 0, node);
}

dunlin_status dunlin__op_read_global_pool(dunlin_onnx_node *onnx, const dunlin_net *net,
                                          dunlin_net_node *node)
{
    DUNLIN_TRY(dunlin__op_take_value(onnx, 0, node));
    const dunlin_shape *shape = &net->values[node->inputs[0]].shape;
    node->u.pool = (dunlin_net_pool){.kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1};
    if (shape->n_dims == 2 || shape->n_dims == 3) {
        node->u.pool = dunlin__op_global_window(shape);
    }
    return DUNLIN_OK;
}

void dunlin__op_write_pool_window(dunlin_onnx_writer *writer, const dunlin_net *net,
                                  const dunlin_net_node *node)
{
    const dunlin_net_pool *p = &node->u.pool;
    const dunlin_op_window window = {
        .n_axes = dunlin__op_n_axes(net, node->inputs[0]),
        .kernel = {p->kernel_h, p->kernel_w},
        .strides = {p->stride_h, p->stride_w},
        .dilations = {step_of(p->dilation_h), step_of(p->dilation_w)},
        .pads = {p->pad_top, p->pad_left, p->pad_bottom, p->pad_right},
    };
    dunlin__op_write_window(writer, &window, p->dilation_h > 1 || p->dilation_w > 1);
}

/* --- parts --- */

/* Along one axis: the number of windows, 0: there are none. */
static int parts_along(const dunlin_op_axis *axis, dunlin_op_axis out[2])
{
    const dunlin_net_node nameless = {.name = ""};
    dunlin_error error;
    int64_t n = 0;
    const int32_t most = DUNLIN_MAX_POOL_AREA;
    out[0] = *axis;
    if (axis->kernel <= most) {
        return 1;
    }
    const int64_t covered = (int64_t)axis->kernel - axis->pad_before;
    const int32_t n_first = (axis->in - 1) / most + 1;
    if (dunlin__op_slide(&nameless, "", axis, &n, &error) != DUNLIN_OK || n != 1 ||
        axis->dilation != 1 || covered < axis->in || n_first > most) {
        return 0;
    }
    if (axis->in <= most) { /* the rest is padding */
        out[0] = (dunlin_op_axis){axis->in, axis->in, 1, 0, 0, 1, false};
        return 1;
    }
    out[0] = (dunlin_op_axis){axis->in, most, most, 0, 0, 1, true};
    out[1] = (dunlin_op_axis){n_first, n_first, 1, 0, 0, 1, false};
    return 2;
}

int dunlin__op_pool_parts(const dunlin_net_pool *pool, const dunlin_shape *in,
                          dunlin_net_pool parts[DUNLIN_MAX_POOL_PARTS])
{
    parts[0] = *pool;
    if ((int64_t)pool->kernel_h * pool->kernel_w <= DUNLIN_MAX_POOL_AREA) {
        return 1;
    }
    const int32_t in_h = in->n_dims == 3 ? (int32_t)in->dims[1] : 1;
    const int32_t in_w = (int32_t)in->dims[in->n_dims - 1];
    const dunlin_op_axis height = {in_h,          pool->kernel_h,   pool->stride_h,
                                   pool->pad_top, pool->pad_bottom, step_of(pool->dilation_h),
                                   pool->is_ceil};
    const dunlin_op_axis width = {in_w,           pool->kernel_w,  pool->stride_w,
                                  pool->pad_left, pool->pad_right, step_of(pool->dilation_w),
                                  pool->is_ceil};
    dunlin_op_axis rows[2];
    dunlin_op_axis columns[2];
    const int n_columns = parts_along(&width, columns);
    const int n_rows = in->n_dims == 3 ? parts_along(&height, rows) : 0;
    if (n_columns == 0 || (n_rows == 0 && in->n_dims == 3)) {
        return 0;
    }
    for (int i = 0; i < n_columns + n_rows; i++) {
        const bool is_column = i < n_columns;
        const dunlin_op_axis *at = is_column ? &columns[i] : &rows[i - n_columns];
        const int32_t dilation = at->dilation > 1 ? at->dilation : 0;
        parts[i] = (dunlin_net_pool){
            .kernel_h = is_column ? 1 : at->kernel,
            .kernel_w = is_column ? at->kernel : 1,
            .stride_h = is_column ? 1 : at->stride,
            .stride_w = is_column ? at->stride : 1,
            .pad_top = is_column ? 0 : at->pad_before,
            .pad_left = is_column ? at->pad_before : 0,
            .pad_bottom = is_column ? 0 : at->pad_after,
            .pad_right = is_column ? at->pad_after : 0,
            .is_ceil = at->is_ceil,
            .dilation_h = is_column ? 0 : dilation,
            .dilation_w = is_column ? dilation : 0,
        };
    }
    return n_columns + n_rows;
}
