/*
 * source.h - examples, pulled from the application by index.
 *
 * Example: the app's own images; read_images() fills out_x and out_y.
 *
 * @code
 * extern dunlin_status read_images(void *ctx, const int64_t *indices, int64_t n, void *out_x,
 *                                  int32_t *out_y);
 * dunlin_source source = DUNLIN_SOURCE_INIT;
 * source.read_fn = read_images;
 * source.n_examples = 1000;
 * source.dtype = DUNLIN_U8;
 * source.scale = 1.0F / 255.0F;
 * printf("%d examples\n", (int)source.n_examples); // it goes to dunlin_trainer_fit()
 * @endcode
 */
#ifndef DUNLIN_SOURCE_H
#define DUNLIN_SOURCE_H

#include <dunlin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One of the arrays of an example, as a source gives it (dunlin/several.h). Zeroed: nothing. This
 * struct is frozen. */
typedef struct dunlin_source_input {
    const char *name;   /* as the model calls that input; NULL: it is not compared */
    int64_t n_elements; /* of an example: as many as the model's input has */
    dunlin_dtype dtype; /* U8, F32, I32: what read_arrays_fn writes */
    float scale;        /* as of dunlin_source, and so are the next two */
    const float *mean;
    const float *std;
    const void *values; /* of dunlin_arrays: all examples, one after another; else not looked at */
    uint64_t reserved[4];
} dunlin_source_input;

/** What an example has for one of the model's outputs: labels, or targets. Zeroed: nothing. This
 * struct is frozen. */
typedef struct dunlin_source_answer {
    const char *name;   /* as the model calls that output; NULL: it is not compared */
    int64_t n_labels;   /* int32; 0: 1, unless there are targets */
    int64_t n_targets;  /* above 0: so many floats in place of labels */
    const void *values; /* of dunlin_arrays: those of all examples; else not looked at */
    uint64_t reserved[4];
} dunlin_source_answer;

/**
 * A supply of examples with random access. The trainer draws the order; the same example may be
 * asked for again, also within one step, so that an input batch need not stay in memory.
 *
 * `read_fn` writes `n` examples with the given indices: inputs to `out_x` (n x the model's input
 * elements, of `dtype`, in the order of the model's input: C, H, W for images), labels to `out_y`.
 * Called on the thread that runs the step, never in parallel. A status other than OK ends the step
 * with CALLBACK and leaves the weights untouched.
 *
 * A source of the app's begins as DUNLIN_SOURCE_INIT; one that the library fills needs no
 * beginning.
 */
typedef struct dunlin_source {
    size_t struct_size;
    void *ctx;
    dunlin_status (*read_fn)(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                             int32_t *out_y);
    int64_t n_examples;
    dunlin_dtype dtype; /* U8, F32, I32: what read_fn writes to out_x */
    /* x = (value * scale - mean[c]) / std[c]: for U8 scale is usually 1/255. Zeroed: used as it is.
     */
    float scale;
    const float *mean; /* one per channel, or NULL for 0; valid as long as the source */
    const float *std;  /* one per channel, or NULL for 1 */
    /*
     * The weight of an example in the loss, finite and not negative; NULL: 1 for each. The loss of
     * a step is the weighted mean over its examples, so their weights must not all be 0 (DATA; in
     * an evaluation, those of all its examples). Of an example with weight 0 the label or the
     * targets are not looked at: they may be anything. Asked for twice or more per step.
     */
    float (*weight_fn)(void *ctx, int64_t index);
    /*
     * Called when a step begins, on its thread: `step` counts the optimiser steps before it and is
     * part of checkpoints, so what is drawn from it repeats in a resumed run; -1 in evaluations and
     * predictions. NULL: not wanted.
     */
    void (*step_fn)(void *ctx, int64_t step);
    /*
     * After step_fn: examples that the next step, `step`, will ask for, in its order, in one or
     * several calls; none if it is not known. A later change (a stop, another seed) is not
     * reported. NULL: not wanted.
     */
    void (*hint_fn)(void *ctx, int64_t step, const int64_t *indices, int64_t n);
    /* One line about the last failure of read_fn, for the trainer's own text. NULL: there is none.
     */
    const char *(*error_fn)(void *ctx);
    /*
     * For losses over targets (all but DUNLIN_LOSS_CROSS_ENTROPY), instead of read_fn and by its
     * rules: `out_targets` takes n x n_targets floats, in the order of the model's outputs.
     * read_fn may then be NULL.
     */
    dunlin_status (*read_targets_fn)(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                     float *out_targets);
    int64_t n_targets; /* of an example: as many as the model has outputs */
    /* Labels of an example that read_fn writes, one after the other; 0: 1. As many as
     * dunlin_model_n_labels(): of an output that is an image one for each pixel, row by row. */
    int64_t n_labels;
    /*
     * Of models with several inputs (dunlin/several.h), in place of read_fn and read_targets_fn and
     * by their rules: `out_inputs` has a place for each of `inputs`, which takes n x its n_elements
     * of its dtype. `out_answers` is NULL, or it has one place for n x n_labels labels, or with
     * n_targets above 0 for n x n_targets floats. `inputs`, n_inputs in the model's order, are
     * valid as long as the source; dtype, scale, mean and std above are not looked at.
     */
    dunlin_status (*read_arrays_fn)(void *ctx, const int64_t *indices, int64_t n,
                                    void *const *out_inputs, void *const *out_answers);
    const dunlin_source_input *inputs;
    int32_t n_inputs;
    /* Of models with several outputs, one for each, and then `out_answers` has a place for each, as
     * long as the answer says. NULL: the labels or targets of an example are those of all outputs.
     */
    const dunlin_source_answer *answers;
    int32_t n_answers;
    uint64_t flags; /* DUNLIN_SOURCE_PLANES, or 0 */
} dunlin_source;
/** In dunlin_source.flags, of a source with read_fn or read_targets_fn: images come as (C, H, W),
 * with a mean and a deviation for each channel, also where the model's input is (H, W, C), as of
 * files of TensorFlow. Sources of data sets say so. Without it they come as the model's input is.
 */
#define DUNLIN_SOURCE_PLANES UINT64_C(1)
#define DUNLIN_SOURCE_INIT DUNLIN_SIZED_INIT(dunlin_source)

#ifdef __cplusplus
}
#endif

#endif
