/*
 * zoo_vgg.c - VGG of 11, 13, 16 and 19 layers (Simonyan and Zisserman, ICLR 2015, configurations A,
 * B, D and E), also with batch norm behind each convolution, or for small images.
 *
 * torchvision brings the features to 7x7 by adaptive average pooling, whose windows have one size
 * only where 7 divides the features' size, or where there is one pixel to repeat: images of 224 to
 * 255 (448 to 479, ...) or of 32 to 63 pixels. Others are refused.
 */
#include "zoo.h"

#include <stdio.h>

#define N_STAGES 5

typedef struct vgg {
    const char *name;
    int n_layers[N_STAGES];
    bool has_norm;
} vgg;

static dunlin_value add_dense(dunlin_builder *b, const char *name, dunlin_value x)
{
    x = dunlin_builder_relu(b, dunlin_builder_dense(b, name, x, 4096));
    return dunlin_builder_dropout(b, x, 0.5f);
}

/* Convolution, batch norm if there is one, and ReLU, which count in `features`; returns the index
 * behind them. */
static int add_layer(dunlin_builder *b, const vgg *spec, int index, int32_t channels,
                     dunlin_value *x)
{
    char name[32];
    (void)snprintf(name, sizeof name, "features.%d", index++);
    *x = dunlin_builder_conv(
        b, name, *x, channels, 3,
        &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .padding = 1});
    if (spec->has_norm) {
        (void)snprintf(name, sizeof name, "features.%d", index++);
        *x = dunlin_builder_batch_norm(b, name, *x);
    }
    *x = dunlin_builder_relu(b, *x);
    return index + 1;
}

/* The convolutions, each stage with a pool behind it. */
static dunlin_value add_features(dunlin_builder *b, dunlin_value x, const vgg *spec)
{
    static const int32_t channels[N_STAGES] = {64, 128, 256, 512, 512};
    int index = 0;
    for (int i = 0; i < N_STAGES; i++) {
        for (int j = 0; j < spec->n_layers[i]; j++) {
            index = add_layer(b, spec, index, channels[i], &x);
        }
        x = dunlin_builder_max_pool(b, x, 2, 2, 0);
        index++;
    }
    return x;
}

/* As it is trained on images of 32 pixels: one dense layer in place of three. */
static dunlin_value add_small(dunlin_builder *b, dunlin_value x, int32_t classes, const vgg *spec)
{
    x = dunlin_builder_flatten(b, add_features(b, x, spec));
    x = dunlin_builder_dense(b, "classifier", x, classes);
    dunlin__zoo_init_he(b, DUNLIN_ZOO_HE_NORMAL_OUT);
    dunlin__zoo_init_dense(b, 0.01f);
    return x;
}

static dunlin_value add_vgg(dunlin_builder *b, dunlin_value x, int32_t classes, const vgg *spec)
{
    x = add_features(b, x, spec);
    x = dunlin__zoo_adaptive_pool(b, x, 7, spec->name, "32 to 63 or 224 to 255");
    x = dunlin_builder_flatten(b, x);
    x = add_dense(b, "classifier.0", x);
    x = add_dense(b, "classifier.3", x);
    x = dunlin_builder_dense(b, "classifier.6", x, classes);
    dunlin__zoo_init_he(b, DUNLIN_ZOO_HE_NORMAL_OUT);
    dunlin__zoo_init_dense(b, 0.01f);
    return x;
}

dunlin_value dunlin__zoo_vgg11(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_vgg(b, x, classes, &(vgg){"vgg11", {1, 1, 2, 2, 2}, false});
}

dunlin_value dunlin__zoo_vgg11_bn(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_vgg(b, x, classes, &(vgg){"vgg11_bn", {1, 1, 2, 2, 2}, true});
}

dunlin_value dunlin__zoo_vgg13(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_vgg(b, x, classes, &(vgg){"vgg13", {2, 2, 2, 2, 2}, false});
}

dunlin_value dunlin__zoo_vgg13_bn(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_vgg(b, x, classes, &(vgg){"vgg13_bn", {2, 2, 2, 2, 2}, true});
}

dunlin_value dunlin__zoo_vgg16(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_vgg(b, x, classes, &(vgg){"vgg16", {2, 2, 3, 3, 3}, false});
}

dunlin_value dunlin__zoo_vgg16_bn(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_vgg(b, x, classes, &(vgg){"vgg16_bn", {2, 2, 3, 3, 3}, true});
}

dunlin_value dunlin__zoo_vgg19(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_vgg(b, x, classes, &(vgg){"vgg19", {2, 2, 4, 4, 4}, false});
}

dunlin_value dunlin__zoo_vgg19_bn(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_vgg(b, x, classes, &(vgg){"vgg19_bn", {2, 2, 4, 4, 4}, true});
}

dunlin_value dunlin__zoo_vgg11_cifar(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_small(b, x, classes, &(vgg){"vgg11_cifar", {1, 1, 2, 2, 2}, false});
}

dunlin_value dunlin__zoo_vgg16_cifar(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    return add_small(b, x, classes, &(vgg){"vgg16_cifar", {2, 2, 3, 3, 3}, false});
}
