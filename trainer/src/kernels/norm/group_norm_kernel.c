/*
 * group_norm_kernel.c - group norm, forward and backward (Wu and He 2018): a task is one sample.
 *
 * A sample's sums are taken per channel, by blocks in float and in double between them, and only
 * then joined to groups, so forward and backward are what batch norm's rows do: sums, then one
 * affine. Forward sums are about the sample's first row, so that the variance does not cancel.
 */
#include "kernels/epilogue/sink.h"
#include "kernels/gemm/gemm.h"

#include <math.h>

/* A sample's workspace. */
typedef struct group_room {
    double *sums;   /* 2 x channels */
    float *block;   /* 2 x channels */
    float *numbers; /* 3 x channels */
} group_room;

#define ROOM_FLOATS 9 /* of a channel: two doubles, two sums, three numbers */

uint64_t K(group_norm_workspace_bytes)(int32_t channels)
{
    return (uint64_t)round_up(ROOM_FLOATS * (int64_t)channels, 16) * sizeof(float);
}

static group_room room_of(const dunlin_group_norm_call *call, int64_t sample)
{
    char *base = call->workspace;
    base += (uint64_t)sample * K(group_norm_workspace_bytes)(call->channels);
    group_room room = {.sums = (double *)(void *)base};
    room.block = (float *)(void *)(room.sums + 2 * (int64_t)call->channels);
    room.numbers = room.block + 2 * (int64_t)call->channels;
    memset(base, 0, (size_t)K(group_norm_workspace_bytes)(call->channels));
    return room;
}

/* Mean and inverse deviation of the group of channels from `first` on. */
static void group_statistics(const dunlin_group_norm_call *call, const group_room *room,
                             const float *about, int64_t first, float *out)
{
    const int64_t width = call->channels / call->groups;
    const double rows = (double)call->rows_per_sample;
    double mean = 0.0;
    for (int64_t c = first; c < first + width; c++) {
        mean += (double)about[c] + room->sums[c] / rows;
    }
    mean /= (double)width;
    double variance = 0.0;
    for (int64_t c = first; c < first + width; c++) {
        const double shift = room->sums[c] / rows;
        const double apart = (double)about[c] + shift - mean;
        variance += room->sums[call->channels + c] / rows - shift * shift + apart * apart;
    }
    variance = fmax(0.0, variance / (double)width);
    out[0] = (float)mean;
    out[1] = (float)(1.0 / sqrt(variance + (double)call->epsilon));
}

static void forward_task(void *ctx, size_t task)
{
    const dunlin_group_norm_call *call = ctx;
    const int64_t channels = call->channels;
    const int64_t rows = call->rows_per_sample;
    const float *x = call->x + (int64_t)task * rows * channels;
    const group_room room = room_of(call, (int64_t)task);
    for (int64_t i = 0; i < rows; i += STAT_BLOCK_ROWS) {
        K(stat_rows)
        (x + i * channels, channels, min_i64(STAT_BLOCK_ROWS, rows - i), channels, x, room.block);
        stat_flush(room.block, 2, channels, room.sums, channels);
    }
    float *statistics = call->statistics + 2 * (int64_t)task * call->groups;
    const int64_t width = channels / call->groups;
    float *scale = room.numbers;
    float *shift = room.numbers + channels;
    for (int64_t g = 0; g < call->groups; g++) {
        group_statistics(call, &room, x, g * width, statistics + 2 * g);
    }
    for (int64_t c = 0; c < channels; c++) {
        const float *of_group = statistics + c / width * 2;
        scale[c] = call->gamma[c] * of_group[1];
        shift[c] = call->beta[c] - of_group[0] * scale[c];
    }
    const dunlin_view view = {.x = x,
                              .pitch = channels,
                              .scale = scale,
                              .shift = shift,
                              .low = -INFINITY,
                              .high = INFINITY};
    load_rows load = {
        .pixel_step = 1, .n_rows = rows, .n_channels = channels, .out_pitch = channels};
    load.out = call->y + (int64_t)task * rows * channels;
    K(view_rows)(&view, &load);
}

void K(group_norm)(const dunlin_group_norm_call *call)
{
    dunlin_group_norm_call copy = *call;
    run_tasks(call->threads, forward_task, &copy, call->n_samples,
              call->n_samples * call->rows_per_sample * call->channels);
}

/* Sums of dy and dy * (x - mean) of each channel of a sample. */
static void grad_sums(const dunlin_group_norm_call *call, int64_t sample, const group_room *room)
{
    const int64_t channels = call->channels;
    const int64_t rows = call->rows_per_sample;
    const int64_t first = sample * rows;
    float *mean = room->numbers;
    for (int64_t c = 0; c < channels; c++) {
        mean[c] = call->statistics[2 * (sample * call->groups + c * call->groups / channels)];
    }
    const dunlin_epilogue epilogue = {
        .n_stats = 1, .stats = {{.raw = call->x, .raw_pitch = channels, .about = mean}}};
    epilogue_rows block = {.dx_pitch = channels,
                           .pixel_step = 1,
                           .n_channels = channels,
                           .sums = room->block,
                           .sums_pitch = channels};
    for (int64_t i = 0; i < rows; i += STAT_BLOCK_ROWS) {
        block.pixel = first + i;
        block.dx = call->dy + block.pixel * channels;
        block.n_rows = min_i64(STAT_BLOCK_ROWS, rows - i);
        K(epilogue_rows)(&epilogue, &block);
        stat_flush(room->block, 2, channels, room->sums, channels);
    }
}

/* dx = dy * factor + x * slope + offset, the numbers of a group from its channels' sums. */
static void grad_numbers(const dunlin_group_norm_call *call, int64_t sample, const group_room *room)
{
    const int64_t channels = call->channels;
    const int64_t width = channels / call->groups;
    const double n = (double)call->rows_per_sample * (double)width;
    for (int64_t g = 0; g < call->groups; g++) {
        const float *statistics = call->statistics + 2 * (sample * call->groups + g);
        const double mean = (double)statistics[0];
        const double inv_std = (double)statistics[1];
        double a = 0.0;
        double b = 0.0;
        for (int64_t c = g * width; c < (g + 1) * width; c++) {
            a += (double)call->gamma[c] * room->sums[c];
            b += (double)call->gamma[c] * room->sums[channels + c];
        }
        const double slope = -inv_std * inv_std * inv_std * b / n;
        for (int64_t c = g * width; c < (g + 1) * width; c++) {
            room->numbers[c] = call->gamma[c] * statistics[1];
            room->numbers[channels + c] = (float)slope;
            room->numbers[2 * channels + c] = (float)(-inv_std * a / n - slope * mean);
        }
    }
}

static void grad_task(void *ctx, size_t task)
{
    const dunlin_group_norm_call *call = ctx;
    const int64_t channels = call->channels;
    const group_room room = room_of(call, (int64_t)task);
    grad_sums(call, (int64_t)task, &room);
    if (call->dx == NULL) {
        return;
    }
    grad_numbers(call, (int64_t)task, &room);
    const int64_t first = (int64_t)task * call->rows_per_sample;
    const dunlin_grad grad = {.g = call->dy,
                              .pitch = channels,
                              .factor = room.numbers,
                              .raw = call->x,
                              .raw_pitch = channels,
                              .slope = room.numbers + channels,
                              .offset = room.numbers + 2 * channels};
    load_rows load = {.pixel = first,
                      .pixel_step = 1,
                      .n_rows = call->rows_per_sample,
                      .n_channels = channels,
                      .out_pitch = channels};
    load.out = call->dx + first * channels;
    K(grad_rows)(&grad, &load);
}

/* The samples' sums, in order. */
static void add_parameters(const dunlin_group_norm_call *call)
{
    const int64_t channels = call->channels;
    if (call->is_reset) {
        memset(call->dgamma, 0, (size_t)channels * sizeof(float));
        memset(call->dbeta, 0, (size_t)channels * sizeof(float));
    }
    const char *base = call->workspace;
    const uint64_t bytes = K(group_norm_workspace_bytes)(call->channels);
    for (int64_t s = 0; s < call->n_samples; s++) {
        const double *sums = (const double *)(const void *)(base + (uint64_t)s * bytes);
        const float *statistics = call->statistics + 2 * s * call->groups;
        for (int64_t c = 0; c < channels; c++) {
            const double inv_std = (double)statistics[2 * (c * call->groups / channels) + 1];
            call->dgamma[c] += (float)(sums[channels + c] * inv_std);
            call->dbeta[c] += (float)sums[c];
        }
    }
}

void K(group_norm_grad)(const dunlin_group_norm_call *call)
{
    dunlin_group_norm_call copy = *call;
    run_tasks(call->threads, grad_task, &copy, call->n_samples,
              call->n_samples * call->rows_per_sample * call->channels);
    if (call->dgamma != NULL) {
        add_parameters(call);
    }
}
