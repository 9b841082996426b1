/*
 * sink_check.h - a sink with random data and a random choice of what it does: built for slices of a
 * batch, and compared with the same steps in double.
 */
#ifndef DUNLIN_TESTS_SINK_CHECK_H
#define DUNLIN_TESTS_SINK_CHECK_H

#include "buffers.h"

typedef struct sink_data {
    int64_t n_pixels;
    int32_t channels;
    bool is_direct, has_addend, is_in_place, has_mask, is_scaled, is_raw_mask, has_factor;
    bool is_sums_alone;
    uint32_t n_stats;
    int64_t pitch, addend_pitch, mask_pitch, raw_pitch;
    float *addend, *mask, *mask_scale, *mask_shift, *factor;
    float *raw[DUNLIN_SINK_MAX_STATS], *about[DUNLIN_SINK_MAX_STATS];
} sink_data;

typedef struct sink_result {
    float *out;
    double *sums[DUNLIN_SINK_MAX_STATS];
} sink_result;

/* A hot form at times, any combination at others. */
void sink_data_open(sink_data *d, int64_t n_pixels, int32_t channels, uint64_t *state);
void sink_data_close(sink_data *d);

void sink_result_open(const sink_data *d, sink_result *r);
void sink_result_close(sink_result *r);

/* The sink of the pixels from `first` on. */
dunlin_sink sink_of(const sink_data *d, sink_result *r, int64_t first);

/* dx of all pixels ([pixel][channels]) and the size of its terms; the error allowed is
 * factor * eps * size. */
void sink_compare(const char *what, const sink_data *d, const sink_result *r, const double *dx,
                  const double *size, double factor);
void sink_compare_bits(const char *what, const sink_data *d, const sink_result *a,
                       const sink_result *b);

#endif
