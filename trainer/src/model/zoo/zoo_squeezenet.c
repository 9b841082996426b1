/*
 * zoo_squeezenet.c - SqueezeNet 1.1 (Iandola, Han, Moskewicz, Ashraf, Dally, Keutzer 2016, and the
 * authors' later, cheaper variant).
 */
#include "zoo.h"

#include <stdio.h>

static dunlin_value add_conv_relu(dunlin_builder *b, const char *prefix, const char *part,
                                  dunlin_value x, int32_t channels, int32_t kernel)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    dunlin_conv_options options = {.struct_size = sizeof(dunlin_conv_options),
                                   .padding = kernel / 2};
    x = dunlin_builder_conv(b, dunlin__zoo_name(name, prefix, part), x, channels, kernel, &options);
    return dunlin_builder_relu(b, x);
}

static dunlin_value add_fire(dunlin_builder *b, int index, dunlin_value x, int32_t squeezed,
                             int32_t expanded)
{
    char prefix[32];
    (void)snprintf(prefix, sizeof prefix, "features.%d", index);
    x = add_conv_relu(b, prefix, "squeeze", x, squeezed, 1);
    dunlin_value branches[2];
    branches[0] = add_conv_relu(b, prefix, "expand1x1", x, expanded, 1);
    branches[1] = add_conv_relu(b, prefix, "expand3x3", x, expanded, 3);
    return dunlin_builder_concat(b, branches, 2);
}

static dunlin_value add_pool(dunlin_builder *b, dunlin_value x)
{
    dunlin_net_pool pool = {
        .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .is_ceil = true};
    return dunlin__builder_pool(b, DUNLIN_OP_MAX_POOL, x, &pool);
}

dunlin_value dunlin__zoo_squeezenet1_1(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = dunlin_builder_conv(
        b, "features.0", x, 64, 3,
        &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .stride = 2});
    x = dunlin_builder_relu(b, x);
    x = add_pool(b, x);
    x = add_fire(b, 3, x, 16, 64);
    x = add_fire(b, 4, x, 16, 64);
    x = add_pool(b, x);
    x = add_fire(b, 6, x, 32, 128);
    x = add_fire(b, 7, x, 32, 128);
    x = add_pool(b, x);
    x = add_fire(b, 9, x, 48, 192);
    x = add_fire(b, 10, x, 48, 192);
    x = add_fire(b, 11, x, 64, 256);
    x = add_fire(b, 12, x, 64, 256);
    x = dunlin_builder_dropout(b, x, 0.5f);
    x = dunlin_builder_conv(b, "classifier.1", x, classes, 1, NULL);
    dunlin__zoo_init_he(b, DUNLIN_ZOO_HE_UNIFORM_IN);
    dunlin__zoo_init_head(b, 0.01f);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_global_average_pool(b, x);
    return dunlin_builder_flatten(b, x);
}
