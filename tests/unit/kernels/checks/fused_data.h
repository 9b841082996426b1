/*
 * fused_data.h - one drawn call of a fused convolution: its operands, and running it in slices, on
 * threads and in parts.
 */
#ifndef DUNLIN_TESTS_FUSED_DATA_H
#define DUNLIN_TESTS_FUSED_DATA_H

#include "conv_check.h"

/* What is used; drawn at random. */
typedef struct fused_choice {
    bool has_view, has_clip, has_grad_raw, has_grad_factor;
    bool has_bias, clips_y, has_forward_stat;
    bool is_direct, has_addend, is_in_place, has_mask, has_mask_scale, has_factor, has_db;
    bool is_raw_mask; /* the first statistic's raw is the mask's tensor */
    uint32_t n_stats;
    dunlin_view_fn x_fn, mask_fn; /* of values that have no other term */
    bool is_own_mask;             /* the mask is the view that x is read through */
    /* backward x, and the mask, are read through what else is added: 1: as it lies, 2: a view */
    int32_t x_terms, mask_terms;
    int32_t gap[8]; /* pitch - channels of x, y, g, raw, dx, addend, mask, stat raw */
} fused_choice;

typedef struct fused_data {
    conv_data conv;
    fused_choice choice;
    bool reads_halves, stores_halves; /* in bfloat16: all that is read, and dx (fused_halves.h) */
    uint32_t uses;
    int64_t n_in, n_out; /* pixels of all samples */
    int64_t pitch[8];
    float *x, *g, *raw, *addend, *mask, *stat_raw[2];
    float *scale, *shift, *factor, *slope, *offset, *mask_scale, *mask_shift, *epilogue_factor;
    float *plus, *plus_scale, *plus_shift; /* the other term, [pixel][channels] */
    float *about_y, *about[2];
} fused_data;

enum { PX, PY, PG, PRAW, PDX, PADDEND, PMASK, PSTAT };

typedef struct fused_results {
    float *y, *dx, *dw, *db;
    double *y_sums, *dx_sums[2];
} fused_results;

void fused_data_open(fused_data *d, const conv_recipe *recipe, uint64_t *state);
void fused_data_close(fused_data *d);
/* The tensor that the mask is taken from. */
const float *fused_mask(const fused_data *d);
/* What the mask is made of, without the other term; rounded as the kernels do. */
float fused_mask_value(const fused_data *d, int64_t row, int64_t c);

/* All of it, in slices, on threads; both gradients in one call or apart. Fills `r`, which
 * fused_results_close() frees. */
void fused_run(const dunlin_kernels *kernels, const fused_data *d, int64_t slice,
               dunlin_threads *threads, bool is_joint, fused_results *r);
void fused_results_close(fused_results *r);

#endif
