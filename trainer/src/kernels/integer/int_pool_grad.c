/*
 * int_pool_grad.c - the gradients of int_pool.c: each input pixel gathers from the windows that it
 * lies in, so that nothing is added to memory; where no windows overlap, and nothing is rounded or
 * counted, errors move to their places.
 */
#include "int_entries.h"
#include "int_places.h"
#include "kernels/pool/window.h"
#include "rounding.h"

#include <string.h>

#define RUN PLACE_RUN

typedef struct int_pool_grad_job {
    const dunlin_int_pool_call *call;
    int_tally tally;
} int_pool_grad_job;

/* The windows that may cover a pixel of an axis: [first, end). */
typedef struct int_pool_cover {
    int64_t first, end;
} int_pool_cover;

static int_pool_cover cover(int64_t i, int64_t kernel, int64_t step, int64_t stride, int64_t pad,
                            int64_t n_out)
{
    int_pool_cover of;
    pool_windows_over(i, (kernel - 1) * step + 1, stride, pad, n_out, &of.first, &of.end);
    return of;
}

/* The tap of window `o` on pixel i of an axis; -1: it passes between two. */
static int64_t tap_of(int64_t i, int64_t o, int64_t step, int64_t stride, int64_t pad)
{
    const int64_t at = i + pad - o * stride;
    return step == 1 ? at : at % step == 0 ? at / step : -1; /* divisions take long */
}

/* The places of channels [c, c + n), a run, of an output pixel. */
static const uint8_t *packed_at(const dunlin_int_pool_call *call, int64_t pixel, int64_t c)
{
    const dunlin_pool_shape *shape = call->shape;
    return call->index + pixel * dunlin__int_place_bytes(shape, shape->channels) +
           dunlin__int_place_bytes(shape, c);
}

/* A window's errors where this tap won; at most 255 windows, so 16 bits hold the sums. Places are
 * compared in their bits of a byte. */
static void take_max(const dunlin_int_pool_call *call, const int8_t *dy, const uint8_t *packed,
                     int64_t tap, int64_t n, int16_t *sums)
{
    const int32_t bits = dunlin__int_place_bits(call->shape);
    const int64_t bytes = dunlin__int_place_bytes(call->shape, n);
    for (int64_t p = 0; p * bytes < n; p++) {
        const uint8_t mask = (uint8_t)(((1 << bits) - 1) << (p * bits));
        const uint8_t wanted = (uint8_t)(tap << (p * bits));
        const int64_t end = min_i64(bytes, n - p * bytes);
        const int8_t *of = dy + p * bytes;
        int16_t *to = sums + p * bytes;
        for (int64_t i = 0; i < end; i++) {
            to[i] = (int16_t)(to[i] + ((packed[i] & mask) == wanted ? of[i] : 0));
        }
    }
}

/* dy * 2^16 / divisor, half away from zero, in double: whole numbers below 2^53. */
static void take_average(const int8_t *dy, int64_t divisor, int64_t n, int64_t *sums)
{
    const double over = 0.5 / (double)divisor;
    if ((divisor & (divisor - 1)) == 0) { /* the factor is exact */
        for (int64_t c = 0; c < n; c++) {
            const double size = (double)(dy[c] < 0 ? -dy[c] : dy[c]);
            const int64_t q = (int64_t)((size * 0x1p17 + (double)divisor) * over);
            sums[c] += dy[c] < 0 ? -q : q;
        }
        return;
    }
    for (int64_t c = 0; c < n; c++) {
        const double size = (double)(dy[c] < 0 ? -dy[c] : dy[c]);
        const int64_t q = (int64_t)((size * 0x1p17 + (double)divisor) / (2.0 * (double)divisor));
        sums[c] += dy[c] < 0 ? -q : q;
    }
}

static void store(const dunlin_int_pool_call *call, const int64_t *sums, int64_t n, int8_t *dx,
                  int_count *count)
{
    const int32_t fraction = call->is_max ? 0 : DUNLIN_INT_MOST_AVERAGE_SHIFT;
    const int32_t least = call->is_max ? 0 : DUNLIN_INT_AVERAGE_BITS;
    const int32_t shift = (int32_t)max_i64(0, fraction + call->rounding.shift);
    const int64_t half = shift > 0 ? (int64_t)1 << (shift - 1) : 0;
    int64_t largest = 0;
    int64_t n_clipped = 0;
    for (int64_t c = 0; c < n; c++) {
        const int64_t size = sums[c] < 0 ? -sums[c] : sums[c];
        const int64_t q = (size + half) >> shift;
        const int64_t most = q > DUNLIN_INT_MOST ? DUNLIN_INT_MOST : q;
        largest = size > largest ? size : largest;
        n_clipped += q > DUNLIN_INT_MOST ? 1 : 0;
        dx[c] = (int8_t)(sums[c] < 0 ? -most : most);
    }
    count->largest = max_i64(count->largest, largest >> (fraction - least));
    count->n_clipped += n_clipped;
}

/* Channels [c, c + n) of input pixel (y, x) of a sample. */
typedef struct input_run {
    int64_t sample, y, x, c, n;
} input_run;

/* The errors of a run: those of maxima in `maxima`. */
static void gather(const dunlin_int_pool_call *call, const input_run *run, int64_t *sums,
                   int16_t *maxima)
{
    const dunlin_pool_shape *shape = call->shape;
    const int64_t iy = run->y;
    const int64_t ix = run->x;
    const int64_t c = run->c;
    const int64_t n = run->n;
    const int64_t step_h = pool_step(shape->dilation_h);
    const int64_t step_w = pool_step(shape->dilation_w);
    const int_pool_cover rows =
        cover(iy, shape->kernel_h, step_h, shape->stride_h, shape->pad_top, shape->out_h);
    const int_pool_cover columns =
        cover(ix, shape->kernel_w, step_w, shape->stride_w, shape->pad_left, shape->out_w);
    for (int64_t oy = rows.first; oy < rows.end; oy++) {
        const int64_t i = tap_of(iy, oy, step_h, shape->stride_h, shape->pad_top);
        for (int64_t ox = columns.first; i >= 0 && ox < columns.end; ox++) {
            const int64_t j = tap_of(ix, ox, step_w, shape->stride_w, shape->pad_left);
            const int64_t pixel = (run->sample * shape->out_h + oy) * shape->out_w + ox;
            const int64_t at = pixel * shape->channels + c;
            if (j < 0) {
                continue;
            }
            if (call->is_max) {
                take_max(call, call->dy + at, packed_at(call, pixel, c), i * shape->kernel_w + j, n,
                         maxima);
            } else {
                const pool_window window = pool_window_at(shape, oy, ox);
                take_average(call->dy + at, max_i64(1, pool_count(shape, &window)), n, sums);
            }
        }
    }
}

/* store() of maxima, whose fraction is none. */
static void store_maxima(const dunlin_int_pool_call *call, const int16_t *sums, int64_t n,
                         int8_t *dx, int_count *count)
{
    const int32_t shift = (int32_t)min_i64(16, max_i64(0, call->rounding.shift));
    const int32_t half = (int32_t)int_half(shift);
    int32_t largest = 0;
    int32_t n_clipped = 0;
    for (int64_t c = 0; c < n; c++) {
        const int32_t sum = sums[c];
        const int32_t size = sum < 0 ? -sum : sum;
        const int32_t q = (size + half) >> shift;
        const int32_t most = q > DUNLIN_INT_MOST ? DUNLIN_INT_MOST : q;
        largest = size > largest ? size : largest;
        n_clipped += q > DUNLIN_INT_MOST ? 1 : 0;
        dx[c] = (int8_t)(sum < 0 ? -most : most);
    }
    count->largest = max_i64(count->largest, largest);
    count->n_clipped += n_clipped;
}

static void pool_grad_task(void *ctx, size_t task)
{
    int_pool_grad_job *job = (int_pool_grad_job *)ctx;
    const dunlin_int_pool_call *call = job->call;
    const dunlin_pool_shape *shape = call->shape;
    const int64_t sample = (int64_t)task / shape->in_h;
    const int64_t iy = (int64_t)task % shape->in_h;
    int_count count = {0, 0};
    for (int64_t ix = 0; ix < shape->in_w; ix++) {
        for (int64_t c = 0; c < shape->channels; c += RUN) {
            const int64_t n = min_i64(RUN, shape->channels - c);
            int8_t *dx = call->dx + ((int64_t)task * shape->in_w + ix) * shape->channels + c;
            int64_t sums[RUN];
            int16_t maxima[RUN];
            if (call->is_max) { /* not all of it: few channels are the rule here */
                memset(maxima, 0, (size_t)n * sizeof *maxima);
            } else {
                memset(sums, 0, (size_t)n * sizeof *sums);
            }
            gather(call, &(input_run){sample, iy, ix, c, n}, sums, maxima);
            if (call->is_max) {
                store_maxima(call, maxima, n, dx, &count);
            } else {
                store(call, sums, n, dx, &count);
            }
        }
    }
    int_tally_take(&job->tally, &count);
}

/* The errors of output pixel (oy, ox) to the taps of row i of its window, which is row `to`. */
static void move_pixel(const dunlin_int_pool_call *call, int64_t pixel, int64_t i, int64_t x,
                       int8_t *to)
{
    const dunlin_pool_shape *shape = call->shape;
    const int64_t step = pool_step(shape->dilation_w);
    for (int64_t c = 0; c < shape->channels; c += RUN) {
        const int64_t n = min_i64(RUN, shape->channels - c);
        const int8_t *dy = call->dy + pixel * shape->channels + c;
        uint8_t places[RUN] = {0};
        unpack_places(shape, packed_at(call, pixel, c), n, places);
        for (int64_t j = 0; j < shape->kernel_w; j++) {
            const int64_t ix = x + j * step;
            const uint8_t tap = (uint8_t)(i * shape->kernel_w + j);
            if (ix < 0 || ix >= shape->in_w) {
                continue;
            }
            int8_t *dx = to + ix * shape->channels + c;
            for (int64_t k = 0; k < n; k++) {
                dx[k] = (int8_t)(places[k] == tap ? dy[k] : 0);
            }
        }
    }
}

/* move_pixel() of a row of windows with few channels: what is written behind a pixel is zero, and
 * the next one overwrites it. */
static void move_row(const dunlin_int_pool_call *call, int64_t row, int64_t i, int8_t *to)
{
    const dunlin_pool_shape of = *call->shape; /* copies: nothing stored changes them */
    const dunlin_pool_shape *shape = &of;
    const uint8_t *index = call->index;
    const int8_t *errors = call->dy;
    const int64_t n = shape->channels;
    const int32_t bits = dunlin__int_place_bits(shape);
    const int64_t bytes = dunlin__int_place_bytes(shape, n);
    const int64_t n_pixels = call->n_samples * shape->out_h * shape->out_w;
    const int32_t low = (1 << bits) - 1;
    const place_chars mask = chunk_bits(low, bits, bytes, n);
    const place_chars used = place_mask(n);
    const place_chars bytes_of = chunk_bytes(bytes);
    place_chars wanted[4];
    for (int32_t j = 0; j < shape->kernel_w && j < 4; j++) {
        wanted[j] = chunk_bits((int32_t)i * shape->kernel_w + j, bits, bytes, n);
    }
    for (int64_t ox = 0; ox < shape->out_w; ox++) {
        const int64_t pixel = row * shape->out_w + ox;
        const place_chars dy =
            used & place_load(errors + pixel * n, n, (n_pixels - pixel) * n >= PLACE_CHUNK);
        uint64_t packed = 0;
        const bool is_last = (n_pixels - pixel) * bytes < (int64_t)sizeof packed;
        const uint8_t *from = index + pixel * bytes;
        if (is_last) {
            memcpy(&packed, from, (size_t)bytes);
        } else { /* not so many as there are, whose number the compiler does not know */
            memcpy(&packed, from, sizeof packed);
        }
        const place_chars place = spread_chunk(packed, bits, bytes, bytes_of) & mask;
        for (int64_t j = 0; j < shape->kernel_w; j++) {
            const int64_t ix =
                ox * shape->stride_w - shape->pad_left + j * pool_step(shape->dilation_w);
            if (ix >= 0 && ix < shape->in_w) {
                place_store(to + ix * n, (place_chars)(place == wanted[j]) & dy, n,
                            (shape->in_w - ix) * n >= PLACE_CHUNK);
            }
        }
    }
}

/* A row of the input, in which no two windows overlap. */
static void move_task(void *ctx, size_t task)
{
    const dunlin_int_pool_call *call = ((const int_pool_grad_job *)ctx)->call;
    const dunlin_pool_shape *shape = call->shape;
    const int64_t sample = (int64_t)task / shape->in_h;
    const int64_t iy = (int64_t)task % shape->in_h;
    const int64_t row_size = (int64_t)shape->in_w * shape->channels;
    int8_t *to = call->dx + (int64_t)task * row_size;
    const int_pool_cover rows = cover(iy, shape->kernel_h, pool_step(shape->dilation_h),
                                      shape->stride_h, shape->pad_top, shape->out_h);
    memset(to, 0, (size_t)row_size);
    for (int64_t oy = rows.first; oy < rows.end; oy++) {
        const int64_t i =
            tap_of(iy, oy, pool_step(shape->dilation_h), shape->stride_h, shape->pad_top);
        const bool is_narrow = shape->channels <= PLACE_CHUNK && shape->kernel_w <= 4 &&
                               dunlin__int_place_bits(shape) < 8;
        if (i >= 0 && is_narrow) {
            move_row(call, sample * shape->out_h + oy, i, to);
            continue;
        }
        for (int64_t ox = 0; i >= 0 && ox < shape->out_w; ox++) {
            move_pixel(call, (sample * shape->out_h + oy) * shape->out_w + ox, i,
                       ox * shape->stride_w - shape->pad_left, to);
        }
    }
}

void K(int_pool_backward)(const dunlin_int_pool_call *call)
{
    int_pool_grad_job job = {.call = call};
    const int64_t n_rows = call->n_samples * call->shape->in_h;
    const bool is_moved = call->is_max && call->rounding.shift <= 0 &&
                          call->rounding.stats == NULL && !dunlin__int_windows_overlap(call->shape);
    int_tally_open(&job.tally);
    run_tasks(call->threads, is_moved ? move_task : pool_grad_task, &job, n_rows,
              n_rows * call->shape->in_w * call->shape->channels);
    int_tally_close(&job.tally, &call->rounding);
}
