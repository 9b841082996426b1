/*
 * zoo_resnet.c - ResNet-18, -34, -50 and -101 (He, Zhang, Ren, Sun, CVPR 2016, table 1).
 *
 * Where a block of three layers halves the image, its 3x3 layer does it, as torchvision has it.
 */
#include "zoo.h"

#include <stdio.h>

static dunlin_value add_conv_bn(dunlin_builder *b, const char *conv, const char *norm,
                                dunlin_value x, int32_t channels, int32_t kernel, int32_t stride)
{
    dunlin_conv_options options = {.struct_size = sizeof(dunlin_conv_options),
                                   .stride = stride,
                                   .padding = kernel / 2,
                                   .no_bias = true};
    x = dunlin_builder_conv(b, conv, x, channels, kernel, &options);
    return dunlin_builder_batch_norm(b, norm, x);
}

typedef struct block {
    const char *prefix;
    int32_t channels; /* of the 3x3 layers */
    int32_t stride;
    bool is_bottleneck; /* 1x1, 3x3, 1x1 with four times the channels; else 3x3, 3x3 */
    bool is_projected;
} block;

/* The i-th layer of a block, "conv1" and "bn1" for i = 1. */
static dunlin_value add_layer(dunlin_builder *b, const block *spec, int i, dunlin_value x,
                              int32_t channels, int32_t kernel, int32_t stride)
{
    char conv[DUNLIN_NET_MAX_NAME + 1];
    char norm[DUNLIN_NET_MAX_NAME + 1];
    char part[16];
    (void)snprintf(part, sizeof part, "conv%d", i);
    (void)dunlin__zoo_name(conv, spec->prefix, part);
    (void)snprintf(part, sizeof part, "bn%d", i);
    return add_conv_bn(b, conv, dunlin__zoo_name(norm, spec->prefix, part), x, channels, kernel,
                       stride);
}

static dunlin_value add_block(dunlin_builder *b, const block *spec, dunlin_value input)
{
    int32_t wide = spec->is_bottleneck ? 4 * spec->channels : spec->channels;
    dunlin_value x = input;
    if (spec->is_bottleneck) {
        x = dunlin_builder_relu(b, add_layer(b, spec, 1, x, spec->channels, 1, 1));
        x = dunlin_builder_relu(b, add_layer(b, spec, 2, x, spec->channels, 3, spec->stride));
        x = add_layer(b, spec, 3, x, wide, 1, 1);
    } else {
        x = dunlin_builder_relu(b, add_layer(b, spec, 1, x, spec->channels, 3, spec->stride));
        x = add_layer(b, spec, 2, x, wide, 3, 1);
    }
    dunlin_value shortcut = input;
    if (spec->is_projected) {
        char conv[DUNLIN_NET_MAX_NAME + 1];
        char norm[DUNLIN_NET_MAX_NAME + 1];
        shortcut = add_conv_bn(b, dunlin__zoo_name(conv, spec->prefix, "downsample.0"),
                               dunlin__zoo_name(norm, spec->prefix, "downsample.1"), input, wide, 1,
                               spec->stride);
    }
    return dunlin_builder_relu(b, dunlin_builder_add(b, x, shortcut));
}

static dunlin_value add_resnet(dunlin_builder *b, dunlin_value x, int32_t classes,
                               const int n_blocks[4], bool is_bottleneck)
{
    x = add_conv_bn(b, "conv1", "bn1", x, 64, 7, 2);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_max_pool(b, x, 3, 2, 1);
    for (int layer = 1; layer <= 4; layer++) {
        for (int i = 0; i < n_blocks[layer - 1]; i++) {
            char prefix[32];
            (void)snprintf(prefix, sizeof prefix, "layer%d.%d", layer, i);
            bool is_halving = layer > 1 && i == 0;
            x = add_block(b,
                          &(block){
                              .prefix = prefix,
                              .channels = 32 << layer,
                              .stride = is_halving ? 2 : 1,
                              .is_bottleneck = is_bottleneck,
                              .is_projected = is_halving || (is_bottleneck && i == 0),
                          },
                          x);
        }
    }
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    dunlin__zoo_init_he(b, DUNLIN_ZOO_HE_NORMAL_OUT);
    return dunlin_builder_dense(b, "fc", x, classes);
}

dunlin_value dunlin__zoo_resnet18(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_resnet(b, x, classes, (const int[]){2, 2, 2, 2}, false);
}

dunlin_value dunlin__zoo_resnet34(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_resnet(b, x, classes, (const int[]){3, 4, 6, 3}, false);
}

dunlin_value dunlin__zoo_resnet50(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_resnet(b, x, classes, (const int[]){3, 4, 6, 3}, true);
}

dunlin_value dunlin__zoo_resnet101(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_resnet(b, x, classes, (const int[]){3, 4, 23, 3}, true);
}
