/*
 * conv_check.h - a convolution with data: run by the kernels under test, compared with the
 * reference or with another way of running it.
 */
#ifndef DUNLIN_TESTS_CONV_CHECK_H
#define DUNLIN_TESTS_CONV_CHECK_H

#include "buffers.h"
#include "reference.h"

typedef struct conv_data {
    dunlin_conv_shape shape;
    int64_t n;
    int64_t n_x, n_y, n_w; /* x and y per sample */
    float *x, *w, *bias, *dy;
} conv_data;

/* The results of the three passes. */
typedef struct conv_results {
    float *y, *dx, *dw, *db;
} conv_results;

/* Input size, channels, kernel, stride, pad (top and left; bottom and right follow), dilation,
 * groups. */
typedef struct conv_recipe {
    int32_t in_h, in_w, in_c, out_c;
    int32_t kernel_h, kernel_w, stride_h, stride_w;
    int32_t pad_top, pad_left, pad_bottom, pad_right;
    int32_t dilation_h, dilation_w, groups;
    int64_t n;
} conv_recipe;

conv_recipe conv_recipe_random(uint64_t *state);
const char *conv_recipe_text(const conv_recipe *recipe, char *text, size_t size);

void conv_data_open(conv_data *data, const conv_recipe *recipe, uint64_t *state);
void conv_data_close(conv_data *data);

/* The batch in slices of `slice` samples, on `threads` (NULL: serial). */
void conv_run(const dunlin_kernels *kernels, const conv_data *data, int64_t slice,
              dunlin_threads *threads, conv_results *out_results);
void conv_results_free(conv_results *results);

/* NULL, or the name of the pass that is wrong. */
const char *conv_compare(const conv_data *data, const conv_results *results);
const char *conv_bits_differ(const conv_data *data, const conv_results *a, const conv_results *b);

#endif
