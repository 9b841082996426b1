/*
 * pixels.h - networks whose output is an image again: the layers that make images larger.
 *
 * Example: an image is halved and brought back to its size, with three numbers for each pixel.
 *
 * @code
 * const dunlin_shape image = {.n_dims = 3, .dims = {1, 32, 32}};
 * dunlin_error error = {0};
 * dunlin_builder *builder = NULL;
 * dunlin_model *model = NULL;
 * if (dunlin_builder_create(NULL, &builder) != DUNLIN_OK) {
 *     return 1;
 * }
 * dunlin_conv_transposed_options twice = DUNLIN_CONV_TRANSPOSED_OPTIONS_INIT;
 * twice.stride = 2;
 * dunlin_value x = dunlin_builder_input(builder, "image", &image);
 * x = dunlin_builder_max_pool(builder, x, 2, 2, 0);
 * x = dunlin_builder_conv_transposed(builder, "up", x, 3, 2, &twice);
 * if (dunlin_builder_finish(builder, x, &model, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * }
 * dunlin_model_destroy(model);
 * @endcode
 */
#ifndef DUNLIN_PIXELS_H
#define DUNLIN_PIXELS_H

#include <dunlin/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A transposed convolution's options; zero means: stride 1, no padding, dilation 1, one group,
 * with bias. */
typedef struct dunlin_conv_transposed_options {
    size_t struct_size;
    int32_t stride;
    int32_t padding;        /* taken off on all four sides; of a signal on both */
    int32_t output_padding; /* rows and columns more at the end; below stride or dilation */
    int32_t dilation;
    int32_t groups;
    bool no_bias;
} dunlin_conv_transposed_options;
#define DUNLIN_CONV_TRANSPOSED_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_conv_transposed_options)

/** Each pixel of an image or signal becomes a window of `kernel` pixels, `stride` apart, which are
 * added (PyTorch's ConvTranspose2d and 1d): (C, H, W) to (out_channels, (H - 1) * stride - 2 *
 * padding + dilation * (kernel - 1) + output_padding + 1, ...). Makes "name.weight", (C,
 * out_channels / groups, kernel, kernel), and "name.bias", with PyTorch's first distributions.
 * `options` may be NULL.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_conv_transposed(
    dunlin_builder *builder, const char *name, dunlin_value input, int32_t out_channels,
    int32_t kernel, const dunlin_conv_transposed_options *options);

/** Between elements of a resized image. */
typedef enum dunlin_interpolation {
    DUNLIN_INTERPOLATION_NEAREST = 0, /**< the element at or before it */
    DUNLIN_INTERPOLATION_LINEAR = 1,  /**< linear between the middles of pixels, along each axis */
    DUNLIN_INTERPOLATION_ALIGNED = 2  /**< the same, with the outermost pixels' middles kept */
} dunlin_interpolation;

/** An image of another size (PyTorch's interpolate with mode nearest, bilinear, and bilinear with
 * align_corners; of a signal, whose `height` is not looked at, linear along its length).
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_resize(dunlin_builder *builder, dunlin_value input,
                                              int32_t height, int32_t width,
                                              dunlin_interpolation how);

#ifdef __cplusplus
}
#endif

#endif
