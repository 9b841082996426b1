/*
 * stat_rows.c - batch norm's sums of rows that have been written, eight rows of one vector of
 * channels at a time.
 */
#include "sink.h"

#define TILE 8

ALWAYS_INLINE void stat_vector(const float *y, int64_t pitch, vfloat about, float *a, float *b,
                               int32_t n, int64_t n_rows)
{
    vfloat sum = vload_n(a, n);
    vfloat square = vload_n(b, n);
    for (int64_t i = 0; i < n_rows; i++) {
        vfloat d = vload_n(y + i * pitch, n) - about;
        sum += d;
        square = vfma(d, d, square);
    }
    vstore_n(a, sum, n);
    vstore_n(b, square, n);
}

ALWAYS_INLINE void stat_run(const float *y, int64_t pitch, int64_t n_channels, const float *about,
                            float *sums, int64_t n_rows)
{
    int64_t c = 0;
    for (; c + VEC <= n_channels; c += VEC) {
        stat_vector(y + c, pitch, vload(about + c), sums + c, sums + n_channels + c, VEC, n_rows);
    }
    if (c < n_channels) {
        const int32_t n = (int32_t)(n_channels - c);
        stat_vector(y + c, pitch, vload_part(about + c, n), sums + c, sums + n_channels + c, n,
                    n_rows);
    }
}

void K(stat_rows)(const float *y, int64_t pitch, int64_t n_rows, int64_t n_channels,
                  const float *about, float *sums)
{
    for (int64_t i = 0; i < n_rows; i += TILE) {
        stat_run(y + i * pitch, pitch, n_channels, about, sums, min_i64(TILE, n_rows - i));
    }
}
