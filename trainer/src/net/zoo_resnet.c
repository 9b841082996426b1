/*
 * zoo_resnet.c - ResNet-18 (He, Zhang, Ren, Sun, CVPR 2016, table 1).
 */
#include "zoo.h"

#include <stdio.h>

static dunlin_value add_conv_bn(dunlin_builder *b, const char *conv, const char *norm,
                                dunlin_value x, int32_t channels, int32_t kernel, int32_t stride)
{
    dunlin_conv_options options = {.stride = stride, .padding = kernel / 2, .no_bias = true};
    x = dunlin_builder_conv(b, conv, x, channels, kernel, &options);
    return dunlin_builder_batch_norm(b, norm, x);
}

static dunlin_value add_block(dunlin_builder *b, const char *prefix, dunlin_value input,
                              int32_t channels, int32_t stride, bool is_projected)
{
    char conv[DUNLIN_NET_MAX_NAME + 1];
    char norm[DUNLIN_NET_MAX_NAME + 1];
    dunlin_value x = add_conv_bn(b, dunlin__zoo_name(conv, prefix, "conv1"),
                                 dunlin__zoo_name(norm, prefix, "bn1"), input, channels, 3, stride);
    x = dunlin_builder_relu(b, x);
    x = add_conv_bn(b, dunlin__zoo_name(conv, prefix, "conv2"),
                    dunlin__zoo_name(norm, prefix, "bn2"), x, channels, 3, 1);
    dunlin_value shortcut = input;
    if (is_projected) {
        shortcut =
            add_conv_bn(b, dunlin__zoo_name(conv, prefix, "downsample.0"),
                        dunlin__zoo_name(norm, prefix, "downsample.1"), input, channels, 1, stride);
    }
    return dunlin_builder_relu(b, dunlin_builder_add(b, x, shortcut));
}

dunlin_value dunlin__zoo_resnet18(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = add_conv_bn(b, "conv1", "bn1", x, 64, 7, 2);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_max_pool(b, x, 3, 2, 1);
    for (int layer = 1; layer <= 4; layer++) {
        int32_t channels = 32 << layer;
        for (int i = 0; i < 2; i++) {
            char prefix[32];
            (void)snprintf(prefix, sizeof prefix, "layer%d.%d", layer, i);
            bool is_projected = layer > 1 && i == 0;
            x = add_block(b, prefix, x, channels, is_projected ? 2 : 1, is_projected);
        }
    }
    x = dunlin_builder_global_average_pool(b, x);
    x = dunlin_builder_flatten(b, x);
    dunlin__zoo_init_he_fan_out(b);
    return dunlin_builder_dense(b, "fc", x, classes);
}
