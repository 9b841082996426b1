/*
 * int_lines.h - convolutions of few channels in integers: windows are not copied one by one, but
 * lines of the image with their padding once, and a product reads its windows in them.
 */
#ifndef DUNLIN_KERNELS_INT_LINES_H
#define DUNLIN_KERNELS_INT_LINES_H

#include "int_conv.h"

/* Of the source; with more of them a copied window is used by enough products. */
#define INT_LINES_CHANNELS 32

/* Whether a view's windows are for it: several taps, those of a row side by side. */
static inline bool int_view_has_lines(const conv_view *view)
{
    return view->groups == 1 && view->channels <= INT_LINES_CHANNELS && view->h.n_taps > 0 &&
           view->w.n_taps > 0 && view->h.n_taps * view->w.n_taps > 1 && view->h.n_grid > 0 &&
           view->w.n_grid > 0;
}

/* A pass of a view, forward or input gradient. */
typedef struct int_lines {
    const dunlin_int_conv_call *call;
    const conv_view *view;
    bool is_input_grad;
    const int8_t *source;
    int_tally *tally;
} int_lines;

/* Bytes of workspace; 0: the view is not for it. */
uint64_t K(int_lines_bytes)(const conv_view *view, size_t n_threads);
/* False: it is not for it, and nothing has been done. */
bool K(int_lines_run)(const int_lines *lines);

/* The same of the weight gradient, whose view is the forward pass's; calls of at most n_samples, 0:
 * any number. */
uint64_t K(int_lines_grad_bytes)(const conv_view *view, int64_t n_samples, size_t n_threads);
bool K(int_lines_grad)(const dunlin_int_conv_call *call, const conv_view *view);

/* n elements of the weight gradient from `at` on: added, or what they are if `is_first`. */
void K(int_add_sums)(const dunlin_int_conv_call *call, int64_t at, int64_t n, const int32_t *from,
                     bool is_first);

#endif
