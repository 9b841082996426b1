/*
 * layer_norm_kernel.c - layer norm, forward and backward (Ba, Kiros and Hinton 2016), and RMSNorm
 * (Zhang and Sennrich 2019), which is the same about 0 and without a shift, row by row.
 *
 * A row's sums run over a few lanes in a fixed order, the variance about the mean already found.
 * dgamma and dbeta: rows of a unit (sink.h) by blocks in float, in double between them; a sample's
 * sum is rounded once and added to what is there.
 */
#include "kernels/epilogue/sink.h"
#include "kernels/gemm/gemm.h"

#include <math.h>

#define ROW_TILE 8 /* backward: rows whose sums share a load of dgamma and dbeta */

/* A unit's workspace: 2 x width doubles, then as many floats. */
#define UNIT_FLOATS 6 /* of a column */

uint64_t K(layer_norm_workspace_bytes)(int32_t width, int64_t rows_per_sample)
{
    return (uint64_t)(round_up(UNIT_FLOATS * (int64_t)width, 16) *
                      stat_units_of(rows_per_sample).per_sample) *
           sizeof(float);
}

/* The lanes of v, in order. */
static float lanes_sum(vfloat v)
{
    float values[VEC];
    vstore(values, v);
    float sum = values[0];
    for (int i = 1; i < VEC; i++) {
        sum += values[i];
    }
    return sum;
}

static float row_sum(const float *x, int64_t n)
{
    vfloat sum = vzero();
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        sum += vload(x + i);
    }
    if (i < n) {
        sum += vload_part(x + i, (int32_t)(n - i));
    }
    return lanes_sum(sum);
}

/* Sum of (x - mean)^2; what a part leaves empty reads as the mean. */
static float row_squares(const float *x, int64_t n, float mean)
{
    const vfloat center = vset1(mean);
    vfloat sum = vzero();
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC) {
        const vfloat d = vload(x + i) - center;
        sum = vfma(d, d, sum);
    }
    float rest = 0.0f;
    for (; i < n; i++) {
        const float d = x[i] - mean;
        rest += d * d;
    }
    return lanes_sum(sum) + rest;
}

static void forward_row(const dunlin_layer_norm_call *call, int64_t row)
{
    const int64_t n = call->width;
    const float *x = call->x + row * n;
    float *y = call->y + row * n;
    float *statistics = call->statistics + 2 * row;
    statistics[0] = call->is_about_zero ? 0.0f : row_sum(x, n) / (float)n;
    const float variance = row_squares(x, n, statistics[0]) / (float)n;
    statistics[1] = 1.0f / sqrtf(variance + call->epsilon);
    const vfloat mean = vset1(statistics[0]);
    const vfloat inv_std = vset1(statistics[1]);
    for (int64_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        const vfloat xhat = (vload_n(x + i, left) - mean) * inv_std;
        const vfloat gamma = vload_n(call->gamma + i, left);
        vstore_n(y + i,
                 call->is_about_zero ? xhat * gamma
                                     : vfma(xhat, gamma, vload_n(call->beta + i, left)),
                 left);
    }
}

static int64_t rows_of_task(const dunlin_layer_norm_call *call)
{
    return max_i64(1, TASK_BLOCK / call->width);
}

static void forward_task(void *ctx, size_t task)
{
    const dunlin_layer_norm_call *call = ctx;
    const int64_t first = (int64_t)task * rows_of_task(call);
    const int64_t end =
        min_i64(call->rows_per_sample * call->n_samples, first + rows_of_task(call));
    for (int64_t row = first; row < end; row++) {
        forward_row(call, row);
    }
}

void K(layer_norm)(const dunlin_layer_norm_call *call)
{
    dunlin_layer_norm_call copy = *call;
    const int64_t n_rows = call->rows_per_sample * call->n_samples;
    run_tasks(call->threads, forward_task, &copy, ceil_div(n_rows, rows_of_task(call)),
              n_rows * call->width);
}

/* Of a row: mean, inv_std, and the means of dy * gamma and dy * gamma * xhat. */
typedef struct row_numbers {
    float mean, inv_std;
    float mean_g, mean_gx;
} row_numbers;

static row_numbers numbers_of(const dunlin_layer_norm_call *call, int64_t row)
{
    const int64_t n = call->width;
    row_numbers numbers = {.mean = call->statistics[2 * row],
                           .inv_std = call->statistics[2 * row + 1]};
    const vfloat mean = vset1(numbers.mean);
    vfloat g_sum = vzero();
    vfloat gx_sum = vzero();
    for (int64_t i = 0; i < n; i += VEC) {
        const int32_t left = vec_left(n, i);
        const vfloat g = vload_n(call->dy + row * n + i, left) * vload_n(call->gamma + i, left);
        g_sum += g;
        gx_sum = vfma(g, vload_n(call->x + row * n + i, left) - mean, gx_sum);
    }
    numbers.mean_g = call->is_about_zero ? 0.0f : lanes_sum(g_sum) / (float)n;
    numbers.mean_gx = lanes_sum(gx_sum) * numbers.inv_std / (float)n;
    return numbers;
}

/* One vector of columns of the rows from `row` on. sums: dbeta's, and dgamma's `width` further. */
ALWAYS_INLINE void grad_columns(const dunlin_layer_norm_call *call, const row_numbers *numbers,
                                int64_t row, int64_t n_rows, int64_t c, int32_t n, float *sums)
{
    const int64_t width = call->width;
    const vfloat gamma = vload_n(call->gamma + c, n);
    vfloat beta_sum = vload_n(sums + c, n);
    vfloat gamma_sum = vload_n(sums + width + c, n);
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t at = (row + i) * width + c;
        const vfloat inv_std = vset1(numbers[i].inv_std);
        const vfloat xhat = (vload_n(call->x + at, n) - vset1(numbers[i].mean)) * inv_std;
        const vfloat dy = vload_n(call->dy + at, n);
        beta_sum += dy;
        gamma_sum = vfma(dy, xhat, gamma_sum);
        if (call->dx != NULL) {
            const vfloat g = vfma(dy, gamma, vset1(-numbers[i].mean_g));
            vstore_n(call->dx + at, vfma(xhat, vset1(-numbers[i].mean_gx), g) * inv_std, n);
        }
    }
    vstore_n(sums + c, beta_sum, n);
    vstore_n(sums + width + c, gamma_sum, n);
}

static void grad_tile(const dunlin_layer_norm_call *call, int64_t row, int64_t n_rows, float *sums)
{
    row_numbers numbers[ROW_TILE];
    for (int64_t i = 0; i < n_rows; i++) {
        numbers[i] = numbers_of(call, row + i);
    }
    const int64_t width = call->width;
    int64_t c = 0;
    for (; c + VEC <= width; c += VEC) {
        grad_columns(call, numbers, row, n_rows, c, VEC, sums);
    }
    if (c < width) {
        grad_columns(call, numbers, row, n_rows, c, (int32_t)(width - c), sums);
    }
}

static void grad_task(void *ctx, size_t task)
{
    const dunlin_layer_norm_call *call = ctx;
    const int64_t width = call->width;
    const stat_units units = stat_units_of(call->rows_per_sample);
    const int64_t sample = (int64_t)task / units.per_sample;
    const int64_t first = (int64_t)task % units.per_sample * units.rows;
    const int64_t end = min_i64(call->rows_per_sample, first + units.rows);
    const size_t unit_bytes =
        (size_t)(K(layer_norm_workspace_bytes)(call->width, call->rows_per_sample) /
                 (uint64_t)units.per_sample);
    char *base = call->workspace;
    double *partial = (double *)(void *)(base + task * unit_bytes);
    float *sums = (float *)(void *)(partial + 2 * width);
    memset(partial, 0, unit_bytes);
    for (int64_t b = first; b < end; b += STAT_BLOCK_ROWS) {
        const int64_t stop = min_i64(end, b + STAT_BLOCK_ROWS);
        for (int64_t i = b; i < stop; i += ROW_TILE) {
            grad_tile(call, sample * call->rows_per_sample + i, min_i64(ROW_TILE, stop - i), sums);
        }
        stat_flush(sums, 2, width, partial, width);
    }
}

/* The units' sums, in order: of a sample in double, then to what is there. */
static void add_parameters(const dunlin_layer_norm_call *call, const stat_units *units)
{
    const int64_t width = call->width;
    if (call->is_reset) {
        memset(call->dgamma, 0, (size_t)width * sizeof(float));
        memset(call->dbeta, 0, (size_t)width * sizeof(float));
    }
    const uint64_t sample_bytes = K(layer_norm_workspace_bytes)(call->width, call->rows_per_sample);
    const int64_t pitch = (int64_t)(sample_bytes / sizeof(double)) / units->per_sample;
    const double *partial = call->workspace;
    for (int64_t s = 0; s < call->n_samples; s++) {
        for (int64_t c = 0; c < width; c++) {
            double beta_sum = 0.0;
            double gamma_sum = 0.0;
            for (int64_t u = 0; u < units->per_sample; u++) {
                beta_sum += partial[u * pitch + c];
                gamma_sum += partial[u * pitch + width + c];
            }
            call->dbeta[c] += (float)beta_sum;
            call->dgamma[c] += (float)gamma_sum;
        }
        partial += units->per_sample * pitch;
    }
}

void K(layer_norm_grad)(const dunlin_layer_norm_call *call)
{
    dunlin_layer_norm_call copy = *call;
    const stat_units units = stat_units_of(call->rows_per_sample);
    run_tasks(call->threads, grad_task, &copy, call->n_samples * units.per_sample,
              call->n_samples * call->rows_per_sample * call->width);
    if (call->dgamma != NULL) {
        add_parameters(call, &units);
    }
}
