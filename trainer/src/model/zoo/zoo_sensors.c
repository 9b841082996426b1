/*
 * zoo_sensors.c - networks for sound and sensors: DS-CNN for keywords (Zhang, Suda, Lai, Chandra,
 * "Hello edge: keyword spotting on microcontrollers", 2017), in its small size over 49 frames of 10
 * cepstral coefficients; and the fully convolutional network for time series (Wang, Yan, Oates,
 * "Time series classification from scratch with deep neural networks", IJCNN 2017, section II.B),
 * here over windows of 128 samples of an accelerometer and a gyroscope, six channels.
 *
 * Parameters are named as in the PyTorch module of tests/models/sensors.py.
 */
#include "zoo.h"

#include <stdio.h>

#define KEYWORD_WIDTH 64
#define KEYWORD_BLOCKS 4

/* Convolution, batch norm and ReLU, named PREFIX.0 and PREFIX.1. */
static dunlin_value add_unit(dunlin_builder *b, const char *prefix, dunlin_value x,
                             const dunlin_net_conv *conv)
{
    char name[DUNLIN_NET_MAX_NAME + 1];
    x = dunlin__builder_conv(b, dunlin__zoo_name(name, prefix, "0"), x, conv, false);
    x = dunlin_builder_batch_norm(b, dunlin__zoo_name(name, prefix, "1"), x);
    return dunlin_builder_relu(b, x);
}

dunlin_value dunlin__zoo_ds_cnn(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    const int32_t width = KEYWORD_WIDTH;
    x = add_unit(b, "stem", x, &(dunlin_net_conv){width, 10, 4, 2, 2, 5, 1, 5, 1, 1, 1, 1, 0, 0});
    for (int i = 0; i < KEYWORD_BLOCKS; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "blocks.%d.0", i);
        x = add_unit(b, name, x,
                     &(dunlin_net_conv){width, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, width, 0, 0});
        (void)snprintf(name, sizeof name, "blocks.%d.1", i);
        x = add_unit(b, name, x, &(dunlin_net_conv){width, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 0, 0});
    }
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    return dunlin_builder_dense(b, "head", x, classes);
}

/* Padded to the same length: of a kernel of 8 one sample more behind than before. */
static dunlin_value add_signal_unit(dunlin_builder *b, int32_t block, dunlin_value x,
                                    int32_t channels, int32_t kernel)
{
    char prefix[32];
    char name[DUNLIN_NET_MAX_NAME + 1];
    const dunlin_net_conv conv = {.out_channels = channels,
                                  .kernel_h = 1,
                                  .kernel_w = kernel,
                                  .stride_h = 1,
                                  .stride_w = 1,
                                  .pad_left = (kernel - 1) / 2,
                                  .pad_right = kernel / 2,
                                  .dilation_h = 1,
                                  .dilation_w = 1,
                                  .groups = 1};
    (void)snprintf(prefix, sizeof prefix, "blocks.%d", (int)block);
    x = dunlin__builder_conv(b, dunlin__zoo_name(name, prefix, "0"), x, &conv, true);
    x = dunlin_builder_batch_norm(b, dunlin__zoo_name(name, prefix, "1"), x);
    return dunlin_builder_relu(b, x);
}

dunlin_value dunlin__zoo_har_fcn(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = add_signal_unit(b, 0, x, 128, 8);
    x = add_signal_unit(b, 1, x, 256, 5);
    x = add_signal_unit(b, 2, x, 128, 3);
    x = dunlin_builder_flatten(b, dunlin_builder_global_average_pool(b, x));
    return dunlin_builder_dense(b, "head", x, classes);
}
