/*
 * few_channels.c - convolutions of stride 1 whose groups have a few channels, where a vector of
 * channels would be mostly empty: vectors lie along the pixels. A band of lines, or a part of a
 * line, is copied into planes, one for each channel, with the padding as zeros; a window's tap is
 * then the same plane at an offset, and lines follow each other without a gap. What falls between
 * two lines is computed and discarded. The groups go in chunks, whose channels lie together in
 * memory.
 *
 * Rows of taps that meet nothing but padding in a whole band are left out: a kernel as tall as its
 * input has one of them left for each line of the gradient.
 *
 * An output is one chain over taps and channels, whatever the band; bands depend on the shape
 * alone.
 */
#include "few_channels.h"

#define LEAST_COLUMNS 64 /* of a part of a line */

/* --- the plan --- */

static int64_t axis_reach(const conv_axis *axis)
{
    return (int64_t)(axis->n_taps - 1) * axis->pitch;
}

static void plan_sizes(few_channel_plan *plan)
{
    const conv_view *view = &plan->view;
    const int64_t step = plan->vectors * VEC;
    const int64_t channels = plan->groups * view->channels;
    const int64_t outputs = plan->groups * view->outputs;
    plan->n_chunks = ceil_div(view->groups, plan->groups);
    plan->line_bands = ceil_div(view->w.n_grid, plan->columns);
    plan->n_bands = plan->line_bands * ceil_div(view->h.n_grid, plan->lines);
    plan->width = plan->columns + plan->reach_w;
    /* the first and the last row of taps that meet the source lie no further apart */
    plan->reach_h = min_i64(axis_reach(&view->h), view->h.n_source + plan->lines - 2);
    plan->out_floats = round_up(plan->lines * plan->width, step);
    plan->out_planes = outputs + plan->outputs - view->outputs;
    /* the last step of pixels reads past the plane */
    plan->plane_floats = round_up((plan->lines + plan->reach_h) * plan->width + step, 16);
    plan->row_floats = max_i64(min_i64(view->w.n_source, plan->width) * channels,
                               plan->lines * plan->columns * outputs);
    plan->row_floats = round_up(plan->row_floats, 16) + 16;
}

int64_t K(few_channel_floats)(const few_channel_plan *plan)
{
    return plan->groups * plan->view.channels * plan->plane_floats +
           plan->out_planes * plan->out_floats + plan->row_floats;
}

/* Fewer lines, then parts of a line, then fewer groups at once, until the planes stay near. */
static bool plan_fit(few_channel_plan *plan)
{
    const conv_view *view = &plan->view;
    const int64_t most = view->groups > 1 ? 2 * SMALL_FLOATS : SMALL_FLOATS;
    /* of more lines than the source has, each adds a row of taps for all of them */
    const bool is_tall = axis_reach(&view->h) >= view->h.n_source && view->groups > 1;
    plan_sizes(plan);
    while (plan->lines > 1 &&
           (K(few_channel_floats)(plan) > most || (is_tall && plan->lines > view->h.n_source))) {
        plan->lines = ceil_div(plan->lines, 2);
        plan_sizes(plan);
    }
    while (K(few_channel_floats)(plan) > 2 * SMALL_FLOATS) {
        if (view->outputs > VEC) {
            return false;
        }
        if (plan->columns > 2 * plan->reach_w + 2 * LEAST_COLUMNS) {
            plan->columns = ceil_div(plan->columns, 2);
        } else if (plan->groups > 1) {
            plan->groups = ceil_div(plan->groups, 2);
        } else {
            return false;
        }
        plan_sizes(plan);
    }
    return true;
}

bool K(few_channel_plan)(const dunlin_conv_shape *shape, bool is_input_grad, few_channel_plan *plan)
{
    if (shape->stride_h != 1 || shape->stride_w != 1) {
        return false;
    }
    const bool is_grouped = shape->groups > 1;
    *plan = (few_channel_plan){.n_bands = 0};
    conv_view *view = &plan->view;
    if (is_input_grad) {
        dunlin__view_input_grad(shape, 0, 0, view);
    } else {
        dunlin__view_forward(shape, view);
    }
    const int64_t taps = (int64_t)view->h.n_taps * view->w.n_taps;
    plan->depth = view_depth(view);
    if (view->outputs > SMALL_OUTPUTS || view->channels > SMALL_CHANNELS ||
        plan->depth > SMALL_DEPTH || view_rows(view) < DUNLIN_KERNEL_ROWS_PER_PARTIAL) {
        return false;
    }
    /* the GEMM's vectors are full enough; or there is too little to do on a pixel */
    if (is_grouped ? view->outputs > VEC : taps < 4) {
        return false;
    }
    plan->outputs = is_grouped && view->outputs == 1 ? 1 : round_up((int64_t)view->outputs, 2);
    plan->vectors = SMALL_ACCUMULATORS / max_i64(2, plan->outputs);
    const int64_t widest = max_i64(view->channels, view->outputs);
    plan->groups = min_i64(view->groups, max_i64(1, CHUNK_CHANNELS / widest));
    plan->reach_w = axis_reach(&view->w);
    plan->lines = view->h.n_grid;
    plan->columns = view->w.n_grid;
    return plan_fit(plan);
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
}

/* --- pixels into planes --- */

static bool source_is_plain(strip_source source)
{
    return source.view != NULL ? view_is_as_it_lies(source.view) : grad_is_plain(source.grad);
}

void K(few_channel_write_pixels)(strip_source source, const load_rows *rows, float *to,
                                 int64_t plane_floats)
{
    const float *from = rows->out;
    int64_t pitch = rows->out_pitch;
    if (source_is_plain(source)) {
        from = source.view != NULL ? source.view->x : source.grad->g;
        pitch = source.view != NULL ? source.view->pitch : source.grad->pitch;
        from += rows->pixel * pitch + rows->channel;
    } else {
        source_rows(source, rows);
    }
    if (rows->n_channels == 1 && pitch == 1) {
        vcopy(to, from, rows->n_rows);
    } else {
        K(transpose_block)(from, pitch, rows->n_rows, rows->n_channels, to, plane_floats);
    }
}

void K(few_channel_write_planes)(const few_channel_plan *plan, strip_source source,
                                 const few_channel_band *band, float *rows, float *planes)
{
    const conv_view *view = &plan->view;
    const int64_t channels = band->n_groups * view->channels;
    const int64_t column = band->u0 + view->w.offset;
    const int64_t first = max_i64(0, -column);
    const int64_t end = min_i64(plan->width, view->w.n_source - column);
    const int64_t line0 = band->t0 + view->h.offset + band->h0 * view->h.pitch;
    const int64_t n_lines = band->t1 - band->t0 + (band->h1 - 1 - band->h0) * view->h.pitch;
    vclear(planes, channels * plan->plane_floats);
    for (int64_t i = 0; i < n_lines && first < end; i++) {
        const int64_t line = line0 + i;
        if (line < 0 || line >= view->h.n_source) {
            continue;
        }
        const load_rows load = {
            .pixel = (band->sample * view->h.n_source + line) * view->w.n_source + column + first,
            .pixel_step = 1,
            .n_rows = end - first,
            .channel = band->group * view->channels,
            .n_channels = channels,
            .out = rows,
            .out_pitch = channels};
        K(few_channel_write_pixels)
        (source, &load, planes + i * plan->width + first, plan->plane_floats);
    }
}

/* --- bands --- */

/* The rows of taps that meet the source somewhere in a band; none: h0 is h1. */
static void find_taps(const conv_axis *axis, few_channel_band *band)
{
    const int64_t last = band->t1 - band->t0 - 1;
    const int64_t line = band->t0 + axis->offset;
    band->h0 = 0;
    band->h1 = axis->n_taps;
    while (band->h0 < band->h1 && line + last + band->h0 * axis->pitch < 0) {
        band->h0++;
    }
    while (band->h1 > band->h0 && line + (band->h1 - 1) * axis->pitch >= axis->n_source) {
        band->h1--;
    }
}

bool K(few_channel_next_band)(few_channel_job *job, int64_t slot, few_channel_band *out_band)
{
    const few_channel_plan *plan = &job->plan;
    const conv_view *view = &plan->view;
    const int64_t index = shares_take(&job->shared, slot);
    const int64_t n_chunks = job->pass != NULL ? plan->n_chunks : 1;
    const int64_t chunk = job->pass != NULL ? index % n_chunks : job->chunk;
    few_channel_band band = {.unit = job->first_unit + index / n_chunks};
    const int64_t within = band.unit % plan->n_bands;
    band.sample = band.unit / plan->n_bands;
    band.t0 = within / plan->line_bands * plan->lines;
    band.t1 = min_i64(view->h.n_grid, band.t0 + plan->lines);
    band.u0 = within % plan->line_bands * plan->columns;
    band.u1 = min_i64(view->w.n_grid, band.u0 + plan->columns);
    band.group = chunk * plan->groups;
    band.n_groups = min_i64(plan->groups, view->groups - band.group);
    find_taps(&view->h, &band);
    *out_band = band;
    return index < job->n_units * n_chunks;
}

void K(few_channel_run_bands)(few_channel_job *job, int64_t n_chunks, pthreadpool_task_1d_t worker,
                              dunlin_threads *threads)
{
    const few_channel_plan *plan = &job->plan;
    const int64_t n = job->n_units * n_chunks;
    const int64_t n_workers = min_i64((int64_t)task_threads(threads), n);
    shares_open(&job->shared, n, n_workers);
    run_tasks(threads, worker, job, n_workers,
              n * plan->groups * plan->lines * plan->width * plan->depth * plan->outputs);
}
