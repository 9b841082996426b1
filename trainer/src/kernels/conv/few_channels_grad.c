/*
 * few_channels_grad.c - the weights' and biases' gradient of convolutions whose groups have few
 * channels (few_channels.h): a sum over the pixels of a band, for each tap and output, of two
 * planes that lie a little apart.
 *
 * Each band's sums are made from zero, lanes first, and added in order. Threads share bands, never
 * what they add to.
 */
#include "few_channels.h"
#include "kernels/simd/vecmath.h"

#define SMALL_GRAD_DEPTH 256 /* times outputs sums are put together for each band */
#define SMALL_ROUND 16       /* bands whose gradients are added up at once */

/* What the tiles of a group have in common. */
typedef struct grad_group {
    const few_channel_job *job;
    const float *x, *dy; /* its first planes */
    int64_t n_flat;
    int64_t k0, k1; /* of the depth */
    int64_t base;   /* off the offsets */
} grad_group;

bool K(few_channel_reduce_is_for)(const dunlin_conv_shape *shape)
{
    few_channel_plan plan;
    return K(few_channel_plan)(shape, false, &plan) && plan.depth <= SMALL_GRAD_DEPTH;
}

/* Gradients of `taps` weights of each output, k and on, summed over the band's pixels; past k1
 * some garbage. */
ALWAYS_INLINE void grad_tile(const grad_group *group, int64_t k, int outputs, int taps, float *out)
{
    const few_channel_job *job = group->job;
    const int64_t pitch = job->plan.out_floats;
    const float *from[SMALL_ACCUMULATORS / 2];
    vfloat sum[SMALL_ACCUMULATORS / 2][SMALL_OUTPUTS];
    UNROLL
    for (int i = 0; i < taps; i++) {
        from[i] = group->x + (k + i < group->k1 ? job->offsets[k + i] - group->base : 0);
        UNROLL
        for (int o = 0; o < outputs; o++) {
            sum[i][o] = vzero();
        }
    }
    for (int64_t p = 0; p < group->n_flat; p += VEC) {
        vfloat right[SMALL_OUTPUTS];
        UNROLL
        for (int o = 0; o < outputs; o++) {
            right[o] = vload(group->dy + o * pitch + p);
        }
        UNROLL
        for (int i = 0; i < taps; i++) {
            const vfloat left = vload(from[i] + p);
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
static void grad_sums(const grad_group *group, float *out)
{
    const few_channel_plan *plan = &group->job->plan;
    vclear(out, group->k0 * plan->outputs);
    for (int64_t k = group->k0; k < group->k1; k += plan->vectors) {
        switch (plan->outputs) {
        case 1:
            grad_tile(group, k, 1, SMALL_ACCUMULATORS / 2, out);
            break;
        case 2:
            grad_tile(group, k, 2, SMALL_ACCUMULATORS / 2, out);
            break;
        case 4:
            grad_tile(group, k, 4, SMALL_ACCUMULATORS / 4, out);
            break;
        case 6:
            grad_tile(group, k, 6, SMALL_ACCUMULATORS / 6, out);
            break;
        default:
            grad_tile(group, k, 8, SMALL_ACCUMULATORS / 8, out);
            break;
        }
    }
    vclear(out + group->k1 * plan->outputs, (plan->depth - group->k1) * plan->outputs);
}

/* A group's sums of a band. */
static int64_t group_floats(const few_channel_plan *plan)
{
    return round_up((plan->depth + plan->vectors) * plan->outputs, 16);
}

/* The sums of a band's groups, then the biases'. */
static int64_t part_floats(const few_channel_plan *plan)
{
    return plan->groups * (group_floats(plan) + round_up((int64_t)plan->view.outputs, 8));
}

static float *part_biases(const few_channel_plan *plan, float *part)
{
    return part + plan->groups * group_floats(plan);
}

/* A band's gradient in planes, with zeros between lines and past the last. */
static void write_gradient(const few_channel_job *job, const few_channel_band *band, float *rows,
                           float *dy)
{
    const few_channel_plan *plan = &job->plan;
    const conv_view *view = &plan->view;
    vclear(dy, plan->out_planes * plan->out_floats);
    for (int64_t t = band->t0; t < band->t1; t++) {
        const load_rows load = {.pixel = view_out_pixel(view, band->sample, t, band->u0),
                                .pixel_step = 1,
                                .n_rows = band->u1 - band->u0,
                                .channel = band->group * view->outputs,
                                .n_channels = band->n_groups * view->outputs,
                                .out = rows,
                                .out_pitch = band->n_groups * view->outputs};
        K(few_channel_write_pixels)
        ((strip_source){.grad = &job->call->dy}, &load, dy + (t - band->t0) * plan->width,
         plan->out_floats);
    }
}

static void grad_worker(void *ctx, size_t slot)
{
    few_channel_job *job = ctx;
    const few_channel_plan *plan = &job->plan;
    const conv_view *view = &plan->view;
    float *planes = job->rooms + (int64_t)slot * job->room_floats;
    float *dy = planes + plan->groups * view->channels * plan->plane_floats;
    float *rows = dy + plan->out_planes * plan->out_floats;
    few_channel_band band;
    while (K(few_channel_next_band)(job, (int64_t)slot, &band)) {
        float *part = job->parts + (band.unit - job->first_unit) * job->part_floats;
        grad_group group = {.job = job,
                            .n_flat = band_flat(plan, &band),
                            .k0 = band.h0 * row_depth(plan),
                            .k1 = band.h1 * row_depth(plan),
                            .base = band_base(plan, &band)};
        write_gradient(job, &band, rows, dy);
        if (job->call->dw != NULL) {
            K(few_channel_write_planes)
            (plan, (strip_source){.view = &job->call->x}, &band, rows, planes);
        }
        for (int64_t g = 0; job->call->dw != NULL && g < band.n_groups; g++) {
            group.x = planes + g * view->channels * plan->plane_floats;
            group.dy = dy + g * view->outputs * plan->out_floats;
            grad_sums(&group, part + g * group_floats(plan));
        }
        for (int64_t o = 0; o < band.n_groups * view->outputs; o++) {
            vfloat sum = vzero();
            for (int64_t p = 0; p < group.n_flat; p += VEC) {
                sum += vload(dy + o * plan->out_floats + p);
            }
            part_biases(plan, part)[o] = vsum(sum);
        }
    }
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

/* A band's sums of the job's chunk. */
static void add_part(const few_channel_job *job, float *part)
{
    const few_channel_plan *plan = &job->plan;
    const conv_view *view = &plan->view;
    const int64_t group = job->chunk * plan->groups;
    const int64_t n_groups = min_i64(plan->groups, view->groups - group);
    for (int64_t g = 0; job->call->dw != NULL && g < n_groups; g++) {
        const float *sums = part + g * group_floats(plan);
        float *dw = job->call->dw + (group + g) * view->outputs;
        for (int64_t k = 0; k < plan->depth; k++) {
            for (int64_t o = 0; o < view->outputs; o++) {
                dw[k * view->out_pitch + o] += sums[k * plan->outputs + o];
            }
        }
    }
    for (int64_t o = 0; job->call->db != NULL && o < n_groups * view->outputs; o++) {
        job->call->db[group * view->outputs + o] += part_biases(plan, part)[o];
    }
}

void K(few_channel_reduce_run)(const dunlin_fused_call *call, float *workspace)
{
    few_channel_job job = {.call = call};
    if (!K(few_channel_plan)(call->shape, false, &job.plan)) {
        return;
    }
    const few_channel_plan *plan = &job.plan;
    const size_t outputs = (size_t)plan->view.out_pitch;
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
    for (job.chunk = 0; job.chunk < plan->n_chunks; job.chunk++) {
        for (job.first_unit = 0; job.first_unit < n_units; job.first_unit += SMALL_ROUND) {
            job.n_units = min_i64(SMALL_ROUND, n_units - job.first_unit);
            K(few_channel_run_bands)(&job, 1, grad_worker, call->threads);
            for (int64_t i = 0; i < job.n_units; i++) {
                add_part(&job, job.parts + i * job.part_floats);
            }
        }
    }
}
