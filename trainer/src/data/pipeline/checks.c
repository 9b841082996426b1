/*
 * checks.c - whether a pipeline can be made of a source and options: names, values and limits.
 */
#include "checks.h"

#include <mem/support.h>

#include <inttypes.h>

#define MAX_LENGTH (1 << 24) /* of what is one pixel high: signals and vectors */

dunlin_status dunlin__pipeline_check_source(const dunlin_source *source, const dunlin_shape *shape,
                                            dunlin_error *error)
{
    if (source->read_arrays_fn != NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "a pipeline takes examples of one array, not of %d",
                            (int)source->n_inputs);
    }
    if (source->dtype != DUNLIN_U8 && source->dtype != DUNLIN_F32) {
        return dunlin__fail(
            error, DUNLIN_UNSUPPORTED, "data", 0,
            "a pipeline takes examples of u8 or f32, not type %d%s", (int)source->dtype,
            source->dtype == DUNLIN_I32 ? ": tokens are neither mixed nor changed" : "");
    }
    if (source->n_labels > 1) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "a pipeline takes examples of one label, not of %" PRId64
                            ": what is done to an image is not done to labels of its pixels",
                            source->n_labels);
    }
    if (source->step_fn != NULL || source->hint_fn != NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "a pipeline's source cannot be a pipeline itself");
    }
    if (shape->n_dims != 3 || shape->dims[0] < 1 || shape->dims[0] > DUNLIN_PIPELINE_CHANNELS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "a pipeline takes images (C, H, W) of 1 to %d channels",
                            DUNLIN_PIPELINE_CHANNELS);
    }
    const int64_t most = shape->dims[1] == 1 ? MAX_LENGTH : DUNLIN_PIPELINE_SIDE;
    for (int32_t i = 1; i < 3; i++) {
        if (shape->dims[i] < 1 || shape->dims[i] > most) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "a side of %" PRId64 " pixels: the limits are 1 and %" PRId64,
                                shape->dims[i], most);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status check_side(const char *name, int32_t value, int32_t low, dunlin_error *error)
{
    if (value < low || value > DUNLIN_PIPELINE_SIDE) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0, "%s %d: the limits are %d and %d",
                            name, (int)value, (int)low, DUNLIN_PIPELINE_SIDE);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__pipeline_check_options(const dunlin_pipeline_options *options,
                                             dunlin_error *error)
{
    DUNLIN_TRY(check_side("resize_height", options->resize_height, 0, error));
    DUNLIN_TRY(check_side("resize_width", options->resize_width, 0, error));
    DUNLIN_TRY(check_side("crop_height", options->crop_height, 0, error));
    DUNLIN_TRY(check_side("crop_width", options->crop_width, 0, error));
    DUNLIN_TRY(check_side("padding", options->padding, 0, error));
    if ((options->resize_height == 0 && options->resize_width != 0) ||
        (options->crop_height == 0 && options->crop_width != 0)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0, "%s is 0 and its width is not",
                            options->resize_height == 0 && options->resize_width != 0
                                ? "resize_height"
                                : "crop_height");
    }
    if (options->padding != 0 && !options->is_random_crop) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0, "padding %d without a random crop",
                            (int)options->padding);
    }
    if (options->border != DUNLIN_BORDER_ZERO && options->border != DUNLIN_BORDER_MEAN) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "border %d: 0 (zeros) and 1 (the mean) are known",
                            (int)options->border);
    }
    if (options->border != DUNLIN_BORDER_ZERO && !options->is_random_crop) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0, "border %d without a random crop",
                            (int)options->border);
    }
    if (options->prefetch_threads < 0 || options->prefetch_threads > DUNLIN_PIPELINE_THREADS ||
        options->prefetch_examples < 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "prefetch_threads %d, prefetch_examples %" PRId64
                            ": the limits are 0 and %d threads, and at least 0 examples",
                            (int)options->prefetch_threads, options->prefetch_examples,
                            DUNLIN_PIPELINE_THREADS);
    }
    return DUNLIN_OK;
}
