/*
 * norm.c - batch norm forward: sums of a channel over rows, and the affine that applies them.
 *
 * A block of rows is summed in float about a shift, so that the variance does not cancel; blocks
 * are merged in double. With 64 rows a sample or more a sample's blocks begin at its first row and
 * its partial is added as a whole; with fewer each row goes into the sums by itself.
 */
#include "norm.h"

/* x - shift and its square, over `n_rows` rows of one vector. */
static void sum_block(const norm_piece *piece, int64_t row, int64_t n_rows, vfloat *out_a,
                      vfloat *out_b)
{
    const dunlin_norm_call *call = piece->call;
    const float *x = call->x + row * call->channels + piece->channel;
    const vfloat shift = vload_n(call->shift + piece->channel, piece->n);
    vfloat a = vzero();
    vfloat b = vzero();
    for (int64_t i = 0; i < n_rows; i++) {
        vfloat d = vload_n(x + i * call->channels, piece->n) - shift;
        a += d;
        b = vfma(d, d, b);
    }
    *out_a = a;
    *out_b = b;
}

void K(norm_sums)(const dunlin_norm_call *call)
{
    norm_reduce(call, sum_block);
}

static void apply_task(void *ctx, size_t task)
{
    const dunlin_norm_call *call = ctx;
    const int64_t channels = call->channels;
    const int64_t rows = norm_rows_of_task(call);
    const int64_t first = (int64_t)task * rows;
    const int64_t end = min_i64(call->rows_per_sample * call->n_samples, first + rows);
    for (int64_t c = 0; c < channels; c += VEC) {
        const int32_t n = vec_left(channels, c);
        const vfloat mean = vload_n(call->mean + c, n);
        const vfloat scale = vload_n(call->gamma + c, n) * vload_n(call->inv_std + c, n);
        const vfloat beta = vload_n(call->beta + c, n);
        for (int64_t i = first; i < end; i++) {
            vfloat x = vload_n(call->x + i * channels + c, n);
            vstore_n(call->out + i * channels + c, vfma(x - mean, scale, beta), n);
        }
    }
}

void K(norm_apply)(const dunlin_norm_call *call)
{
    dunlin_norm_call copy = *call;
    norm_rows(&copy, apply_task);
}
