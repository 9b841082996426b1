/*
 * augment.h - examples changed at random behind a pipeline's window: cut-out, shift, mix-up, noise.
 *
 * A layer over the pipeline's own source. It delivers normalised floats, so that its zeros and its
 * noise are in units of the network's input. Sources: DeVries, Taylor, "Improved regularization of
 * convolutional neural networks with cutout", 2017, section 3; Zhang, Cisse, Dauphin, Lopez-Paz,
 * "mixup: beyond empirical risk minimization", ICLR 2018, section 2.
 */
#ifndef DUNLIN_DATA_AUGMENT_H
#define DUNLIN_DATA_AUGMENT_H

#include <dunlin/pipeline.h>

typedef struct dunlin_augment dunlin_augment;

bool dunlin__augment_is_wanted(const dunlin_pipeline_options *options);

/* The examples' shape as (C, H, W): a signal (C, L) is an image of height 1, a vector (L) one of
 * one channel, too. ARGUMENT where the options are not for that shape, or outside their limits. */
DUNLIN_NODISCARD dunlin_status dunlin__augment_shape(const dunlin_shape *shape,
                                                     const dunlin_pipeline_options *options,
                                                     dunlin_shape *out_image, dunlin_error *error);

/* `below` delivers examples of `image` (C, H, W) and is copied, its context borrowed. ARGUMENT (a
 * square wider than the image, a shift past the signal), MEMORY; *out_augment is NULL then. */
DUNLIN_NODISCARD dunlin_status dunlin__augment_create(
    const dunlin_source *below, const dunlin_shape *image, const dunlin_pipeline_options *options,
    const dunlin_alloc *alloc, dunlin_augment **out_augment, dunlin_error *error);
/* NULL is fine. */
void dunlin__augment_destroy(dunlin_augment *augment);
uint64_t dunlin__augment_bytes(const dunlin_augment *augment); /* 0 of NULL */

/* The source that delivers them. */
dunlin_source dunlin__augment_source(dunlin_augment *augment);

/* The stream that step `step` draws from: of its epoch, where an epoch has `epoch_steps` of them,
 * else (0) of itself. */
uint64_t dunlin__augment_key(uint64_t seed, int64_t step, int64_t epoch_steps);

#endif
