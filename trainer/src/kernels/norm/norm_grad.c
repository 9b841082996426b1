/*
 * norm_grad.c - batch norm backward: its two sums, and the gradient they make (Ioffe and Szegedy
 * 2015): dx = gamma * inv_std * (dy - sum(dy) / N - xhat * sum(dy * xhat) / N).
 */
#include "norm.h"

static void sum_block(const norm_piece *piece, int64_t row, int64_t n_rows, vfloat *out_a,
                      vfloat *out_b)
{
    const dunlin_norm_call *call = piece->call;
    const int64_t at = row * call->channels + piece->channel;
    const vfloat mean = vload_n(call->mean + piece->channel, piece->n);
    const vfloat inv_std = vload_n(call->inv_std + piece->channel, piece->n);
    vfloat a = vzero();
    vfloat b = vzero();
    for (int64_t i = 0; i < n_rows; i++) {
        vfloat x = vload_n(call->x + at + i * call->channels, piece->n);
        vfloat dy = vload_n(call->dy + at + i * call->channels, piece->n);
        a += dy;
        b = vfma(dy, x - mean, b);
    }
    *out_a = a;
    *out_b = b * inv_std;
}

void K(norm_grad_sums)(const dunlin_norm_call *call)
{
    norm_reduce(call, sum_block);
}

/* The first n of `sums`, divided by the batch's rows. */
static vfloat mean_of(const double *sums, double n_rows, int32_t n)
{
    float values[VEC] = {0};
    for (int32_t i = 0; i < n; i++) {
        values[i] = (float)(sums[i] / n_rows);
    }
    return vload(values);
}

static void grad_task(void *ctx, size_t task)
{
    const dunlin_norm_call *call = ctx;
    const int64_t channels = call->channels;
    const int64_t rows = norm_rows_of_task(call);
    const int64_t first = (int64_t)task * rows;
    const int64_t end = min_i64(call->rows_per_sample * call->n_samples, first + rows);
    for (int64_t c = 0; c < channels; c += VEC) {
        const int32_t n = vec_left(channels, c);
        const vfloat mean = vload_n(call->mean + c, n);
        const vfloat inv_std = vload_n(call->inv_std + c, n);
        const vfloat scale = vload_n(call->gamma + c, n) * inv_std;
        const vfloat mean_dy = mean_of(call->sums + c, call->n_rows_batch, n);
        const vfloat slope = mean_of(call->sums + channels + c, call->n_rows_batch, n) * inv_std;
        for (int64_t i = first; i < end; i++) {
            vfloat x = vload_n(call->x + i * channels + c, n);
            vfloat dy = vload_n(call->dy + i * channels + c, n);
            vfloat rest = vfma(mean - x, slope, dy - mean_dy);
            vstore_n(call->out + i * channels + c, scale * rest, n);
        }
    }
}

void K(norm_grad_apply)(const dunlin_norm_call *call)
{
    dunlin_norm_call copy = *call;
    norm_rows(&copy, grad_task);
}

static void frozen_task(void *ctx, size_t task)
{
    const dunlin_norm_call *call = ctx;
    const int64_t channels = call->channels;
    const int64_t rows = norm_rows_of_task(call);
    const int64_t first = (int64_t)task * rows;
    const int64_t end = min_i64(call->rows_per_sample * call->n_samples, first + rows);
    for (int64_t c = 0; c < channels; c += VEC) {
        const int32_t n = vec_left(channels, c);
        const vfloat scale = vload_n(call->gamma + c, n) * vload_n(call->inv_std + c, n);
        for (int64_t i = first; i < end; i++) {
            vfloat dy = vload_n(call->dy + i * channels + c, n);
            vstore_n(call->out + i * channels + c, scale * dy, n);
        }
    }
}

void K(norm_grad_frozen)(const dunlin_norm_call *call)
{
    dunlin_norm_call copy = *call;
    norm_rows(&copy, frozen_task);
}
