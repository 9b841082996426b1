/*
 * sink_check.h - a sink with random data and a random choice of what it does: built for slices of a
 * batch, and compared with the same steps in double.
 */
#ifndef DUNLIN_TESTS_EPILOGUE_CHECK_H
#define DUNLIN_TESTS_EPILOGUE_CHECK_H

#include "buffers.h"

typedef struct epilogue_data {
    int64_t n_pixels;
    int32_t channels;
    bool is_direct, has_addend, is_in_place, has_mask, is_scaled, is_raw_mask, has_factor;
    bool is_sums_alone;
    dunlin_view_fn mask_fn;
    uint32_t n_stats;
    int64_t pitch, addend_pitch, mask_pitch, raw_pitch;
    float *addend, *mask, *mask_scale, *mask_shift, *factor;
    float *raw[DUNLIN_EPILOGUE_MAX_STATS], *about[DUNLIN_EPILOGUE_MAX_STATS];
} epilogue_data;

typedef struct epilogue_result {
    float *out;
    double *sums[DUNLIN_EPILOGUE_MAX_STATS];
} epilogue_result;

/* A hot form at times, any combination at others. */
void epilogue_data_open(epilogue_data *d, int64_t n_pixels, int32_t channels, uint64_t *state);
void epilogue_data_close(epilogue_data *d);

void epilogue_result_open(const epilogue_data *d, epilogue_result *r);
void epilogue_result_close(epilogue_result *r);

/* The sink of the pixels from `first` on. */
dunlin_epilogue epilogue_of(const epilogue_data *d, epilogue_result *r, int64_t first);

/* dx of all pixels ([pixel][channels]) and the size of its terms; the error allowed is
 * factor * eps * size. */
void epilogue_compare(const char *what, const epilogue_data *d, const epilogue_result *r,
                      const double *dx, const double *size, double factor);
void epilogue_compare_bits(const char *what, const epilogue_data *d, const epilogue_result *a,
                           const epilogue_result *b);

#endif
