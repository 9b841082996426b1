/*
 * depthwise_backward.c - both gradients of a fused depthwise convolution in one
 * pass: a gradient's rows are made once, and an input pixel meets its window of
 * them both as the sum that is dx and as the factor of dw.
 *
 * The usual kernels go chunk by chunk (depthwise_back_tile.h). For others, along a row the input's
 * pixels fall into phases, one for each residue of the stride; a phase sees every stride-th tap,
 * without gaps (geometry.h). Gradients outside the image are zeros, so no tile knows a border. Both
 * gradients are always made; one that is not wanted stays with the worker.
 *
 * dw: with few rows a sample a chain over all pixels of all samples; otherwise
 * strips are summed from zero, in chains of at most CHAIN_PIXELS, and added in
 * order.
 */
#include "depthwise_chunk.h"

#include <math.h>

#define CHAIN_PIXELS 256

/* Shapes that need no ring. */
static bool tiled_is_for(const dunlin_conv_shape *shape)
{
    return shape->kernel_h == BACK_TAPS && shape->kernel_w == BACK_TAPS && shape->dilation_h == 1 &&
           shape->dilation_w == 1 && shape->stride_h == shape->stride_w && shape->stride_w <= 2 &&
           shape->in_c % VEC == 0;
}

static backward_sizes sizes_of(const dunlin_conv_shape *shape)
{
    backward_sizes s = {.n_taps = (int64_t)shape->kernel_h * shape->kernel_w};
    if (tiled_is_for(shape)) {
        s.ring.pixels = 1;
        s.channel_floats = 1 + 2 * s.n_taps + 1 + EPILOGUE_MAX_SUMS;
        s.worker_floats =
            round_up(s.channel_floats * (part_most(shape->in_c, s.channel_floats) + VEC), 16) +
            CHUNK_FLOATS + pointer_floats(shape->kernel_h);
        return s;
    }
    s.ring.n_source = shape->out_h;
    s.ring.n_rows = (int64_t)(shape->kernel_h - 1) * shape->dilation_h / shape->stride_h + 1;
    int64_t last = shape->out_w - 1;
    for (int32_t phase = 0; phase < shape->stride_w; phase++) {
        conv_view view;
        dunlin__view_input_grad(shape, 0, phase, &view);
        if (view.w.n_grid == 0) {
            continue;
        }
        const int64_t n = round_up(view.w.n_grid, tile_pixels(view.w.n_grid));
        const int64_t reach = (int64_t)(view.w.n_taps - 1) * view.w.pitch;
        s.ring.left = max_i64(s.ring.left, -(int64_t)view.w.offset);
        last = max_i64(last, n - 1 + view.w.offset + max_i64(0, reach));
        s.row_pixels = max_i64(s.row_pixels, (n - 1) * shape->stride_w + phase + 1);
    }
    s.ring.pixels = s.ring.left + last + 1;
    s.channel_floats = (s.ring.n_rows + 1) * s.ring.pixels + 2 * s.row_pixels + 2 * s.n_taps + 1 +
                       EPILOGUE_MAX_SUMS;
    const int64_t most = part_most(shape->in_c, s.channel_floats) + VEC;
    s.worker_floats = round_up(s.channel_floats * most, 16) + pointer_floats(shape->kernel_h);
    return s;
}

uint64_t K(depthwise_backward_workspace)(const dunlin_conv_shape *shape, size_t n_threads,
                                         uint64_t *out_sample_bytes)
{
    const strip_units units = strips_of(shape->in_h, shape->in_w);
    const backward_sizes sizes = sizes_of(shape);
    const uint64_t of_channel =
        EPILOGUE_MAX_SUMS * sizeof(double) + (uint64_t)sizes.n_taps * sizeof(float);
    *out_sample_bytes =
        units.is_few ? 0 : (uint64_t)units.n_strips * of_channel * (uint64_t)shape->in_c;
    return (n_threads == 0 ? 1 : n_threads) * (uint64_t)sizes.worker_floats * sizeof(float);
}

static void load_grad(backward_worker *worker, const strip_unit *unit, int64_t sample, int64_t y)
{
    const dunlin_fused_call *call = worker->job->call;
    const row_ring *ring = &worker->ring;
    load_rows load = {.pixel = (sample * call->shape->out_h + y) * call->shape->out_w,
                      .pixel_step = 1,
                      .n_rows = call->shape->out_w,
                      .channel = unit->channel,
                      .n_channels = unit->n_channels,
                      .out_pitch = ring->width,
                      .prefetch = &worker->prefetch};
    load.out = ring_slot(ring, y) + ring->left * ring->width;
    K(grad_rows)(&call->dy, &load);
}

static void flush_sums(backward_worker *worker, const strip_unit *unit, double *const *to)
{
    const dunlin_fused_call *call = worker->job->call;
    for (uint32_t s = 0; s < call->dx.n_stats; s++) {
        stat_flush(worker->sums + (int64_t)(2 * s) * unit->n_channels, 2, unit->n_channels, to[s],
                   call->shape->in_c);
    }
    worker->stat_count = 0;
}

/* What the row of dx becomes; full chains of sums go to `to`. */
static void epilogue_row(backward_worker *worker, const strip_unit *unit, int64_t pixel,
                         double *const *to)
{
    const dunlin_fused_call *call = worker->job->call;
    const dunlin_epilogue *epilogue = &call->dx;
    const int64_t n = call->shape->in_w;
    for (int64_t u = 0; u < n; u += STAT_BLOCK_ROWS) {
        const int64_t pixels = min_i64(STAT_BLOCK_ROWS, n - u);
        if (chain_is_full(worker->stat_count, pixels, STAT_BLOCK_ROWS)) {
            flush_sums(worker, unit, to);
        }
        const epilogue_rows rows = {.dx = worker->dx + u * worker->ring.width,
                                    .dx_pitch = worker->ring.width,
                                    .pixel = pixel + u,
                                    .pixel_step = 1,
                                    .n_rows = pixels,
                                    .channel = unit->channel,
                                    .n_channels = unit->n_channels,
                                    .sums = worker->sums,
                                    .sums_pitch = unit->n_channels,
                                    .prefetch = &worker->prefetch};
        K(epilogue_rows)(epilogue, &rows);
        worker->stat_count += pixels;
    }
}

/* The part's rows of dw: into the worker, or back out, or on top of what is
 * there. */
typedef enum dw_move { DW_TAKE = 0, DW_PUT, DW_ADD } dw_move;

static void move_dw(backward_worker *worker, const strip_unit *unit, dw_move move, float *dw)
{
    const int64_t channels = worker->job->call->shape->in_c;
    for (int64_t i = 0; i < worker->job->sizes.n_taps; i++) {
        float *mine = worker->dw + i * worker->ring.width;
        float *there = dw + i * channels + unit->channel;
        switch (move) {
        case DW_TAKE:
            vcopy(mine, there, unit->n_channels);
            break;
        case DW_PUT:
            vcopy(there, mine, unit->n_channels);
            break;
        case DW_ADD:
            for (int64_t c = 0; c < unit->n_channels; c++) {
                there[c] += mine[c];
            }
            vclear(mine, worker->ring.width);
            break;
        }
    }
}

/* The rows that the one after `y` takes in and writes; next_g: the gradient's. */
static void look_prefetch(backward_worker *worker, const strip_unit *unit, int64_t sample,
                          int64_t y, int64_t next_g)
{
    const dunlin_fused_call *call = worker->job->call;
    const dunlin_conv_shape *shape = call->shape;
    const int64_t next = min_i64(y + 1, shape->in_h - 1);
    const int64_t pixel = (sample * shape->in_h + next) * shape->in_w;
    const int64_t n = unit->n_channels;
    prefetch_list *prefetch = &worker->prefetch;
    *prefetch = (prefetch_list){.part = 0};
    if (min_i64((next + shape->pad_top) / shape->stride_h, shape->out_h - 1) >= next_g) {
        const int64_t from = (sample * shape->out_h + next_g) * shape->out_w;
        prefetch_grad(prefetch, &call->dy, n, from, shape->out_w);
    }
    prefetch_stored(prefetch, call->x.x, call->x.is_half, call->x.pitch, n, pixel, shape->in_w);
    prefetch_stored(prefetch, call->dx.out, call->dx.is_out_half, call->dx.pitch, n, pixel,
                    shape->in_w);
}

/* The sink is batch norm's view with an activation, and a part is whole vectors. */
static bool direct_is_for(const dunlin_fused_call *call)
{
    const dunlin_epilogue *epilogue = &call->dx;
    return call->shape->in_c % VEC == 0 && epilogue->out != NULL && epilogue->addend == NULL &&
           epilogue->factor == NULL && epilogue->mask != NULL && epilogue->mask_scale != NULL &&
           epilogue->n_stats == 1 && epilogue->stats[0].raw == epilogue->mask &&
           !epilogue->is_mask_half && !epilogue->is_out_half &&
           (call->dw == NULL || !call->x.is_half) &&
           epilogue->stats[0].raw_pitch == epilogue->mask_pitch;
}

/* The row from `pixel` on. Without dw x is not used: anything is read in its place. */
static void point_direct(backward_worker *worker, const strip_unit *unit, int64_t pixel)
{
    const dunlin_fused_call *call = worker->job->call;
    const dunlin_epilogue *epilogue = &call->dx;
    const int64_t channel = unit->channel;
    backward_direct *direct = &worker->direct;
    *direct = (backward_direct){.x = {.x = epilogue->mask, .pitch = epilogue->mask_pitch},
                                .mask = epilogue->mask + pixel * epilogue->mask_pitch + channel,
                                .mask_pitch = epilogue->mask_pitch,
                                .mask_scale = epilogue->mask_scale + channel,
                                .mask_shift = epilogue->mask_shift + channel,
                                .about = epilogue->stats[0].about + channel,
                                .mask_fn = epilogue->mask_fn,
                                .low = epilogue->low,
                                .high = epilogue->high,
                                .out = epilogue->out + pixel * epilogue->pitch + channel,
                                .out_pitch = epilogue->pitch};
    if (call->dw != NULL) {
        direct->x = call->x;
        direct->is_one = call->x.fn == epilogue->mask_fn && call->x.x == epilogue->mask &&
                         call->x.pitch == epilogue->mask_pitch &&
                         call->x.scale == epilogue->mask_scale &&
                         call->x.shift == epilogue->mask_shift;
    }
    direct->x.x += pixel * direct->x.pitch + channel;
    if (direct->x.scale == NULL) {
        direct->x.scale = worker->ones;
        direct->x.shift = worker->ring.zeros;
        direct->x.fn = DUNLIN_VIEW_CLIP;
        direct->x.low = -INFINITY;
        direct->x.high = INFINITY;
    } else {
        direct->x.scale += channel;
        direct->x.shift += channel;
    }
}

/* Row `y` of the input, all phases. */
static void run_row(backward_worker *worker, const strip_unit *unit, int64_t sample, int64_t y)
{
    const dunlin_fused_call *call = worker->job->call;
    const dunlin_conv_shape *shape = call->shape;
    const int64_t last = min_i64((y + shape->pad_top) / shape->stride_h, shape->out_h - 1);
    look_prefetch(worker, unit, sample, y, last + 1);
    for (; worker->ring.next <= last; worker->ring.next++) {
        load_grad(worker, unit, sample, worker->ring.next);
    }
    const int64_t pixel = (sample * shape->in_h + y) * shape->in_w;
    if (worker->job->is_direct) {
        point_direct(worker, unit, pixel);
    } else if (call->dw != NULL) {
        load_rows load = {.pixel = pixel,
                          .pixel_step = 1,
                          .n_rows = shape->in_w,
                          .channel = unit->channel,
                          .n_channels = unit->n_channels,
                          .out_pitch = worker->ring.width,
                          .prefetch = &worker->prefetch};
        load.out = worker->x;
        K(view_rows)(&call->x, &load);
    }
    for (int32_t phase_w = 0; phase_w < shape->stride_w; phase_w++) {
        backward_phase phase = {.worker = worker, .pixel = phase_w};
        dunlin__view_input_grad(shape, (int32_t)(y % shape->stride_h), phase_w, &phase.view);
        const conv_axis *h = &phase.view.h;
        for (int32_t i = 0; i < h->n_taps && phase_w == 0; i++) {
            const int64_t row = y / shape->stride_h + h->offset + (int64_t)i * h->pitch;
            worker->taps[i] = ring_row(&worker->ring, row);
        }
        K(backward_row)(&phase);
    }
}

/* The unit's rows of one sample. */
static void run_strip(backward_worker *worker, const strip_unit *unit, int64_t sample,
                      double *const *to)
{
    const backward_job *job = worker->job;
    const dunlin_fused_call *call = job->call;
    const dunlin_conv_shape *shape = call->shape;
    const int64_t reach = (int64_t)(shape->kernel_h - 1) * shape->dilation_h;
    const int64_t first = unit->first + shape->pad_top - reach;
    worker->ring.next = first <= 0 ? 0 : ceil_div(first, shape->stride_h);
    float *partial = job->units.is_few || call->dw == NULL
                         ? NULL
                         : job->dw_partials + unit->index * job->sizes.n_taps * shape->in_c;
    for (int64_t y = unit->first; y < unit->end; y++) {
        if (partial != NULL && chain_is_full(worker->dw_count, shape->in_w, CHAIN_PIXELS)) {
            move_dw(worker, unit, DW_ADD, partial);
            worker->dw_count = 0;
        }
        if (job->is_direct && chain_is_full(worker->stat_count, shape->in_w, STAT_BLOCK_ROWS)) {
            flush_sums(worker, unit, to);
        }
        run_row(worker, unit, sample, y);
        worker->dw_count += shape->in_w;
        if (job->is_direct) {
            worker->stat_count += shape->in_w;
        } else if (call->dx.out != NULL) {
            epilogue_row(worker, unit, (sample * shape->in_h + y) * shape->in_w, to);
        }
    }
    if (partial != NULL) {
        move_dw(worker, unit, DW_ADD, partial);
    }
    flush_sums(worker, unit, to);
    worker->dw_count = 0;
}

/* The chunks of a band. */
static void run_band(backward_worker *worker, const strip_unit *unit, const back_chunk *band,
                     float *partial, double *const *to)
{
    const dunlin_fused_call *call = worker->job->call;
    const dunlin_conv_shape *shape = call->shape;
    const int64_t first = shape->pad_left / shape->stride_w * shape->stride_w;
    const int64_t end = shape->pad_left + shape->in_w;
    const int64_t n = ceil_div(end - first, CHUNK_PIXELS);
    const int64_t step = round_up(ceil_div(end - first, n), BACK_PIXELS);
    const back_form form = form_of(call);
    for (int64_t p = first; p < end; p += step) {
        /* after the row's end the next band begins */
        const bool is_last = p + step >= end;
        const int64_t pixels = min_i64(step, end - p);
        back_chunk chunk = chunk_at(worker, band, p, pixels, is_last ? first - p : step,
                                    is_last ? band->n_rows : 0);
        chunk.next_pixels = min_i64(step, end - (is_last ? first : p + step));
        chunk.next_g = ceil_div(chunk.next_pixels, shape->stride_w);
        for (uint32_t s = 0; s < call->dx.n_stats; s++) {
            chunk.sums[s] = to[s];
        }
        if (partial != NULL &&
            chain_is_full(worker->dw_count, band->n_rows * pixels, CHAIN_PIXELS)) {
            move_dw(worker, unit, DW_ADD, partial);
            worker->dw_count = 0;
        }
        worker->dw_count += band->n_rows * pixels;
        back_run(&chunk, &form);
    }
}

/* The unit's rows of one sample, band by band. */
static void run_bands(backward_worker *worker, const strip_unit *unit, int64_t sample,
                      double *const *to)
{
    const backward_job *job = worker->job;
    const dunlin_fused_call *call = job->call;
    float *partial = job->units.is_few || call->dw == NULL
                         ? NULL
                         : job->dw_partials + unit->index * job->sizes.n_taps * call->shape->in_c;
    const int64_t n = unit->end - unit->first;
    const int64_t rows = ceil_div(n, ceil_div(n, CHUNK_ROWS));
    for (int64_t y = unit->first; y < unit->end; y += rows) {
        const back_chunk band = band_of(worker, unit, sample, y, min_i64(rows, unit->end - y));
        run_band(worker, unit, &band, partial, to);
    }
    if (partial != NULL) {
        move_dw(worker, unit, DW_ADD, partial);
    }
    worker->dw_count = 0;
}

/* Where the unit's sums go: its partials, cleared, or the call's own. */
static void unit_sums(const backward_job *job, const strip_unit *unit, double **to)
{
    const dunlin_epilogue *epilogue = &job->call->dx;
    const int64_t channels = job->call->shape->in_c;
    for (uint32_t s = 0; s < epilogue->n_stats; s++) {
        if (job->units.is_few) {
            to[s] = epilogue->stats[s].sums + unit->channel;
            continue;
        }
        to[s] = job->stat_partials + (unit->index * epilogue->n_stats + s) * 2 * channels;
        to[s] += unit->channel;
        memset(to[s], 0, (size_t)unit->n_channels * sizeof(double));
        memset(to[s] + channels, 0, (size_t)unit->n_channels * sizeof(double));
    }
}

static void run_unit(backward_worker *worker, const strip_unit *unit)
{
    const backward_job *job = worker->job;
    const dunlin_fused_call *call = job->call;
    const int64_t channels = call->shape->in_c;
    const bool is_chain = job->units.is_few && call->dw != NULL;
    worker->n_channels = unit->n_channels;
    for (int64_t i = 0; i < job->sizes.n_taps; i++) {
        if (call->w != NULL) {
            vcopy(worker->w + i * worker->ring.width, call->w + i * channels + unit->channel,
                  unit->n_channels);
        }
        vclear(worker->dw + i * worker->ring.width, worker->ring.width);
        if (!job->units.is_few && call->dw != NULL) {
            vclear(job->dw_partials + (unit->index * job->sizes.n_taps + i) * channels +
                       unit->channel,
                   unit->n_channels);
        }
    }
    if (is_chain && !call->is_reset) {
        move_dw(worker, unit, DW_TAKE, call->dw);
    }
    double *to[DUNLIN_EPILOGUE_MAX_STATS] = {NULL};
    unit_sums(job, unit, to);
    for (int64_t s = unit->sample; s < unit->end_sample; s++) {
        if (job->is_tiled) {
            run_bands(worker, unit, s, to);
        } else {
            run_strip(worker, unit, s, to);
        }
    }
    if (is_chain) {
        move_dw(worker, unit, DW_PUT, call->dw);
    }
}

static void backward_task(void *ctx, size_t slot)
{
    backward_job *job = ctx;
    const dunlin_conv_shape *shape = job->call->shape;
    float *room = job->workspace + (int64_t)slot * job->sizes.worker_floats;
    vclear(room, job->sizes.channel_floats * job->sizes.ring.width);
    backward_worker worker = {.job = job, .ring = job->sizes.ring};
    row_ring *ring = &worker.ring;
    const int64_t row = ring->pixels * ring->width;
    ring->rows = room;
    ring->zeros = room + ring->n_rows * row;
    worker.x = room + (ring->n_rows + 1) * row;
    worker.dx = worker.x + job->sizes.row_pixels * ring->width;
    worker.w = worker.dx + job->sizes.row_pixels * ring->width;
    worker.dw = worker.w + job->sizes.n_taps * ring->width;
    worker.ones = worker.dw + job->sizes.n_taps * ring->width;
    worker.sums = worker.ones + ring->width;
    for (int64_t i = 0; i < ring->width; i++) {
        worker.ones[i] = 1.0f;
    }
    worker.lines = worker.sums + EPILOGUE_MAX_SUMS * ring->width;
    worker.taps = (const float **)(void *)worker.lines; /* a unit uses one of them */
    for (;;) {
        const int64_t i = shares_take(&job->shared, (int64_t)slot);
        if (i >= job->units.n_units) {
            break;
        }
        const strip_unit unit =
            unit_at(&job->units, i, shape->in_h, shape->in_c, job->call->n_samples);
        run_unit(&worker, &unit);
    }
    vstream_done();
}

/* The strips' partials in order. */
static void merge(const backward_job *job)
{
    const dunlin_fused_call *call = job->call;
    const int64_t channels = call->shape->in_c;
    const int64_t n_strips = call->n_samples * job->units.n_strips;
    epilogue_merge(&call->dx, job->stat_partials, n_strips, channels, call->threads);
    const int64_t n = job->sizes.n_taps * channels;
    for (int64_t i = 0; i < n_strips && call->dw != NULL; i++) {
        for (int64_t j = 0; j < n; j++) {
            call->dw[j] += job->dw_partials[i * n + j];
        }
    }
}

void K(depthwise_fused_backward)(const dunlin_fused_call *wanted)
{
    dunlin_fused_call copy = *wanted;
    const dunlin_fused_call *call = &copy;
    if (copy.dx.out == NULL) {
        copy.dx.n_stats = 0;
    }
    const dunlin_conv_shape *shape = call->shape;
    const int64_t channels = shape->in_c;
    const int64_t n_threads = (int64_t)task_threads(call->threads);
    if (call->db != NULL) {
        K(depthwise_bias_grad)(call);
    }
    if (call->dw == NULL && call->dx.out == NULL) {
        return;
    }
    backward_job job = {.call = call,
                        .is_direct = direct_is_for(call),
                        .is_tiled = tiled_is_for(shape),
                        .units = strips_of(shape->in_h, shape->in_w),
                        .sizes = sizes_of(shape),
                        .workspace = call->workspace};
    job.is_streamed =
        VEC * sizeof(float) == LINE_BYTES && /* else half lines, far apart */
        epilogue_is_streamed(&call->dx, channels, call->n_samples * shape->in_h * shape->in_w);
    job.stat_partials = (double *)(void *)(job.workspace + n_threads * job.sizes.worker_floats);
    const int64_t n_strips = call->n_samples * job.units.n_strips;
    job.dw_partials =
        (float *)(void *)(job.stat_partials + n_strips * 2 * channels * call->dx.n_stats);
    units_share(&job.units, channels, part_most(channels, job.sizes.channel_floats),
                call->n_samples, call->threads);
    job.sizes.ring.width = part_width(job.units.part_channels);
    shares_open(&job.shared, job.units.n_units, n_threads);
    if (call->is_reset) {
        epilogue_reset(&call->dx, channels);
        if (call->dw != NULL) {
            memset(call->dw, 0, (size_t)(job.sizes.n_taps * channels) * sizeof(float));
        }
    }
    run_tasks(call->threads, backward_task, &job, min_i64(n_threads, job.units.n_units),
              call->n_samples * shape->in_h * shape->in_w * channels);
    if (!job.units.is_few) {
        merge(&job);
    }
}
