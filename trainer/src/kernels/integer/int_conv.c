/*
 * int_conv.c - convolutions in integers, sum by sum.
 */
#include "integer.h"
#include "kernels/gemm/geometry.h"
#include "rounding.h"

uint64_t K(int_conv_workspace_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                                     size_t n_threads)
{
    (void)shape;
    (void)pass;
    return 64 * (uint64_t)n_threads;
}

typedef struct int_conv_job {
    const dunlin_int_conv_call *call;
    int_tally tally;
} int_conv_job;

static int64_t weight_at(const dunlin_conv_shape *s, int64_t i, int64_t j, int64_t ci, int64_t co)
{
    return ((i * s->kernel_w + j) * (s->in_c / s->groups) + ci) * s->out_c + co;
}

static int32_t forward_sum(const dunlin_int_conv_call *call, int64_t pixel, int64_t co)
{
    const dunlin_conv_shape *s = call->shape;
    const int64_t ox = pixel % s->out_w;
    const int64_t oy = pixel / s->out_w % s->out_h;
    const int64_t sample = pixel / s->out_w / s->out_h;
    const int64_t in_c = s->in_c / s->groups;
    const int64_t group = co / (s->out_c / s->groups);
    int32_t sum = call->bias == NULL ? 0 : call->bias[co];
    for (int64_t i = 0; i < s->kernel_h; i++) {
        for (int64_t j = 0; j < s->kernel_w; j++) {
            const int64_t y = oy * s->stride_h - s->pad_top + i * s->dilation_h;
            const int64_t x = ox * s->stride_w - s->pad_left + j * s->dilation_w;
            if (y < 0 || y >= s->in_h || x < 0 || x >= s->in_w) {
                continue;
            }
            const int8_t *from =
                call->x + ((sample * s->in_h + y) * s->in_w + x) * s->in_c + group * in_c;
            for (int64_t ci = 0; ci < in_c; ci++) {
                sum += from[ci] * call->w[weight_at(s, i, j, ci, co)];
            }
        }
    }
    return sum;
}

static void forward_task(void *ctx, size_t pixel)
{
    int_conv_job *job = (int_conv_job *)ctx;
    const dunlin_int_conv_call *call = job->call;
    const int32_t shift = (int32_t)max_i64(0, call->rounding.shift);
    int_count count = {0, 0};
    for (int64_t co = 0; co < call->shape->out_c; co++) {
        const int32_t sum = forward_sum(call, (int64_t)pixel, co);
        const uint32_t q = int_shifted(int_size(sum), shift, int_half(shift));
        count.largest = max_i64(count.largest, int_size(sum));
        count.n_clipped += q > DUNLIN_INT_MOST ? 1 : 0;
        call->out[(int64_t)pixel * call->shape->out_c + co] =
            (int8_t)int_within(int_signed(q, sum), call->low, call->high);
    }
    int_tally_take(&job->tally, &count);
}

void K(int_conv_forward)(const dunlin_int_conv_call *call)
{
    int_conv_job job = {.call = call};
    const int64_t n = call->n_samples * call->shape->out_h * call->shape->out_w;
    int_tally_open(&job.tally);
    run_tasks(call->threads, forward_task, &job, n, n * call->shape->out_c);
    int_tally_close(&job.tally, &call->rounding);
}

static int32_t input_sum(const dunlin_int_conv_call *call, int64_t pixel, int64_t c)
{
    const dunlin_conv_shape *s = call->shape;
    const int64_t ix = pixel % s->in_w;
    const int64_t iy = pixel / s->in_w % s->in_h;
    const int64_t sample = pixel / s->in_w / s->in_h;
    const int64_t in_c = s->in_c / s->groups;
    const int64_t out_c = s->out_c / s->groups;
    const int64_t group = c / in_c;
    int32_t sum = 0;
    for (int64_t i = 0; i < s->kernel_h; i++) {
        for (int64_t j = 0; j < s->kernel_w; j++) {
            const int64_t y = iy + s->pad_top - i * s->dilation_h;
            const int64_t x = ix + s->pad_left - j * s->dilation_w;
            if (y < 0 || y % s->stride_h != 0 || y / s->stride_h >= s->out_h || x < 0 ||
                x % s->stride_w != 0 || x / s->stride_w >= s->out_w) {
                continue;
            }
            const int64_t from = (sample * s->out_h + y / s->stride_h) * s->out_w + x / s->stride_w;
            for (int64_t o = group * out_c; o < (group + 1) * out_c; o++) {
                sum += call->dy[from * s->out_c + o] * call->w[weight_at(s, i, j, c % in_c, o)];
            }
        }
    }
    return sum;
}

static void input_task(void *ctx, size_t pixel)
{
    int_conv_job *job = (int_conv_job *)ctx;
    const dunlin_int_conv_call *call = job->call;
    const int32_t shift = (int32_t)max_i64(0, call->rounding.shift);
    const int32_t addend_shift = (int32_t)min_i64(9, max_i64(0, call->addend_shift));
    int_count count = {0, 0};
    for (int64_t c = 0; c < call->shape->in_c; c++) {
        const int64_t at = (int64_t)pixel * call->shape->in_c + c;
        const int32_t sum = input_sum(call, (int64_t)pixel, c);
        const uint32_t q = int_shifted(int_size(sum), shift, int_half(shift));
        bool is_clipped = q > DUNLIN_INT_MOST;
        int32_t d = int_signed(q, sum);
        if (call->addend != NULL) {
            const int32_t addend = call->addend[at];
            d += int_signed(int_shifted(int_size(addend), addend_shift, int_half(addend_shift)),
                            addend);
            is_clipped = is_clipped || d > DUNLIN_INT_MOST || d < -DUNLIN_INT_MOST;
            d = int_within(d, -DUNLIN_INT_MOST, DUNLIN_INT_MOST);
        }
        if (call->mask != NULL &&
            !(call->mask[at] > call->mask_low && call->mask[at] < call->mask_high)) {
            d = 0;
        }
        count.largest = max_i64(count.largest, int_size(sum));
        count.n_clipped += is_clipped ? 1 : 0;
        call->out[at] = (int8_t)d;
    }
    int_tally_take(&job->tally, &count);
}

void K(int_conv_input_grad)(const dunlin_int_conv_call *call)
{
    int_conv_job job = {.call = call};
    const int64_t n = call->n_samples * call->shape->in_h * call->shape->in_w;
    int_tally_open(&job.tally);
    run_tasks(call->threads, input_task, &job, n, n * call->shape->in_c);
    int_tally_close(&job.tally, &call->rounding);
}

static int64_t weight_sum(const dunlin_int_conv_call *call, int64_t tap, int64_t ci, int64_t co)
{
    const dunlin_conv_shape *s = call->shape;
    const int64_t group = co / (s->out_c / s->groups);
    const int64_t c = group * (s->in_c / s->groups) + ci;
    int64_t sum = 0;
    for (int64_t pixel = 0; pixel < call->n_samples * s->out_h * s->out_w; pixel++) {
        const int64_t y = pixel / s->out_w % s->out_h * s->stride_h - s->pad_top +
                          tap / s->kernel_w * s->dilation_h;
        const int64_t x =
            pixel % s->out_w * s->stride_w - s->pad_left + tap % s->kernel_w * s->dilation_w;
        if (y >= 0 && y < s->in_h && x >= 0 && x < s->in_w) {
            const int64_t sample = pixel / s->out_w / s->out_h;
            sum += call->dy[pixel * s->out_c + co] *
                   call->x[((sample * s->in_h + y) * s->in_w + x) * s->in_c + c];
        }
    }
    return sum;
}

static void weight_task(void *ctx, size_t row)
{
    const dunlin_int_conv_call *call = ((const int_conv_job *)ctx)->call;
    const int64_t in_c = call->shape->in_c / call->shape->groups;
    for (int64_t co = 0; co < call->shape->out_c; co++) {
        const int64_t at = (int64_t)row * call->shape->out_c + co;
        const int64_t sum = weight_sum(call, (int64_t)row / in_c, (int64_t)row % in_c, co);
        if (call->sums != NULL) {
            call->sums[at] = (call->is_reset ? 0 : call->sums[at]) + (int32_t)sum;
        } else {
            call->wide_sums[at] = (call->is_reset ? 0 : call->wide_sums[at]) + sum;
        }
    }
}

void K(int_conv_weight_grad)(const dunlin_int_conv_call *call)
{
    const dunlin_conv_shape *s = call->shape;
    int_conv_job job = {.call = call};
    const int64_t n = (int64_t)s->kernel_h * s->kernel_w * (s->in_c / s->groups);
    run_tasks(call->threads, weight_task, &job, n, n * s->out_c);
    for (int64_t co = 0; call->out_bias != NULL && co < s->out_c; co++) {
        int32_t sum = call->is_reset ? 0 : call->out_bias[co];
        for (int64_t i = 0; i < call->n_samples * s->out_h * s->out_w; i++) {
            sum += call->dy[i * s->out_c + co];
        }
        call->out_bias[co] = sum;
    }
}
