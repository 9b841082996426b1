/*
 * image.h - one image resized, cropped and flipped in one go: only what the window keeps is
 * computed.
 */
#ifndef DUNLIN_DATA_IMAGE_H
#define DUNLIN_DATA_IMAGE_H

#include <dunlin/alloc.h>
#include <dunlin/tensor.h>

/* Of each pixel along one side: the source pixels it is made of, and their weights. */
typedef struct dunlin_image_axis {
    int32_t n_from, n_to;
    int32_t n_taps; /* room of each pixel in `weights`; 0: as it is, no tables */
    int32_t *first;
    int32_t *n;
    float *weights;
} dunlin_image_axis;

typedef struct dunlin_image {
    dunlin_dtype dtype; /* U8 or F32 */
    int32_t channels;
    dunlin_image_axis rows, columns; /* n_to: the size after resizing */
    int32_t height, width;           /* of the window */
    const float *border;             /* by channel, as the image is stored; NULL: zeros */
} dunlin_image;

/* Where the window lies in the resized image; outside of it there is the border. */
typedef struct dunlin_image_place {
    int32_t top, left;
    bool is_flipped;
} dunlin_image_place;

/* Makes the tables of an axis; false when out of memory. What was made is freed in any case by
 * dunlin__image_axis_free(). */
bool dunlin__image_axis_make(const dunlin_alloc *alloc, int32_t n_from, int32_t n_to,
                             dunlin_image_axis *out_axis);
void dunlin__image_axis_free(const dunlin_alloc *alloc, dunlin_image_axis *axis);
uint64_t dunlin__image_axis_bytes(const dunlin_image_axis *axis);

/* The mean of each channel as it would be stored, the nearest of bytes; x = value * scale is what
 * it is the mean of, 0: the value itself. */
void dunlin__image_stored_mean(const dunlin_image *image, float scale, const float *mean,
                               float *out_stored);

/* Floats of scratch that dunlin__image_apply() needs; 0 if it needs none. */
size_t dunlin__image_scratch(const dunlin_image *image);

/* `from`: (C, H, W) as it is read; `to`: C x height x width. */
void dunlin__image_apply(const dunlin_image *image, const dunlin_image_place *place,
                         const void *from, float *scratch, void *to);

/* Where torchvision's CenterCrop puts a window of `n_window` in `n` pixels. */
int32_t dunlin__image_centre(int32_t n, int32_t n_window);

#endif
