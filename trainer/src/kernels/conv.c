/*
 * conv.c - convolution forward and its input gradient, as GEMMs over windows gathered a block at a
 * time: no im2col buffer, only panels in the caller's workspace.
 *
 * Units of work (group x rows x columns) are taken by whoever is free; where the cuts lie changes
 * no bit, since each output element is one chain over the whole depth.
 */
#include "isa.h"

#include <stdatomic.h>

#define ROWS_OF_UNIT 768 /* so many that packing B again for each unit hardly counts */

/* Floats of a worker's two panels. */
typedef struct panel_sizes {
    int64_t a_pitch;
    int64_t a_floats;
    int64_t b_floats;
} panel_sizes;

/* `depth` is the longest of the pass's phases, so the panels serve all of them. */
static panel_sizes panels_of(int64_t depth, int64_t n_columns, bool is_plain)
{
    panel_sizes sizes = {0};
    int64_t k = min_i64(depth, DEPTH_BLOCK);
    sizes.a_pitch = round_up(k, 16) + PANEL_GAP;
    sizes.a_floats = is_plain ? 0 : ROW_BLOCK * sizes.a_pitch;
    sizes.b_floats = round_up(k * round_up(min_i64(n_columns, COLUMN_BLOCK), VEC), 16);
    return sizes;
}

static panel_sizes pass_panels(const dunlin_conv_shape *shape, dunlin_conv_pass pass)
{
    conv_view view;
    if (pass == DUNLIN_CONV_FORWARD) {
        dunlin__view_forward(shape, &view);
        return panels_of(view_depth(&view), view.outputs, dunlin__view_is_plain(&view));
    }
    int64_t depth = 1;
    bool is_plain = true;
    dunlin__view_input_grad(shape, 0, 0, &view);
    const int64_t n_columns = view.outputs;
    for (int32_t h = 0; h < shape->stride_h; h++) {
        for (int32_t w = 0; w < shape->stride_w; w++) {
            dunlin__view_input_grad(shape, h, w, &view);
            depth = max_i64(depth, view_depth(&view));
            is_plain = is_plain && (view_depth(&view) == 0 || dunlin__view_is_plain(&view));
        }
    }
    return panels_of(depth, n_columns, is_plain);
}

size_t K(conv_workspace_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                               size_t n_threads)
{
    bool is_depthwise = dunlin__shape_is_depthwise(shape);
    if (pass == DUNLIN_CONV_WEIGHT_GRAD) {
        return is_depthwise ? K(depthwise_workspace_bytes)(shape)
                            : K(weight_grad_workspace_bytes)(shape, n_threads);
    }
    if (is_depthwise) {
        return 0;
    }
    panel_sizes sizes = pass_panels(shape, pass);
    size_t workers = n_threads == 0 ? 1 : n_threads;
    return (size_t)(sizes.a_floats + sizes.b_floats) * sizeof(float) * workers;
}

typedef struct conv_job {
    const conv_view *view;
    const float *x;
    const float *w;
    const float *bias;
    float *out;
    bool is_turned; /* input gradient: the weights stand the other way */
    bool is_plain;
    int64_t n_rows;
    int64_t unit_rows, unit_columns; /* of a unit */
    int64_t n_row_units, n_column_units;
    panel_sizes panels;
    float *workspace;
    atomic_int_fast64_t next_unit;
} conv_job;

/* One unit's place. */
typedef struct conv_unit {
    int64_t group;
    int64_t row, n_rows;
    int64_t column, n_columns;
} conv_unit;

static conv_unit unit_at(const conv_job *job, int64_t index)
{
    conv_unit unit;
    int64_t rows = index % job->n_row_units;
    int64_t columns = index / job->n_row_units % job->n_column_units;
    unit.group = index / job->n_row_units / job->n_column_units;
    unit.row = rows * job->unit_rows;
    unit.n_rows = min_i64(job->unit_rows, job->n_rows - unit.row);
    unit.column = columns * job->unit_columns;
    unit.n_columns = min_i64(job->unit_columns, job->view->outputs - unit.column);
    return unit;
}

/* Weights of the depth [k0, k1) and `n` columns from `column` of a group, into panels. */
static void pack_weights(const conv_job *job, int64_t group, int64_t column, int64_t n, int64_t k0,
                         int64_t k1, float *out)
{
    const conv_view *view = job->view;
    if (!job->is_turned) {
        const int64_t pitch = view->out_pitch;
        const float *w = job->w + k0 * pitch + group * view->outputs + column;
        K(pack_b)(w, pitch, k1 - k0, n, out);
        return;
    }
    const int64_t pitch = view->source_pitch;
    int64_t k = k0;
    while (k < k1) {
        int64_t tap = k / view->channels;
        int64_t channel = k - tap * view->channels;
        int64_t part = min_i64(view->channels - channel, k1 - k);
        int64_t row = view_tap(view, tap) * view->outputs + column;
        const float *w = job->w + row * pitch + group * view->channels + channel;
        K(pack_b_turned)(w, pitch, n, part, k - k0, k1 - k0, out);
        k += part;
    }
}

/* Where the rows of the output begin. */
static void row_pointers(const conv_job *job, const conv_unit *unit, int64_t first, int64_t n,
                         float **out_rows)
{
    const conv_view *view = job->view;
    const int64_t rows = view_rows(view);
    int64_t sample = first / rows;
    int64_t t = first % rows / view->w.n_grid;
    int64_t u = first % view->w.n_grid;
    float *base = job->out + unit->group * view->outputs;
    for (int64_t i = 0; i < n; i++) {
        out_rows[i] = base + view_out_pixel(view, sample, t, u) * view->out_pitch;
        if (++u == view->w.n_grid) {
            u = 0;
            if (++t == view->h.n_grid) {
                t = 0;
                sample++;
            }
        }
    }
}

/* All rows of the unit, one block of columns and of depth. */
static void run_rows(const conv_job *job, const conv_unit *unit, int64_t k0, int64_t k1,
                     float *a_panel, gemm_block *block)
{
    const conv_view *view = job->view;
    const float *x = job->x + unit->group * view->channels;
    float *c_rows[ROW_BLOCK];
    const int64_t column = unit->column;
    for (int64_t i = 0; i < unit->n_rows; i += ROW_BLOCK) {
        int64_t first = unit->row + i;
        block->m = min_i64(ROW_BLOCK, unit->n_rows - i);
        if (job->is_plain) {
            block->a = x + first * view->source_pitch + k0;
            block->a_pitch = view->source_pitch;
        } else {
            gather_call gather = {.view = view,
                                  .x = x,
                                  .first_row = first,
                                  .n_rows = block->m,
                                  .k0 = k0,
                                  .k1 = k1,
                                  .pitch = job->panels.a_pitch};
            gather.out = a_panel;
            K(gather)(&gather);
            block->a = gather.out;
            block->a_pitch = gather.pitch;
        }
        row_pointers(job, unit, first, block->m, c_rows);
        for (int64_t r = 0; r < block->m; r++) {
            c_rows[r] += column;
        }
        block->c_rows = c_rows;
        K(gemm)(block);
    }
    block->c_rows = NULL;
}

/* Returns whether B of the whole unit stays packed in `b_panel`. */
static bool run_unit(const conv_job *job, const conv_unit *unit, bool is_packed, float *a_panel,
                     float *b_panel)
{
    const int64_t depth = view_depth(job->view);
    const int64_t n_column_blocks = ceil_div(unit->n_columns, COLUMN_BLOCK);
    const int64_t n_columns = round_up(ceil_div(unit->n_columns, n_column_blocks), VEC);
    const int64_t n_depth_blocks = max_i64(1, ceil_div(depth, DEPTH_BLOCK));
    const int64_t n_depth = ceil_div(depth, n_depth_blocks);
    const float *bias = job->bias == NULL ? NULL : job->bias + unit->group * job->view->outputs;
    for (int64_t n0 = 0; n0 < unit->n_columns; n0 += n_columns) {
        conv_unit part = *unit;
        part.column = unit->column + n0;
        part.n_columns = min_i64(n_columns, unit->n_columns - n0);
        for (int64_t b = 0; b < n_depth_blocks; b++) {
            int64_t k0 = b * n_depth;
            int64_t k1 = min_i64(depth, k0 + n_depth);
            if (!is_packed) {
                pack_weights(job, part.group, part.column, part.n_columns, k0, k1, b_panel);
            }
            gemm_block block = {.b = b_panel,
                                .n = part.n_columns,
                                .k = k1 - k0,
                                .bias = bias == NULL ? NULL : bias + part.column,
                                .start = b > 0          ? GEMM_CHAIN
                                         : bias != NULL ? GEMM_BIAS
                                                        : GEMM_ZERO};
            run_rows(job, &part, k0, k1, a_panel, &block);
        }
    }
    return n_column_blocks == 1 && n_depth_blocks == 1;
}

static void conv_worker(void *ctx, size_t slot)
{
    conv_job *job = ctx;
    float *a_panel = job->workspace + (int64_t)slot * (job->panels.a_floats + job->panels.b_floats);
    float *b_panel = a_panel + job->panels.a_floats;
    const int64_t n_units = job->n_row_units * job->n_column_units * job->view->groups;
    int64_t packed = -1;
    for (;;) {
        int64_t index = atomic_fetch_add_explicit(&job->next_unit, 1, memory_order_relaxed);
        if (index >= n_units) {
            return;
        }
        conv_unit unit = unit_at(job, index);
        int64_t panel = index / job->n_row_units;
        bool stays = run_unit(job, &unit, packed == panel, a_panel, b_panel);
        packed = stays ? panel : -1;
    }
}

/* One view: its rows are dealt out; when they are few, so are its columns. */
static void run_view(conv_job *job, const dunlin_conv_call *call)
{
    const conv_view *view = job->view;
    job->n_rows = view_rows(view) * call->n_samples;
    if (job->n_rows == 0) {
        return;
    }
    job->is_plain = dunlin__view_is_plain(view);
    const int64_t threads = (int64_t)task_threads(call->threads);
    int64_t n_row_units =
        max_i64(ceil_div(job->n_rows, ROWS_OF_UNIT),
                min_i64(threads > 1 ? 2 * threads : 1, ceil_div(job->n_rows, 2 * ROW_BLOCK)));
    job->unit_rows = round_up(ceil_div(job->n_rows, n_row_units), TILE_ROWS);
    job->n_row_units = ceil_div(job->n_rows, job->unit_rows);
    int64_t n_column_units =
        job->n_row_units * view->groups >= threads
            ? 1
            : min_i64(threads, ceil_div(view->outputs, (int64_t)TILE_VECTORS * VEC));
    job->unit_columns =
        round_up(ceil_div(view->outputs, n_column_units), (int64_t)TILE_VECTORS * VEC);
    job->n_column_units = ceil_div(view->outputs, job->unit_columns);
    atomic_init(&job->next_unit, 0);
    const int64_t n_units = job->n_row_units * job->n_column_units * view->groups;
    const int64_t work = job->n_rows * max_i64(1, view_depth(view)) * view->outputs;
    run_tasks(call->threads, conv_worker, job, min_i64(threads, n_units), work);
}

void K(conv_forward)(const dunlin_conv_call *call)
{
    conv_view view;
    dunlin__view_forward(call->shape, &view);
    if (dunlin__shape_is_depthwise(call->shape)) {
        K(depthwise)(&view, call, call->x, call->bias);
        return;
    }
    conv_job job = {.view = &view,
                    .x = call->x,
                    .w = call->w,
                    .bias = call->bias,
                    .out = call->out,
                    .panels = pass_panels(call->shape, DUNLIN_CONV_FORWARD),
                    .workspace = call->workspace};
    run_view(&job, call);
}

void K(conv_input_grad)(const dunlin_conv_call *call)
{
    const bool is_depthwise = dunlin__shape_is_depthwise(call->shape);
    for (int32_t h = 0; h < call->shape->stride_h; h++) {
        for (int32_t w = 0; w < call->shape->stride_w; w++) {
            conv_view view;
            dunlin__view_input_grad(call->shape, h, w, &view);
            if (is_depthwise) {
                K(depthwise)(&view, call, call->dy, NULL);
                continue;
            }
            conv_job job = {.view = &view,
                            .x = call->dy,
                            .w = call->w,
                            .out = call->out,
                            .is_turned = true,
                            .panels = pass_panels(call->shape, DUNLIN_CONV_INPUT_GRAD),
                            .workspace = call->workspace};
            run_view(&job, call);
        }
    }
}
