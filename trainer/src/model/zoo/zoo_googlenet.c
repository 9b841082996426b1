/*
 * zoo_googlenet.c - GoogLeNet (Szegedy et al., "Going deeper with convolutions", CVPR 2015, table
 * 1) as torchvision has it: with batch norm, 3x3 in place of the 5x5 convolutions, and pools that
 * round up; without the two auxiliary heads, which training on ImageNet uses, or with them.
 */
#include "zoo.h"

#include <stdio.h>

static dunlin_value add_unit(dunlin_builder *b, const char *prefix, const char *part,
                             dunlin_value x, int32_t channels, int32_t kernel)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    const int32_t pad = kernel / 2;
    return dunlin__zoo_conv_bn_relu(
        b, dunlin__zoo_name(name, prefix, part), x,
        &(dunlin_net_conv){channels, kernel, kernel, 1, 1, pad, pad, pad, pad, 1, 1, 1, 0, 0});
}

static dunlin_value add_pool(dunlin_builder *b, dunlin_value x, int32_t kernel, int32_t stride,
                             int32_t padding)
{
    return dunlin__builder_pool(b, DUNLIN_OP_MAX_POOL, x,
                                &(dunlin_net_pool){.kernel_h = kernel,
                                                   .kernel_w = kernel,
                                                   .stride_h = stride,
                                                   .stride_w = stride,
                                                   .pad_top = padding,
                                                   .pad_left = padding,
                                                   .pad_bottom = padding,
                                                   .pad_right = padding,
                                                   .is_ceil = true});
}

typedef struct inception {
    const char *name;
    int32_t one, narrow3, wide3, narrow5, wide5, pool; /* channels of the branches */
    int32_t pool_behind; /* kernel of a pool after it, stride 2; 0: none */
} inception;

static const inception blocks[] = {
    {"inception3a", 64, 96, 128, 16, 32, 32, 0},
    {"inception3b", 128, 128, 192, 32, 96, 64, 3},
    {"inception4a", 192, 96, 208, 16, 48, 64, 0},
    {"inception4b", 160, 112, 224, 24, 64, 64, 0},
    {"inception4c", 128, 128, 256, 24, 64, 64, 0},
    {"inception4d", 112, 144, 288, 32, 64, 64, 0},
    {"inception4e", 256, 160, 320, 32, 128, 128, 2},
    {"inception5a", 256, 160, 320, 32, 128, 128, 0},
    {"inception5b", 384, 192, 384, 48, 128, 128, 0},
};
#define N_BLOCKS (sizeof blocks / sizeof blocks[0])

static dunlin_value add_block(dunlin_builder *b, const inception *spec, dunlin_value x)
{
    dunlin_value branches[4];
    branches[0] = add_unit(b, spec->name, "branch1", x, spec->one, 1);
    branches[1] = add_unit(b, spec->name, "branch2.0", x, spec->narrow3, 1);
    branches[1] = add_unit(b, spec->name, "branch2.1", branches[1], spec->wide3, 3);
    branches[2] = add_unit(b, spec->name, "branch3.0", x, spec->narrow5, 1);
    branches[2] = add_unit(b, spec->name, "branch3.1", branches[2], spec->wide5, 3);
    branches[3] = add_pool(b, x, 3, 1, 1);
    branches[3] = add_unit(b, spec->name, "branch4.1", branches[3], spec->pool, 1);
    x = dunlin_builder_concat(b, branches, 4);
    return spec->pool_behind > 0 ? add_pool(b, x, spec->pool_behind, 2, 0) : x;
}

#define AUX_1_BEHIND 2 /* blocks[], the first of them 0 */
#define AUX_2_BEHIND 5

/* All before the last dense layer; `sides` are what the auxiliary heads begin with. */
static dunlin_value add_trunk(dunlin_builder *b, dunlin_value x, dunlin_value sides[2])
{
    x = dunlin__zoo_conv_bn_relu(b, "conv1", x,
                                 &(dunlin_net_conv){64, 7, 7, 2, 2, 3, 3, 3, 3, 1, 1, 1, 0, 0});
    x = add_pool(b, x, 3, 2, 0);
    x = dunlin__zoo_conv_bn_relu(b, "conv2", x,
                                 &(dunlin_net_conv){64, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0});
    x = dunlin__zoo_conv_bn_relu(b, "conv3", x,
                                 &(dunlin_net_conv){192, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0});
    x = add_pool(b, x, 3, 2, 0);
    for (size_t i = 0; i < N_BLOCKS; i++) {
        x = add_block(b, &blocks[i], x);
        if (i == AUX_1_BEHIND || i == AUX_2_BEHIND) {
            sides[i == AUX_2_BEHIND] = x;
        }
    }
    return x;
}

static dunlin_value add_head(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    x = dunlin_builder_dense(b, "fc", dunlin_builder_dropout(b, x, 0.2F), classes);
    dunlin__zoo_set_norms(b, 0.001F, 0.1F);
    dunlin__zoo_init_normal(b, 0.01F);
    return x;
}

dunlin_value dunlin__zoo_googlenet(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    dunlin_value sides[2];
    return add_head(b, add_trunk(b, x, sides), classes);
}

/*
 * Adaptive average pooling of 4 m + 2 pixels a side to 4 x 4: windows of m + 1 pixels, whose
 * beginnings 0, m, 2 m + 1, 3 m + 1 are two even rows of steps of 2 m + 1. So four pools of 2 x 2
 * windows, each of what lies behind its first pixel, are put between each other.
 */
static dunlin_value pool_halves(dunlin_builder *b, dunlin_value x, int64_t size, int64_t channels)
{
    const int64_t m = size / 4;
    dunlin_value parts[4];
    for (int i = 0; i < 4; i++) {
        const bool is_down = i >= 2;
        const bool is_right = i % 2 != 0;
        dunlin_value part = is_down && m > 0 ? dunlin_builder_slice(b, x, 1, m, size) : x;
        part = is_right && m > 0 ? dunlin_builder_slice(b, part, 2, m, size) : part;
        parts[i] = dunlin_builder_average_pool(b, part, (int32_t)m + 1, 2 * (int32_t)m + 1, 0);
    }
    const dunlin_value all = dunlin_builder_concat(b, parts, 4);
    dunlin_net_node *node = dunlin__builder_begin(b, DUNLIN_OP_REARRANGE, NULL, "between", &all, 1);
    if (node == NULL) {
        return -1;
    }
    node->u.rearrange.to =
        (dunlin_rearrangement){{5, {2, 2, channels, 2, 2}}, {2, 3, 0, 4, 1}, {3, {channels, 4, 4}}};
    node->u.rearrange.is_image = true;
    return dunlin__builder_end(b);
}

static dunlin_value pool_to_16(dunlin_builder *b, dunlin_value x)
{
    const dunlin_net *net = dunlin__builder_net(b);
    if (net == NULL || x < 0) {
        return -1;
    }
    const int64_t *dims = net->values[x].shape.dims;
    if (dims[1] % 4 == 2) {
        return pool_halves(b, x, dims[1], dims[0]);
    }
    return dunlin__zoo_adaptive_pool(b, x, 4, "googlenet_aux", "a multiple of 32");
}

static dunlin_value add_aux(dunlin_builder *b, const char *name, dunlin_value x, int32_t classes)
{
    char part[DUNLIN_NET_MAX_NAME + 1];
    x = add_unit(b, name, "conv", pool_to_16(b, x), 128, 1);
    x = dunlin_builder_flatten(b, x);
    x = dunlin_builder_dense(b, dunlin__zoo_name(part, name, "fc1"), x, 1024);
    x = dunlin_builder_dropout(b, dunlin_builder_relu(b, x), 0.7F);
    return dunlin_builder_dense(b, dunlin__zoo_name(part, name, "fc2"), x, classes);
}

void dunlin__zoo_googlenet_aux(dunlin_builder *b, dunlin_value x, int32_t classes,
                               dunlin_value *outputs)
{
    dunlin_value sides[2] = {-1, -1};
    x = add_trunk(b, x, sides);
    outputs[2] = add_aux(b, "aux1", sides[0], classes);
    outputs[1] = add_aux(b, "aux2", sides[1], classes);
    outputs[0] = add_head(b, x, classes);
}
