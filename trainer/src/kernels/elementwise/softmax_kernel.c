/*
 * softmax_kernel.c - softmax of rows or its logarithm, and the gradients. Each row by itself, in
 * one order; the output may be the input's memory.
 */
#include "softmax_kernel.h"

#include "kernels/gemm/gemm.h"

#include <math.h>

static int64_t rows_of_task(const dunlin_softmax_call *call)
{
    return max_i64(1, TASK_BLOCK / call->width);
}

/* out = x - log(sum of exp(x)), read before it is written. */
static void log_row(const float *x, int64_t width, float *out)
{
    const float largest = softmax_largest(x, width, 1.0F, NULL);
    vfloat sum = vzero();
    for (int64_t i = 0; i < width; i += VEC) {
        const int32_t n = vec_left(width, i);
        const vfloat e = vexp(vload_n(x + i, n) - largest);
        if (n == VEC) {
            sum += e;
        }
        for (int32_t k = 0; n < VEC && k < n; k++) {
            sum[k] += e[k];
        }
    }
    const float log_sum = logf(vsum(sum));
    for (int64_t i = 0; i < width; i += VEC) {
        const int32_t n = vec_left(width, i);
        vstore_n(out + i, vload_n(x + i, n) - largest - log_sum, n);
    }
}

/* out = dy - exp(y) * sum(dy) */
static void log_row_grad(const float *y, const float *dy, int64_t width, float *out)
{
    vfloat sum = vzero();
    for (int64_t i = 0; i < width; i += VEC) {
        sum += vload_n(dy + i, vec_left(width, i));
    }
    const float total = vsum(sum);
    for (int64_t i = 0; i < width; i += VEC) {
        const int32_t n = vec_left(width, i);
        vstore_n(out + i, vload_n(dy + i, n) - vexp(vload_n(y + i, n)) * total, n);
    }
}

static void softmax_task(void *ctx, size_t task)
{
    const dunlin_softmax_call *call = ctx;
    const int64_t first = (int64_t)task * rows_of_task(call);
    const int64_t end = min_i64(call->n_rows, first + rows_of_task(call));
    for (int64_t i = first; i < end; i++) {
        const int64_t at = i * call->width;
        if (call->is_log && call->dy == NULL) {
            log_row(call->x + at, call->width, call->out + at);
        } else if (call->is_log) {
            log_row_grad(call->x + at, call->dy + at, call->width, call->out + at);
        } else if (call->dy == NULL) {
            const softmax_row row =
                softmax_exp(call->x + at, call->width, 1.0F, NULL, call->out + at);
            softmax_scale(call->out + at, call->width, row.inv_sum);
        } else {
            softmax_row_grad(call->x + at, call->dy + at, call->width, 1.0F, call->out + at);
        }
    }
}

void K(softmax)(const dunlin_softmax_call *call)
{
    dunlin_softmax_call copy = *call;
    run_tasks(call->threads, softmax_task, &copy, ceil_div(call->n_rows, rows_of_task(call)),
              call->n_rows * call->width);
}
