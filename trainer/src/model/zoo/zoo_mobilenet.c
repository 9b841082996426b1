/*
 * zoo_mobilenet.c - MobileNetV1 (Howard et al. 2017, table 1) and MobileNetV2 (Sandler, Howard,
 * Zhu, Zhmoginov, Chen, CVPR 2018, table 2), both at width 1.
 *
 * torchvision has no MobileNetV1; its names here are those of nested torch.nn.Sequential.
 */
#include "zoo.h"

#include <stdio.h>

typedef struct stage {
    int32_t expansion, channels, n_blocks, stride;
} stage;

static const stage stages[] = {
    {1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2},  {6, 64, 4, 2},
    {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1},
};
#define N_STAGES (sizeof stages / sizeof stages[0])

/* Convolution and batch norm, named PREFIX.0 and PREFIX.1. */
static dunlin_value add_conv_bn(dunlin_builder *b, const char *prefix, dunlin_value x,
                                int32_t channels, int32_t kernel, int32_t stride, int32_t groups)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    dunlin_conv_options options = {.struct_size = sizeof(dunlin_conv_options),
                                   .stride = stride,
                                   .padding = kernel / 2,
                                   .groups = groups,
                                   .no_bias = true};
    x = dunlin_builder_conv(b, dunlin__zoo_name(name, prefix, "0"), x, channels, kernel, &options);
    return dunlin_builder_batch_norm(b, dunlin__zoo_name(name, prefix, "1"), x);
}

static dunlin_value add_unit(dunlin_builder *b, const char *prefix, dunlin_value x,
                             int32_t channels, int32_t kernel, int32_t stride, int32_t groups)
{
    x = add_conv_bn(b, prefix, x, channels, kernel, stride, groups);
    return dunlin_builder_relu6(b, x);
}

typedef struct block {
    int32_t index; /* of `features` */
    int32_t in_channels, out_channels;
    int32_t expansion, stride;
} block;

static dunlin_value add_block(dunlin_builder *b, const block *spec, dunlin_value input)
{
    char name[64];
    int part = 0;
    int32_t hidden = spec->in_channels * spec->expansion;
    dunlin_value x = input;
    if (spec->expansion != 1) {
        (void)snprintf(name, sizeof name, "features.%d.conv.%d", spec->index, part++);
        x = add_unit(b, name, x, hidden, 1, 1, 1);
    }
    (void)snprintf(name, sizeof name, "features.%d.conv.%d", spec->index, part++);
    x = add_unit(b, name, x, hidden, 3, spec->stride, hidden);
    (void)snprintf(name, sizeof name, "features.%d.conv.%d", spec->index, part++);
    x = dunlin_builder_conv(
        b, name, x, spec->out_channels, 1,
        &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .no_bias = true});
    (void)snprintf(name, sizeof name, "features.%d.conv.%d", spec->index, part);
    x = dunlin_builder_batch_norm(b, name, x);
    bool is_residual = spec->stride == 1 && spec->in_channels == spec->out_channels;
    return is_residual ? dunlin_builder_add(b, input, x) : x;
}

dunlin_value dunlin__zoo_mobilenet_v2(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = add_unit(b, "features.0", x, 32, 3, 2, 1);
    block next = {.index = 1, .in_channels = 32};
    for (size_t i = 0; i < N_STAGES; i++) {
        next.out_channels = stages[i].channels;
        next.expansion = stages[i].expansion;
        for (int32_t j = 0; j < stages[i].n_blocks; j++) {
            next.stride = j == 0 ? stages[i].stride : 1;
            x = add_block(b, &next, x);
            next.in_channels = next.out_channels;
            next.index++;
        }
    }
    x = add_unit(b, "features.18", x, 1280, 1, 1, 1);
    x = dunlin_builder_global_average_pool(b, x);
    x = dunlin_builder_flatten(b, x);
    x = dunlin_builder_dropout(b, x, 0.2f);
    x = dunlin_builder_dense(b, "classifier.1", x, classes);
    dunlin__zoo_init_he(b, DUNLIN_ZOO_HE_NORMAL_OUT);
    dunlin__zoo_init_head(b, 0.01f);
    return x;
}

dunlin_value dunlin__zoo_mobilenet_v1(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    static const struct {
        int32_t out_channels, stride;
    } pairs[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
                 {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};
    int32_t channels = 32;
    x = dunlin_builder_relu(b, add_conv_bn(b, "features.0", x, channels, 3, 2, 1));
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "features.%zu.0", i + 1);
        x = add_conv_bn(b, name, x, channels, 3, pairs[i].stride, channels);
        x = dunlin_builder_relu(b, x);
        (void)snprintf(name, sizeof name, "features.%zu.1", i + 1);
        channels = pairs[i].out_channels;
        x = dunlin_builder_relu(b, add_conv_bn(b, name, x, channels, 1, 1, 1));
    }
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    return dunlin_builder_dense(b, "classifier", x, classes);
}
