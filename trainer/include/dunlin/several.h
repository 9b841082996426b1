/*
 * several.h - models with several inputs, as two images, an image and numbers, ids and a mask; and
 * with several outputs, each with a loss and a weight, as a class and a box, or auxiliary heads.
 *
 * The builder takes dunlin_builder_input() several times before the first layer; files may have
 * several inputs too. An example is then all of them. A source gives them in arrays of their own,
 * each with its type and normalisation (dunlin_source.read_arrays_fn, dunlin_arrays.inputs); or, as
 * a source with read_fn, one after another in one array, in the model's order and in the shapes of
 * its ONNX inputs, ids as floats, with one mean and one deviation for all.
 *
 * Outputs: dunlin_builder_finish_outputs(), or dunlin_model_sizes.outputs for those of a file.
 * dunlin_trainer_options.outputs has their losses; what is made small is the weighted sum. An
 * example has an answer for each (dunlin_source.answers, dunlin_arrays.answers), or one for all, as
 * auxiliary heads take it. Metrics have the weighted sum as their loss, and else are the first
 * output's; dunlin_trainer_get_output_metrics() has each output's own. Predictions are the first
 * output's too, but for dunlin_trainer_predict_output(). Class weights belong to the first output,
 * labels are ignored in each that has labels, and a precision of integers has one output. Costs are
 * measured where one answer does for all outputs (MISMATCH else).
 *
 * Losses with a margin m compare embeddings; t in [0, 1] is a target. DUNLIN_LOSS_CONTRASTIVE over
 * a distance y (Hadsell et al. 2006): t y^2 + (1 - t) max(0, m - y)^2, right on its side of m / 2.
 * DUNLIN_LOSS_COSINE over a cosine, as CosineEmbeddingLoss: t (1 - y) + (1 - t) max(0, y - m),
 * right on its side of (1 + m) / 2. DUNLIN_LOSS_TRIPLET over y, the distance to the positive less
 * that to the negative, as TripletMarginLoss: t max(0, y + m), right below 0. Means as of BCE.
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

#include <dunlin/trainer.h>

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

/** The most outputs of a model. */
#define DUNLIN_MODEL_MAX_OUTPUTS 16

/**
 * dunlin_builder_finish() with n outputs, 1 to DUNLIN_MODEL_MAX_OUTPUTS, called `names` (NULL, or
 * an element NULL: as the layers call them), which are different values of layers. The first is
 * what calls about "the output" speak of.
 *
 * @return as dunlin_builder_finish().
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_builder_finish_outputs(
    dunlin_builder *builder, const dunlin_value *outputs, const char *const *names, int32_t n,
    dunlin_model **out_model, dunlin_error *out_error);

/** @return the outputs of the ready-made network of that name, if it has several, and the weights
 * of their losses that its authors train with, as dunlin-train --outputs takes them:
 * "logits,aux2=0.3,aux1=0.3" of "googlenet_aux". NULL: there is no such network, or it has one. */
DUNLIN_API const char *dunlin_zoo_outputs(const char *name);

/** |left - right|, of two values of one shape. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_abs_difference(dunlin_builder *builder, dunlin_value left,
                                                      dunlin_value right);

/** The distance sqrt(1e-12 + the sum of (left - right)^2) of two values of one shape: one number.
 * For DUNLIN_LOSS_CONTRASTIVE; a difference of two for DUNLIN_LOSS_TRIPLET.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_distance(dunlin_builder *builder, dunlin_value left,
                                                dunlin_value right);
/** The cosine of two values of one shape, for DUNLIN_LOSS_COSINE: the sum of left * right by the
 * square root of the product of both sums of squares, each with 1e-12 added.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_cosine(dunlin_builder *builder, dunlin_value left,
                                              dunlin_value right);
/** left - right, of two values of one shape. @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_subtract(dunlin_builder *builder, dunlin_value left,
                                                dunlin_value right);

/** An input of a model. The library makes it and sets struct_size. */
typedef struct dunlin_model_input {
    size_t struct_size;
    const char *name;   /* belongs to the model */
    dunlin_shape shape; /* without the batch */
    int64_t n_elements;
    int64_t first;         /* where it begins in an example of one array */
    int64_t vocabulary;    /* above 0: tokens below it */
    bool is_channels_last; /* of three dimensions, which are rows: (H, W, C), if it is an image */
} dunlin_model_input;
#define DUNLIN_MODEL_INPUT_INIT DUNLIN_SIZED_INIT(dunlin_model_input)

/** @return how many inputs the model has; 1 or more. */
DUNLIN_API int32_t dunlin_model_n_inputs(const dunlin_model *model);
/** @return OK with the input; ARGUMENT for an index that is none, or a struct without struct_size.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_get_input(const dunlin_model *model,
                                                                 int32_t index,
                                                                 dunlin_model_input *out_input);

/** An output of a model. The library makes it and sets struct_size. */
typedef struct dunlin_model_output {
    size_t struct_size;
    const char *name;   /* belongs to the model */
    dunlin_shape shape; /* without the batch */
    int64_t n_labels;   /* rows of it, an example: 1, or pixels or tokens */
    int64_t n_numbers;  /* of a row: classes */
} dunlin_model_output;
#define DUNLIN_MODEL_OUTPUT_INIT DUNLIN_SIZED_INIT(dunlin_model_output)

/** @return how many outputs the model has; 1 or more. */
DUNLIN_API int32_t dunlin_model_count_outputs(const dunlin_model *model);
/** @return OK with the output; ARGUMENT for an index that is none, or a struct without struct_size.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_get_output(const dunlin_model *model,
                                                                  int32_t index,
                                                                  dunlin_model_output *out_output);

/** The loss of an output; those that options.outputs does not list have options.loss and weight 1.
 * An output of weight 0 is not trained, but has its metrics. */
typedef struct dunlin_output_loss {
    size_t struct_size;
    const char *name;
    dunlin_loss loss;
    float weight; /* INIT writes 1; finite and not negative */
    float label_smoothing;
    float margin; /* CONTRASTIVE, COSINE, TRIPLET; 0: the loss's own, which is 1, of COSINE 0 */
} dunlin_output_loss;
#define DUNLIN_OUTPUT_LOSS_INIT DUNLIN_SIZED_INIT_1(dunlin_output_loss, weight, 1.0F)

/** Metrics of one output in the trainer's last step, fit or evaluation; its loss is without its
 * weight in the sum. Zeros before the first.
 *
 * @return OK; ARGUMENT (a NULL, an index that is none); STATE. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_get_output_metrics(
    const dunlin_trainer *trainer, int32_t index, dunlin_metrics *out_metrics);

/**
 * As dunlin_trainer_predict(), of any output: n times its n_labels x n_numbers floats.
 *
 * @return as dunlin_trainer_predict(); ARGUMENT for an output that is none.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_predict_output(dunlin_trainer *trainer,
                                                                        const dunlin_source *source,
                                                                        int32_t output,
                                                                        int64_t first, int64_t n,
                                                                        float *out_values);

#ifdef __cplusplus
}
#endif

#endif
