/*
 * int_conv.c - convolutions and dense layers in integers, forward and input gradient: both as
 * products of windows of a view (geometry.h) and weights, which are packed a part of the columns at
 * a time. Rows of windows are packed by who uses them and rounded as they leave the registers.
 */
#include "int_depthwise.h"
#include "int_entries.h"
#include "int_few.h"
#include "int_lines.h"

/* How a view is cut. */
typedef struct int_plan {
    int64_t depth, groups; /* of a window: elements, groups of DOT_GROUP */
    int64_t pitch;         /* of packed rows */
    int64_t width;         /* columns of a part */
    int64_t rows;          /* of a block */
    int64_t b_bytes, start_bytes, room_bytes;
} int_plan;

typedef struct int_conv_job {
    const dunlin_int_conv_call *call;
    conv_view view;
    bool is_input_grad;
    const int8_t *source;
    int_plan plan;
    int64_t n_rows;       /* of the view, all samples */
    int64_t group;        /* of the convolution */
    int64_t first_column; /* of this part, in the group */
    int64_t columns;
    dot_b *b;
    int32_t *start;
    char *rooms;
    int64_t chunk, n_chunks; /* columns that a unit takes, and how many units a block has */
    shares shared;
    int_tally tally;
} int_conv_job;

/* For calls of n_samples at most; 0: of any number. */
static void plan_view(const conv_view *view, int64_t n_samples, int_plan *plan)
{
    const int64_t tiles =
        n_samples > 0 ? ceil_div(n_samples * view_rows(view), INT_ROWS) : INT_BLOCK_TILES;
    plan->depth = view_depth(view);
    plan->groups = int_groups(plan->depth);
    plan->pitch = int_pitch(plan->depth);
    const int64_t column_bytes = max_i64(1, plan->groups * DOT_GROUP * (int64_t)sizeof(dot_b));
    const int64_t most = INT_PART_BYTES / column_bytes / INT_WIDTH * INT_WIDTH;
    plan->width = min_i64(int_panels_width(view->outputs), max_i64(INT_WIDTH, most));
    const int64_t fit = INT_BLOCK_BYTES / (plan->pitch * (int64_t)sizeof(dot_a)) / INT_ROWS;
    plan->rows = max_i64(1, min_i64(min_i64(INT_BLOCK_TILES, tiles), fit)) * INT_ROWS;
    plan->b_bytes = int_room(column_bytes * plan->width);
    plan->start_bytes = int_room(plan->width * (int64_t)sizeof(int32_t));
    plan->room_bytes = int_room((plan->rows * plan->pitch + INT_SLACK) * (int64_t)sizeof(dot_a)) +
                       int_room(plan->rows * (int64_t)sizeof(int64_t));
}

static uint64_t view_bytes(const conv_view *view, int64_t n_samples, size_t n_threads)
{
    int_plan plan;
    const uint64_t of_lines = K(int_lines_bytes)(view, n_threads);
    if (of_lines > 0) {
        return of_lines;
    }
    plan_view(view, n_samples, &plan);
    return (uint64_t)(plan.b_bytes + plan.start_bytes) +
           (uint64_t)plan.room_bytes * (uint64_t)n_threads;
}

uint64_t K(int_conv_workspace_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                                     int64_t n_samples, size_t n_threads)
{
    const size_t threads = n_threads == 0 ? 1 : n_threads;
    conv_view view;
    uint64_t most = 64;
    if (int_is_depthwise(shape)) {
        return K(int_depthwise_bytes)(shape, pass, threads);
    }
    if (pass == DUNLIN_CONV_WEIGHT_GRAD) {
        return K(int_weight_grad_bytes)(shape, n_samples, threads);
    }
    if (pass == DUNLIN_CONV_FORWARD) {
        dunlin__view_forward(shape, &view);
        return view_bytes(&view, n_samples, threads);
    }
    for (int32_t i = 0; i < shape->stride_h; i++) {
        for (int32_t j = 0; j < shape->stride_w; j++) {
            dunlin__view_input_grad(shape, i, j, &view);
            const uint64_t bytes = view_bytes(&view, n_samples, threads);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

/* Weights of the input gradient where a group of the depth may lie in two taps. */
static void pack_scattered(const int_conv_job *job, const int_rows *panel, dot_b *to)
{
    const conv_view *view = &job->view;
    const int64_t tap_size = (int64_t)view->outputs * panel->pitch;
    const int64_t depth = round_up(job->plan.depth, DOT_GROUP);
    for (int64_t k = 0; k < depth; k++) {
        const bool is_in = k < job->plan.depth;
        const int8_t *from = panel->from;
        from += is_in ? view_tap(view, k / view->channels) * tap_size + k % view->channels : 0;
        dot_b *line = to + k / DOT_GROUP * panel->width * DOT_GROUP + k % DOT_GROUP;
        for (int64_t j = 0; j < panel->width; j++) {
            line[j * DOT_GROUP] = (dot_b)(is_in && j < panel->n ? from[j * panel->pitch] : 0);
        }
    }
}

static void pack_panel(const int_conv_job *job, int64_t column, int64_t width, dot_b *to)
{
    const conv_view *view = &job->view;
    const dunlin_conv_shape *shape = job->call->shape;
    const int64_t in_part = job->first_column + column;
    int_rows panel = {.pitch = shape->out_c,
                      .k = job->plan.depth,
                      .n = min_i64(width, job->columns - column),
                      .width = width};
    if (!job->is_input_grad) {
        panel.from = job->call->w + job->group * view->outputs + in_part;
        K(int_interleave)(&panel, to);
        return;
    }
    /* rows of the weights are our columns */
    const int8_t *w = job->call->w + in_part * shape->out_c + job->group * view->channels;
    panel.from = w;
    if (view->channels % DOT_GROUP != 0 && view->h.n_taps * view->w.n_taps > 1) {
        pack_scattered(job, &panel, to);
        return;
    }
    panel.k = view->channels;
    for (int64_t i = 0; i < (int64_t)view->h.n_taps * view->w.n_taps; i++) {
        panel.from = w + view_tap(view, i) * view->outputs * shape->out_c;
        K(int_interleave_turned)(&panel, to + i * view->channels * width);
    }
}

static void pack_task(void *ctx, size_t task)
{
    const int_conv_job *job = (const int_conv_job *)ctx;
    const int64_t column = (int64_t)task * INT_WIDTH;
    const int64_t width = int_panel(job->columns - column);
    dot_b *to = job->b + column * job->plan.groups * DOT_GROUP;
    pack_panel(job, column, width, to);
    const int32_t *bias = job->is_input_grad ? NULL : job->call->bias;
    if (bias != NULL) {
        bias += job->group * job->view.outputs + job->first_column + column;
    }
    K(int_start)
    (to, job->plan.groups, width, bias, min_i64(width, job->columns - column), job->start + column);
}

/* Rows that lie as the windows of a plain view do: one pixel each. */
static void pack_plain(const int_conv_job *job, int64_t first, int64_t n, dot_a *a, int64_t *at)
{
    const conv_view *view = &job->view;
    const int64_t pitch = job->plan.pitch;
    const int64_t end = job->plan.groups * DOT_GROUP;
    const int8_t *from = job->source + first * view->source_pitch + job->group * view->channels;
    const int64_t out = job->group * view->outputs + job->first_column;
    const bool is_whole = view->source_pitch == pitch && job->plan.depth == pitch;
    if (is_whole) { /* the rows lie as they are to lie */
        K(int_pack_row)(from, n * pitch, a);
    }
    for (int64_t i = 0; i < n; i++) {
        at[i] = (first + i) * view->out_pitch + out;
        if (is_whole) {
            continue;
        }
        K(int_pack_row)(from + i * view->source_pitch, job->plan.depth, a + i * pitch);
        for (int64_t k = job->plan.depth; k < end; k++) {
            a[i * pitch + k] = 0;
        }
    }
}

/* Rows [first, first + n) of the view, packed, and where each lands. */
static void pack_rows(const int_conv_job *job, int64_t first, int64_t n, dot_a *a, int64_t *at)
{
    const conv_view *view = &job->view;
    const int64_t source_size = (int64_t)view->h.n_source * view->w.n_source * view->source_pitch;
    const int64_t end = job->plan.groups * DOT_GROUP;
    if (dunlin__view_is_plain(view) && view->h.out_step == 1 && view->w.out_step == 1) {
        pack_plain(job, first, n, a, at);
        return;
    }
    int64_t sample = first / view_rows(view);
    int_window window = {.view = view,
                         .end = job->source + job->call->n_samples * source_size,
                         .t = first % view_rows(view) / view->w.n_grid,
                         .u = first % view_rows(view) % view->w.n_grid};
    for (int64_t i = 0; i < n; i++) {
        window.source = job->source + sample * source_size + job->group * view->channels;
        dot_a *row = a + i * job->plan.pitch;
        K(int_pack_window)(&window, row);
        for (int64_t k = job->plan.depth; k < end; k++) {
            row[k] = 0;
        }
        at[i] = view_out_pixel(view, sample, window.t, window.u) * view->out_pitch +
                job->group * view->outputs + job->first_column;
        if (++window.u == view->w.n_grid) {
            window.u = 0;
            if (++window.t == view->h.n_grid) {
                window.t = 0;
                sample++;
            }
        }
    }
}

static void rows_task(void *ctx, size_t slot)
{
    int_conv_job *job = (int_conv_job *)ctx;
    const dunlin_int_conv_call *call = job->call;
    dot_a *a = (dot_a *)(void *)(job->rooms + (int64_t)slot * job->plan.room_bytes);
    int64_t *at =
        (int64_t *)(void *)((char *)a + int_room((job->plan.rows * job->plan.pitch + INT_SLACK) *
                                                 (int64_t)sizeof(dot_a)));
    int_target target = int_target_of(call, job->is_input_grad);
    target.at = at;
    int_block block = {.a = a,
                       .row_step = job->plan.pitch,
                       .group_step = DOT_GROUP,
                       .groups = job->plan.groups,
                       .store = K(int_store),
                       .target = &target};
    int64_t packed = -1;
    for (int64_t unit = shares_take(&job->shared, (int64_t)slot); unit < job->shared.n_units;
         unit = shares_take(&job->shared, (int64_t)slot)) {
        const int64_t first = unit / job->n_chunks * job->plan.rows;
        const int64_t column = unit % job->n_chunks * job->chunk;
        block.m = min_i64(job->plan.rows, job->n_rows - first);
        block.n = min_i64(job->chunk, job->columns - column);
        block.b = job->b + column * job->plan.groups * DOT_GROUP;
        block.start = job->start + column;
        block.is_by_rows = block.n * job->plan.groups * DOT_GROUP <= INT_NEAR_BYTES;
        if (packed != first) {
            pack_rows(job, first, block.m, a, at);
        }
        packed = first;
        target.column = column;
        K(int_gemm)(&block);
    }
    int_target_take(&target, &job->tally);
}

/* A part of a group's columns. */
static void run_part(int_conv_job *job)
{
    dunlin_threads *threads = job->call->threads;
    const int64_t n_workers = (int64_t)task_threads(threads);
    const int64_t n_blocks = ceil_div(job->n_rows, job->plan.rows);
    const int64_t n_panels = ceil_div(job->columns, INT_WIDTH);
    const int64_t wanted = n_workers == 1 ? 1 : ceil_div(2 * n_workers, max_i64(1, n_blocks));
    job->chunk = ceil_div(n_panels, min_i64(n_panels, wanted)) * INT_WIDTH;
    job->n_chunks = ceil_div(job->columns, job->chunk);
    const int64_t work = job->columns * job->plan.groups;
    run_tasks(threads, pack_task, job, n_panels, work);
    shares_open(&job->shared, n_blocks * job->n_chunks, n_workers);
    run_tasks(threads, rows_task, job, n_workers, work * job->n_rows);
}

static void run_view(int_conv_job *job)
{
    const conv_view *view = &job->view;
    if (int_is_depthwise(job->call->shape)) {
        K(int_depthwise)(job->call, view, job->is_input_grad, &job->tally);
        return;
    }
    const int_lines lines = {.call = job->call,
                             .view = view,
                             .is_input_grad = job->is_input_grad,
                             .source = job->source,
                             .tally = &job->tally};
    if (K(int_lines_run)(&lines)) {
        return;
    }
    plan_view(view, job->call->n_samples, &job->plan);
    job->n_rows = view_rows(view) * job->call->n_samples;
    job->b = (dot_b *)job->call->workspace;
    job->start = (int32_t *)(void *)((char *)job->b + job->plan.b_bytes);
    job->rooms = (char *)job->start + job->plan.start_bytes;
    const int_few few = {.call = job->call,
                         .view = view,
                         .n_rows = job->n_rows,
                         .pitch = job->plan.pitch,
                         .rows_room = job->b,
                         .rows_bytes = job->plan.b_bytes,
                         .rooms = job->rooms,
                         .room_bytes = job->plan.room_bytes,
                         .tally = &job->tally};
    if (!job->is_input_grad && K(int_few_forward)(&few)) {
        return;
    }
    for (job->group = 0; job->n_rows > 0 && job->group < view->groups; job->group++) {
        for (int64_t column = 0; column < view->outputs; column += job->plan.width) {
            job->first_column = column;
            job->columns = min_i64(job->plan.width, view->outputs - column);
            run_part(job);
        }
    }
}

void K(int_conv_forward)(const dunlin_int_conv_call *call)
{
    int_conv_job job = {.call = call, .source = call->x};
    int_tally_open(&job.tally);
    dunlin__view_forward(call->shape, &job.view);
    run_view(&job);
    int_tally_close(&job.tally, &call->rounding);
}

void K(int_conv_input_grad)(const dunlin_int_conv_call *call)
{
    int_conv_job job = {.call = call, .source = call->dy, .is_input_grad = true};
    int_tally_open(&job.tally);
    for (int32_t i = 0; i < call->shape->stride_h; i++) {
        for (int32_t j = 0; j < call->shape->stride_w; j++) {
            dunlin__view_input_grad(call->shape, i, j, &job.view);
            run_view(&job);
        }
    }
    int_tally_close(&job.tally, &call->rounding);
}
