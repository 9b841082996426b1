/*
 * zoo_densenet.c - DenseNet-121 (Huang, Liu, van der Maaten, Weinberger, CVPR 2017, table 1):
 * growth 32, bottlenecks of 128 channels.
 *
 * A dense layer reads one concatenation of everything before it in its block, as torchvision writes
 * it: each concatenation's inputs are the first ones of the next.
 */
#include "zoo.h"

#include <stdio.h>

#define GROWTH 32
#define MAX_FEATURES 25 /* of a block: what comes in and its layers */

/* Batch norm, ReLU and a convolution, named PREFIX.NORM and PREFIX.CONV. */
static dunlin_value add_unit(dunlin_builder *b, const char *prefix, const char *norm,
                             const char *conv, dunlin_value x, int32_t channels, int32_t kernel)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    dunlin_conv_options options = {
        .struct_size = sizeof(dunlin_conv_options), .padding = kernel / 2, .no_bias = true};
    x = dunlin_builder_batch_norm(b, dunlin__zoo_name(name, prefix, norm), x);
    x = dunlin_builder_relu(b, x);
    return dunlin_builder_conv(b, dunlin__zoo_name(name, prefix, conv), x, channels, kernel,
                               &options);
}

static dunlin_value join(dunlin_builder *b, const dunlin_value *features, int32_t n)
{
    return n == 1 ? features[0] : dunlin_builder_concat(b, features, n);
}

static dunlin_value add_block(dunlin_builder *b, int index, dunlin_value x, int32_t n_layers)
{
    dunlin_value features[MAX_FEATURES] = {x};
    for (int32_t i = 0; i < n_layers; i++) {
        char prefix[64];
        (void)snprintf(prefix, sizeof prefix, "features.denseblock%d.denselayer%d", index, i + 1);
        x = join(b, features, i + 1);
        x = add_unit(b, prefix, "norm1", "conv1", x, 4 * GROWTH, 1);
        features[i + 1] = add_unit(b, prefix, "norm2", "conv2", x, GROWTH, 3);
    }
    return join(b, features, n_layers + 1);
}

dunlin_value dunlin__zoo_densenet121(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    static const int32_t n_layers[4] = {6, 12, 24, 16};
    int32_t channels = 64;
    x = dunlin_builder_conv(b, "features.conv0", x, channels, 7,
                            &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options),
                                                   .stride = 2,
                                                   .padding = 3,
                                                   .no_bias = true});
    x = dunlin_builder_relu(b, dunlin_builder_batch_norm(b, "features.norm0", x));
    x = dunlin_builder_max_pool(b, x, 3, 2, 1);
    for (int i = 0; i < 4; i++) {
        x = add_block(b, i + 1, x, n_layers[i]);
        channels += GROWTH * n_layers[i];
        if (i < 3) {
            char prefix[32];
            (void)snprintf(prefix, sizeof prefix, "features.transition%d", i + 1);
            channels /= 2;
            x = add_unit(b, prefix, "norm", "conv", x, channels, 1);
            x = dunlin_builder_average_pool(b, x, 2, 2, 0);
        }
    }
    x = dunlin_builder_relu(b, dunlin_builder_batch_norm(b, "features.norm5", x));
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    x = dunlin_builder_dense(b, "classifier", x, classes);
    dunlin__zoo_init_he(b, DUNLIN_ZOO_HE_NORMAL_IN);
    dunlin__zoo_init_dense(b, 0.0f);
    return x;
}
