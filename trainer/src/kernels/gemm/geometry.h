/*
 * geometry.h - a convolution's forward pass and each phase of its input gradient as the same thing:
 * a grid of output pixels, each with a window of source pixels.
 *
 * Along an axis grid pixel t has tap i at source pixel t * step + offset + i * pitch (outside the
 * source: zero) and lands on output pixel out_first + t * out_step. The forward pass is one view.
 * The input gradient with stride s is s x s of them, one for each residue of the input pixel: only
 * every s-th tap meets it, and within a phase taps and pixels are dense again.
 */
#ifndef DUNLIN_KERNELS_GEOMETRY_H
#define DUNLIN_KERNELS_GEOMETRY_H

#include "kernels/api/kernels.h"

typedef struct conv_axis {
    int32_t n_grid;
    int32_t n_source;
    int32_t n_taps;
    int32_t step, offset, pitch;
    int32_t first_tap, tap_step; /* tap i is the kernel's row (column) first_tap + i * tap_step */
    int32_t n_out, out_first, out_step;
} conv_axis;

typedef struct conv_view {
    conv_axis h, w;
    int32_t kernel_w;
    int32_t channels; /* of the source, in a group */
    int32_t outputs;  /* of the output, in a group */
    int32_t groups;
    int32_t source_pitch, out_pitch; /* floats of a pixel: channels of all groups */
} conv_view;

void dunlin__view_forward(const dunlin_conv_shape *shape, conv_view *out_view);
void dunlin__view_input_grad(const dunlin_conv_shape *shape, int32_t phase_h, int32_t phase_w,
                             conv_view *out_view);

bool dunlin__shape_is_depthwise(const dunlin_conv_shape *shape);

/*
 * Taps that only ever meet padding (a 3x3 kernel on a 1x1 image has eight of them) do nothing: the
 * same convolution without them. Its weights are a run of the shape's: `out_first` elements of the
 * kernel (of height x width) come before them. False, and nothing is written, if all taps count.
 */
bool dunlin__shape_trim(const dunlin_conv_shape *shape, dunlin_conv_shape *out_shape,
                        int64_t *out_first);

/* Each window is one pixel and windows follow one another as the source's pixels do. */
bool dunlin__view_is_plain(const conv_view *view);

static inline int64_t view_rows(const conv_view *view)
{
    return (int64_t)view->h.n_grid * view->w.n_grid;
}

static inline int64_t view_depth(const conv_view *view)
{
    return (int64_t)view->h.n_taps * view->w.n_taps * view->channels;
}

/* The kernel element (row * kernel_w + column) of tap i, counted along the view's rows of taps. */
static inline int64_t view_tap(const conv_view *view, int64_t i)
{
    int64_t h = view->h.first_tap + (i / view->w.n_taps) * view->h.tap_step;
    int64_t w = view->w.first_tap + (i % view->w.n_taps) * view->w.tap_step;
    return h * view->kernel_w + w;
}

/* The output pixel of a grid pixel, counted over all samples. */
static inline int64_t view_out_pixel(const conv_view *view, int64_t sample, int64_t t, int64_t u)
{
    int64_t y = view->h.out_first + t * view->h.out_step;
    int64_t x = view->w.out_first + u * view->w.out_step;
    return (sample * view->h.n_out + y) * view->w.n_out + x;
}

#endif
