/*
 * pipeline.h - image preprocessing as a source over a source, with reading ahead on threads.
 *
 * Each example goes through: resize, crop, horizontal flip; normalising is left to the trainer's
 * input op, which takes scale, mean and deviation from the source. Sizes and rounding are those of
 * torchvision's Resize (bilinear, antialias=True), RandomCrop, CenterCrop and RandomHorizontalFlip.
 * Then, where they are asked for, cut-out (DeVries, Taylor 2017), shift, mix-up (Zhang et al. 2018)
 * and noise.
 *
 * What is drawn at random follows from (seed, step, example) alone, or with `epoch_steps` from
 * (seed, epoch, example): an example asked for twice in one step has the same bytes, a resumed run
 * repeats them, and reading ahead changes none. In evaluations and predictions the crop is the
 * centre and nothing else is changed.
 *
 * The memory is the application's: it is not part of the trainer's budget or report, and
 * dunlin_pipeline_get_report() counts it.
 *
 * Example: crops of a border of 4 pixels, flipped at random, with 8 MiB of examples read ahead.
 *
 * @code
 * extern const dunlin_source *images; // of 3 x 32 x 32
 * const dunlin_shape shape = {.n_dims = 3, .dims = {3, 32, 32}};
 * dunlin_error error = {0};
 * dunlin_pipeline *pipeline = NULL;
 * dunlin_source source; // for dunlin_trainer_fit()
 * dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
 * options.crop_height = 32;
 * options.is_random_crop = true;
 * options.padding = 4;
 * options.is_flip = true;
 * options.prefetch_bytes = 8 << 20;
 * if (dunlin_pipeline_create(images, &shape, &options, NULL, &pipeline, &error) == DUNLIN_OK) {
 *     dunlin_pipeline_source(pipeline, &source);
 * }
 * dunlin_pipeline_destroy(pipeline);
 * @endcode
 */
#ifndef DUNLIN_PIPELINE_H
#define DUNLIN_PIPELINE_H

#include <dunlin/alloc.h>
#include <dunlin/source.h>
#include <dunlin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_pipeline dunlin_pipeline;

/* What surrounds an image where a random window reaches beyond it. */
typedef enum dunlin_border {
    DUNLIN_BORDER_ZERO = 0, /* zeros as stored: black, as torchvision's RandomCrop has it */
    /* The mean of each channel by which the examples are normalised, rounded where they are bytes:
     * about zero once they are. Where nothing is normalised, zeros. */
    DUNLIN_BORDER_MEAN = 1
} dunlin_border;

typedef struct dunlin_pipeline_options {
    size_t struct_size;
    /* Size after resizing, 1 to 4096. Height alone: the shorter side gets it and the other follows
     * in proportion, rounded down. Both 0: not resized. */
    int32_t resize_height, resize_width;
    /* Size of the window that is kept. Height alone: a square. Both 0: the whole image. */
    int32_t crop_height, crop_width;
    /* Training: the window lies anywhere in the image (after resizing), bordered by `padding`
     * pixels, 0 to 4096, on each side. Otherwise it is the centre. */
    bool is_random_crop;
    int32_t padding;
    bool is_flip;  /* training: left and right are exchanged in half of the examples */
    uint64_t seed; /* of windows and flips */
    /* Normalisation instead of the source's own; all as in dunlin_source, copied. NULL and 0: the
     * source's, which must then stay in place. */
    float scale;
    const float *mean;
    const float *std;
    /* Bytes for examples made ahead on threads of their own, tables included; 0: no thread. At
     * least one example must fit. */
    uint64_t prefetch_bytes;
    /*
     * Training, of images, signals (C, L) and vectors (L) alike. With any of these examples are
     * delivered as normalised floats: type F32, scale 1, no mean or deviation left to apply.
     */
    int32_t cutout; /* a square of so many pixels about any pixel is 0, cut off at the borders */
    int32_t shift;  /* signals: so many places later or earlier at most; zeros come in, nothing
                       comes round again */
    float mixup;    /* alpha above 0: an example becomes a x + (1 - a) x' with any other one, x', of
                       the source, after that one's own window, cut-out and shift; a is drawn from
                       Beta(alpha, alpha). Labels become targets, see n_classes */
    int32_t
        n_classes; /* mix-up: targets of an example, a for its label and 1 - a for the other's.
                      The source then has read_targets_fn for it and in training no labels: the
                      trainer's loss is DUNLIN_LOSS_SOFT_CROSS_ENTROPY, or another over targets */
    float noise; /* deviation of normal noise, in units of the normalised input; added at the end */
    /* Steps of an epoch: all that is drawn then follows from (seed, epoch, example) alone, whatever
     * the batch. 0: from (seed, step, example). */
    int64_t epoch_steps;
    /*
     * How many threads, at most 16; 0: one. Above 1 the source's read_fn, weight_fn and error_fn
     * are called by several threads at a time, which the sources of a data set allow; error_fn then
     * tells the last failure of the thread that asks. Where it is not 0 prefetch_bytes is also for
     * what the threads work in: an example as it is read, and what resizing it takes.
     */
    int32_t prefetch_threads;
    int64_t prefetch_examples; /* at most so many are held ready; two batches are enough; 0: as many
                                  as fit into prefetch_bytes */
    dunlin_border border;      /* of a random window */
} dunlin_pipeline_options;

#define DUNLIN_PIPELINE_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_pipeline_options)

/**
 * A pipeline over `source`, whose examples are images of `shape` (C, H, W), signals (C, L) or
 * vectors (L), U8 or F32; of signals and vectors nothing is resized, cropped or flipped. The source
 * is copied, its context borrowed. With prefetch_bytes it is read on the thread that runs the step
 * and on the pipeline's own, in parallel only with several prefetch_threads. An example that a
 * thread cannot read is read again when the step asks for it, which then meets the failure, if it
 * is still there, and names it. `hooks` may be NULL.
 *
 * @return OK; ARGUMENT (a size outside its limits; a random window larger than the padded image; a
 * cut-out wider than the image, a shift of images; no example fits into prefetch_bytes; threads),
 * UNSUPPORTED (I32; a source that is a pipeline itself), VERSION, MEMORY (also: the system has no
 * thread). *out_pipeline is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_pipeline_create(
    const dunlin_source *source, const dunlin_shape *shape, const dunlin_pipeline_options *options,
    const dunlin_alloc *hooks, dunlin_pipeline **out_pipeline, dunlin_error *out_error);

/** Ends the threads, after the reads they are in. No step may be running. NULL is fine. */
DUNLIN_API void dunlin_pipeline_destroy(dunlin_pipeline *pipeline);

/** @return (C, H, W) as delivered; of signals and vectors the shape they have. */
DUNLIN_API dunlin_shape dunlin_pipeline_shape(const dunlin_pipeline *pipeline);

/** dunlin_pipeline_source() into a struct of so many bytes: those that the app's header knows. */
DUNLIN_API void dunlin_pipeline_fill_source(dunlin_pipeline *pipeline, dunlin_source *out_source,
                                            size_t source_bytes);

/** The source to train on; of the same type as the one below, or F32. Used by one trainer at a
 * time. */
static inline void dunlin_pipeline_source(dunlin_pipeline *pipeline, dunlin_source *out_source)
{
    dunlin_pipeline_fill_source(pipeline, out_source, sizeof *out_source);
}

typedef struct dunlin_pipeline_report {
    size_t struct_size;
    uint64_t bytes;   /* held in all, until it is destroyed; the threads' stacks are not counted */
    int64_t n_slots;  /* examples that can be ready at a time; 0: no thread */
    int64_t n_ready;  /* reads that found the example made, so far */
    int64_t n_waited; /* reads that waited for a thread to finish it */
    int64_t n_direct; /* reads that made it themselves */
    int64_t n_unlisted; /* examples announced when the list was full: made when asked for */
    int32_t n_threads;
    uint64_t waited_ns; /* that n_waited took, of the thread that trains */
    uint64_t direct_ns; /* that n_direct took in steps, not in evaluations */
} dunlin_pipeline_report;

#define DUNLIN_PIPELINE_REPORT_INIT DUNLIN_SIZED_INIT(dunlin_pipeline_report)

/** @return OK; ARGUMENT without a report that begins with its struct_size. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_pipeline_get_report(dunlin_pipeline *pipeline, dunlin_pipeline_report *out_report);

#ifdef __cplusplus
}
#endif

#endif
