/*
 * zoo_vgg.c - VGG-16 (Simonyan and Zisserman, ICLR 2015, configuration D).
 *
 * torchvision brings the features to 7x7 by adaptive average pooling, whose windows have one size
 * only where 7 divides the features' size, or where there is one pixel to repeat: images of 224 to
 * 255 (448 to 479, ...) or of 32 to 63 pixels. Others are refused.
 */
#include "zoo.h"

#include <stdio.h>

#define POOLED 7

/* To 7x7 by windows of one size; those over a single pixel hang over its borders. */
static dunlin_value add_adaptive_pool(dunlin_builder *b, dunlin_value x)
{
    dunlin_net *net = dunlin__builder_net(b);
    if (net == NULL) {
        return -1;
    }
    int64_t size = net->values[x].shape.dims[1];
    if (size != 1 && size % POOLED != 0) {
        return dunlin__builder_fail(b,
                                    "vgg16: its features of %lld pixels a side do not divide into "
                                    "%d; the image must have 32 to 63 or 224 to 255 pixels a side",
                                    (long long)size, POOLED);
    }
    int32_t kernel = size == 1 ? POOLED : (int32_t)(size / POOLED);
    int32_t stride = size == 1 ? 1 : kernel;
    int32_t padding = size == 1 ? POOLED - 1 : 0;
    return dunlin__builder_pool(b, DUNLIN_OP_AVERAGE_POOL, x,
                                &(dunlin_net_pool){
                                    .kernel_h = kernel,
                                    .kernel_w = kernel,
                                    .stride_h = stride,
                                    .stride_w = stride,
                                    .pad_top = padding,
                                    .pad_left = padding,
                                    .pad_bottom = padding,
                                    .pad_right = padding,
                                });
}

static dunlin_value add_dense(dunlin_builder *b, const char *name, dunlin_value x)
{
    x = dunlin_builder_relu(b, dunlin_builder_dense(b, name, x, 4096));
    return dunlin_builder_dropout(b, x, 0.5f);
}

dunlin_value dunlin__zoo_vgg16(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    static const struct {
        int32_t channels, n_layers;
    } stages[] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}};
    int index = 0; /* of `features`, where ReLU and pooling count too */
    for (size_t i = 0; i < sizeof stages / sizeof stages[0]; i++) {
        for (int32_t j = 0; j < stages[i].n_layers; j++) {
            char name[32];
            (void)snprintf(name, sizeof name, "features.%d", index);
            x = dunlin_builder_conv(
                b, name, x, stages[i].channels, 3,
                &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .padding = 1});
            x = dunlin_builder_relu(b, x);
            index += 2;
        }
        x = dunlin_builder_max_pool(b, x, 2, 2, 0);
        index++;
    }
    x = add_adaptive_pool(b, x);
    x = dunlin_builder_flatten(b, x);
    x = add_dense(b, "classifier.0", x);
    x = add_dense(b, "classifier.3", x);
    x = dunlin_builder_dense(b, "classifier.6", x, classes);
    dunlin__zoo_init_he(b, DUNLIN_ZOO_HE_NORMAL_OUT);
    dunlin__zoo_init_dense(b, 0.01f);
    return x;
}
