/*
 * zoo_siamese.c - two images through one network, and whether they show the same (Bromley et al.
 * 1993; the distance of features and what is learned on it as in Koch, Zemel and Salakhutdinov
 * 2015).
 */
#include "zoo.h"

#include <dunlin/several.h>

/* A convolution, an activation and a pooling layer over both sides. */
static void add_conv(dunlin_builder *b, const char *name, dunlin_value sides[2], int32_t channels)
{
    const dunlin_conv_options padded = {.struct_size = sizeof padded, .padding = 1};
    sides[0] = dunlin_builder_conv(b, name, sides[0], channels, 3, &padded);
    sides[1] = dunlin_builder_share(b, sides[0], sides[1]);
    for (int i = 0; i < 2; i++) {
        sides[i] = dunlin_builder_max_pool(b, dunlin_builder_relu(b, sides[i]), 2, 2, 0);
    }
}

/* 105,346 parameters of two images of 28 x 28. */
dunlin_value dunlin__zoo_siamese(dunlin_builder *b, const dunlin_zoo_options *options)
{
    const dunlin_shape image = {3, {options->channels, options->image, options->image}};
    dunlin_value sides[2] = {dunlin_builder_input(b, "left", &image),
                             dunlin_builder_input(b, "right", &image)};
    add_conv(b, "conv1", sides, 16);
    add_conv(b, "conv2", sides, 32);
    sides[0] = dunlin_builder_dense(b, "embed", dunlin_builder_flatten(b, sides[0]), 64);
    sides[1] = dunlin_builder_share(b, sides[0], dunlin_builder_flatten(b, sides[1]));
    const dunlin_value x = dunlin_builder_abs_difference(b, sides[0], sides[1]);
    return dunlin_builder_dense(b, "same", x, options->classes);
}
