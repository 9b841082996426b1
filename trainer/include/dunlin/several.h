/*
 * several.h - models with several inputs: two images, an image and numbers, ids and a mask.
 *
 * The builder takes dunlin_builder_input() several times before the first layer; files may have
 * several inputs too. An example is then all of them. A source gives them in arrays of their own,
 * each with its type and normalisation (dunlin_source.read_arrays_fn, dunlin_arrays.inputs); or, as
 * a source with read_fn, one after another in one array, in the model's order and in the shapes of
 * its ONNX inputs, ids as floats, with one mean and one deviation for all.
 *
 * Example: are two images of the same thing? Both go through one convolution.
 *
 * @code
 * const dunlin_shape image = {.n_dims = 3, .dims = {1, 28, 28}};
 * dunlin_error error = {0};
 * dunlin_builder *builder = NULL;
 * dunlin_model *model = NULL;
 * if (dunlin_builder_create(NULL, &builder) != DUNLIN_OK) {
 *     return 1;
 * }
 * dunlin_value left = dunlin_builder_input(builder, "left", &image);
 * dunlin_value right = dunlin_builder_input(builder, "right", &image);
 * left = dunlin_builder_conv(builder, "features", left, 8, 3, NULL);
 * right = dunlin_builder_share(builder, left, right);
 * dunlin_value both = dunlin_builder_abs_difference(builder, left, right);
 * both = dunlin_builder_flatten(builder, dunlin_builder_relu(builder, both));
 * both = dunlin_builder_dense(builder, "same", both, 1);
 * if (dunlin_builder_finish(builder, both, &model, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * }
 * dunlin_model_destroy(model);
 * @endcode
 */
#ifndef DUNLIN_SEVERAL_H
#define DUNLIN_SEVERAL_H

#include <dunlin/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The most inputs that the builder takes, and that sources give in arrays of their own. */
#define DUNLIN_MODEL_MAX_INPUTS 64

/**
 * A layer's parameters once more, on another value of the same number of channels or features:
 * `layer` is the value of the layer call that made them, or of an activation behind it that has
 * none. Their gradient is the sum over all uses, added in the order of the layers from the last to
 * the first. Only the layer itself is repeated, not the activation.
 *
 * @return its value; negative after an error.
 */
DUNLIN_API dunlin_value dunlin_builder_share(dunlin_builder *builder, dunlin_value layer,
                                             dunlin_value input);

/** |left - right|, of two values of one shape. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_abs_difference(dunlin_builder *builder, dunlin_value left,
                                                      dunlin_value right);

/** An input of a model. The library makes it and sets struct_size. */
typedef struct dunlin_model_input {
    size_t struct_size;
    const char *name;   /* belongs to the model */
    dunlin_shape shape; /* without the batch */
    int64_t n_elements;
    int64_t first;      /* where it begins in an example of one array */
    int64_t vocabulary; /* above 0: tokens below it */
} dunlin_model_input;
#define DUNLIN_MODEL_INPUT_INIT DUNLIN_SIZED_INIT(dunlin_model_input)

/** @return how many inputs the model has; 1 or more. */
DUNLIN_API int32_t dunlin_model_n_inputs(const dunlin_model *model);
/** @return OK with the input; ARGUMENT for an index that is none, or a struct without struct_size.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_get_input(const dunlin_model *model,
                                                                 int32_t index,
                                                                 dunlin_model_input *out_input);

#ifdef __cplusplus
}
#endif

#endif
