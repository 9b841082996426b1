/*
 * augment.c - what is drawn for an example, and its floats.
 *
 * Invariant: what becomes of an example follows from the key of its epoch, its index and the source
 * below. Each kind of change has a stream of its own, so none is moved by another. Mix-up reads its
 * second example with that one's own draws, as if it were in the batch itself.
 */
#include "augment.h"

#include "data/common/draw.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_CHANNELS 64
#define EVALUATION (-1) /* as step: nothing is drawn */
#define HINT_PAIRS 32
#define MOST_CLASSES 65536

enum { PURPOSE_CUTOUT = 0x4155474D, PURPOSE_SHIFT, PURPOSE_MIXUP, PURPOSE_NOISE };

struct dunlin_augment {
    dunlin_alloc alloc;
    dunlin_source below;
    dunlin_pipeline_options options;
    dunlin_shape image;
    int64_t plane, n; /* elements of a channel, of an example */
    size_t raw_bytes;
    float scale, mean[MAX_CHANNELS], inv_std[MAX_CHANNELS];
    unsigned char *raw; /* an example as it comes from below */
    float *other;       /* mix-up: the second one; shift: the row it moves */
    int64_t step;       /* that runs, or EVALUATION */
    char text[DUNLIN_ERROR_TEXT_BYTES];
};

/* --- draws --- */

uint64_t dunlin__augment_key(uint64_t seed, int64_t step, int64_t epoch_steps)
{
    const int64_t count = epoch_steps > 0 ? step / epoch_steps : step;
    return dunlin__draw_mix(seed ^ dunlin__draw_mix((uint64_t)count));
}

static uint64_t key_at(const dunlin_augment *augment, int64_t step)
{
    return dunlin__augment_key(augment->options.seed, step, augment->options.epoch_steps);
}

/* The example that is mixed into example `index`, and the share that stays of the latter: of
 * Beta(alpha, alpha), as two gamma variables. */
static int64_t draw_partner(const dunlin_augment *augment, int64_t step, int64_t index,
                            float *out_share)
{
    dunlin_draw draw = dunlin__draw_begin(key_at(augment, step), PURPOSE_MIXUP, (uint64_t)index);
    const double alpha = (double)augment->options.mixup;
    const double a = dunlin__draw_log_gamma(&draw, alpha);
    const double b = dunlin__draw_log_gamma(&draw, alpha);
    *out_share = (float)(1.0 / (1.0 + exp(b - a)));
    return (int64_t)dunlin__draw_below(&draw, (uint64_t)augment->below.n_examples);
}

/* --- one example --- */

static void normalise(const dunlin_augment *augment, float *out)
{
    const float *floats = (const float *)(const void *)augment->raw;
    for (int32_t c = 0; c < augment->image.dims[0]; c++) {
        const float mean = augment->mean[c];
        const float factor = augment->inv_std[c];
        const int64_t first = c * augment->plane;
        for (int64_t i = first; i < first + augment->plane; i++) {
            const float x = augment->below.dtype == DUNLIN_U8 ? (float)augment->raw[i] : floats[i];
            out[i] = (x * augment->scale - mean) * factor;
        }
    }
}

/* A square about any pixel becomes zeros; what reaches over the border is cut off. */
static void cut_out(const dunlin_augment *augment, uint64_t key, int64_t index, float *x)
{
    dunlin_draw draw = dunlin__draw_begin(key, PURPOSE_CUTOUT, (uint64_t)index);
    const int64_t height = augment->image.dims[1];
    const int64_t width = augment->image.dims[2];
    const int64_t side = augment->options.cutout;
    const int64_t top = (int64_t)dunlin__draw_below(&draw, (uint64_t)height) - side / 2;
    const int64_t left = (int64_t)dunlin__draw_below(&draw, (uint64_t)width) - side / 2;
    const int64_t first = left < 0 ? 0 : left;
    const int64_t end = left + side > width ? width : left + side;
    for (int64_t c = 0; c < augment->image.dims[0]; c++) {
        for (int64_t y = top < 0 ? 0 : top; y < height && y < top + side; y++) {
            memset(x + c * augment->plane + y * width + first, 0,
                   (size_t)(end - first) * sizeof *x);
        }
    }
}

/* All channels of a signal by the same number of places, later or earlier; zeros come in. */
static void shift(const dunlin_augment *augment, uint64_t key, int64_t index, float *x)
{
    dunlin_draw draw = dunlin__draw_begin(key, PURPOSE_SHIFT, (uint64_t)index);
    const int64_t most = augment->options.shift;
    const int64_t by = (int64_t)dunlin__draw_below(&draw, 2 * (uint64_t)most + 1) - most;
    const int64_t n_zeros = by < 0 ? -by : by;
    const int64_t n_kept = augment->plane - n_zeros;
    for (int64_t c = 0; c < augment->image.dims[0]; c++) {
        float *row = x + c * augment->plane;
        memmove(row + (by > 0 ? by : 0), row + (by > 0 ? 0 : -by), (size_t)n_kept * sizeof *row);
        memset(row + (by > 0 ? 0 : n_kept), 0, (size_t)n_zeros * sizeof *row);
    }
}

static void add_noise(const dunlin_augment *augment, uint64_t key, int64_t index, float *x)
{
    dunlin_draw draw = dunlin__draw_begin(key, PURPOSE_NOISE, (uint64_t)index);
    const double deviation = (double)augment->options.noise;
    for (int64_t i = 0; i < augment->n; i++) {
        x[i] += (float)(deviation * dunlin__draw_normal(&draw));
    }
}

/* Reads an example and makes the changes of its own. */
static dunlin_status read_one(dunlin_augment *augment, int64_t index, float *out,
                              int32_t *out_label)
{
    const dunlin_source *below = &augment->below;
    DUNLIN_TRY(below->read_fn(below->ctx, &index, 1, augment->raw, out_label));
    normalise(augment, out);
    if (augment->step == EVALUATION) {
        return DUNLIN_OK;
    }
    const uint64_t key = key_at(augment, augment->step);
    if (augment->options.cutout > 0) {
        cut_out(augment, key, index, out);
    }
    if (augment->options.shift > 0) {
        shift(augment, key, index, out);
    }
    return DUNLIN_OK;
}

static float weight_of(const dunlin_augment *augment, int64_t index)
{
    const dunlin_source *below = &augment->below;
    return below->weight_fn == NULL ? 1.0F : below->weight_fn(below->ctx, index);
}

/* What an example is made of. */
typedef struct mixture {
    int64_t partner;
    int32_t label, partner_label;
    float share; /* of the example itself */
} mixture;

/* One that does not count is not mixed in: it may have no label. */
static dunlin_status make_example(dunlin_augment *augment, int64_t index, float *out,
                                  mixture *out_mixture)
{
    *out_mixture = (mixture){.partner = index, .share = 1.0F};
    DUNLIN_TRY(read_one(augment, index, out, &out_mixture->label));
    out_mixture->partner_label = out_mixture->label;
    if (augment->step == EVALUATION) {
        return DUNLIN_OK;
    }
    if (augment->options.mixup > 0.0F) {
        float share = 1.0F;
        const int64_t partner = draw_partner(augment, augment->step, index, &share);
        if (partner != index && weight_of(augment, partner) != 0.0F) {
            DUNLIN_TRY(read_one(augment, partner, augment->other, &out_mixture->partner_label));
            for (int64_t i = 0; i < augment->n; i++) {
                out[i] = share * out[i] + (1.0F - share) * augment->other[i];
            }
            out_mixture->partner = partner;
            out_mixture->share = share;
        }
    }
    if (augment->options.noise > 0.0F) {
        add_noise(augment, key_at(augment, augment->step), index, out);
    }
    return DUNLIN_OK;
}

/* --- the source --- */

static dunlin_status read_labels(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    dunlin_augment *augment = ctx;
    if (augment->options.mixup > 0.0F && augment->step != EVALUATION) {
        (void)snprintf(augment->text, sizeof augment->text,
                       "mix-up makes targets of two classes: train with the loss "
                       "SOFT_CROSS_ENTROPY, which takes them");
        return DUNLIN_ARGUMENT;
    }
    for (int64_t i = 0; i < n; i++) {
        mixture made;
        DUNLIN_TRY(make_example(augment, indices[i], (float *)out_x + i * augment->n, &made));
        out_y[i] = made.label;
    }
    return DUNLIN_OK;
}

static dunlin_status add_share(dunlin_augment *augment, int64_t index, int32_t label, float share,
                               float *targets)
{
    if (label < 0 || label >= augment->options.n_classes) {
        (void)snprintf(augment->text, sizeof augment->text,
                       "label %d of example %" PRId64 " is not one of the %d classes that mix-up "
                       "makes targets of",
                       (int)label, index, (int)augment->options.n_classes);
        return DUNLIN_DATA;
    }
    targets[label] += share;
    return DUNLIN_OK;
}

static dunlin_status read_targets(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  float *out_targets)
{
    dunlin_augment *augment = ctx;
    const int64_t width = augment->options.n_classes;
    memset(out_targets, 0, (size_t)(n * width) * sizeof *out_targets);
    for (int64_t i = 0; i < n; i++) {
        float *targets = out_targets + i * width;
        mixture made;
        DUNLIN_TRY(make_example(augment, indices[i], (float *)out_x + i * augment->n, &made));
        if (weight_of(augment, indices[i]) == 0.0F) {
            continue;
        }
        DUNLIN_TRY(add_share(augment, indices[i], made.label, made.share, targets));
        if (made.partner != indices[i]) {
            DUNLIN_TRY(
                add_share(augment, made.partner, made.partner_label, 1.0F - made.share, targets));
        }
    }
    return DUNLIN_OK;
}

static float weigh(void *ctx, int64_t index)
{
    return weight_of(ctx, index);
}

static void begin_step(void *ctx, int64_t step)
{
    dunlin_augment *augment = ctx;
    augment->step = step < 0 ? EVALUATION : step;
    augment->text[0] = '\0';
    augment->below.step_fn(augment->below.ctx, step);
}

/* The second examples are announced between the first ones, as they are read. */
static void hint_step(void *ctx, int64_t step, const int64_t *indices, int64_t n)
{
    dunlin_augment *augment = ctx;
    const dunlin_source *below = &augment->below;
    int64_t pairs[2 * HINT_PAIRS];
    int64_t n_pairs = 0;
    if (!(augment->options.mixup > 0.0F)) {
        below->hint_fn(below->ctx, step, indices, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float share = 0.0F;
        const int64_t partner = draw_partner(augment, step, indices[i], &share);
        pairs[n_pairs++] = indices[i];
        if (partner != indices[i] && weight_of(augment, partner) != 0.0F) {
            pairs[n_pairs++] = partner;
        }
        if (n_pairs > 2 * HINT_PAIRS - 2 || i == n - 1) {
            below->hint_fn(below->ctx, step, pairs, n_pairs);
            n_pairs = 0;
        }
    }
}

static const char *last_text(void *ctx)
{
    const dunlin_augment *augment = ctx;
    return augment->text[0] != '\0' ? augment->text : augment->below.error_fn(augment->below.ctx);
}

dunlin_source dunlin__augment_source(dunlin_augment *augment)
{
    const bool is_mixed = augment->options.mixup > 0.0F;
    return (dunlin_source){
        .struct_size = sizeof(dunlin_source),
        .ctx = augment,
        .read_fn = read_labels,
        .n_examples = augment->below.n_examples,
        .dtype = DUNLIN_F32,
        .scale = 1.0F,
        .weight_fn = augment->below.weight_fn == NULL ? NULL : weigh,
        .step_fn = begin_step,
        .hint_fn = hint_step,
        .error_fn = last_text,
        .read_targets_fn = is_mixed ? read_targets : NULL,
        .n_targets = is_mixed ? augment->options.n_classes : 0,
        .flags = augment->below.flags,
    };
}

/* --- checks --- */

bool dunlin__augment_is_wanted(const dunlin_pipeline_options *options)
{
    return options->cutout != 0 || options->shift != 0 || options->mixup != 0.0F ||
           options->noise != 0.0F;
}

static dunlin_status check_number(const char *name, float value, dunlin_error *error)
{
    return isfinite(value) && value >= 0.0F && value <= 1000.0F
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0, "%s %g: the limits are 0 and 1000",
                              name, (double)value);
}

static dunlin_status check_options(const dunlin_pipeline_options *options, dunlin_error *error)
{
    DUNLIN_TRY(check_number("mixup", options->mixup, error));
    DUNLIN_TRY(check_number("noise", options->noise, error));
    if (options->cutout < 0 || options->shift < 0 || options->epoch_steps < 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "cutout %d, shift %d, epoch_steps %" PRId64 ": none may be negative",
                            (int)options->cutout, (int)options->shift, options->epoch_steps);
    }
    if (options->mixup > 0.0F && (options->n_classes < 1 || options->n_classes > MOST_CLASSES)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "mix-up into targets of %d classes: the limits are 1 and %d",
                            (int)options->n_classes, MOST_CLASSES);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__augment_shape(const dunlin_shape *shape,
                                    const dunlin_pipeline_options *options, dunlin_shape *out_image,
                                    dunlin_error *error)
{
    DUNLIN_TRY(check_options(options, error));
    *out_image = *shape;
    if (shape->n_dims != 1 && shape->n_dims != 2) {
        return DUNLIN_OK;
    }
    if (options->resize_height != 0 || options->crop_height != 0 || options->is_random_crop ||
        options->is_flip) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "resizing, windows and flips are for images (C, H, W); the examples "
                            "have %d %s",
                            (int)shape->n_dims, shape->n_dims == 1 ? "dimension" : "dimensions");
    }
    const bool is_signal = shape->n_dims == 2;
    *out_image = (dunlin_shape){
        .n_dims = 3,
        .dims = {is_signal ? shape->dims[0] : 1, 1, is_signal ? shape->dims[1] : shape->dims[0]}};
    return DUNLIN_OK;
}

/* What depends on the size that is delivered. */
static dunlin_status check_sizes(const dunlin_shape *image, const dunlin_pipeline_options *options,
                                 dunlin_error *error)
{
    const int64_t height = image->dims[1];
    const int64_t width = image->dims[2];
    if (options->cutout > height || options->cutout > width) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "a cut-out of %d x %d is larger than the image of %" PRId64
                            " x %" PRId64,
                            (int)options->cutout, (int)options->cutout, height, width);
    }
    if (options->shift > 0 && height > 1) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "a shift of %d is for signals (C, L); the examples are images of "
                            "%" PRId64 " x %" PRId64 " (a random window moves those)",
                            (int)options->shift, height, width);
    }
    if (options->shift >= width && options->shift > 0) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "a shift of %d leaves nothing of signals of length %" PRId64,
                            (int)options->shift, width);
    }
    return DUNLIN_OK;
}

/* --- life --- */

static dunlin_status build(dunlin_augment *augment, dunlin_error *error)
{
    const dunlin_source *below = &augment->below;
    const dunlin_shape *image = &augment->image;
    DUNLIN_TRY(check_sizes(image, &augment->options, error));
    augment->plane = image->dims[1] * image->dims[2];
    augment->n = image->dims[0] * augment->plane;
    augment->raw_bytes = (size_t)augment->n * dunlin_dtype_bytes(below->dtype);
    augment->scale = below->scale == 0.0F ? 1.0F : below->scale;
    for (int32_t c = 0; c < image->dims[0]; c++) {
        augment->mean[c] = below->mean == NULL ? 0.0F : below->mean[c];
        augment->inv_std[c] = below->std == NULL ? 1.0F : 1.0F / below->std[c];
    }
    augment->raw = dunlin__alloc_array(&augment->alloc, augment->raw_bytes, 1);
    augment->other =
        dunlin__alloc_array(&augment->alloc, (size_t)augment->n, sizeof *augment->other);
    return augment->raw != NULL && augment->other != NULL
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                              "no memory for an example of %" PRId64 " floats", augment->n);
}

dunlin_status dunlin__augment_create(const dunlin_source *below, const dunlin_shape *image,
                                     const dunlin_pipeline_options *options,
                                     const dunlin_alloc *alloc, dunlin_augment **out_augment,
                                     dunlin_error *error)
{
    *out_augment = NULL;
    dunlin_augment *augment = dunlin__alloc_zeroed(alloc, 1, sizeof *augment);
    if (augment == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory to change examples");
    }
    augment->alloc = *alloc;
    augment->below = *below;
    augment->options = *options;
    augment->image = *image;
    augment->step = EVALUATION;
    const dunlin_status status = build(augment, error);
    if (status != DUNLIN_OK) {
        dunlin__augment_destroy(augment);
        return status;
    }
    *out_augment = augment;
    return DUNLIN_OK;
}

void dunlin__augment_destroy(dunlin_augment *augment)
{
    if (augment == NULL) {
        return;
    }
    const dunlin_alloc alloc = augment->alloc;
    dunlin__free_array(&alloc, augment->raw, augment->raw_bytes, 1);
    dunlin__free_array(&alloc, augment->other, (size_t)augment->n, sizeof *augment->other);
    dunlin__free_array(&alloc, augment, 1, sizeof *augment);
}

uint64_t dunlin__augment_bytes(const dunlin_augment *augment)
{
    return augment == NULL ? 0
                           : sizeof *augment + augment->raw_bytes +
                                 (uint64_t)augment->n * sizeof *augment->other;
}
