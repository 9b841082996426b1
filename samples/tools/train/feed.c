/*
 * feed.c - from a data set to the examples a model takes: as they are stored, or through an image
 * pipeline when a flag asks for one.
 */
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A folder of pictures is read ahead without being asked: decoding takes longer than most steps. */
#define FOLDER_AHEAD_BYTES (64U << 20)
#define FOLDER_THREADS 2
#define SLOT_BYTES 160 /* of an example that is held ready, besides its pixels, at most */

static uint64_t ahead_bytes(const train_flags *flags)
{
    return flags->prefetch_bytes == 0 && data_is_folder(&flags->choice) ? FOLDER_AHEAD_BYTES
                                                                        : flags->prefetch_bytes;
}

bool train_has_pipeline(const train_flags *flags)
{
    return flags->resize != 0 || flags->crop != 0 || flags->has_random_crop || flags->is_flip ||
           flags->augment != NULL || ahead_bytes(flags) != 0;
}

static uint64_t shape_bytes(const dunlin_shape *shape)
{
    int64_t n = 0;
    return dunlin_shape_count(shape, &n) == DUNLIN_OK ? (uint64_t)n : 0;
}

train_ahead train_plan_ahead(const train_flags *flags, const dunlin_shape *stored,
                             const dunlin_shape *taken)
{
    train_ahead plan = {.bytes = ahead_bytes(flags), .n_threads = (int32_t)flags->ahead_threads};
    if (!data_is_folder(&flags->choice) || stored->n_dims != 3 || taken->n_dims != 3) {
        return plan;
    }
    plan.n_threads = plan.n_threads == 0 ? FOLDER_THREADS : plan.n_threads;
    /* This step's examples and the next one's; a step may have half a batch more. */
    plan.n_examples = 3 * flags->batch;
    const uint64_t each = shape_bytes(taken) + SLOT_BYTES;
    const uint64_t half = plan.bytes / 2;
    const uint64_t work =
        (uint64_t)(plan.n_threads + 1) *
        (shape_bytes(stored) + SLOT_BYTES + 4 * (uint64_t)((stored->dims[1] + 1) * taken->dims[2]));
    const bool is_small = (uint64_t)plan.n_examples < half / each;
    const uint64_t wanted = is_small ? (uint64_t)plan.n_examples * each / 15 * 16 + work : half;
    const uint64_t whole = plan.bytes;
    plan.bytes = wanted < half ? wanted : half;
    plan.decode_bytes = whole - plan.bytes;
    return plan;
}

/* Without --crop the window is what the model takes; without either the image is resized to it. */
static dunlin_pipeline_options pipeline_options(const train_flags *flags,
                                                const dunlin_shape *stored,
                                                const dunlin_shape *taken, bool is_trained)
{
    const int64_t image =
        taken->n_dims == 3 ? taken->dims[1] : 0; /* others have no size to change */
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.seed = flags->seed;
    const bool is_cropped = flags->crop != 0 || flags->has_random_crop;
    options.resize_height = (int32_t)flags->resize;
    if (flags->resize == 0 && !is_cropped && image > 0) {
        options.resize_height = (int32_t)image;
    }
    options.crop_height = (int32_t)(flags->crop != 0 ? flags->crop : image);
    options.is_random_crop = flags->has_random_crop;
    options.padding = (int32_t)flags->padding;
    options.border = flags->border != NULL && strcmp(flags->border, "mean") == 0
                         ? DUNLIN_BORDER_MEAN
                         : DUNLIN_BORDER_ZERO;
    options.is_flip = flags->is_flip;
    if (is_trained) {
        const train_ahead plan = train_plan_ahead(flags, stored, taken);
        options.prefetch_bytes = plan.bytes;
        options.prefetch_threads = plan.n_threads;
        options.prefetch_examples = plan.n_examples;
    }
    return options;
}

int train_open_feed(const train_flags *flags, const dunlin_model *model,
                    const dunlin_dataset *dataset, const dunlin_source *stored, bool is_trained,
                    train_feed *out_feed)
{
    *out_feed = (train_feed){.source = *stored};
    if (!train_has_pipeline(flags)) {
        return EXIT_OK;
    }
    const dunlin_shape shape = dunlin_dataset_shape(dataset);
    const dunlin_shape taken = dunlin_model_input_shape(model);
    const bool is_image = taken.n_dims == 3;
    dunlin_pipeline_options options = pipeline_options(flags, &shape, &taken, is_trained);
    if (is_trained) {
        train_fill_augment(flags, dunlin_model_n_outputs(model),
                           train_epoch_steps(flags, stored->n_examples), &options);
    }
    dunlin_error error = {0};
    if (dunlin_pipeline_create(stored, &shape, &options, NULL, &out_feed->pipeline, &error) !=
        DUNLIN_OK) {
        return train_fail(&error);
    }
    const dunlin_shape made = dunlin_pipeline_shape(out_feed->pipeline);
    if (is_image && (made.dims[1] != taken.dims[1] || made.dims[2] != taken.dims[2])) {
        train_close_feed(out_feed);
        return program_refuse(&train_program, DUNLIN_MISMATCH,
                              "--crop %" PRId64 ": %s takes images of %" PRId64 " x %" PRId64,
                              flags->crop, flags->model, taken.dims[1], taken.dims[2]);
    }
    dunlin_pipeline_source(out_feed->pipeline, &out_feed->source);
    return EXIT_OK;
}

void train_close_feed(train_feed *feed)
{
    dunlin_pipeline_destroy(feed->pipeline);
    feed->pipeline = NULL;
}

dunlin_pipeline_report train_feed_report(const train_feed *feed)
{
    dunlin_pipeline_report report = DUNLIN_PIPELINE_REPORT_INIT;
    if (feed->pipeline == NULL ||
        dunlin_pipeline_get_report(feed->pipeline, &report) != DUNLIN_OK) {
        return (dunlin_pipeline_report)DUNLIN_PIPELINE_REPORT_INIT;
    }
    return report;
}

double train_waited_share(const train_result *result)
{
    const dunlin_pipeline_report *pipeline = &result->pipeline;
    const double held_ms = (double)(pipeline->waited_ns + pipeline->direct_ns) / 1e6;
    return result->fit_ms > 0.0 ? held_ms / result->fit_ms : 0.0;
}
