/*
 * geometry.c - the views of a convolution. Offsets in a phase come out exact: only taps that meet
 * the phase are taken.
 */
#include "geometry.h"

static void axis_forward(int32_t n_in, int32_t n_out, int32_t kernel, int32_t stride, int32_t pad,
                         int32_t dilation, conv_axis *out_axis)
{
    *out_axis = (conv_axis){
        .n_grid = n_out,
        .n_source = n_in,
        .n_taps = kernel,
        .step = stride,
        .offset = -pad,
        .pitch = dilation,
        .first_tap = 0,
        .tap_step = 1,
        .n_out = n_out,
        .out_first = 0,
        .out_step = 1,
    };
}

/* `forward` is the axis of the forward pass: its source is our output. */
static void axis_input_grad(const conv_axis *forward, int32_t phase, conv_axis *out_axis)
{
    int32_t stride = forward->step;
    int32_t pad = -forward->offset;
    int32_t dilation = forward->pitch;
    int32_t n_taps = 0;
    int32_t last = 0;
    int32_t period = 0;
    for (int32_t k = 0; k < forward->n_taps; k++) {
        if ((phase + pad - k * dilation) % stride == 0) {
            period = n_taps == 0 ? 0 : k - last;
            last = k;
            n_taps++;
        }
    }
    int32_t n_pixels = forward->n_source - phase;
    *out_axis = (conv_axis){
        .n_grid = n_pixels <= 0 ? 0 : (n_pixels + stride - 1) / stride,
        .n_source = forward->n_out,
        .n_taps = n_taps,
        .step = 1,
        .offset = n_taps == 0 ? 0 : (phase + pad - last * dilation) / stride,
        .pitch = period * dilation / stride,
        .first_tap = last,
        .tap_step = -period,
        .n_out = forward->n_source,
        .out_first = phase,
        .out_step = stride,
    };
}

void dunlin__view_forward(const dunlin_conv_shape *shape, conv_view *out_view)
{
    axis_forward(shape->in_h, shape->out_h, shape->kernel_h, shape->stride_h, shape->pad_top,
                 shape->dilation_h, &out_view->h);
    axis_forward(shape->in_w, shape->out_w, shape->kernel_w, shape->stride_w, shape->pad_left,
                 shape->dilation_w, &out_view->w);
    out_view->kernel_w = shape->kernel_w;
    out_view->channels = shape->in_c / shape->groups;
    out_view->outputs = shape->out_c / shape->groups;
    out_view->groups = shape->groups;
    out_view->source_pitch = shape->in_c;
    out_view->out_pitch = shape->out_c;
}

void dunlin__view_input_grad(const dunlin_conv_shape *shape, int32_t phase_h, int32_t phase_w,
                             conv_view *out_view)
{
    conv_view forward;
    dunlin__view_forward(shape, &forward);
    axis_input_grad(&forward.h, phase_h, &out_view->h);
    axis_input_grad(&forward.w, phase_w, &out_view->w);
    out_view->kernel_w = shape->kernel_w;
    out_view->channels = forward.outputs;
    out_view->outputs = forward.channels;
    out_view->groups = shape->groups;
    out_view->source_pitch = shape->out_c;
    out_view->out_pitch = shape->in_c;
}

bool dunlin__shape_is_depthwise(const dunlin_conv_shape *shape)
{
    return shape->groups > 1 && shape->groups == shape->in_c && shape->groups == shape->out_c;
}

static bool axis_is_plain(const conv_axis *axis)
{
    return axis->n_taps == 1 && axis->step == 1 && axis->offset == 0 &&
           axis->n_grid == axis->n_source;
}

bool dunlin__view_is_plain(const conv_view *view)
{
    return axis_is_plain(&view->h) && axis_is_plain(&view->w);
}

/* Taps [*out_first, *out_end) are all that meet the source anywhere. */
static void taps_inside(const conv_axis *axis, int32_t *out_first, int32_t *out_end)
{
    *out_first = axis->n_taps;
    *out_end = 0;
    for (int32_t i = 0; i < axis->n_taps; i++) {
        for (int32_t t = 0; t < axis->n_grid; t++) {
            const int32_t at = t * axis->step + axis->offset + i * axis->pitch;
            if (at >= 0 && at < axis->n_source) {
                *out_first = *out_first < i ? *out_first : i;
                *out_end = i + 1;
                break;
            }
        }
    }
}

bool dunlin__shape_trim(const dunlin_conv_shape *shape, dunlin_conv_shape *out_shape,
                        int64_t *out_first)
{
    conv_view view;
    int32_t h0 = 0;
    int32_t h1 = 0;
    int32_t w0 = 0;
    int32_t w1 = 0;
    dunlin__view_forward(shape, &view);
    taps_inside(&view.h, &h0, &h1);
    taps_inside(&view.w, &w0, &w1);
    if (h0 >= h1 || w0 >= w1) {
        return false;
    }
    if (h1 - h0 > 1) { /* whole rows of the kernel, or the weights are no run */
        w0 = 0;
        w1 = shape->kernel_w;
    }
    if (h1 - h0 == shape->kernel_h && w1 - w0 == shape->kernel_w) {
        return false;
    }
    *out_shape = *shape;
    out_shape->kernel_h = h1 - h0;
    out_shape->kernel_w = w1 - w0;
    out_shape->pad_top = shape->pad_top - h0 * shape->dilation_h;
    out_shape->pad_left = shape->pad_left - w0 * shape->dilation_w;
    *out_first = (int64_t)h0 * shape->kernel_w + w0;
    return true;
}
