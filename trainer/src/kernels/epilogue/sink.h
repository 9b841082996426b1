/*
 * sink.h - rows on their way into and out of memory: views and gradients as they are loaded, sinks
 * as they are stored, and batch norm's sums. Convolutions, pooling and elementwise kernels share
 * these, so that the same numbers get the same bits wherever they are made.
 *
 * Sums: the rows of a sample are cut into units of at most STAT_UNIT_ROWS, a unit into blocks of
 * STAT_BLOCK_ROWS. A block is one chain in float from zero, its sums are added in double to the
 * unit's from zero, and the units' to the call's sums in the order of samples and units. A kernel
 * may cut its samples into other units, as long as they depend on the shape alone.
 */
#ifndef DUNLIN_KERNELS_EPILOGUE_H
#define DUNLIN_KERNELS_EPILOGUE_H

#include "kernels/api/kernels.h"
#include "kernels/parallel/tasks.h"
#include "kernels/simd/prefetch.h"
#include "kernels/simd/vec.h"

#define STAT_BLOCK_ROWS 112 /* whole tiles of the GEMM, tall ones too */
#define STAT_UNIT_ROWS 768
#define EPILOGUE_MAX_SUMS (2 * DUNLIN_EPILOGUE_MAX_STATS) /* of a channel */

/*
 * From so many floats on the last cache does not keep a tensor until it is read: 32 MiB. Intel's
 * processors with AVX-512 have larger ones: there MobileNetV2's gradient of 37 MiB, batch 8, left
 * to them takes a fifth less time on two threads, one of 150 MiB a quarter more.
 */
static inline int64_t stream_floats(void)
{
#if defined(__AVX512F__)
    if (!__builtin_cpu_is("amd")) {
        return 12 << 20;
    }
#endif
    return 8 << 20;
}

/* Rows of a tensor that are written past the caches: whole lines, of more than caches keep. */
static inline bool rows_are_streamed(const float *base, int64_t pitch, int64_t channels,
                                     int64_t n_rows)
{
    const int64_t line = LINE_BYTES / (int64_t)sizeof(float);
    return CAN_STREAM && base != NULL && (uintptr_t)base % LINE_BYTES == 0 && pitch % line == 0 &&
           channels % line == 0 && n_rows * channels >= stream_floats();
}

typedef struct stat_units {
    int64_t rows;       /* of a unit; the last of a sample may be shorter */
    int64_t per_sample; /* units */
} stat_units;

static inline stat_units stat_units_of(int64_t rows_per_sample)
{
    const int64_t n = max_i64(1, ceil_div(rows_per_sample, STAT_UNIT_ROWS));
    stat_units units = {.rows = max_i64(1, ceil_div(rows_per_sample, n))};
    units.per_sample = max_i64(1, ceil_div(rows_per_sample, units.rows));
    return units;
}

/*
 * Rows of a gradient that a kernel just computed. Row i is pixel `pixel + i * pixel_step` of the
 * call (all samples counted) in the sink's tensors; its channels [channel, channel + n_channels)
 * stand at dx + i * dx_pitch.
 */
typedef struct epilogue_rows {
    const float *dx;
    int64_t dx_pitch;
    int64_t pixel, pixel_step;
    int64_t n_rows;
    int64_t channel, n_channels;
    float *sums;        /* [stat][2] runs of n_channels, chained on; unused without stats. At most a
                           block's rows may go in before stat_flush() */
    int64_t sums_pitch; /* from run to run */
    prefetch_list *prefetch; /* asked for meanwhile; NULL: nothing */
    bool is_streamed;        /* as epilogue_is_streamed() says */
} epilogue_rows;

/* Stores them; with `out` NULL takes the sums alone. dx may be out itself if nothing reads out. */
void K(epilogue_rows)(const dunlin_epilogue *epilogue, const epilogue_rows *rows);

/* sums[c] += y - about, sums[n_channels + c] += (y - about)^2: forward. `about` is that of the
 * first channel. */
void K(stat_rows)(const float *y, int64_t pitch, int64_t n_rows, int64_t n_channels,
                  const float *about, float *sums);

/* Channels of pixels pixel + i * pixel_step as the view or gradient gives them; out lies apart, or
 * is what is read, with its pitch and place. */
typedef struct load_rows {
    int64_t pixel, pixel_step;
    int64_t n_rows;
    int64_t channel, n_channels;
    float *out;
    int64_t out_pitch;
    prefetch_list *prefetch; /* asked for meanwhile; NULL: nothing */
} load_rows;

void K(view_rows)(const dunlin_view *view, const load_rows *rows);
void K(grad_rows)(const dunlin_grad *grad, const load_rows *rows);

/*
 * A block's float sums (n_sums runs of n_channels) are added to doubles, run i at
 * to + i * to_pitch, and cleared.
 */
static inline void stat_flush(float *sums, int64_t n_sums, int64_t n_channels, double *to,
                              int64_t to_pitch)
{
    for (int64_t i = 0; i < n_sums; i++) {
        for (int64_t c = 0; c < n_channels; c++) {
            to[i * to_pitch + c] += (double)sums[i * n_channels + c];
            sums[i * n_channels + c] = 0.0f;
        }
    }
}

/* Units' partials [unit][stat][n], to be added to what the statistics' sums hold. */
typedef struct stat_merge {
    const double *partials;
    int64_t n_units, n_stats, n;
    double *sums[DUNLIN_EPILOGUE_MAX_STATS];
} stat_merge;

/* In the units' order. */
void K(stat_merge)(const stat_merge *merge, dunlin_threads *threads);

/* It is floats that may be read as they lie. */
static inline bool grad_is_plain(const dunlin_grad *grad)
{
    return grad->factor == NULL && grad->raw == NULL && !grad->is_half;
}

static inline bool view_is_as_it_lies(const dunlin_view *view)
{
    return view->scale == NULL && !view->is_half;
}

/* Rows of a gradient, and of all that its sink reads and, not streamed, writes, asked for; `known`:
 * what else of it the caller has read by then. */
static inline void prefetch_grad(prefetch_list *prefetch, const dunlin_grad *grad, int64_t channels,
                                 int64_t pixel, int64_t n_rows)
{
    prefetch_stored(prefetch, grad->g, grad->is_half, grad->pitch, channels, pixel, n_rows);
    prefetch_stored(prefetch, grad->raw, grad->is_raw_half, grad->raw_pitch, channels, pixel,
                    n_rows);
}

static inline void prefetch_epilogue(prefetch_list *prefetch, const dunlin_epilogue *epilogue,
                                     bool is_streamed, const float *known, int64_t channels,
                                     int64_t pixel, int64_t n_rows)
{
    if (!is_streamed) {
        prefetch_stored(prefetch, epilogue->out, epilogue->is_out_half, epilogue->pitch, channels,
                        pixel, n_rows);
    }
    if (epilogue->addend != epilogue->out) {
        prefetch_stored(prefetch, epilogue->addend, epilogue->is_addend_half,
                        epilogue->addend_pitch, channels, pixel, n_rows);
    }
    if (epilogue->mask != known) {
        prefetch_stored(prefetch, epilogue->mask, epilogue->is_mask_half, epilogue->mask_pitch,
                        channels, pixel, n_rows);
        prefetch_stored(prefetch, epilogue->plus, epilogue->is_plus_half, epilogue->plus_pitch,
                        channels, pixel, n_rows);
    }
    for (uint32_t i = 0; i < epilogue->n_stats; i++) {
        const dunlin_stat *stat = &epilogue->stats[i];
        if (stat->raw != known && stat->raw != epilogue->mask &&
            (stat->raw != epilogue->plus || stat->raw == NULL)) {
            prefetch_stored(prefetch, stat->raw, stat->is_raw_half, stat->raw_pitch, channels,
                            pixel, n_rows);
        }
    }
}

/* What happens to an element does not depend on its channel, and pixels lie one after another. */
static inline bool epilogue_is_flat(const dunlin_epilogue *epilogue, int64_t channels)
{
    return epilogue->n_stats == 0 && epilogue->factor == NULL && epilogue->mask_scale == NULL &&
           epilogue->out != NULL && epilogue->pitch == channels &&
           (epilogue->addend == NULL || epilogue->addend_pitch == channels) &&
           (epilogue->mask == NULL || epilogue->mask_pitch == channels);
}

/* A sink's tensor of n_rows pixels; not where it is read too. */
static inline bool epilogue_is_streamed(const dunlin_epilogue *epilogue, int64_t channels,
                                        int64_t n_rows)
{
    return epilogue->addend != epilogue->out && epilogue->mask != epilogue->out &&
           !epilogue->is_out_half &&
           rows_are_streamed(epilogue->out, epilogue->pitch, channels, n_rows);
}

/* Starts a sink's sums from zero. */
static inline void epilogue_reset(const dunlin_epilogue *epilogue, int64_t channels)
{
    for (uint32_t i = 0; i < epilogue->n_stats; i++) {
        memset(epilogue->stats[i].sums, 0, 2 * (size_t)channels * sizeof(double));
    }
}

/* The units' partials [unit][stat][2][channels] into the sums. */
static inline void epilogue_merge(const dunlin_epilogue *epilogue, const double *partials,
                                  int64_t n_units, int64_t channels, dunlin_threads *threads)
{
    stat_merge merge = {
        .partials = partials, .n_units = n_units, .n_stats = epilogue->n_stats, .n = 2 * channels};
    for (uint32_t i = 0; i < epilogue->n_stats; i++) {
        merge.sums[i] = epilogue->stats[i].sums;
    }
    K(stat_merge)(&merge, threads);
}

#endif
