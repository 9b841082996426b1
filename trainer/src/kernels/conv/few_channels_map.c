/*
 * few_channels_map.c - forward and input gradient of convolutions whose groups have few channels
 * (few_channels.h).
 */
#include "few_channels.h"

/* Of all that a band finishes at once: a chunk's, or those of a wider group. */
#define MOST_OUTPUTS (CHUNK_CHANNELS > SMALL_OUTPUTS ? CHUNK_CHANNELS : SMALL_OUTPUTS)

/* What the tiles of a group have in common. */
typedef struct map_group {
    const few_channel_job *job;
    const float *w; /* [depth][outputs] */
    float bias[SMALL_OUTPUTS];
    int64_t k0, k1; /* of the depth */
    int64_t base;   /* off the offsets */
} map_group;

/* `vectors` of pixels of a group's output planes. */
ALWAYS_INLINE void map_tile(const map_group *group, const float *x, float *out, int outputs,
                            int vectors)
{
    const few_channel_job *job = group->job;
    const map_pass *pass = job->pass;
    const float *w = group->w + group->k0 * outputs;
    vfloat sum[SMALL_OUTPUTS][SMALL_ACCUMULATORS / 2];
    UNROLL
    for (int o = 0; o < outputs; o++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            sum[o][v] = vset1(group->bias[o]);
        }
    }
    for (int64_t k = group->k0; k < group->k1; k++, w += outputs) {
        const float *from = x + (job->offsets[k] - group->base);
        vfloat right[SMALL_ACCUMULATORS / 2];
        UNROLL
        for (int v = 0; v < vectors; v++) {
            right[v] = vload(from + (int64_t)v * VEC);
        }
        UNROLL
        for (int o = 0; o < outputs; o++) {
            const vfloat spread = vset1(w[o]);
            UNROLL
            for (int v = 0; v < vectors; v++) {
                sum[o][v] = vfma(spread, right[v], sum[o][v]);
            }
        }
    }
    UNROLL
    for (int o = 0; o < outputs; o++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            if (pass->is_clipped) {
                sum[o][v] = vclip(sum[o][v], vset1(pass->low), vset1(pass->high));
            }
            vstore(out + o * job->plan.out_floats + (int64_t)v * VEC, sum[o][v]);
        }
    }
}

static void map_planes(const map_group *group, const float *x, int64_t n_flat, float *out)
{
    const few_channel_plan *plan = &group->job->plan;
    const int64_t step = plan->vectors * VEC;
    for (int64_t p = 0; p < n_flat; p += step) {
        switch (plan->outputs) {
        case 1:
            map_tile(group, x + p, out + p, 1, SMALL_ACCUMULATORS / 2);
            break;
        case 2:
            map_tile(group, x + p, out + p, 2, SMALL_ACCUMULATORS / 2);
            break;
        case 4:
            map_tile(group, x + p, out + p, 4, SMALL_ACCUMULATORS / 4);
            break;
        case 6:
            map_tile(group, x + p, out + p, 6, SMALL_ACCUMULATORS / 6);
            break;
        default:
            map_tile(group, x + p, out + p, 8, SMALL_ACCUMULATORS / 8);
            break;
        }
    }
}

static int64_t group_weights(const few_channel_plan *plan)
{
    return plan->depth * plan->outputs;
}

/* All groups of a band. One may write an output more than it has, over the next one's first. */
static void map_band(const few_channel_job *job, const few_channel_band *band, const float *planes,
                     float *out)
{
    const few_channel_plan *plan = &job->plan;
    const conv_view *view = &plan->view;
    map_group group = {.job = job,
                       .k0 = band->h0 * row_depth(plan),
                       .k1 = band->h1 * row_depth(plan),
                       .base = band_base(plan, band)};
    for (int64_t g = 0; g < band->n_groups; g++) {
        const int64_t first = (band->group + g) * view->outputs;
        group.w = job->w + (band->group + g) * group_weights(plan);
        for (int64_t o = 0; job->pass->bias != NULL && o < view->outputs; o++) {
            group.bias[o] = job->pass->bias[first + o];
        }
        map_planes(&group, planes + g * view->channels * plan->plane_floats, band_flat(plan, band),
                   out + g * view->outputs * plan->out_floats);
    }
}

/* Pixels [pixel, pixel + n) of a band into the sink, from `rows`, and into the sums. */
static void finish_rows(const few_channel_job *job, const few_channel_band *band, int64_t pixel,
                        int64_t n, const float *rows)
{
    const map_pass *pass = job->pass;
    const conv_view *view = &job->plan.view;
    const int64_t channels = band->n_groups * view->outputs;
    const int64_t channel = band->group * view->outputs;
    const int64_t all = view->out_pitch;
    const int64_t n_stats = pass->epilogue != NULL ? pass->epilogue->n_stats
                            : pass->stat != NULL   ? 1
                                                   : 0;
    float sums[EPILOGUE_MAX_SUMS * MOST_OUTPUTS] = {0};
    epilogue_rows epilogue = {.dx = rows,
                              .dx_pitch = channels,
                              .pixel = pixel,
                              .pixel_step = 1,
                              .n_rows = n,
                              .channel = channel,
                              .n_channels = channels,
                              .sums = sums,
                              .sums_pitch = channels};
    if (n_stats == 0 && pass->epilogue != NULL) {
        if (channels == all && epilogue_is_flat(pass->epilogue, channels)) {
            epilogue.n_rows = 1;
            epilogue.n_channels *= n;
        }
        K(epilogue_rows)(pass->epilogue, &epilogue);
        return;
    }
    double *partials = pass->partials + band->unit * n_stats * 2 * all + channel;
    for (int64_t i = 0; i < 2 * n_stats; i++) {
        memset(partials + i * all, 0, (size_t)channels * sizeof(double));
    }
    for (int64_t i = 0; i < n; i += STAT_BLOCK_ROWS) {
        epilogue.n_rows = min_i64(STAT_BLOCK_ROWS, n - i);
        epilogue.pixel = pixel + i;
        if (pass->stat != NULL) {
            K(stat_rows)
            (pass->out + epilogue.pixel * pass->out_pitch + channel, pass->out_pitch,
             epilogue.n_rows, channels, pass->stat->about + channel, sums);
        } else {
            epilogue.dx = rows + i * channels;
            K(epilogue_rows)(pass->epilogue, &epilogue);
        }
        stat_flush(sums, 2 * n_stats, channels, partials, all);
    }
}

static void map_worker(void *ctx, size_t slot)
{
    few_channel_job *job = ctx;
    const few_channel_plan *plan = &job->plan;
    const map_pass *pass = job->pass;
    const conv_view *view = &plan->view;
    float *planes = job->rooms + (int64_t)slot * job->room_floats;
    float *out = planes + plan->groups * view->channels * plan->plane_floats;
    float *rows = out + plan->out_planes * plan->out_floats;
    few_channel_band band;
    while (K(few_channel_next_band)(job, (int64_t)slot, &band)) {
        const int64_t outputs = band.n_groups * view->outputs;
        const int64_t n_columns = band.u1 - band.u0;
        const int64_t pixel = view_out_pixel(view, band.sample, band.t0, band.u0);
        const int64_t pitch = pass->epilogue != NULL ? outputs : pass->out_pitch;
        float *to = rows;
        if (pass->epilogue == NULL) {
            to = pass->out + pixel * pitch + band.group * view->outputs;
        }
        K(few_channel_write_planes)(plan, pass->source, &band, rows, planes);
        map_band(job, &band, planes, out);
        for (int64_t t = 0; t < band.t1 - band.t0; t++) {
            K(transpose_block)
            (out + t * plan->width, plan->out_floats, outputs, n_columns,
             to + t * n_columns * pitch, pitch);
        }
        if (pass->epilogue != NULL || pass->stat != NULL) {
            finish_rows(job, &band, pixel, (band.t1 - band.t0) * n_columns, rows);
        }
    }
}

bool K(few_channel_map_is_for)(const dunlin_conv_shape *shape, bool is_input_grad)
{
    few_channel_plan plan;
    return K(few_channel_plan)(shape, is_input_grad, &plan);
}

int64_t K(few_channel_map_units)(const dunlin_conv_shape *shape, bool is_input_grad)
{
    few_channel_plan plan;
    return K(few_channel_plan)(shape, is_input_grad, &plan) ? plan.n_bands : 0;
}

static int64_t weight_floats(const few_channel_plan *plan)
{
    return round_up(group_weights(plan) * plan->view.groups, 16);
}

uint64_t K(few_channel_map_bytes)(const dunlin_conv_shape *shape, bool is_input_grad,
                                  size_t n_threads)
{
    few_channel_plan plan;
    if (!K(few_channel_plan)(shape, is_input_grad, &plan)) {
        return 0;
    }
    const int64_t threads = n_threads == 0 ? 1 : (int64_t)n_threads;
    return (uint64_t)(weight_floats(&plan) + threads * K(few_channel_floats)(&plan)) *
           sizeof(float);
}

/* The weights as the tiles read them; an output that does not exist has zeros. */
static void pack_weights(const few_channel_job *job, int64_t group, float *to)
{
    const few_channel_plan *plan = &job->plan;
    const conv_view *view = &plan->view;
    const int64_t channels = view->channels;
    const int64_t pitch = job->pass->is_transposed ? view->source_pitch : view->out_pitch;
    for (int64_t k = 0; k < plan->depth; k++, to += plan->outputs) {
        const int64_t tap = view_tap(view, k / channels);
        const int64_t c = k % channels;
        for (int64_t o = 0; o < plan->outputs; o++) {
            const int64_t at = job->pass->is_transposed
                                   ? (tap * view->outputs + o) * pitch + group * channels + c
                                   : (tap * channels + c) * pitch + group * view->outputs + o;
            to[o] = o < view->outputs ? job->pass->w[at] : 0.0f;
        }
    }
}

void K(few_channel_map_run)(const map_pass *pass, bool is_input_grad)
{
    few_channel_job job = {.pass = pass};
    if (!K(few_channel_plan)(pass->shape, is_input_grad, &job.plan) || pass->n_samples == 0) {
        return;
    }
    const few_channel_plan *plan = &job.plan;
    K(few_channel_find_offsets)(&job);
    for (int64_t g = 0; g < plan->view.groups; g++) {
        pack_weights(&job, g, pass->workspace + g * group_weights(plan));
    }
    job.w = pass->workspace;
    job.rooms = pass->workspace + weight_floats(plan);
    job.room_floats = K(few_channel_floats)(plan);
    job.n_units = pass->n_samples * plan->n_bands;
    K(few_channel_run_bands)(&job, plan->n_chunks, map_worker, pass->threads);
}
