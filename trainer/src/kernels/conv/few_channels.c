/*
 * few_channels.c - convolutions of stride 1 to a few channels, where a vector of channels would be
 * mostly empty: vectors lie along the pixels. A band of lines is copied into planes, one for each
 * channel, with the padding as zeros; a window's tap is then the same plane at an offset, and lines
 * follow each other without a gap. What falls between two lines is computed and discarded.
 *
 * An output is one chain over taps and channels, whatever the band; bands depend on the shape
 * alone.
 */
#include "few_channels.h"

/* --- the plan --- */

static int64_t axis_reach(const conv_axis *axis)
{
    return (int64_t)(axis->n_taps - 1) * axis->pitch;
}

static void plan_sizes(few_channel_plan *plan)
{
    const conv_view *view = &plan->view;
    const int64_t step = plan->vectors * VEC;
    const int64_t flat = plan->lines * plan->width;
    plan->n_bands = ceil_div(view->h.n_grid, plan->lines);
    plan->out_floats = round_up(flat, step);
    /* the last step of pixels reads past the plane */
    plan->plane_floats = round_up((plan->lines + plan->reach_h) * plan->width + step, 16);
    plan->row_floats = max_i64((int64_t)view->w.n_source * view->channels,
                               plan->lines * view->w.n_grid * view->outputs);
    plan->row_floats = round_up(plan->row_floats, 16) + 16;
}

int64_t K(few_channel_floats)(const few_channel_plan *plan)
{
    return plan->view.channels * plan->plane_floats + plan->outputs * plan->out_floats +
           plan->row_floats;
}

bool K(few_channel_plan)(const dunlin_conv_shape *shape, bool is_input_grad, few_channel_plan *plan)
{
    if (shape->groups != 1 || shape->stride_h != 1 || shape->stride_w != 1) {
        return false;
    }
    *plan = (few_channel_plan){.n_bands = 0};
    conv_view *view = &plan->view;
    if (is_input_grad) {
        dunlin__view_input_grad(shape, 0, 0, view);
    } else {
        dunlin__view_forward(shape, view);
    }
    const int64_t taps = (int64_t)view->h.n_taps * view->w.n_taps;
    plan->depth = view_depth(view);
    if (view->outputs > SMALL_OUTPUTS || view->channels > SMALL_CHANNELS || taps < 4 ||
        plan->depth > SMALL_DEPTH || view_rows(view) < DUNLIN_KERNEL_ROWS_PER_PARTIAL) {
        return false;
    }
    plan->outputs = round_up(view->outputs, 2);
    plan->vectors = SMALL_ACCUMULATORS / plan->outputs;
    plan->reach_h = axis_reach(&view->h);
    plan->reach_w = axis_reach(&view->w);
    plan->width = view->w.n_grid + plan->reach_w;
    plan->lines = view->h.n_grid;
    plan_sizes(plan);
    while (plan->lines > 1 && K(few_channel_floats)(plan) > SMALL_FLOATS) {
        plan->lines = ceil_div(plan->lines, 2);
        plan_sizes(plan);
    }
    return K(few_channel_floats)(plan) <= 2 * SMALL_FLOATS;
}

void K(few_channel_find_offsets)(few_channel_job *job)
{
    const few_channel_plan *plan = &job->plan;
    const conv_view *view = &plan->view;
    int32_t *out = job->offsets;
    for (int64_t h = 0; h < view->h.n_taps; h++) {
        for (int64_t w = 0; w < view->w.n_taps; w++) {
            for (int64_t c = 0; c < view->channels; c++) {
                *out++ = (int32_t)(c * plan->plane_floats + h * view->h.pitch * plan->width +
                                   w * view->w.pitch);
            }
        }
    }
    for (int64_t i = 0; i < SMALL_ACCUMULATORS; i++) {
        out[i] = 0;
    }
}

/* --- pixels into planes --- */

static bool source_is_plain(strip_source source)
{
    return source.view != NULL ? source.view->scale == NULL : grad_is_plain(source.grad);
}

void K(few_channel_write_pixels)(strip_source source, int64_t pixel, int64_t n, int64_t channels,
                                 float *rows, float *to, int64_t plane_floats)
{
    const float *from = rows;
    int64_t pitch = channels;
    if (source_is_plain(source)) {
        from = source.view != NULL ? source.view->x : source.grad->g;
        pitch = source.view != NULL ? source.view->pitch : source.grad->pitch;
        from += pixel * pitch;
    } else {
        const load_rows load = {.pixel = pixel,
                                .pixel_step = 1,
                                .n_rows = n,
                                .n_channels = channels,
                                .out = rows,
                                .out_pitch = channels};
        source_rows(source, &load);
    }
    if (channels == 1 && pitch == 1) {
        vcopy(to, from, n);
    } else {
        K(transpose_block)(from, pitch, n, channels, to, plane_floats);
    }
}

void K(few_channel_write_planes)(const few_channel_plan *plan, strip_source source, int64_t sample,
                                 int64_t t0, int64_t t1, float *rows, float *planes)
{
    const conv_view *view = &plan->view;
    const int64_t first = max_i64(0, -view->w.offset);
    const int64_t end = min_i64(plan->width, view->w.n_source - view->w.offset);
    vclear(planes, view->channels * plan->plane_floats);
    for (int64_t i = 0; i < t1 - t0 + plan->reach_h && first < end; i++) {
        const int64_t line = t0 + view->h.offset + i;
        if (line < 0 || line >= view->h.n_source) {
            continue;
        }
        const int64_t pixel =
            (sample * view->h.n_source + line) * view->w.n_source + view->w.offset + first;
        K(few_channel_write_pixels)
        (source, pixel, end - first, view->channels, rows, planes + i * plan->width + first,
         plan->plane_floats);
    }
}

bool K(few_channel_next_band)(few_channel_job *job, int64_t slot, few_channel_band *out_band)
{
    const few_channel_plan *plan = &job->plan;
    const int64_t index = shares_take(&job->shared, slot);
    *out_band = (few_channel_band){.unit = job->first_unit + index};
    out_band->t0 = out_band->unit % plan->n_bands * plan->lines;
    out_band->t1 = min_i64(plan->view.h.n_grid, out_band->t0 + plan->lines);
    return index < job->n_units;
}

void K(few_channel_run_bands)(few_channel_job *job, pthreadpool_task_1d_t worker,
                              dunlin_threads *threads)
{
    const few_channel_plan *plan = &job->plan;
    const int64_t n_workers = min_i64((int64_t)task_threads(threads), job->n_units);
    shares_open(&job->shared, job->n_units, n_workers);
    run_tasks(threads, worker, job, n_workers,
              job->n_units * plan->lines * plan->width * plan->depth * plan->outputs);
}

/* --- maps --- */

/* `vectors` of pixels of all output planes. */
ALWAYS_INLINE void map_tile(const few_channel_job *job, const float *x, float *out, int outputs,
                            int vectors)
{
    const map_pass *pass = job->pass;
    const float *w = job->w;
    const int64_t depth = job->plan.depth;
    vfloat sum[SMALL_OUTPUTS][SMALL_ACCUMULATORS / 2];
    UNROLL
    for (int o = 0; o < outputs; o++) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            sum[o][v] = vset1(job->bias[o]);
        }
    }
    for (int64_t k = 0; k < depth; k++, w += outputs) {
        const float *from = x + job->offsets[k];
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

static void map_planes(const few_channel_job *job, const float *x, int64_t n_flat, float *out)
{
    const int64_t step = job->plan.vectors * VEC;
    for (int64_t p = 0; p < n_flat; p += step) {
        switch (job->plan.outputs) {
        case 2:
            map_tile(job, x + p, out + p, 2, SMALL_ACCUMULATORS / 2);
            break;
        case 4:
            map_tile(job, x + p, out + p, 4, SMALL_ACCUMULATORS / 4);
            break;
        case 6:
            map_tile(job, x + p, out + p, 6, SMALL_ACCUMULATORS / 6);
            break;
        default:
            map_tile(job, x + p, out + p, 8, SMALL_ACCUMULATORS / 8);
            break;
        }
    }
}

/* Pixels [pixel, pixel + n) into the sink, from `rows`, and into the sums. */
static void finish_rows(const few_channel_job *job, int64_t unit, int64_t pixel, int64_t n,
                        const float *rows)
{
    const map_pass *pass = job->pass;
    const int64_t channels = job->plan.view.outputs;
    const int64_t n_stats = pass->epilogue != NULL ? pass->epilogue->n_stats
                            : pass->stat != NULL   ? 1
                                                   : 0;
    float sums[EPILOGUE_MAX_SUMS * SMALL_OUTPUTS] = {0};
    double *partials = pass->partials + unit * n_stats * 2 * channels;
    epilogue_rows epilogue = {.dx = rows,
                              .dx_pitch = channels,
                              .pixel = pixel,
                              .pixel_step = 1,
                              .n_rows = n,
                              .n_channels = channels,
                              .sums = sums,
                              .sums_pitch = channels};
    if (n_stats == 0 && pass->epilogue != NULL) {
        if (epilogue_is_flat(pass->epilogue, channels)) {
            epilogue.n_rows = 1;
            epilogue.n_channels *= n;
        }
        K(epilogue_rows)(pass->epilogue, &epilogue);
        return;
    }
    for (int64_t i = 0; i < 2 * n_stats * channels; i++) {
        partials[i] = 0.0;
    }
    for (int64_t i = 0; i < n; i += STAT_BLOCK_ROWS) {
        epilogue.n_rows = min_i64(STAT_BLOCK_ROWS, n - i);
        epilogue.pixel = pixel + i;
        if (pass->stat != NULL) {
            K(stat_rows)
            (pass->out + epilogue.pixel * pass->out_pitch, pass->out_pitch, epilogue.n_rows,
             channels, pass->stat->about, sums);
        } else {
            epilogue.dx = rows + i * channels;
            K(epilogue_rows)(pass->epilogue, &epilogue);
        }
        stat_flush(sums, 2 * n_stats, channels, partials, channels);
    }
}

static void map_worker(void *ctx, size_t slot)
{
    few_channel_job *job = ctx;
    const few_channel_plan *plan = &job->plan;
    const map_pass *pass = job->pass;
    const conv_view *view = &plan->view;
    float *planes = job->rooms + (int64_t)slot * job->room_floats;
    float *out = planes + view->channels * plan->plane_floats;
    float *rows = out + plan->outputs * plan->out_floats;
    few_channel_band band;
    while (K(few_channel_next_band)(job, (int64_t)slot, &band)) {
        const int64_t unit = band.unit;
        const int64_t t0 = band.t0;
        const int64_t t1 = band.t1;
        const int64_t sample = unit / plan->n_bands;
        const int64_t pixel = view_out_pixel(view, sample, t0, 0);
        const int64_t pitch = pass->epilogue != NULL ? view->outputs : pass->out_pitch;
        float *to = pass->epilogue != NULL ? rows : pass->out + pixel * pitch;
        K(few_channel_write_planes)(plan, pass->source, sample, t0, t1, rows, planes);
        map_planes(job, planes, (t1 - t0) * plan->width - plan->reach_w, out);
        for (int64_t t = 0; t < t1 - t0; t++) {
            K(transpose_block)
            (out + t * plan->width, plan->out_floats, view->outputs, view->w.n_grid,
             to + t * view->w.n_grid * pitch, pitch);
        }
        if (pass->epilogue != NULL || pass->stat != NULL) {
            finish_rows(job, unit, pixel, (t1 - t0) * view->w.n_grid, rows);
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
    return round_up(plan->depth * plan->outputs, 16);
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
static void pack_weights(const few_channel_job *job, float *to)
{
    const few_channel_plan *plan = &job->plan;
    const conv_view *view = &plan->view;
    const int64_t channels = view->channels;
    for (int64_t k = 0; k < plan->depth; k++, to += plan->outputs) {
        const int64_t tap = view_tap(view, k / channels);
        const int64_t c = k % channels;
        for (int64_t o = 0; o < plan->outputs; o++) {
            const int64_t at = job->pass->is_transposed ? (tap * view->outputs + o) * channels + c
                                                        : (tap * channels + c) * view->outputs + o;
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
    K(few_channel_find_offsets)(&job);
    pack_weights(&job, pass->workspace);
    job.w = pass->workspace;
    for (int64_t o = 0; pass->bias != NULL && o < job.plan.view.outputs; o++) {
        job.bias[o] = pass->bias[o];
    }
    job.rooms = pass->workspace + weight_floats(&job.plan);
    job.room_floats = K(few_channel_floats)(&job.plan);
    job.n_units = pass->n_samples * job.plan.n_bands;
    K(few_channel_run_bands)(&job, map_worker, pass->threads);
}
