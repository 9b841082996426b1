/*
 * zoo_unet.c - U-Net (Ronneberger, Fischer and Brox 2015) as it is used now: convolutions keep the
 * size, batch norm behind each, transposed convolutions on the way up. One row of logits a pixel.
 *
 * Parameters are named as in github.com/milesial/Pytorch-UNet (bilinear = False), so that its
 * weights go both ways.
 */
#include "zoo.h"

#include <dunlin/pixels.h>

#include <stdio.h>

#define MAX_LEVELS 4

/* Twice: 3 x 3 convolution without bias, batch norm, ReLU. */
static dunlin_value add_double(dunlin_builder *b, const char *prefix, dunlin_value x,
                               int32_t channels)
{
    const dunlin_conv_options options = {
        .struct_size = sizeof options, .padding = 1, .no_bias = true};
    for (int i = 0; i < 2; i++) {
        char suffix[24];
        char name[DUNLIN_NET_MAX_NAME + 1];
        (void)snprintf(suffix, sizeof suffix, "double_conv.%d", 3 * i);
        x = dunlin_builder_conv(b, dunlin__zoo_name(name, prefix, suffix), x, channels, 3,
                                &options);
        (void)snprintf(suffix, sizeof suffix, "double_conv.%d", 3 * i + 1);
        x = dunlin_builder_relu(
            b, dunlin_builder_batch_norm(b, dunlin__zoo_name(name, prefix, suffix), x));
    }
    return x;
}

/* Twice as large, and what had this size on the way down beside it. */
static dunlin_value add_up(dunlin_builder *b, int level, dunlin_value x, dunlin_value beside,
                           int32_t channels)
{
    dunlin_conv_transposed_options twice = DUNLIN_CONV_TRANSPOSED_OPTIONS_INIT;
    twice.stride = 2;
    char name[32];
    (void)snprintf(name, sizeof name, "up%d.up", level);
    const dunlin_value both[2] = {beside,
                                  dunlin_builder_conv_transposed(b, name, x, channels, 2, &twice)};
    (void)snprintf(name, sizeof name, "up%d.conv", level);
    return add_double(b, name, dunlin_builder_concat(b, both, 2), channels);
}

static dunlin_value add_unet(dunlin_builder *b, dunlin_value x, int32_t classes, int32_t width,
                             int levels)
{
    const dunlin_net *net = dunlin__builder_net(b);
    if (net == NULL) {
        return -1;
    }
    const dunlin_shape *image = &net->values[x].shape;
    const int64_t unit = INT64_C(1) << levels;
    if (image->n_dims != 3 || image->dims[1] % unit != 0 || image->dims[2] % unit != 0) {
        return dunlin__builder_fail(
            b,
            "a U-Net of %d levels takes images whose height and width %d divides, not %lld x %lld",
            levels, (int)unit, (long long)image->dims[1],
            (long long)(image->n_dims == 3 ? image->dims[2] : 1));
    }
    dunlin_value ways[MAX_LEVELS];
    char name[32];
    x = add_double(b, "inc", x, width);
    for (int i = 0; i < levels; i++) {
        ways[i] = x;
        (void)snprintf(name, sizeof name, "down%d.maxpool_conv.1", i + 1);
        x = add_double(b, name, dunlin_builder_max_pool(b, x, 2, 2, 0), width << (i + 1));
    }
    for (int i = levels; i-- > 0;) {
        x = add_up(b, levels - i, x, ways[i], width << i);
    }
    return dunlin_builder_conv(b, "outc.conv", x, classes, 1, NULL);
}

/* 31,037,698 parameters from 3 channels to 2 classes. */
dunlin_value dunlin__zoo_unet(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_unet(b, x, classes, 64, 4);
}

/* Three levels from 16 channels on, for small images: 482,788 parameters to 4 classes. */
dunlin_value dunlin__zoo_unet_small(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_unet(b, x, classes, 16, 3);
}
