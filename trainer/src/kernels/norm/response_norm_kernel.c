/*
 * response_norm_kernel.c - local response normalisation across channels, forward and backward
 * (Krizhevsky, Sutskever and Hinton 2012, section 3.3).
 *
 * With s_c = bias + alpha * (sum of x^2 over the window of channel c), y_c = x_c * s_c^-beta, and
 * dx_i = dy_i s_i^-beta - 2 alpha beta x_i * (sum of dy_c x_c s_c^(-beta - 1) over the channels c
 * whose window holds i). Windows are added tap by tap in the order of the channels; what lies
 * outside is zero. Nothing is kept: the backward pass makes s again.
 */
#include "kernels/gemm/gemm.h"
#include "kernels/simd/vecpow.h"

#define CHANNELS_AT_ONCE 192
#define MARGIN (DUNLIN_RESPONSE_NORM_MAX_SIZE - 1)
#define ROOM (CHANNELS_AT_ONCE + 2 * MARGIN + 2 * VEC) /* loads pass the end by a vector */

/* Channels before and after one in its window: of an even size the larger half is after. */
static int64_t channels_before(const dunlin_response_norm_call *call)
{
    return (call->size - 1) / 2;
}

/* `n` channels of a pixel from `first` on, which may lie outside; then a vector of zeros. */
static void take_channels(const dunlin_response_norm_call *call, const float *pixel, int64_t first,
                          int64_t n, float *out)
{
    const int64_t low = max_i64(0, first);
    const int64_t high = min_i64(call->channels, first + n);
    vclear(out, n + VEC);
    if (low < high) {
        vcopy(out + (low - first), pixel + low, high - low);
    }
}

/* Sums of `size` numbers in a row, from each of a vector's on. */
ALWAYS_INLINE vfloat window_sums(const float *from, int32_t size)
{
    vfloat sum = vload(from);
    for (int32_t t = 1; t < size; t++) {
        sum += vload(from + t);
    }
    return sum;
}

static void square(const float *x, int64_t n, float *out)
{
    for (int64_t i = 0; i < n; i += VEC) {
        const vfloat v = vload(x + i);
        vstore(out + i, v * v);
    }
}

static void forward_pixel(const dunlin_response_norm_call *call, const float *x, float *y,
                          int64_t first)
{
    float values[ROOM];
    float squares[ROOM];
    const int64_t n = min_i64(CHANNELS_AT_ONCE, call->channels - first);
    const int64_t n_read = n + call->size - 1;
    take_channels(call, x, first - channels_before(call), n_read, values);
    square(values, round_up(n_read, VEC), squares);
    vclear(squares + round_up(n_read, VEC), VEC);
    for (int64_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        const vfloat s =
            vfma(window_sums(squares + i, call->size), vset1(call->alpha), vset1(call->bias));
        const vfloat v = vload_n(x + first + i, left);
        vstore_n(y + first + i, v * vpow(s, -(double)call->beta), left);
    }
}

static void backward_pixel(const dunlin_response_norm_call *call, const float *x, const float *dy,
                           float *dx, int64_t first)
{
    float values[ROOM];
    float squares[ROOM];
    float grads[ROOM];
    float shares[ROOM]; /* dy x s^(-beta - 1) */
    float powers[ROOM]; /* s^-beta */
    const int64_t before = channels_before(call);
    const int64_t after = call->size - 1 - before;
    const int64_t n = min_i64(CHANNELS_AT_ONCE, call->channels - first);
    const int64_t n_shares = n + call->size - 1;
    const int64_t n_read = n_shares + call->size - 1;
    take_channels(call, x, first - after - before, n_read, values);
    take_channels(call, dy, first - after, n_shares, grads);
    square(values, round_up(n_read, VEC), squares);
    vclear(squares + round_up(n_read, VEC), VEC);
    for (int64_t i = 0; i < n_shares; i += VEC) {
        const vfloat s =
            vfma(window_sums(squares + i, call->size), vset1(call->alpha), vset1(call->bias));
        const vfloat p = vpow(s, -(double)call->beta);
        vstore(powers + i, p);
        vstore(shares + i, vload(grads + i) * vload(values + before + i) * p / s);
    }
    vclear(shares + n_shares, VEC);
    const vfloat factor = vset1(-2.0F * call->alpha * call->beta);
    for (int64_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        const vfloat rest = factor * vload_n(x + first + i, left);
        const vfloat own = vload_n(dy + first + i, left) * vload(powers + after + i);
        vstore_n(dx + first + i, vfma(rest, window_sums(shares + i, call->size), own), left);
    }
}

static int64_t pixels_of_task(const dunlin_response_norm_call *call)
{
    return max_i64(1, TASK_BLOCK / call->channels);
}

static void response_norm_task(void *ctx, size_t task)
{
    const dunlin_response_norm_call *call = ctx;
    const int64_t first = (int64_t)task * pixels_of_task(call);
    const int64_t end = min_i64(call->n_pixels, first + pixels_of_task(call));
    for (int64_t i = first; i < end; i++) {
        const int64_t at = i * call->channels;
        for (int64_t c = 0; c < call->channels; c += CHANNELS_AT_ONCE) {
            if (call->dy == NULL) {
                forward_pixel(call, call->x + at, call->out + at, c);
            } else {
                backward_pixel(call, call->x + at, call->dy + at, call->out + at, c);
            }
        }
    }
}

void K(response_norm)(const dunlin_response_norm_call *call)
{
    dunlin_response_norm_call copy = *call;
    run_tasks(call->threads, response_norm_task, &copy,
              ceil_div(call->n_pixels, pixels_of_task(call)), call->n_pixels * call->channels);
}
