/*
 * conv_grad.c - the weight gradient: dw[tap, channel][out] = sum over pixels of x * dy, a GEMM
 * whose depth is the pixels of the batch, and the bias gradient.
 *
 * Pixels come in the fixed blocks of pixel_blocks_make(), so cutting the batch changes no bit.
 * Threads share the elements of dw, never the pixels.
 */
#include "isa.h"

#include <stdatomic.h>

typedef struct weight_panels {
    int64_t a_pitch;
    int64_t a_floats;
    int64_t b_floats;
} weight_panels;

static weight_panels panels_of(const dunlin_conv_shape *shape)
{
    conv_view view;
    dunlin__view_forward(shape, &view);
    int64_t rows = view_rows(&view);
    int64_t n_pixels =
        rows >= DUNLIN_KERNEL_ROWS_PER_PARTIAL ? min_i64(rows, PIXEL_BLOCK) : PIXEL_BLOCK;
    weight_panels panels;
    panels.a_pitch = round_up(min_i64(view_depth(&view), WEIGHT_BLOCK), 16) + PANEL_GAP;
    panels.a_floats = dunlin__view_is_plain(&view) ? 0 : n_pixels * panels.a_pitch;
    panels.b_floats = round_up(n_pixels * round_up(min_i64(view.outputs, COLUMN_BLOCK), VEC), 16);
    return panels;
}

size_t K(weight_grad_workspace_bytes)(const dunlin_conv_shape *shape, size_t n_threads)
{
    weight_panels panels = panels_of(shape);
    size_t workers = n_threads == 0 ? 1 : n_threads;
    return (size_t)(panels.a_floats + panels.b_floats) * sizeof(float) * workers;
}

typedef struct weight_job {
    const dunlin_conv_call *call;
    conv_view view;
    pixel_blocks blocks;
    weight_panels panels;
    bool is_plain;
    int64_t unit_rows, unit_columns; /* rows of dw: taps x channels */
    int64_t n_row_units, n_column_units;
    atomic_int_fast64_t next_unit;
} weight_job;

typedef struct weight_unit {
    int64_t group;
    int64_t row, n_rows;
    int64_t column, n_columns;
} weight_unit;

/* One block of pixels into one block of rows of dw. */
static void run_rows(const weight_job *job, const weight_unit *unit, int64_t pixel, float *a_panel,
                     gemm_block *block)
{
    const conv_view *view = &job->view;
    const float *x = job->call->x + unit->group * view->channels;
    float *dw = job->call->out + unit->group * view->outputs + unit->column;
    float *c_rows[WEIGHT_BLOCK];
    block->c_rows = c_rows;
    block->is_column_form = true;
    for (int64_t i = 0; i < unit->n_rows; i += WEIGHT_BLOCK) {
        int64_t row = unit->row + i;
        block->m = min_i64(WEIGHT_BLOCK, unit->n_rows - i);
        for (int64_t r = 0; r < block->m; r++) {
            c_rows[r] = dw + (row + r) * view->out_pitch;
        }
        if (job->is_plain) {
            block->a = x + pixel * view->source_pitch + row;
            block->a_pitch = view->source_pitch;
        } else {
            gather_call gather = {.view = view,
                                  .x = x,
                                  .first_row = pixel,
                                  .n_rows = block->k,
                                  .k0 = row,
                                  .k1 = row + block->m,
                                  .pitch = job->panels.a_pitch};
            gather.out = a_panel;
            K(gather)(&gather);
            block->a = gather.out;
            block->a_pitch = gather.pitch;
        }
        K(gemm)(block);
    }
    block->c_rows = NULL;
}

static void run_unit(const weight_job *job, const weight_unit *unit, float *a_panel, float *b_panel)
{
    const conv_view *view = &job->view;
    const int64_t n_blocks = ceil_div(unit->n_columns, COLUMN_BLOCK);
    const int64_t n_columns = round_up(ceil_div(unit->n_columns, n_blocks), VEC);
    for (int64_t n0 = 0; n0 < unit->n_columns; n0 += n_columns) {
        weight_unit part = *unit;
        part.column = unit->column + n0;
        part.n_columns = min_i64(n_columns, unit->n_columns - n0);
        const float *dy = job->call->dy + part.group * view->outputs + part.column;
        for (int64_t b = 0; b < job->blocks.n_blocks; b++) {
            int64_t pixel = 0;
            gemm_block block = {.b = b_panel,
                                .n = part.n_columns,
                                .start = pixel_block_start(&job->blocks, b, job->call->is_reset)};
            pixel_block_at(&job->blocks, b, &pixel, &block.k);
            K(pack_b)
            (dy + pixel * view->out_pitch, view->out_pitch, block.k, part.n_columns, b_panel);
            run_rows(job, &part, pixel, a_panel, &block);
        }
    }
}

static void weight_worker(void *ctx, size_t slot)
{
    weight_job *job = ctx;
    const conv_view *view = &job->view;
    float *workspace = job->call->workspace;
    float *a_panel = workspace + (int64_t)slot * (job->panels.a_floats + job->panels.b_floats);
    float *b_panel = a_panel + job->panels.a_floats;
    const int64_t n_units = job->n_row_units * job->n_column_units * view->groups;
    for (;;) {
        int64_t index = atomic_fetch_add_explicit(&job->next_unit, 1, memory_order_relaxed);
        if (index > n_units) {
            return;
        }
        if (index == n_units) {
            K(bias_grad)(job->call);
            return;
        }
        int64_t rows = index % job->n_row_units;
        int64_t columns = index / job->n_row_units % job->n_column_units;
        weight_unit unit = {.group = index / job->n_row_units / job->n_column_units,
                            .row = rows * job->unit_rows,
                            .column = columns * job->unit_columns};
        unit.n_rows = min_i64(job->unit_rows, view_depth(view) - unit.row);
        unit.n_columns = min_i64(job->unit_columns, view->outputs - unit.column);
        run_unit(job, &unit, a_panel, b_panel);
    }
}

void K(conv_weight_grad)(const dunlin_conv_call *call)
{
    if (dunlin__shape_is_depthwise(call->shape)) {
        K(depthwise_weight_grad)(call);
        K(bias_grad)(call);
        return;
    }
    weight_job job = {.call = call, .panels = panels_of(call->shape)};
    dunlin__view_forward(call->shape, &job.view);
    const conv_view *view = &job.view;
    job.is_plain = dunlin__view_is_plain(view);
    job.blocks = pixel_blocks_make(view_rows(view), call->n_samples);
    const int64_t threads = (int64_t)task_threads(call->threads);
    const int64_t depth = view_depth(view);
    const int64_t n_row_units =
        view->groups >= threads ? 1 : min_i64(threads, ceil_div(depth, TILE_ROWS));
    job.unit_rows = round_up(ceil_div(depth, n_row_units), TILE_ROWS);
    job.n_row_units = ceil_div(depth, job.unit_rows);
    const int64_t panel = (int64_t)TILE_VECTORS * VEC;
    const int64_t n_column_units = job.n_row_units * view->groups >= threads
                                       ? 1
                                       : min_i64(threads, ceil_div(view->outputs, panel));
    job.unit_columns = round_up(ceil_div(view->outputs, n_column_units), panel);
    job.n_column_units = ceil_div(view->outputs, job.unit_columns);
    atomic_init(&job.next_unit, 0);
    const int64_t n_units = job.n_row_units * job.n_column_units * view->groups + 1;
    run_tasks(call->threads, weight_worker, &job, min_i64(threads, n_units),
              job.blocks.n_rows * depth * view->outputs);
}

/* Rows [0, n) of dy into the chain in `sum`, one vector of channels. */
static vfloat sum_rows(const float *dy, int64_t pitch, int64_t n_rows, int32_t n, vfloat sum)
{
    for (int64_t i = 0; i < n_rows; i++) {
        sum += vload_n(dy + i * pitch, n);
    }
    return sum;
}

void K(bias_grad)(const dunlin_conv_call *call)
{
    if (call->out_bias == NULL) {
        return;
    }
    const int64_t channels = call->shape->out_c;
    const pixel_blocks blocks =
        pixel_blocks_make((int64_t)call->shape->out_h * call->shape->out_w, call->n_samples);
    for (int64_t b = 0; b < blocks.n_blocks; b++) {
        int64_t row = 0;
        int64_t n_rows = 0;
        pixel_block_at(&blocks, b, &row, &n_rows);
        gemm_start start = pixel_block_start(&blocks, b, call->is_reset);
        for (int64_t c = 0; c < channels; c += VEC) {
            int32_t n = vec_left(channels, c);
            float *out = call->out_bias + c;
            const float *dy = call->dy + row * channels + c;
            vfloat first = start == GEMM_CHAIN ? vload_n(out, n) : vzero();
            vfloat sum = sum_rows(dy, channels, n_rows, n, first);
            vstore_n(out, start == GEMM_ADD ? vload_n(out, n) + sum : sum, n);
        }
    }
}
