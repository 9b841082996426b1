/*
 * few_channels_grad.c - the weights' and biases' gradient of convolutions to few channels
 * (few_channels.h): a sum over the pixels of a band, for each tap and output, of two planes that
 * lie a little apart.
 *
 * Each band's sums are made from zero, lanes first, and added in order. Threads share bands, never
 * what they add to.
 */
#include "few_channels.h"
#include "kernels/simd/vecmath.h"

#define SMALL_GRAD_DEPTH 256 /* times outputs sums are put together for each band */
#define SMALL_ROUND 16       /* bands whose gradients are added up at once */

bool K(few_channel_reduce_is_for)(const dunlin_conv_shape *shape)
{
    few_channel_plan plan;
    return K(few_channel_plan)(shape, false, &plan) && plan.depth <= SMALL_GRAD_DEPTH;
}

/* Gradients of `taps` weights of each output, summed over the band's pixels. */
ALWAYS_INLINE void grad_tile(const few_channel_job *job, const float *x, const float *dy,
                             int64_t n_flat, int64_t k, int outputs, float *out)
{
    const int taps = SMALL_ACCUMULATORS / outputs;
    const int32_t *offsets = job->offsets + k;
    const int64_t pitch = job->plan.out_floats;
    vfloat sum[SMALL_ACCUMULATORS / 2][SMALL_OUTPUTS];
    UNROLL
    for (int i = 0; i < taps; i++) {
        UNROLL
        for (int o = 0; o < outputs; o++) {
            sum[i][o] = vzero();
        }
    }
    for (int64_t p = 0; p < n_flat; p += VEC) {
        vfloat right[SMALL_OUTPUTS];
        UNROLL
        for (int o = 0; o < outputs; o++) {
            right[o] = vload(dy + o * pitch + p);
        }
        UNROLL
        for (int i = 0; i < taps; i++) {
            const vfloat left = vload(x + offsets[i] + p);
            UNROLL
            for (int o = 0; o < outputs; o++) {
                sum[i][o] = vfma(left, right[o], sum[i][o]);
            }
        }
    }
    UNROLL
    for (int i = 0; i < taps; i++) {
        UNROLL
        for (int o = 0; o < outputs; o++) {
            out[(k + i) * outputs + o] = vsum(sum[i][o]);
        }
    }
}

/* [depth][outputs], followed by some garbage. */
static void grad_sums(const few_channel_job *job, const float *x, const float *dy, int64_t n_flat,
                      float *out)
{
    const int64_t taps = job->plan.vectors;
    for (int64_t k = 0; k < job->plan.depth; k += taps) {
        switch (job->plan.outputs) {
        case 2:
            grad_tile(job, x, dy, n_flat, k, 2, out);
            break;
        case 4:
            grad_tile(job, x, dy, n_flat, k, 4, out);
            break;
        case 6:
            grad_tile(job, x, dy, n_flat, k, 6, out);
            break;
        default:
            grad_tile(job, x, dy, n_flat, k, 8, out);
            break;
        }
    }
}

static void grad_worker(void *ctx, size_t slot)
{
    few_channel_job *job = ctx;
    const few_channel_plan *plan = &job->plan;
    const dunlin_fused_call *call = job->call;
    const conv_view *view = &plan->view;
    float *planes = job->rooms + (int64_t)slot * job->room_floats;
    float *dy = planes + view->channels * plan->plane_floats;
    float *rows = dy + plan->outputs * plan->out_floats;
    few_channel_band band;
    while (K(few_channel_next_band)(job, (int64_t)slot, &band)) {
        const int64_t unit = band.unit;
        const int64_t t0 = band.t0;
        const int64_t t1 = band.t1;
        const int64_t sample = unit / plan->n_bands;
        float *part = job->parts + (unit - job->first_unit) * job->part_floats;
        const int64_t n_flat = (t1 - t0) * plan->width - plan->reach_w;
        vclear(dy, plan->outputs * plan->out_floats);
        for (int64_t t = t0; t < t1; t++) {
            K(few_channel_write_pixels)
            ((strip_source){.grad = &call->dy}, view_out_pixel(view, sample, t, 0), view->w.n_grid,
             view->outputs, rows, dy + (t - t0) * plan->width, plan->out_floats);
        }
        if (call->dw != NULL) {
            K(few_channel_write_planes)
            (plan, (strip_source){.view = &call->x}, sample, t0, t1, rows, planes);
            grad_sums(job, planes, dy, n_flat, part);
        }
        for (int64_t o = 0; o < plan->outputs; o++) {
            vfloat sum = vzero();
            for (int64_t p = 0; p < n_flat; p += VEC) {
                sum += vload(dy + o * plan->out_floats + p);
            }
            part[job->part_floats - SMALL_OUTPUTS + o] = vsum(sum);
        }
    }
}

/* The sums of a band, then the biases' in the last few. */
static int64_t part_floats(const few_channel_plan *plan)
{
    return round_up((plan->depth + plan->vectors) * plan->outputs, 16) + SMALL_OUTPUTS;
}

uint64_t K(few_channel_reduce_bytes)(const dunlin_conv_shape *shape, size_t n_threads)
{
    few_channel_plan plan;
    if (!K(few_channel_plan)(shape, false, &plan)) {
        return 0;
    }
    const int64_t threads = n_threads == 0 ? 1 : (int64_t)n_threads;
    return (uint64_t)(round_up(SMALL_ROUND * part_floats(&plan), 16) +
                      threads * K(few_channel_floats)(&plan)) *
           sizeof(float);
}

static void add_part(const few_channel_job *job, const float *part)
{
    const few_channel_plan *plan = &job->plan;
    const int64_t outputs = plan->view.outputs;
    for (int64_t k = 0; job->call->dw != NULL && k < plan->depth; k++) {
        for (int64_t o = 0; o < outputs; o++) {
            job->call->dw[k * outputs + o] += part[k * plan->outputs + o];
        }
    }
    for (int64_t o = 0; job->call->db != NULL && o < outputs; o++) {
        job->call->db[o] += part[job->part_floats - SMALL_OUTPUTS + o];
    }
}

void K(few_channel_reduce_run)(const dunlin_fused_call *call, float *workspace)
{
    few_channel_job job = {.call = call};
    if (!K(few_channel_plan)(call->shape, false, &job.plan)) {
        return;
    }
    const few_channel_plan *plan = &job.plan;
    const size_t outputs = (size_t)plan->view.outputs;
    if (call->is_reset && call->dw != NULL) {
        memset(call->dw, 0, (size_t)plan->depth * outputs * sizeof(float));
    }
    if (call->is_reset && call->db != NULL) {
        memset(call->db, 0, outputs * sizeof(float));
    }
    K(few_channel_find_offsets)(&job);
    job.part_floats = part_floats(plan);
    job.parts = workspace;
    job.rooms = workspace + round_up(SMALL_ROUND * job.part_floats, 16);
    job.room_floats = K(few_channel_floats)(plan);
    const int64_t n_units = call->n_samples * plan->n_bands;
    for (job.first_unit = 0; job.first_unit < n_units; job.first_unit += SMALL_ROUND) {
        job.n_units = min_i64(SMALL_ROUND, n_units - job.first_unit);
        K(few_channel_run_bands)(&job, grad_worker, call->threads);
        for (int64_t i = 0; i < job.n_units; i++) {
            add_part(&job, job.parts + i * job.part_floats);
        }
    }
}
