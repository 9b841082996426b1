/*
 * zoo_squeezed.c - networks of inverted residual blocks with squeeze and excitation: MobileNetV3
 * small and large (Howard et al., ICCV 2019, tables 1 and 2) and EfficientNet-B0 (Tan and Le, ICML
 * 2019, table 1), as torchvision has them.
 */
#include "zoo.h"

#include <math.h>
#include <stdio.h>

typedef dunlin_value (*activation_fn)(dunlin_builder *b, dunlin_value x);

typedef struct block {
    int32_t kernel, expanded, channels;
    int32_t squeezed; /* 0: no squeeze and excitation */
    int32_t stride;
    bool is_relu; /* MobileNetV3: else hard swish */
} block;

/* What differs between the two families. */
typedef struct family {
    activation_fn squeeze_fn, gate_fn;
} family;

static const family mobile = {dunlin_builder_relu, dunlin_builder_hard_sigmoid};
static const family efficient = {dunlin_builder_silu, dunlin_builder_sigmoid};

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

static dunlin_value add_squeeze(dunlin_builder *b, const family *of, const char *prefix,
                                dunlin_value x, const block *spec)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    dunlin_value gate = dunlin_builder_global_average_pool(b, x);
    gate = dunlin_builder_conv(b, dunlin__zoo_name(name, prefix, "fc1"), gate, spec->squeezed, 1,
                               NULL);
    gate = of->squeeze_fn(b, gate);
    gate = dunlin_builder_conv(b, dunlin__zoo_name(name, prefix, "fc2"), gate, spec->expanded, 1,
                               NULL);
    return dunlin_builder_multiply(b, of->gate_fn(b, gate), x);
}

/* The block PREFIX of an input with `in_channels`, its parts numbered. */
static dunlin_value add_block(dunlin_builder *b, const family *of, const char *prefix,
                              dunlin_value input, int32_t in_channels, const block *spec,
                              float depth)
{
    char name[64];
    int part = 0;
    dunlin_value x = input;
    const activation_fn wide_fn = spec->is_relu ? dunlin_builder_relu : dunlin_builder_hard_swish;
    const activation_fn bend_fn = of == &efficient ? dunlin_builder_silu : wide_fn;
    if (spec->expanded != in_channels) {
        (void)snprintf(name, sizeof name, "%s.block.%d", prefix, part++);
        x = bend_fn(b, add_conv_bn(b, name, x, spec->expanded, 1, 1, 1));
    }
    (void)snprintf(name, sizeof name, "%s.block.%d", prefix, part++);
    x = bend_fn(
        b, add_conv_bn(b, name, x, spec->expanded, spec->kernel, spec->stride, spec->expanded));
    if (spec->squeezed > 0) {
        (void)snprintf(name, sizeof name, "%s.block.%d", prefix, part++);
        x = add_squeeze(b, of, name, x, spec);
    }
    (void)snprintf(name, sizeof name, "%s.block.%d", prefix, part);
    x = add_conv_bn(b, name, x, spec->channels, 1, 1, 1);
    if (spec->stride != 1 || in_channels != spec->channels) {
        return x;
    }
    return dunlin_builder_add(b, depth > 0.0f ? dunlin_builder_stochastic_depth(b, x, depth) : x,
                              input);
}

static dunlin_value add_mobilenet_v3(dunlin_builder *b, dunlin_value x, int32_t classes,
                                     const block *blocks, int n_blocks, int32_t last)
{
    char name[40];
    int32_t channels = 16;
    x = dunlin_builder_hard_swish(b, add_conv_bn(b, "features.0", x, channels, 3, 2, 1));
    for (int i = 0; i < n_blocks; i++) {
        (void)snprintf(name, sizeof name, "features.%d", i + 1);
        x = add_block(b, &mobile, name, x, channels, &blocks[i], 0.0f);
        channels = blocks[i].channels;
    }
    (void)snprintf(name, sizeof name, "features.%d", n_blocks + 1);
    x = dunlin_builder_hard_swish(b, add_conv_bn(b, name, x, 6 * channels, 1, 1, 1));
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    x = dunlin_builder_hard_swish(b, dunlin_builder_dense(b, "classifier.0", x, last));
    x = dunlin_builder_dense(b, "classifier.3", dunlin_builder_dropout(b, x, 0.2f), classes);
    dunlin__zoo_set_norms(b, 0.001f, 0.01f);
    dunlin__zoo_init_he(b, DUNLIN_ZOO_HE_NORMAL_OUT);
    dunlin__zoo_init_dense(b, 0.01f);
    return x;
}

dunlin_value dunlin__zoo_mobilenet_v3_small(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    static const block blocks[] = {
        {3, 16, 16, 8, 2, true},     {3, 72, 24, 0, 2, true},     {3, 88, 24, 0, 1, true},
        {5, 96, 40, 24, 2, false},   {5, 240, 40, 64, 1, false},  {5, 240, 40, 64, 1, false},
        {5, 120, 48, 32, 1, false},  {5, 144, 48, 40, 1, false},  {5, 288, 96, 72, 2, false},
        {5, 576, 96, 144, 1, false}, {5, 576, 96, 144, 1, false},
    };
    return add_mobilenet_v3(b, x, classes, blocks, sizeof blocks / sizeof blocks[0], 1024);
}

dunlin_value dunlin__zoo_mobilenet_v3_large(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    static const block blocks[] = {
        {3, 16, 16, 0, 1, true},      {3, 64, 24, 0, 2, true},      {3, 72, 24, 0, 1, true},
        {5, 72, 40, 24, 2, true},     {5, 120, 40, 32, 1, true},    {5, 120, 40, 32, 1, true},
        {3, 240, 80, 0, 2, false},    {3, 200, 80, 0, 1, false},    {3, 184, 80, 0, 1, false},
        {3, 184, 80, 0, 1, false},    {3, 480, 112, 120, 1, false}, {3, 672, 112, 168, 1, false},
        {5, 672, 160, 168, 2, false}, {5, 960, 160, 240, 1, false}, {5, 960, 160, 240, 1, false},
    };
    return add_mobilenet_v3(b, x, classes, blocks, sizeof blocks / sizeof blocks[0], 1280);
}

/* Dense weights uniform within 1 / sqrt(classes), biases zero. */
static void init_efficient_head(dunlin_builder *b, int32_t classes)
{
    dunlin_net *net = dunlin__builder_net(b);
    dunlin__zoo_init_dense(b, 0.0f);
    if (net != NULL) {
        net->params[net->nodes[net->n_nodes - 1].params[0]].bound =
            (float)(1.0 / sqrt((double)classes));
    }
}

dunlin_value dunlin__zoo_efficientnet_b0(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    static const struct {
        int32_t expansion, kernel, stride, channels, n_blocks;
    } stages[] = {{1, 3, 1, 16, 1},  {6, 3, 2, 24, 2},  {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3},
                  {6, 5, 1, 112, 3}, {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}};
    char name[40];
    int32_t channels = 32;
    int32_t n = 0; /* of the 16 blocks: the later, the likelier it is left out */
    x = dunlin_builder_silu(b, add_conv_bn(b, "features.0", x, channels, 3, 2, 1));
    for (int i = 0; i < 7; i++) {
        for (int32_t j = 0; j < stages[i].n_blocks; j++) {
            const block spec = {.kernel = stages[i].kernel,
                                .expanded = channels * stages[i].expansion,
                                .channels = stages[i].channels,
                                .squeezed = channels / 4,
                                .stride = j == 0 ? stages[i].stride : 1};
            (void)snprintf(name, sizeof name, "features.%d.%d", i + 1, (int)j);
            x = add_block(b, &efficient, name, x, channels, &spec, 0.2f * (float)n++ / 16.0f);
            channels = spec.channels;
        }
    }
    x = dunlin_builder_silu(b, add_conv_bn(b, "features.8", x, 1280, 1, 1, 1));
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    x = dunlin_builder_dense(b, "classifier.1", dunlin_builder_dropout(b, x, 0.2f), classes);
    dunlin__zoo_init_he(b, DUNLIN_ZOO_HE_NORMAL_OUT);
    init_efficient_head(b, classes);
    return x;
}
