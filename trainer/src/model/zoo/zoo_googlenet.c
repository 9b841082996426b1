/*
 * zoo_googlenet.c - GoogLeNet (Szegedy et al., "Going deeper with convolutions", CVPR 2015, table
 * 1) as torchvision has it: with batch norm, 3x3 in place of the 5x5 convolutions, and pools that
 * round up. The two auxiliary heads, which only training on ImageNet uses, are left out.
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

dunlin_value dunlin__zoo_googlenet(dunlin_builder *b, dunlin_value x, int32_t classes)
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
    }
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    x = dunlin_builder_dense(b, "fc", dunlin_builder_dropout(b, x, 0.2f), classes);
    dunlin__zoo_set_norms(b, 0.001f, 0.1f);
    dunlin__zoo_init_normal(b, 0.01f);
    return x;
}
