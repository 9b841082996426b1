/*
 * zoo_alexnet.c - AlexNet on one device (Krizhevsky, "One weird trick for parallelizing
 * convolutional neural networks", 2014), as torchvision has it.
 *
 * Its features are brought to 6x6 as those of VGG are to 7x7: images of 223 to 254 or of 63 to 94
 * pixels a side; smaller ones do not come through the pools, others are refused.
 */
#include "zoo.h"

static dunlin_value add_unit(dunlin_builder *b, const char *name, dunlin_value x, int32_t channels,
                             int32_t kernel)
{
    dunlin_conv_options options = {.struct_size = sizeof(dunlin_conv_options),
                                   .padding = kernel / 2};
    return dunlin_builder_relu(b, dunlin_builder_conv(b, name, x, channels, kernel, &options));
}

dunlin_value dunlin__zoo_alexnet(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = dunlin_builder_conv(b, "features.0", x, 64, 11,
                            &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options),
                                                   .stride = 4,
                                                   .padding = 2});
    x = dunlin_builder_max_pool(b, dunlin_builder_relu(b, x), 3, 2, 0);
    x = add_unit(b, "features.3", x, 192, 5);
    x = dunlin_builder_max_pool(b, x, 3, 2, 0);
    x = add_unit(b, "features.6", x, 384, 3);
    x = add_unit(b, "features.8", x, 256, 3);
    x = add_unit(b, "features.10", x, 256, 3);
    x = dunlin_builder_max_pool(b, x, 3, 2, 0);
    x = dunlin__zoo_adaptive_pool(b, x, 6, "alexnet", "63 to 94 or 223 to 254");
    x = dunlin_builder_dropout(b, dunlin_builder_flatten(b, x), 0.5f);
    x = dunlin_builder_relu(b, dunlin_builder_dense(b, "classifier.1", x, 4096));
    x = dunlin_builder_dropout(b, x, 0.5f);
    x = dunlin_builder_relu(b, dunlin_builder_dense(b, "classifier.4", x, 4096));
    return dunlin_builder_dense(b, "classifier.6", x, classes);
}
