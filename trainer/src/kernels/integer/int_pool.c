/*
 * int_pool.c - maximum and average pooling over int8, forward. A pixel's channels are taken in runs
 * that a task holds.
 */
#include "int_entries.h"
#include "int_places.h"
#include "kernels/pool/window.h"
#include "rounding.h"

#include <math.h>

#define RUN PLACE_RUN

typedef struct int_pool_job {
    const dunlin_int_pool_call *call;
    int_tally tally;
} int_pool_job;

/* One output pixel of a sample, channels [first, first + n). */
typedef struct int_pool_pixel {
    const dunlin_int_pool_call *call;
    const int8_t *x; /* of the sample, at the first channel */
    pool_window window;
    int64_t n;
    int64_t out;     /* element of the output */
    uint8_t *places; /* of the pixel's channels; NULL: not wanted */
} int_pool_pixel;

static const int8_t *tap_at(const int_pool_pixel *pixel, int64_t i, int64_t j)
{
    const dunlin_pool_shape *shape = pixel->call->shape;
    const int64_t y = pixel->window.y + i * pool_step(shape->dilation_h);
    const int64_t x = pixel->window.x + j * pool_step(shape->dilation_w);
    return pixel->x + (y * shape->in_w + x) * shape->channels;
}

static void max_pixel(const int_pool_pixel *pixel, int_count *count)
{
    const pool_window *window = &pixel->window;
    int8_t best[RUN];
    uint8_t index[RUN];
    bool is_first = true;
    memset(best, 0, (size_t)pixel->n);
    memset(index, 0, (size_t)pixel->n);
    for (int64_t i = window->first_h; i < window->end_h; i++) {
        for (int64_t j = window->first_w; j < window->end_w; j++) {
            const int8_t *x = tap_at(pixel, i, j);
            const uint8_t tap = (uint8_t)(i * pixel->call->shape->kernel_w + j);
            if (is_first) {
                memcpy(best, x, (size_t)pixel->n);
                memset(index, tap, (size_t)pixel->n);
                is_first = false;
                continue;
            }
            for (int64_t c = 0; c < pixel->n; c++) {
                index[c] = x[c] > best[c] ? tap : index[c];
                best[c] = x[c] > best[c] ? x[c] : best[c];
            }
        }
    }
    int32_t largest = 0;
    for (int64_t c = 0; pixel->call->rounding.stats != NULL && c < pixel->n; c++) {
        const int32_t size = best[c] < 0 ? -best[c] : best[c];
        largest = size > largest ? size : largest;
    }
    count->largest = max_i64(count->largest, largest);
    memcpy(pixel->call->y + pixel->out, best, (size_t)pixel->n);
    if (pixel->places != NULL) {
        pack_places(pixel->call->shape, index, pixel->n, pixel->places);
    }
}

/* A row of outputs of few channels: a pixel's in one vector. What is written behind a pixel the
 * next one overwrites. */
static void max_row(const dunlin_int_pool_call *call, int64_t row, int64_t oy, int_count *count)
{
    const dunlin_pool_shape of = *call->shape; /* copies: nothing stored changes them */
    const dunlin_pool_shape *shape = &of;
    uint8_t *index = call->index;
    int8_t *y_all = call->y;
    const int64_t n = shape->channels;
    const int32_t bits = dunlin__int_place_bits(shape);
    const int64_t bytes = dunlin__int_place_bytes(shape, n);
    const int8_t *end = call->x + call->n_samples * shape->in_h * shape->in_w * n;
    const int8_t *x = call->x + row / shape->out_h * shape->in_h * shape->in_w * n;
    const place_chars used = place_mask(n);
    place_chars low = {0};
    place_chars high = {0};
    for (int64_t ox = 0; ox < shape->out_w; ox++) {
        const pool_window window = pool_window_at(shape, oy, ox);
        const bool is_empty = window.first_h >= window.end_h || window.first_w >= window.end_w;
        place_chars best = (place_chars){0} + (int8_t)(is_empty ? 0 : -128);
        place_chars place = {0};
        for (int64_t i = window.first_h; i < window.end_h; i++) {
            const int64_t y = window.y + i * pool_step(shape->dilation_h);
            for (int64_t j = window.first_w; j < window.end_w; j++) {
                const int64_t at = y * shape->in_w + window.x + j * pool_step(shape->dilation_w);
                const int8_t *tap = x + at * n;
                const place_chars v = place_load(tap, n, end - tap >= PLACE_CHUNK);
                const place_chars wins = v > best;
                const int8_t name = (int8_t)(i * shape->kernel_w + j);
                best = (wins & v) | (~wins & best);
                place = (wins & name) | (~wins & place);
            }
        }
        best &= used;
        const place_chars more = best > high;
        high = (more & best) | (~more & high);
        const place_chars less = best < low;
        low = (less & best) | (~less & low);
        const int64_t at = row * shape->out_w + ox;
        const bool has_room = (shape->out_w - ox) * n >= PLACE_CHUNK;
        place_store(y_all + at * n, best, n, has_room);
        if (index != NULL) {
            const uint64_t packed = pack_chunk(place & used, bits, bytes);
            const bool is_last = (shape->out_w - ox) * bytes < (int64_t)sizeof packed;
            if (is_last) {
                memcpy(index + at * bytes, &packed, (size_t)bytes);
            } else {
                memcpy(index + at * bytes, &packed, sizeof packed);
            }
        }
    }
    for (int i = 0; i < PLACE_CHUNK; i++) {
        count->largest = max_i64(count->largest, max_i64(high[i], -low[i]));
    }
}

/* Few channels, and places of a byte's part. */
static bool is_narrow(const dunlin_int_pool_call *call)
{
    return call->is_max && call->shape->channels <= PLACE_CHUNK &&
           dunlin__int_place_bits(call->shape) < 8;
}

static void average_pixel(const int_pool_pixel *pixel, int_count *count)
{
    const pool_window *window = &pixel->window;
    int32_t sums[RUN];
    memset(sums, 0, (size_t)pixel->n * sizeof *sums);
    for (int64_t i = window->first_h; i < window->end_h; i++) {
        for (int64_t j = window->first_w; j < window->end_w; j++) {
            const int8_t *x = tap_at(pixel, i, j);
            for (int64_t c = 0; c < pixel->n; c++) {
                sums[c] += x[c];
            }
        }
    }
    const int32_t shift = pixel->call->rounding.shift;
    const int64_t divisor = max_i64(1, pool_count(pixel->call->shape, window));
    /* 2 |sum| / (2 divisor) + 1/2, rounded down: whole numbers below 2^53, whose quotient in double
     * is rounded down to the right one */
    const double up = ldexp(2.0, shift < 0 ? -shift : 0);
    const double half = ldexp((double)divisor, shift > 0 ? shift : 0);
    const double fine = (double)(2 << (DUNLIN_INT_AVERAGE_BITS - 1));
    int8_t *y = pixel->call->y + pixel->out;
    double largest = 0.0;
    int32_t n_clipped = 0;
    for (int64_t c = 0; c < pixel->n; c++) {
        const double size = (double)(sums[c] < 0 ? -sums[c] : sums[c]);
        const double q = (size * up + half) / (2.0 * half);
        const int32_t most = q < 128.0 ? (int32_t)q : DUNLIN_INT_MOST;
        largest = size > largest ? size : largest;
        n_clipped += q < 128.0 ? 0 : 1;
        y[c] = (int8_t)(sums[c] < 0 ? -most : most);
    }
    count->largest = max_i64(count->largest, (int64_t)(largest * fine / (double)divisor));
    count->n_clipped += n_clipped;
}

static void pool_task(void *ctx, size_t task)
{
    int_pool_job *job = (int_pool_job *)ctx;
    const dunlin_int_pool_call *call = job->call;
    const dunlin_pool_shape *shape = call->shape;
    const int64_t sample = (int64_t)task / shape->out_h;
    const int64_t oy = (int64_t)task % shape->out_h;
    const int8_t *x = call->x + sample * shape->in_h * shape->in_w * shape->channels;
    const int64_t place_bytes = dunlin__int_place_bytes(shape, shape->channels);
    int_count count = {0, 0};
    if (is_narrow(call)) {
        max_row(call, (int64_t)task, oy, &count);
        int_tally_take(&job->tally, &count);
        return;
    }
    for (int64_t ox = 0; ox < shape->out_w; ox++) {
        int_pool_pixel pixel = {.call = call, .window = pool_window_at(shape, oy, ox)};
        for (int64_t c = 0; c < shape->channels; c += RUN) {
            pixel.x = x + c;
            pixel.n = min_i64(RUN, shape->channels - c);
            pixel.out = ((int64_t)task * shape->out_w + ox) * shape->channels + c;
            if (call->index != NULL) {
                pixel.places = call->index + ((int64_t)task * shape->out_w + ox) * place_bytes +
                               dunlin__int_place_bytes(shape, c);
            }
            if (call->is_max) {
                max_pixel(&pixel, &count);
            } else {
                average_pixel(&pixel, &count);
            }
        }
    }
    int_tally_take(&job->tally, &count);
}

void K(int_pool_forward)(const dunlin_int_pool_call *call)
{
    int_pool_job job = {.call = call};
    const int64_t n_rows = call->n_samples * call->shape->out_h;
    int_tally_open(&job.tally);
    run_tasks(call->threads, pool_task, &job, n_rows,
              n_rows * call->shape->out_w * call->shape->channels);
    int_tally_close(&job.tally, &call->rounding);
}
