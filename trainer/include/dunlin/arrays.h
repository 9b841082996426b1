/*
 * arrays.h - the app's own arrays in memory as a source of examples.
 *
 * Nothing is copied and nothing allocated: the source reads the arrays where they lie.
 *
 * Example: four windows of 3 axes x 2 samples and their classes. The examples lie
 * one after another, each in the order of the model's ONNX input without the batch.
 *
 * @code
 * static const float x[4][3][2] = {{{0}}};
 * static const int32_t labels[4] = {0, 1, 1, 0};
 * dunlin_error error = {0};
 * dunlin_arrays_view view;
 * dunlin_source source; // for dunlin_trainer_fit()
 * const dunlin_shape shape = {.n_dims = 2, .dims = {3, 2}};
 * dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
 * arrays.x = x;
 * arrays.dtype = DUNLIN_F32;
 * arrays.shape = shape;
 * arrays.n = 4;
 * arrays.labels = labels;
 * arrays.n_classes = 2;
 * if (dunlin_source_from_arrays(&arrays, &view, &source, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 *     return 1;
 * }
 * printf("%d examples\n", (int)source.n_examples);
 * @endcode
 */
#ifndef DUNLIN_ARRAYS_H
#define DUNLIN_ARRAYS_H

#include <dunlin/source.h>
#include <dunlin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What the app has. Every array is borrowed and must stay in place as long as the source is used.
 */
typedef struct dunlin_arrays {
    size_t struct_size;
    const void *x;      /* n examples of `shape`, row-major, of `dtype` */
    dunlin_dtype dtype; /* U8, F32 or I32 */
    dunlin_shape shape; /* of one example: (C, H, W), (features), (tokens) ... */
    int64_t n;          /* 1 or more */
    /* A class for each example; NULL: there are targets, or nothing to train on. A source with
     * neither is for predictions, and a step over it is refused. */
    const int32_t *labels;
    int32_t n_classes;    /* each label must be 0 or more and below it; 0: a step looks, not now */
    const float *targets; /* n x n_targets, for DUNLIN_LOSS_MSE and DUNLIN_LOSS_BCE */
    int64_t n_targets;
    /* x = (value * scale - mean[c]) / std[c], as in dunlin_source: one mean and one deviation for
     * each channel of (C, H, W), one in all for any other shape. NULL: 0 and 1. Of scale 0 is 1. */
    float scale;
    const float *mean;
    const float *std;
    const float *weights; /* of each example in the loss, finite and 0 or more; NULL: 1 */
    /* In place of `labels` n x n_labels of them, of type U8, I8, I32 or I64: of a model with an
     * output per pixel one for each, row by row (dunlin/pixels.h). NULL: there are none. */
    const void *label_rows;
    dunlin_dtype label_dtype;
    int64_t n_labels;
    /* Of a model with several inputs (dunlin/several.h), in place of x, dtype, shape, scale, mean
     * and std: n_inputs of them in the model's order, `values` of each n examples of n_elements.
     * Borrowed like the arrays. NULL: there is one, x. */
    const dunlin_source_input *inputs;
    int32_t n_inputs;
    /* Of a model with several outputs, with `inputs`, in place of labels, targets and label_rows:
     * `values` of each n examples of n_labels int32, or of n_targets floats. Borrowed. */
    const dunlin_source_answer *answers;
    int32_t n_answers;
} dunlin_arrays;

#define DUNLIN_ARRAYS_INIT DUNLIN_SIZED_INIT(dunlin_arrays)

/** Storage of the caller's for the source's context, filled in by dunlin_source_from_arrays(). This
 * struct is frozen. */
typedef struct dunlin_arrays_view {
    const void *x;
    const int32_t *labels;
    const float *targets;
    const float *weights;
    int64_t n;
    int64_t n_targets;
    size_t example_bytes;
    const void *label_rows;
    int64_t n_labels;
    dunlin_dtype label_dtype;
    int32_t n_inputs;
    const dunlin_source_input *inputs;
    const dunlin_source_answer *answers;
    int32_t n_answers;
    uint32_t reserved_32;
    uint64_t reserved[3];
} dunlin_arrays_view;

/** dunlin_source_from_arrays() into a struct of so many bytes. @return as that. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_arrays_fill_source(const dunlin_arrays *arrays,
                                                                    dunlin_arrays_view *view,
                                                                    dunlin_source *out_source,
                                                                    size_t source_bytes,
                                                                    dunlin_error *out_error);

/**
 * Arrays as a source, which may be read from any thread. `arrays` itself is not needed afterwards;
 * `view` must stay in place, like the arrays. Labels, targets, weights and the normalisation are
 * looked at once; elements of x that are not finite are found by the step that reads them.
 *
 * @return OK; ARGUMENT (no x, no examples, a dimension below 1, both labels and targets, a
 * deviation that is not above 0, a weight that is negative or not finite, weights that are all 0),
 * UNSUPPORTED (another dtype), DATA (a label outside of the classes, a target that is not finite:
 * which, and the limit; not of an example with weight 0), OVERFLOW (sizes beyond the address
 * space), LIMIT (more than DUNLIN_MODEL_MAX_INPUTS inputs), VERSION. *out_source is not written
 * then.
 */
DUNLIN_NODISCARD static inline dunlin_status dunlin_source_from_arrays(const dunlin_arrays *arrays,
                                                                       dunlin_arrays_view *view,
                                                                       dunlin_source *out_source,
                                                                       dunlin_error *out_error)
{
    return dunlin_arrays_fill_source(arrays, view, out_source, sizeof *out_source, out_error);
}

#ifdef __cplusplus
}
#endif

#endif
