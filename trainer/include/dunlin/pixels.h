/*
 * pixels.h - networks whose output has a row of numbers for each pixel or token: the layers that
 * make images larger, labels, weights of classes, and scores of each class.
 *
 * Of an output (C, H, W) the classes are the channels, and an example has H x W labels, row by row;
 * of (T, C), T tokens, they are the last dimension. Losses are means over all rows of the batch
 * that count, those of ignored labels left out: the divisor is counted before the first slice.
 *
 * options.class_weights: with cross-entropy a row counts as often as the weight of its label's
 * class, in the loss and in the divisor (PyTorch's CrossEntropyLoss with `weight`, label smoothing
 * included); with BCE it is the weight of a target of 1 (`pos_weight` of BCEWithLogitsLoss), one
 * for each number of a row. The labels are then read before the first slice, as for ignored ones.
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
#include <dunlin/trainer.h>

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

/** A dense layer without bias whose weight is a parameter that is there already, (out, in): most
 * often "NAME.weight" of an embedding, whose rows then are the classes too (a tied head; Press and
 * Wolf 2017). Gradients of both uses are added up, the head's first. `name` names the node.
 *
 * With 1,024 classes or more, cross-entropy over the rows (tokens) of the output makes the product
 * itself, some rows at a time, so that logits of a batch are never in memory; bits are those of the
 * two apart. Who asks for predictions gets all logits.
 *
 * @return its value; negative after an error. */
DUNLIN_API dunlin_value dunlin_builder_dense_tied(dunlin_builder *builder, const char *name,
                                                  dunlin_value input, const char *parameter);

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

/** @return the labels of an example: rows of the model's output, 1 if it is a single one. Each has
 * dunlin_model_n_outputs() numbers; a prediction and targets have as many for all rows, in the
 * order of the model's output. */
DUNLIN_API int64_t dunlin_model_n_labels(const dunlin_model *model);

/**
 * As dunlin_trainer_evaluate() over `n` examples from `first` on, for cross-entropy with labels.
 * `counts` gets n_classes x n_classes numbers: how often rows of each label (the first index) had
 * their highest output at each class (the second; the first of equal ones). Rows that do not count
 * are left out; weights have no part in it.
 *
 * @return OK; ARGUMENT (a NULL, a range); MISMATCH (n_classes is not the model's); UNSUPPORTED
 * (another loss, or a precision of integers); and those of dunlin_trainer_evaluate(). `counts` are
 * of the examples until then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_confusion(
    dunlin_trainer *trainer, const dunlin_source *source, int64_t first, int64_t n,
    int32_t n_classes, int64_t *counts, dunlin_metrics *out_metrics);

/** What an evaluation counts besides its metrics: rows of the first output whose label counts, as
 * often as they are, whatever they weigh. A pointer that is NULL: not wanted. */
typedef struct dunlin_answer_counts {
    size_t struct_size;
    /** As dunlin_trainer_confusion() has it; n_classes x n_classes numbers, the model's classes. */
    int64_t *confusion;
    int32_t n_classes;
    /** ranks[i]: rows in which i classes had a higher output than the label's (of equal ones the
     * lower class comes first). The sum of the first k by n_counted of the metrics is the top-k
     * accuracy. */
    int64_t *ranks;
    int32_t n_ranks; /* numbers of `ranks`: 1 to the model's classes */
} dunlin_answer_counts;
#define DUNLIN_ANSWER_COUNTS_INIT DUNLIN_SIZED_INIT(dunlin_answer_counts)

/**
 * As dunlin_trainer_evaluate() over `n` examples from `first` on, for cross-entropy with labels;
 * fills in what `counts` points to. For ranks over a vocabulary (1,024 classes or more whose logits
 * are not in memory) those of an example are held besides the budget until the call ends.
 *
 * @return OK; ARGUMENT (a NULL, a range, n_ranks); MEMORY; MISMATCH (n_classes is not the model's);
 * UNSUPPORTED (another loss, or a precision of integers); VERSION; and those of
 * dunlin_trainer_evaluate(). The numbers are of the examples until then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_count_answers(
    dunlin_trainer *trainer, const dunlin_source *source, int64_t first, int64_t n,
    const dunlin_answer_counts *counts, dunlin_metrics *out_metrics);

/** Of one class, or means over classes. A share of nothing is 0. */
typedef struct dunlin_class_scores {
    size_t struct_size;
    int64_t n;        /* rows with the label */
    double precision; /* of the rows that were taken for the class: those that are of it */
    double recall;    /* of the rows of the class: those that were taken for it */
    double f1;        /* 2 precision recall / (precision + recall) */
    double iou;       /* intersection over union (Jaccard): both by either */
} dunlin_class_scores;
#define DUNLIN_CLASS_SCORES_INIT DUNLIN_SIZED_INIT(dunlin_class_scores)

/** What `counts` (n_classes x n_classes, as above) say of a class.
 *
 * @return OK; ARGUMENT (a NULL, a class that is not there, a negative count), VERSION. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_confusion_class(const int64_t *counts,
                                                                 int32_t n_classes, int32_t which,
                                                                 dunlin_class_scores *out_scores);
/** The means over the classes that are a label or were taken for one; `iou` is the mean IoU. `n`
 * are all rows.
 *
 * @return OK; ARGUMENT, VERSION. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_confusion_means(const int64_t *counts,
                                                                 int32_t n_classes,
                                                                 dunlin_class_scores *out_scores);

#ifdef __cplusplus
}
#endif

#endif
