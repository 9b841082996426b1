/*
 * bench_plain.c - see bench_plain.h.
 */
#include "bench_plain.h"

#include <stdio.h>
#include <string.h>

typedef struct plain {
    dunlin_builder *builder;
    int n_layers; /* for names */
} plain;

static dunlin_value conv(plain *net, dunlin_value x, int32_t channels, int32_t kernel,
                         int32_t stride, int32_t groups)
{
    const dunlin_conv_options options = {
        .struct_size = sizeof options, .stride = stride, .padding = kernel / 2, .groups = groups};
    char name[24];
    (void)snprintf(name, sizeof name, "conv%d", net->n_layers++);
    return dunlin_builder_conv(net->builder, name, x, channels, kernel, &options);
}

static dunlin_value clipped(plain *net, dunlin_value x, int32_t channels, int32_t kernel,
                            int32_t stride, int32_t groups)
{
    return dunlin_builder_relu(net->builder, conv(net, x, channels, kernel, stride, groups));
}

/* Source: Simonyan, Zisserman, ICLR 2015, configuration A, with one dense layer. */
static dunlin_value vgg11(plain *net, dunlin_value x)
{
    static const int32_t widths[] = {64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        x = widths[i] == 0 ? dunlin_builder_max_pool(net->builder, x, 2, 2, 0)
                           : clipped(net, x, widths[i], 3, 1, 1);
    }
    return x;
}

/* Source: He et al., CVPR 2016, with a first layer of 3 x 3 and no pooling behind it. */
static dunlin_value resnet18(plain *net, dunlin_value x)
{
    x = clipped(net, x, 64, 3, 1, 1);
    for (int32_t i = 0; i < 8; i++) {
        const int32_t width = 64 << i / 2;
        const int32_t stride = i > 0 && i % 2 == 0 ? 2 : 1;
        dunlin_value y = clipped(net, x, width, 3, stride, 1);
        y = conv(net, y, width, 3, 1, 1);
        x = stride == 1 ? x : conv(net, x, width, 1, stride, 1);
        x = dunlin_builder_relu(net->builder, dunlin_builder_add(net->builder, y, x));
    }
    return dunlin_builder_global_average_pool(net->builder, x);
}

/* Source: Howard et al., arXiv 1704.04861. */
static dunlin_value mobilenet_v1(plain *net, dunlin_value x)
{
    static const int32_t widths[] = {64,  128, 128, 256, 256,  512, 512,
                                     512, 512, 512, 512, 1024, 1024};
    static const int32_t strides[] = {1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1};
    int32_t before = 32;
    x = clipped(net, x, before, 3, 2, 1);
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        x = clipped(net, x, before, 3, strides[i], before);
        x = clipped(net, x, widths[i], 1, 1, 1);
        before = widths[i];
    }
    return dunlin_builder_global_average_pool(net->builder, x);
}

dunlin_model *bench_plain_model(const char *name, int32_t image, int32_t classes)
{
    const int32_t side = image > 0 ? image : 32;
    const dunlin_shape shape = {.n_dims = 3, .dims = {3, side, side}};
    plain net = {.builder = NULL};
    dunlin_model *model = NULL;
    dunlin_value (*body)(plain *, dunlin_value) = strcmp(name, "vgg11_cifar") == 0      ? vgg11
                                                  : strcmp(name, "resnet18_plain") == 0 ? resnet18
                                                  : strcmp(name, "mobilenet_v1_plain") == 0
                                                      ? mobilenet_v1
                                                      : NULL;
    if (body == NULL || dunlin_builder_create(NULL, &net.builder) != DUNLIN_OK) {
        return NULL;
    }
    const dunlin_value x = body(&net, dunlin_builder_input(net.builder, "x", &shape));
    const dunlin_value flat = dunlin_builder_flatten(net.builder, x);
    const dunlin_value end =
        dunlin_builder_dense(net.builder, "head", flat, classes > 0 ? classes : 10);
    return dunlin_builder_finish(net.builder, end, &model, NULL) == DUNLIN_OK ? model : NULL;
}
