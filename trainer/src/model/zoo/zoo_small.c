/*
 * zoo_small.c - small networks: LeNet-5 in its usual padded form (LeCun, Bottou, Bengio, Haffner
 * 1998, with ReLU and max-pooling), two perceptrons, and two with batch norm.
 */
#include "zoo.h"

dunlin_value dunlin__zoo_lenet5(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = dunlin_builder_conv(
        b, "features.0", x, 6, 5,
        &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .padding = 2});
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_max_pool(b, x, 2, 2, 0);
    x = dunlin_builder_conv(b, "features.3", x, 16, 5, NULL);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_max_pool(b, x, 2, 2, 0);
    x = dunlin_builder_flatten(b, x);
    x = dunlin_builder_dense(b, "classifier.1", x, 120);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_dense(b, "classifier.3", x, 84);
    x = dunlin_builder_relu(b, x);
    return dunlin_builder_dense(b, "classifier.5", x, classes);
}

dunlin_value dunlin__zoo_mlp(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = dunlin_builder_flatten(b, x);
    x = dunlin_builder_dense(b, "fc1", x, 256);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_dense(b, "fc2", x, 128);
    x = dunlin_builder_relu(b, x);
    return dunlin_builder_dense(b, "fc3", x, classes);
}

/* For vectors of features: 5,094 weights from 43 features to 6 classes, 4,677 from 37 to 5. */
dunlin_value dunlin__zoo_har_mlp(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = dunlin_builder_flatten(b, x);
    x = dunlin_builder_dense(b, "fc1", x, 64);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_dense(b, "fc2", x, 32);
    x = dunlin_builder_relu(b, x);
    return dunlin_builder_dense(b, "fc3", x, classes);
}

static dunlin_value conv_bn_relu(dunlin_builder *b, const char *conv, const char *norm,
                                 dunlin_value x, int32_t channels, int32_t stride)
{
    dunlin_conv_options options = {.struct_size = sizeof(dunlin_conv_options),
                                   .stride = stride,
                                   .padding = 1,
                                   .no_bias = true};
    x = dunlin_builder_conv(b, conv, x, channels, 3, &options);
    x = dunlin_builder_batch_norm(b, norm, x);
    return dunlin_builder_relu(b, x);
}

dunlin_value dunlin__zoo_cnn_bn(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = conv_bn_relu(b, "conv1", "bn1", x, 32, 1);
    x = conv_bn_relu(b, "conv2", "bn2", x, 32, 1);
    x = dunlin_builder_max_pool(b, x, 2, 2, 0);
    x = conv_bn_relu(b, "conv3", "bn3", x, 64, 1);
    x = conv_bn_relu(b, "conv4", "bn4", x, 64, 1);
    x = dunlin_builder_max_pool(b, x, 2, 2, 0);
    x = conv_bn_relu(b, "conv5", "bn5", x, 128, 1);
    x = dunlin_builder_global_average_pool(b, x);
    x = dunlin_builder_flatten(b, x);
    dunlin__zoo_init_he(b, DUNLIN_ZOO_HE_NORMAL_OUT);
    return dunlin_builder_dense(b, "fc", x, classes);
}

/* Every operator in a few thousand weights: a network for tests. */
dunlin_value dunlin__zoo_tiny_bn(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    dunlin_conv_options pointwise = {.struct_size = sizeof(dunlin_conv_options), .no_bias = true};
    dunlin_conv_options depthwise = {
        .struct_size = sizeof(dunlin_conv_options), .padding = 1, .groups = 8, .no_bias = true};
    x = conv_bn_relu(b, "stem.conv", "stem.bn", x, 8, 1);
    x = dunlin_builder_max_pool(b, x, 3, 2, 1);
    dunlin_value y = dunlin_builder_conv(b, "block.dw", x, 8, 3, &depthwise);
    y = dunlin_builder_batch_norm(b, "block.dw_bn", y);
    y = dunlin_builder_relu6(b, y);
    y = dunlin_builder_conv(b, "block.pw", y, 8, 1, &pointwise);
    y = dunlin_builder_batch_norm(b, "block.pw_bn", y);
    x = dunlin_builder_add(b, x, y);
    dunlin_value branches[2] = {
        dunlin_builder_conv(b, "left", x, 6, 1, NULL),
        dunlin_builder_conv(
            b, "right", x, 10, 3,
            &(dunlin_conv_options){.struct_size = sizeof(dunlin_conv_options), .padding = 1}),
    };
    x = dunlin_builder_concat(b, branches, 2);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_average_pool(b, x, 2, 2, 0);
    x = dunlin_builder_global_average_pool(b, x);
    x = dunlin_builder_flatten(b, x);
    x = dunlin_builder_dropout(b, x, 0.25f);
    return dunlin_builder_dense(b, "fc", x, classes);
}

/* The network of pfl-research's CIFAR-10 benchmark (Granqvist et al. 2024, "pfl-research:
 * simulation framework for accelerating research in Private Federated Learning"), with the first
 * distributions of the others here: 1,626,442 weights for 32 x 32 x 3 and 10 classes. */
dunlin_value dunlin__zoo_pfl_cnn(dunlin_builder *b, dunlin_value x, int32_t classes)
{
    x = dunlin_builder_conv(b, "features.0", x, 32, 3, NULL);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_conv(b, "features.2", x, 64, 3, NULL);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_max_pool(b, x, 2, 2, 0);
    x = dunlin_builder_dropout(b, x, 0.25f);
    x = dunlin_builder_flatten(b, x);
    x = dunlin_builder_dense(b, "classifier.1", x, 128);
    x = dunlin_builder_relu(b, x);
    x = dunlin_builder_dropout(b, x, 0.5f);
    return dunlin_builder_dense(b, "classifier.4", x, classes);
}
