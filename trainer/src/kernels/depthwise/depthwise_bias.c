/*
 * depthwise_bias.c - the bias gradient of a fused depthwise convolution, and the workspace of all
 * three passes.
 *
 * A sample's sum is taken in double over short chains in float, rounded once and added in order.
 */
#include "depthwise.h"
#include "kernels/gemm/gemm.h"

uint64_t K(depthwise_fused_workspace)(const dunlin_conv_shape *shape, uint32_t uses,
                                      size_t n_threads, uint64_t *out_sample_bytes)
{
    uint64_t bytes = 0;
    *out_sample_bytes = 0;
    if ((uses & DUNLIN_FUSED_FORWARD) != 0) {
        bytes = K(depthwise_forward_workspace)(shape, n_threads, out_sample_bytes);
    }
    if ((uses & (DUNLIN_FUSED_INPUT_GRAD | DUNLIN_FUSED_WEIGHT_GRAD)) != 0) {
        uint64_t of_sample = 0;
        const uint64_t backward = K(depthwise_backward_workspace)(shape, n_threads, &of_sample);
        bytes = backward > bytes ? backward : bytes;
        *out_sample_bytes = of_sample > *out_sample_bytes ? of_sample : *out_sample_bytes;
    }
    return bytes;
}

#define BIAS_CHANNELS 384 /* at once: their sums lie on the stack */
#define BIAS_ROWS 8

typedef struct bias_job {
    const dunlin_fused_call *call;
    int64_t part_channels;
} bias_job;

/* A sample's sums of channels [channel, channel + n): float over BIAS_ROWS rows, then double. */
static void bias_sample(const dunlin_fused_call *call, int64_t sample, int64_t channel, int64_t n,
                        float *db)
{
    const int64_t rows = (int64_t)call->shape->out_h * call->shape->out_w;
    float tile[BIAS_ROWS * BIAS_CHANNELS];
    double sums[BIAS_CHANNELS] = {0};
    load_rows load = {
        .pixel_step = 1, .channel = channel, .n_channels = n, .out_pitch = BIAS_CHANNELS};
    load.out = tile;
    for (int64_t i = 0; i < rows; i += BIAS_ROWS) {
        load.pixel = sample * rows + i;
        load.n_rows = min_i64(BIAS_ROWS, rows - i);
        K(grad_rows)(&call->dy, &load);
        for (int64_t c = 0; c < n; c++) {
            float sum = 0.0f;
            for (int64_t r = 0; r < load.n_rows; r++) {
                sum += tile[r * BIAS_CHANNELS + c];
            }
            sums[c] += (double)sum;
        }
    }
    for (int64_t c = 0; c < n; c++) {
        db[c] += (float)sums[c];
    }
}

static void bias_task(void *ctx, size_t part)
{
    const bias_job *job = ctx;
    const dunlin_fused_call *call = job->call;
    const int64_t channel = (int64_t)part * job->part_channels;
    const int64_t n = min_i64(job->part_channels, call->shape->out_c - channel);
    if (call->is_reset) {
        memset(call->db + channel, 0, (size_t)n * sizeof(float));
    }
    for (int64_t s = 0; s < call->n_samples; s++) {
        bias_sample(call, s, channel, n, call->db + channel);
    }
}

void K(depthwise_bias_grad)(const dunlin_fused_call *call)
{
    const int64_t channels = call->shape->out_c;
    const int64_t n_threads = (int64_t)task_threads(call->threads);
    bias_job job = {.call = call};
    job.part_channels = min_i64(BIAS_CHANNELS, round_up(ceil_div(channels, n_threads), VEC));
    run_tasks(call->threads, bias_task, &job, ceil_div(channels, job.part_channels),
              call->n_samples * call->shape->out_h * call->shape->out_w * channels);
}
