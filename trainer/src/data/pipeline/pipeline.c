/*
 * pipeline.c - the public calls of pipelines: checks, what is drawn for an example, and reading it
 * from the threads' ring or making it at once.
 *
 * Invariant: an example's bytes follow from (seed, step, index) and the source below, whoever makes
 * it. The source below is read by one thread at a time, unless the app asks for several.
 */
#include "ahead.h"
#include "augment.h"
#include "checks.h"
#include "data/common/data.h"
#include "data/common/draw.h"
#include "data/common/image.h"

#include <dunlin/pipeline.h>
#include <mem/checked.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define DRAW_PURPOSE 0x706970656CULL
#define EVALUATION (-1) /* as step: nothing is drawn */

/* What a thread needs to make an example. */
typedef struct maker {
    unsigned char *raw; /* the example as the source gives it */
    float *scratch;
} maker;

struct dunlin_pipeline {
    dunlin_alloc alloc;
    dunlin_source below;
    dunlin_pipeline_options options;
    dunlin_image image;
    size_t raw_bytes, example_bytes, n_scratch;
    float mean[DUNLIN_PIPELINE_CHANNELS], std[DUNLIN_PIPELINE_CHANNELS];
    float border[DUNLIN_PIPELINE_CHANNELS]; /* as stored */
    maker own;                              /* of the thread that trains */
    maker *makers;                          /* of those that read ahead */
    int32_t n_makers;
    bool is_locked; /* the source below is read by one thread at a time */
    pthread_mutex_t below_lock;
    dunlin_ahead *ahead;     /* NULL: no reading ahead */
    dunlin_augment *augment; /* over all of this; NULL: nothing more is changed */
    dunlin_shape shape;      /* as delivered */
    int64_t step;            /* that runs, or EVALUATION */
    int64_t n_direct;
    uint64_t direct_ns;
    char text[DUNLIN_ERROR_TEXT_BYTES];
};

/* --- one example --- */

static dunlin_image_place draw_place(const dunlin_pipeline *pipeline, int64_t step, int64_t index)
{
    const dunlin_image *image = &pipeline->image;
    const dunlin_pipeline_options *options = &pipeline->options;
    dunlin_image_place place = {.top = dunlin__image_centre(image->rows.n_to, image->height),
                                .left = dunlin__image_centre(image->columns.n_to, image->width)};
    if (step == EVALUATION) {
        return place;
    }
    const uint64_t key = dunlin__augment_key(options->seed, step, options->epoch_steps);
    dunlin_draw draw = dunlin__draw_begin(key, DRAW_PURPOSE, (uint64_t)index);
    const uint64_t padding = (uint64_t)options->padding;
    const uint64_t n_tops = (uint64_t)image->rows.n_to + 2 * padding - (uint64_t)image->height;
    const uint64_t n_lefts = (uint64_t)image->columns.n_to + 2 * padding - (uint64_t)image->width;
    if (options->is_random_crop) {
        place.top = (int32_t)dunlin__draw_below(&draw, n_tops + 1) - options->padding;
        place.left = (int32_t)dunlin__draw_below(&draw, n_lefts + 1) - options->padding;
    }
    place.is_flipped = options->is_flip && dunlin__draw_below(&draw, 2) == 1;
    return place;
}

static void lock_below(dunlin_pipeline *pipeline)
{
    if (pipeline->is_locked) {
        (void)pthread_mutex_lock(&pipeline->below_lock);
    }
}

static void unlock_below(dunlin_pipeline *pipeline)
{
    if (pipeline->is_locked) {
        (void)pthread_mutex_unlock(&pipeline->below_lock);
    }
}

/* On failure `out_text` (DUNLIN_ERROR_TEXT_BYTES) says why; NULL: nobody asks. */
static dunlin_status make_example(dunlin_pipeline *pipeline, const maker *with, int64_t step,
                                  int64_t index, void *out_x, int32_t *out_y, char *out_text)
{
    const dunlin_source *below = &pipeline->below;
    lock_below(pipeline);
    const dunlin_status status = below->read_fn(below->ctx, &index, 1, with->raw, out_y);
    if (status != DUNLIN_OK && out_text != NULL) {
        const char *reason = below->error_fn == NULL ? "" : below->error_fn(below->ctx);
        (void)snprintf(out_text, DUNLIN_ERROR_TEXT_BYTES,
                       "the pipeline's source failed with %s at example %" PRId64 "%s%.120s",
                       dunlin_status_name(status), index, reason[0] == '\0' ? "" : ": ", reason);
    }
    unlock_below(pipeline);
    DUNLIN_TRY(status);
    const dunlin_image_place place = draw_place(pipeline, step, index);
    dunlin__image_apply(&pipeline->image, &place, with->raw, with->scratch, out_x);
    return DUNLIN_OK;
}

static dunlin_status make_ahead(void *ctx, int32_t thread, int64_t step, int64_t index, void *out_x,
                                int32_t *out_y)
{
    dunlin_pipeline *pipeline = ctx;
    return make_example(pipeline, &pipeline->makers[thread], step, index, out_x, out_y, NULL);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* On the thread that trains. */
static dunlin_status make_now(dunlin_pipeline *pipeline, int64_t index, void *out_x, int32_t *out_y)
{
    const bool is_step = pipeline->step != EVALUATION;
    const uint64_t start_ns = is_step ? now_ns() : 0;
    const dunlin_status status =
        make_example(pipeline, &pipeline->own, pipeline->step, index, out_x, out_y, pipeline->text);
    pipeline->n_direct++;
    pipeline->direct_ns += is_step ? now_ns() - start_ns : 0;
    return status;
}

/* --- the source --- */

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    dunlin_pipeline *pipeline = ctx;
    for (int64_t i = 0; i < n; i++) {
        unsigned char *x = (unsigned char *)out_x + (size_t)i * pipeline->example_bytes;
        const bool is_there =
            pipeline->ahead != NULL && pipeline->step != EVALUATION &&
            dunlin__ahead_take(pipeline->ahead, pipeline->step, indices[i], x, &out_y[i]);
        if (!is_there) {
            DUNLIN_TRY(make_now(pipeline, indices[i], x, &out_y[i]));
        }
    }
    return DUNLIN_OK;
}

static float weigh_example(void *ctx, int64_t index)
{
    dunlin_pipeline *pipeline = ctx;
    lock_below(pipeline);
    const float weight = pipeline->below.weight_fn(pipeline->below.ctx, index);
    unlock_below(pipeline);
    return weight;
}

static void begin_step(void *ctx, int64_t step)
{
    dunlin_pipeline *pipeline = ctx;
    pipeline->step = step < 0 ? EVALUATION : step;
    pipeline->text[0] = '\0';
    if (pipeline->ahead != NULL && pipeline->step != EVALUATION) {
        dunlin__ahead_begin(pipeline->ahead, step);
    }
}

static void hint_step(void *ctx, int64_t step, const int64_t *indices, int64_t n)
{
    dunlin_pipeline *pipeline = ctx;
    if (pipeline->ahead != NULL) {
        dunlin__ahead_hint(pipeline->ahead, step, indices, n);
    }
}

static const char *last_text(void *ctx)
{
    const dunlin_pipeline *pipeline = ctx;
    return pipeline->text;
}

/* Without what is changed over it. */
static dunlin_source plain_source(dunlin_pipeline *pipeline)
{
    const dunlin_source *below = &pipeline->below;
    const dunlin_pipeline_options *options = &pipeline->options;
    return (dunlin_source){
        .struct_size = sizeof(dunlin_source),
        .ctx = pipeline,
        .read_fn = read_examples,
        .n_examples = below->n_examples,
        .dtype = below->dtype,
        .scale = options->scale != 0.0F ? options->scale : below->scale,
        .mean = options->mean != NULL ? pipeline->mean : below->mean,
        .std = options->std != NULL ? pipeline->std : below->std,
        .weight_fn = below->weight_fn == NULL ? NULL : weigh_example,
        .step_fn = begin_step,
        .hint_fn = hint_step,
        .error_fn = last_text,
        .flags = below->flags,
    };
}

void dunlin_pipeline_fill_source(dunlin_pipeline *pipeline, dunlin_source *out_source,
                                 size_t source_bytes)
{
    const dunlin_source source = pipeline->augment != NULL
                                     ? dunlin__augment_source(pipeline->augment)
                                     : plain_source(pipeline);
    dunlin__struct_fill(&source, sizeof source, out_source, source_bytes);
}

dunlin_shape dunlin_pipeline_shape(const dunlin_pipeline *pipeline)
{
    return pipeline->shape;
}

/* --- sizes --- */

/* The size after resizing. */
static dunlin_status settle_size(const dunlin_pipeline_options *options, int32_t *height,
                                 int32_t *width, dunlin_error *error)
{
    if (options->resize_width != 0) {
        *height = options->resize_height;
        *width = options->resize_width;
    } else if (options->resize_height != 0) {
        const int64_t side = options->resize_height;
        const bool is_upright = *width <= *height;
        const int64_t longer = is_upright ? side * *height / *width : side * *width / *height;
        if (longer > DUNLIN_PIPELINE_SIDE) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "the longer side becomes %" PRId64 " pixels: the limit is %d",
                                longer, DUNLIN_PIPELINE_SIDE);
        }
        *height = (int32_t)(is_upright ? longer : side);
        *width = (int32_t)(is_upright ? side : longer);
    }
    return DUNLIN_OK;
}

static dunlin_status settle_image(dunlin_pipeline *pipeline, const dunlin_shape *shape,
                                  dunlin_error *error)
{
    const dunlin_pipeline_options *options = &pipeline->options;
    dunlin_image *image = &pipeline->image;
    const int32_t from_height = (int32_t)shape->dims[1];
    const int32_t from_width = (int32_t)shape->dims[2];
    int32_t height = from_height;
    int32_t width = from_width;
    DUNLIN_TRY(settle_size(options, &height, &width, error));
    image->dtype = pipeline->below.dtype;
    image->channels = (int32_t)shape->dims[0];
    image->height = options->crop_height == 0 ? height : options->crop_height;
    image->width = options->crop_height == 0 ? width : options->crop_width;
    image->width = image->width == 0 ? options->crop_height : image->width;
    if (options->is_random_crop && (image->height > height + 2 * options->padding ||
                                    image->width > width + 2 * options->padding)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "a random window of %d x %d is larger than the image of %d x %d with "
                            "its padding of %d",
                            (int)image->height, (int)image->width, (int)height, (int)width,
                            (int)options->padding);
    }
    if (!dunlin__image_axis_make(&pipeline->alloc, from_height, height, &image->rows) ||
        !dunlin__image_axis_make(&pipeline->alloc, from_width, width, &image->columns)) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                            "no memory for the tables of a resize to %d x %d", (int)height,
                            (int)width);
    }
    return DUNLIN_OK;
}

/* --- life --- */

static bool make_maker(const dunlin_pipeline *pipeline, maker *out)
{
    out->raw = dunlin__alloc_array(&pipeline->alloc, pipeline->raw_bytes, 1);
    out->scratch = dunlin__alloc_array(&pipeline->alloc, pipeline->n_scratch, sizeof(float));
    return out->raw != NULL && (out->scratch != NULL || pipeline->n_scratch == 0);
}

static void free_maker(const dunlin_pipeline *pipeline, const maker *made)
{
    dunlin__free_array(&pipeline->alloc, made->raw, pipeline->raw_bytes, 1);
    dunlin__free_array(&pipeline->alloc, made->scratch, pipeline->n_scratch, sizeof(float));
}

/* Those that read ahead. */
static bool make_makers(dunlin_pipeline *pipeline)
{
    const int32_t asked = pipeline->options.prefetch_threads;
    const int32_t n = asked == 0 ? 1 : asked;
    bool is_made = true;
    pipeline->makers = dunlin__alloc_zeroed(&pipeline->alloc, (size_t)n, sizeof *pipeline->makers);
    pipeline->n_makers = pipeline->makers == NULL ? 0 : n;
    for (int32_t i = 0; i < pipeline->n_makers && is_made; i++) {
        is_made = make_maker(pipeline, &pipeline->makers[i]);
    }
    return is_made && pipeline->makers != NULL;
}

static void free_makers(dunlin_pipeline *pipeline)
{
    for (int32_t i = 0; i < pipeline->n_makers; i++) {
        free_maker(pipeline, &pipeline->makers[i]);
    }
    dunlin__free_array(&pipeline->alloc, pipeline->makers, (size_t)pipeline->n_makers,
                       sizeof *pipeline->makers);
}

static uint64_t makers_bytes(const dunlin_pipeline *pipeline)
{
    return (uint64_t)pipeline->n_makers * (sizeof *pipeline->makers + pipeline->raw_bytes +
                                           (uint64_t)pipeline->n_scratch * sizeof(float));
}

static void copy_normalisation(dunlin_pipeline *pipeline)
{
    for (int32_t c = 0; c < pipeline->image.channels; c++) {
        pipeline->mean[c] = pipeline->options.mean != NULL ? pipeline->options.mean[c] : 0.0F;
        pipeline->std[c] = pipeline->options.std != NULL ? pipeline->options.std[c] : 1.0F;
    }
}

static void settle_border(dunlin_pipeline *pipeline)
{
    const dunlin_source made = plain_source(pipeline);
    if (pipeline->options.border == DUNLIN_BORDER_MEAN && made.mean != NULL) {
        dunlin__image_stored_mean(&pipeline->image, made.scale, made.mean, pipeline->border);
        pipeline->image.border = pipeline->border;
    }
}

static dunlin_status fit_image(uint64_t bytes, size_t *out_bytes, dunlin_error *error)
{
    if (!dunlin__to_size(bytes, out_bytes)) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                            "an image of %" PRIu64
                            " bytes is larger than the address space: the limit is %zu bytes",
                            bytes, SIZE_MAX);
    }
    return DUNLIN_OK;
}

static dunlin_status build(dunlin_pipeline *pipeline, const dunlin_shape *shape,
                           dunlin_error *error)
{
    DUNLIN_TRY(settle_image(pipeline, shape, error));
    const dunlin_image *image = &pipeline->image;
    const uint64_t pixel_bytes = (uint64_t)image->channels * dunlin_dtype_bytes(image->dtype);
    DUNLIN_TRY(fit_image(pixel_bytes * (uint64_t)shape->dims[1] * (uint64_t)shape->dims[2],
                         &pipeline->raw_bytes, error));
    DUNLIN_TRY(fit_image(pixel_bytes * (uint64_t)image->height * (uint64_t)image->width,
                         &pipeline->example_bytes, error));
    pipeline->n_scratch = dunlin__image_scratch(image);
    copy_normalisation(pipeline);
    settle_border(pipeline);
    const dunlin_pipeline_options *options = &pipeline->options;
    const bool is_ahead = options->prefetch_bytes != 0;
    if (!make_maker(pipeline, &pipeline->own) || (is_ahead && !make_makers(pipeline))) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for an image of %zu bytes",
                            pipeline->raw_bytes);
    }
    if (!is_ahead) {
        return DUNLIN_OK;
    }
    pipeline->is_locked = pipeline->n_makers == 1;
    /* What the threads work in counts where their number was said. */
    const uint64_t working = options->prefetch_threads == 0 ? 0 : makers_bytes(pipeline);
    if (working >= options->prefetch_bytes) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "%" PRIu64 " bytes to read ahead: %d threads alone take %" PRIu64,
                            options->prefetch_bytes, (int)pipeline->n_makers, working);
    }
    const dunlin_ahead_options ahead = {.make_fn = make_ahead,
                                        .ctx = pipeline,
                                        .example_bytes = pipeline->example_bytes,
                                        .bytes = options->prefetch_bytes - working,
                                        .n_examples = options->prefetch_examples,
                                        .n_threads = pipeline->n_makers};
    return dunlin__ahead_create(&ahead, &pipeline->alloc, &pipeline->ahead, error);
}

/* What is delivered, and the changes over it. */
static dunlin_status add_augment(dunlin_pipeline *pipeline, const dunlin_shape *stored,
                                 dunlin_error *error)
{
    const dunlin_image *image = &pipeline->image;
    const dunlin_shape made = {.n_dims = 3, .dims = {image->channels, image->height, image->width}};
    const dunlin_source plain = plain_source(pipeline);
    pipeline->shape = stored->n_dims == 3 ? made : *stored;
    return dunlin__augment_is_wanted(&pipeline->options)
               ? dunlin__augment_create(&plain, &made, &pipeline->options, &pipeline->alloc,
                                        &pipeline->augment, error)
               : DUNLIN_OK;
}

dunlin_status dunlin_pipeline_create(const dunlin_source *source, const dunlin_shape *shape,
                                     const dunlin_pipeline_options *options,
                                     const dunlin_alloc *hooks, dunlin_pipeline **out_pipeline,
                                     dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (source == NULL || shape == NULL || options == NULL || out_pipeline == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "data", 0, "%s is NULL",
                            source == NULL    ? "source"
                            : shape == NULL   ? "shape"
                            : options == NULL ? "options"
                                              : "out_pipeline");
    }
    *out_pipeline = NULL;
    dunlin_pipeline_options taken = {.struct_size = sizeof taken};
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_pipeline_options, options, &taken, out_error));
    dunlin_source below = DUNLIN_SOURCE_INIT;
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_source, source, &below, out_error));
    dunlin_shape image;
    DUNLIN_TRY(dunlin__augment_shape(shape, &taken, &image, out_error));
    DUNLIN_TRY(dunlin__pipeline_check_source(&below, &image, out_error));
    DUNLIN_TRY(dunlin__pipeline_check_options(&taken, out_error));
    const dunlin_alloc alloc = dunlin__alloc_or_default(hooks);
    dunlin_pipeline *pipeline = dunlin__alloc_zeroed(&alloc, 1, sizeof *pipeline);
    if (pipeline == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "data", 0, "no memory for a pipeline");
    }
    pipeline->alloc = alloc;
    pipeline->below = below;
    pipeline->options = taken;
    pipeline->step = EVALUATION;
    (void)pthread_mutex_init(&pipeline->below_lock, NULL);
    dunlin_status status = build(pipeline, &image, out_error);
    if (status == DUNLIN_OK) {
        status = add_augment(pipeline, shape, out_error);
    }
    if (status != DUNLIN_OK) {
        dunlin_pipeline_destroy(pipeline);
        return status;
    }
    *out_pipeline = pipeline;
    return DUNLIN_OK;
}

void dunlin_pipeline_destroy(dunlin_pipeline *pipeline)
{
    if (pipeline == NULL) {
        return;
    }
    const dunlin_alloc alloc = pipeline->alloc;
    dunlin__ahead_destroy(pipeline->ahead);
    dunlin__augment_destroy(pipeline->augment);
    free_maker(pipeline, &pipeline->own);
    free_makers(pipeline);
    dunlin__image_axis_free(&alloc, &pipeline->image.rows);
    dunlin__image_axis_free(&alloc, &pipeline->image.columns);
    (void)pthread_mutex_destroy(&pipeline->below_lock);
    dunlin__free_array(&alloc, pipeline, 1, sizeof *pipeline);
}

dunlin_status dunlin_pipeline_get_report(dunlin_pipeline *pipeline,
                                         dunlin_pipeline_report *out_report)
{
    if (pipeline == NULL) {
        return DUNLIN_ARGUMENT;
    }
    DUNLIN_TRY(dunlin__struct_check(out_report, "dunlin_pipeline_report", NULL));
    const uint64_t own_bytes = pipeline->raw_bytes + pipeline->n_scratch * sizeof(float);
    dunlin_ahead_counts counts = {.bytes = 0};
    if (pipeline->ahead != NULL) {
        dunlin__ahead_count(pipeline->ahead, &counts);
    }
    const dunlin_pipeline_report report = {
        .struct_size = sizeof report,
        .bytes = sizeof *pipeline + dunlin__image_axis_bytes(&pipeline->image.rows) +
                 dunlin__image_axis_bytes(&pipeline->image.columns) + own_bytes +
                 makers_bytes(pipeline) + counts.bytes + dunlin__augment_bytes(pipeline->augment),
        .n_slots = counts.n_slots,
        .n_ready = counts.n_ready,
        .n_waited = counts.n_waited,
        .n_direct = pipeline->n_direct,
        .n_unlisted = counts.n_unlisted,
        .n_threads = pipeline->n_makers,
        .waited_ns = counts.waited_ns,
        .direct_ns = pipeline->direct_ns,
    };
    dunlin__struct_give(&report, sizeof report, out_report);
    return DUNLIN_OK;
}
