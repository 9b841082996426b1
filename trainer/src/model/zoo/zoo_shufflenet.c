/*
 * zoo_shufflenet.c - ShuffleNetV2 (Ma, Zhang, Zheng, Sun, ECCV 2018, table 5 and figure 3), as
 * torchvision has it: the halves of a unit are mixed behind their join, by a shuffle of two groups.
 */
#include "zoo.h"

#include <stdio.h>

/* A convolution without bias and batch norm, named PREFIX.AT and PREFIX.(AT + 1). */
static dunlin_value add_conv_bn(dunlin_builder *b, const char *prefix, int at, dunlin_value x,
                                int32_t channels, const dunlin_conv_options *options,
                                int32_t kernel)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    char part[16];
    (void)snprintf(part, sizeof part, "%d", at);
    x = dunlin_builder_conv(b, dunlin__zoo_name(name, prefix, part), x, channels, kernel, options);
    (void)snprintf(part, sizeof part, "%d", at + 1);
    return dunlin_builder_batch_norm(b, dunlin__zoo_name(name, prefix, part), x);
}

static dunlin_value add_pointwise(dunlin_builder *b, const char *prefix, int at, dunlin_value x,
                                  int32_t channels)
{
    const dunlin_conv_options options = {.struct_size = sizeof options, .no_bias = true};
    return dunlin_builder_relu(b, add_conv_bn(b, prefix, at, x, channels, &options, 1));
}

static dunlin_value add_depthwise(dunlin_builder *b, const char *prefix, int at, dunlin_value x,
                                  int32_t channels, int32_t stride)
{
    const dunlin_conv_options options = {.struct_size = sizeof options,
                                         .stride = stride,
                                         .padding = 1,
                                         .groups = channels,
                                         .no_bias = true};
    return add_conv_bn(b, prefix, at, x, channels, &options, 3);
}

/* `wide` channels out. The first unit of a stage halves the image and sends all of it through both
 * branches; the others send half of the channels through one, and the other half past it. */
static dunlin_value add_unit(dunlin_builder *b, const char *prefix, dunlin_value x, int32_t inputs,
                             int32_t wide, bool is_first)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    const int32_t half = wide / 2;
    dunlin_value branches[2] = {x, x};
    if (is_first) {
        (void)dunlin__zoo_name(name, prefix, "branch1");
        branches[0] = add_depthwise(b, name, 0, x, inputs, 2);
        branches[0] = add_pointwise(b, name, 2, branches[0], half);
    } else {
        branches[0] = dunlin_builder_slice(b, x, 0, 0, half);
        branches[1] = dunlin_builder_slice(b, x, 0, half, wide);
    }
    (void)dunlin__zoo_name(name, prefix, "branch2");
    branches[1] = add_pointwise(b, name, 0, branches[1], half);
    branches[1] = add_depthwise(b, name, 3, branches[1], half, is_first ? 2 : 1);
    branches[1] = add_pointwise(b, name, 5, branches[1], half);
    return dunlin_builder_channel_shuffle(b, dunlin_builder_concat(b, branches, 2), 2);
}

static dunlin_value add_shufflenet(dunlin_builder *b, dunlin_value x, int32_t classes,
                                   const int32_t widths[3])
{
    static const int n_units[3] = {4, 8, 4};
    const dunlin_conv_options stem = {
        .struct_size = sizeof stem, .stride = 2, .padding = 1, .no_bias = true};
    int32_t channels = 24;
    x = dunlin_builder_relu(b, add_conv_bn(b, "conv1", 0, x, channels, &stem, 3));
    x = dunlin_builder_max_pool(b, x, 3, 2, 1);
    for (int stage = 0; stage < 3; stage++) {
        for (int i = 0; i < n_units[stage]; i++) {
            char prefix[32];
            (void)snprintf(prefix, sizeof prefix, "stage%d.%d", stage + 2, i);
            x = add_unit(b, prefix, x, channels, widths[stage], i == 0);
            channels = widths[stage];
        }
    }
    x = add_pointwise(b, "conv5", 0, x, 1024);
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    return dunlin_builder_dense(b, "fc", x, classes);
}

dunlin_value dunlin__zoo_shufflenet_v2_x0_5(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_shufflenet(b, x, classes, (const int32_t[]){48, 96, 192});
}

dunlin_value dunlin__zoo_shufflenet_v2_x1_0(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_shufflenet(b, x, classes, (const int32_t[]){116, 232, 464});
}
