/*
 * builder_pixels.c - the builder's layers that make images larger.
 *
 * Invariant: as in builder.c, nothing happens after the first error.
 */
#include "builder.h"

#include <dunlin/pixels.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <math.h>

static int32_t or_one(int32_t value)
{
    return value == 0 ? 1 : value;
}

static void add_param(dunlin_builder *builder, uint32_t index, const char *name,
                      const dunlin_shape *shape, dunlin_param_layout layout, int64_t fan_in)
{
    dunlin_net_param *param =
        dunlin__builder_param(builder, index, name, index == 0 ? "weight" : "bias", shape);
    if (param != NULL) {
        param->layout = layout;
        param->origin = DUNLIN_PARAM_UNIFORM;
        param->bound = fan_in > 0 ? (float)(1.0 / sqrt((double)fan_in)) : 0.0F;
    }
}

/* Of a signal what is said of width counts. */
static dunlin_net_conv square(const dunlin_conv_transposed_options *o, int32_t out_channels,
                              int32_t kernel, bool is_signal)
{
    return (dunlin_net_conv){
        .out_channels = out_channels,
        .kernel_h = is_signal ? 1 : kernel,
        .kernel_w = kernel,
        .stride_h = is_signal ? 1 : or_one(o->stride),
        .stride_w = or_one(o->stride),
        .pad_top = is_signal ? 0 : o->padding,
        .pad_left = o->padding,
        .pad_bottom = is_signal ? 0 : o->padding,
        .pad_right = o->padding,
        .dilation_h = is_signal ? 1 : or_one(o->dilation),
        .dilation_w = or_one(o->dilation),
        .groups = or_one(o->groups),
        .extra_h = is_signal ? 0 : o->output_padding,
        .extra_w = o->output_padding,
    };
}

dunlin_value dunlin_builder_conv_transposed(dunlin_builder *builder, const char *name,
                                            dunlin_value input, int32_t out_channels,
                                            int32_t kernel,
                                            const dunlin_conv_transposed_options *options)
{
    dunlin_conv_transposed_options o = DUNLIN_CONV_TRANSPOSED_OPTIONS_INIT;
    dunlin_error error = {0};
    if (options != NULL &&
        DUNLIN_STRUCT_TAKE(dunlin_conv_transposed_options, options, &o, &error) != DUNLIN_OK) {
        return dunlin__builder_refuse(builder, error.text);
    }
    dunlin_net_node *node = dunlin__builder_begin(builder, DUNLIN_OP_CONV_TRANSPOSED,
                                                  name == NULL ? "" : name, "", &input, 1);
    if (node == NULL) {
        return -1;
    }
    const dunlin_net_value *x = &dunlin__builder_net(builder)->values[input];
    const bool is_signal = x->shape.n_dims == 2;
    node->u.conv = square(&o, out_channels, kernel, is_signal);
    const int64_t channels = x->shape.dims[0];
    const int32_t groups = node->u.conv.groups;
    if (x->layout != DUNLIN_LAYOUT_IMAGE || groups < 1 || out_channels % groups != 0) {
        return dunlin__builder_refuse(
            builder, "a transposed convolution's input must be an image or a signal, and its "
                     "groups divide the output channels");
    }
    const int64_t per_group = out_channels / groups;
    dunlin_shape weight = {4, {channels, per_group, kernel, kernel}};
    if (is_signal) {
        weight = (dunlin_shape){3, {channels, per_group, kernel}};
    }
    const dunlin_shape bias = {1, {out_channels}};
    const int64_t fan_in = per_group * kernel * (is_signal ? 1 : kernel);
    add_param(builder, 0, name, &weight, DUNLIN_PARAM_CONV, fan_in);
    if (!o.no_bias) {
        add_param(builder, 1, name, &bias, DUNLIN_PARAM_PLAIN, fan_in);
    }
    return dunlin__builder_end(builder);
}

dunlin_value dunlin_builder_resize(dunlin_builder *builder, dunlin_value input, int32_t height,
                                   int32_t width, dunlin_interpolation how)
{
    if ((unsigned)how > DUNLIN_INTERPOLATION_ALIGNED) {
        return dunlin__builder_refuse(builder, "no such interpolation");
    }
    dunlin_net_node *node =
        dunlin__builder_begin(builder, DUNLIN_OP_RESIZE, NULL, "resize", &input, 1);
    if (node == NULL) {
        return -1;
    }
    const bool is_nearest = how == DUNLIN_INTERPOLATION_NEAREST;
    node->u.resize = (dunlin_net_resize){
        .out_h = dunlin__builder_net(builder)->values[input].shape.n_dims == 2 ? 1 : height,
        .out_w = width,
        .is_linear = !is_nearest,
        .coordinates = is_nearest                            ? DUNLIN_RESIZE_ASYMMETRIC
                       : how == DUNLIN_INTERPOLATION_ALIGNED ? DUNLIN_RESIZE_ALIGN_CORNERS
                                                             : DUNLIN_RESIZE_HALF_PIXEL,
        .rounding = is_nearest ? DUNLIN_RESIZE_FLOOR : DUNLIN_RESIZE_ROUND_PREFER_FLOOR,
    };
    return dunlin__builder_end(builder);
}
