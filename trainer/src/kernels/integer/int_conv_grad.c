/*
 * int_conv_grad.c - the weight gradient of a convolution or dense layer in integers: the depth is
 * pixels, a block of them at a time; both operands are packed with the pixels of a group side by
 * side, and the sums of a block are added to the gradient in memory.
 */
#include "int_depthwise.h"
#include "int_entries.h"
#include "int_lines.h"

#define PIXELS 512             /* of a block */
#define GRAD_TILES 8           /* of rows of the gradient that are packed at once */
#define GRAD_LINES 16          /* windows that are taken from the image at once */
#define NEAR_BYTES (256 << 10) /* of packed output gradients that stay in the second cache */
#define BIAS_VECTORS 4         /* of sums of a bias at once */
#define STREAM_BYTES (INT64_C(16) << 20) /* of sums that are written once, and past the caches */

typedef struct int_grad_plan {
    int64_t depth; /* rows of the gradient of a group: taps and channels */
    int64_t rows;  /* of the gradient at once, whole chunks */
    int64_t b_bytes, start_bytes, a_bytes, lines_bytes, room_bytes;
} int_grad_plan;

typedef struct int_grad_job {
    const dunlin_int_conv_call *call;
    conv_view view;
    int_grad_plan plan;
    bool is_plain;
    int64_t group;
    int64_t first_pixel, n_pixels;
    bool is_first;
    bool is_streamed;
    dot_b *b;
    int32_t *start;
    char *rooms;
    shares shared;
} int_grad_job;

/* Where a tile's sums go. */
typedef struct int_grad_target {
    const int_grad_job *job;
    int64_t first_row; /* of the gradient */
} int_grad_target;

/* For calls of n_samples at most; 0: of any number. */
static void plan_grad(const conv_view *view, int64_t n_samples, int_grad_plan *plan)
{
    const int64_t pixels =
        n_samples > 0 ? min_i64(PIXELS, n_samples * view_rows(view)) : (int64_t)PIXELS;
    plan->depth = view_depth(view);
    plan->rows = min_i64(round_up(plan->depth, 16), (int64_t)GRAD_TILES * 48);
    const int64_t lanes = round_up(pixels, GRAD_LINES);
    plan->b_bytes = int_room(lanes * int_panels_width(view->outputs) * (int64_t)sizeof(dot_b));
    plan->start_bytes = int_room(int_panels_width(view->outputs) * (int64_t)sizeof(int32_t));
    plan->a_bytes = int_room(lanes * plan->rows * (int64_t)sizeof(dot_a));
    plan->lines_bytes =
        dunlin__view_is_plain(view) ? 0 : int_room(plan->depth * GRAD_LINES + INT_SLACK);
    plan->room_bytes = plan->a_bytes + plan->lines_bytes;
}

uint64_t K(int_weight_grad_bytes)(const dunlin_conv_shape *shape, int64_t n_samples,
                                  size_t n_threads)
{
    conv_view view;
    int_grad_plan plan;
    dunlin__view_forward(shape, &view);
    const uint64_t of_lines = K(int_lines_grad_bytes)(&view, n_samples, n_threads);
    if (of_lines > 0) {
        return of_lines;
    }
    plan_grad(&view, n_samples, &plan);
    return (uint64_t)(plan.b_bytes + plan.start_bytes) +
           (uint64_t)plan.room_bytes * (uint64_t)n_threads;
}

void K(int_add_sums)(const dunlin_int_conv_call *call, int64_t at, int64_t n, const int32_t *from,
                     bool is_first)
{
    const bool is_reset = is_first && call->is_reset;
    if (call->sums == NULL) {
        for (int64_t j = 0; j < n; j++) {
            call->wide_sums[at + j] = from[j] + (is_reset ? 0 : call->wide_sums[at + j]);
        }
        return;
    }
    int32_t *sums = call->sums + at;
    for (int64_t j = 0; is_reset && j < n; j++) {
        sums[j] = from[j];
    }
    for (int64_t j = 0; !is_reset && j < n; j++) {
        sums[j] += from[j];
    }
}

static void add_tile(const int_block *block, int64_t row, int64_t n_rows, int64_t column, int64_t n,
                     const int32_t *tile)
{
    const int_grad_target *target = (const int_grad_target *)block->target;
    const int_grad_job *job = target->job;
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t at = (target->first_row + row + i) * job->view.out_pitch +
                           job->group * job->view.outputs + column;
        const int32_t *from = tile + i * INT_WIDTH;
        if (!job->is_streamed || n % VEC != 0) {
            K(int_add_sums)(job->call, at, n, from, job->is_first);
            continue;
        }
        int32_t *sums = job->call->sums + at;
        for (int64_t j = 0; j < n; j += VEC) {
            vstream((float *)(void *)(sums + j), (vfloat)vint_load(from + j));
        }
    }
}

static void pack_gradient(void *ctx, size_t task)
{
    const int_grad_job *job = (const int_grad_job *)ctx;
    const conv_view *view = &job->view;
    const int64_t column = (int64_t)task * INT_WIDTH;
    const int64_t width = int_panel(view->outputs - column);
    const int64_t groups = int_groups(job->n_pixels);
    dot_b *to = job->b + column * groups * DOT_GROUP;
    const int_rows panel = {.from = job->call->dy + job->first_pixel * view->out_pitch +
                                    job->group * view->outputs + column,
                            .pitch = view->out_pitch,
                            .k = job->n_pixels,
                            .n = min_i64(width, view->outputs - column),
                            .width = width};
    K(int_interleave)(&panel, to);
    K(int_start)(to, groups, width, NULL, 0, job->start + column);
}

/* The windows of GRAD_LINES pixels and then the next, their rows side by side. */
static void pack_source(const int_grad_job *job, int64_t row, int64_t n, int8_t *lines, dot_a *a)
{
    const conv_view *view = &job->view;
    const int64_t per_sample = view_rows(view);
    const int64_t source_size = (int64_t)view->h.n_source * view->w.n_source * view->source_pitch;
    int_rows rows = {.n = n, .width = job->plan.rows, .flip = DOT_OFFSET};
    const int8_t *x = job->call->x + job->group * view->channels;
    if (job->is_plain) {
        rows.from = x + job->first_pixel * view->source_pitch + row;
        rows.pitch = view->source_pitch;
        rows.k = job->n_pixels;
        K(int_interleave)(&rows, (dot_b *)a);
        return;
    }
    for (int64_t i = 0; i < job->n_pixels; i += GRAD_LINES) {
        const int64_t here = min_i64(GRAD_LINES, job->n_pixels - i);
        for (int64_t j = 0; j < here; j++) {
            const int64_t pixel = job->first_pixel + i + j;
            const int64_t in_sample = pixel % per_sample;
            const int_window window = {.view = view,
                                       .end = job->call->x + job->call->n_samples * source_size,
                                       .source = x + pixel / per_sample * source_size,
                                       .t = in_sample / view->w.n_grid,
                                       .u = in_sample % view->w.n_grid};
            K(int_copy_window)(&window, lines + j * job->plan.depth);
        }
        rows.from = lines + row;
        rows.pitch = job->plan.depth;
        rows.k = here;
        K(int_interleave)(&rows, (dot_b *)a + i * job->plan.rows);
    }
}

static void grad_task(void *ctx, size_t slot)
{
    int_grad_job *job = (int_grad_job *)ctx;
    char *room = job->rooms + (int64_t)slot * job->plan.room_bytes;
    dot_a *a = (dot_a *)(void *)room;
    int8_t *lines = (int8_t *)(room + job->plan.a_bytes);
    int_grad_target target = {.job = job};
    const int_block shape = {.a = a,
                             .row_step = DOT_GROUP,
                             .group_step = job->plan.rows * DOT_GROUP,
                             .b = job->b,
                             .start = job->start,
                             .groups = int_groups(job->n_pixels),
                             .n = job->view.outputs,
                             .is_by_rows = job->n_pixels * job->view.outputs <= NEAR_BYTES,
                             .store = add_tile,
                             .target = &target};
    for (int64_t unit = shares_take(&job->shared, (int64_t)slot); unit < job->shared.n_units;
         unit = shares_take(&job->shared, (int64_t)slot)) {
        int_block block = shape;
        target.first_row = unit * job->plan.rows;
        block.m = min_i64(job->plan.rows, job->plan.depth - target.first_row);
        if (job->is_first && job->call->is_reset && job->call->sums != NULL && !job->is_streamed) {
            block.sums = job->call->sums + target.first_row * job->view.out_pitch +
                         job->group * job->view.outputs;
            block.sums_pitch = job->view.out_pitch;
        }
        pack_source(job, target.first_row, block.m, lines, a);
        K(int_gemm)(&block);
    }
    if (job->is_streamed) {
        vstream_done();
    }
}

/* Sums that no cache holds, each written once, whole vectors. */
static bool writes_past_caches(const int_grad_job *job, int64_t n_pixels)
{
    const dunlin_int_conv_call *call = job->call;
    return CAN_STREAM && call->sums != NULL && call->is_reset && n_pixels <= PIXELS &&
           job->view.out_pitch % VEC == 0 && job->view.outputs % VEC == 0 &&
           (uintptr_t)call->sums % sizeof(vint) == 0 &&
           job->plan.depth * job->view.out_pitch * (int64_t)sizeof(int32_t) >= STREAM_BYTES;
}

/* Pixels whose channels together are whole vectors. */
static int64_t pixels_of_vectors(int64_t channels)
{
    int64_t n = 1;
    while (n * channels % VEC != 0) {
        n *= 2;
    }
    return n;
}

/* Sums of elements [j, j + BIAS_VECTORS * VEC) of rows of `width`, each to its channel. */
static void add_bias_columns(const dunlin_int_conv_call *call, int64_t n_rows, int64_t width,
                             int64_t j)
{
    const int64_t end = min_i64(width, j + (int64_t)BIAS_VECTORS * VEC);
    const int64_t n = (end - j) / VEC;
    vint sums[BIAS_VECTORS] = {{0}};
    int32_t ints[BIAS_VECTORS * VEC];
    for (int64_t row = 0; row < n_rows; row++) {
        const int8_t *from = call->dy + row * width + j;
        UNROLL
        for (int64_t i = 0; i < BIAS_VECTORS; i++) {
            sums[i] += i < n ? vint_chars(from + i * VEC, VEC) : (vint){0};
        }
    }
    for (int64_t i = 0; i < n; i++) {
        vint_store(ints + i * VEC, sums[i]);
    }
    for (int64_t i = j; i < end; i++) {
        call->out_bias[i % call->shape->out_c] += ints[i - j];
    }
}

static void add_bias(const dunlin_int_conv_call *call)
{
    const int64_t channels = call->shape->out_c;
    const int64_t pixels = call->n_samples * call->shape->out_h * call->shape->out_w;
    int32_t *sums = call->out_bias;
    if (sums == NULL) {
        return;
    }
    for (int64_t c = 0; call->is_reset && c < channels; c++) {
        sums[c] = 0;
    }
    const int64_t at_once = pixels_of_vectors(channels);
    const int64_t n_rows = pixels / at_once;
    for (int64_t j = 0; n_rows > 0 && j < at_once * channels; j += (int64_t)BIAS_VECTORS * VEC) {
        add_bias_columns(call, n_rows, at_once * channels, j);
    }
    for (int64_t i = n_rows * at_once * channels; i < pixels * channels; i++) {
        sums[i % channels] += call->dy[i];
    }
}

void K(int_conv_weight_grad)(const dunlin_int_conv_call *call)
{
    if (int_is_depthwise(call->shape)) {
        K(int_depthwise_grad)(call);
        add_bias(call);
        return;
    }
    int_grad_job job = {.call = call};
    const int64_t n_workers = (int64_t)task_threads(call->threads);
    dunlin__view_forward(call->shape, &job.view);
    if (K(int_lines_grad)(call, &job.view)) {
        add_bias(call);
        return;
    }
    plan_grad(&job.view, call->n_samples, &job.plan);
    job.is_plain = dunlin__view_is_plain(&job.view);
    job.b = (dot_b *)call->workspace;
    job.start = (int32_t *)(void *)((char *)job.b + job.plan.b_bytes);
    job.rooms = (char *)job.start + job.plan.start_bytes;
    const int64_t n_pixels = view_rows(&job.view) * call->n_samples;
    const int64_t work = job.view.outputs * PIXELS / DOT_GROUP;
    job.is_streamed = writes_past_caches(&job, n_pixels);
    for (job.group = 0; job.group < job.view.groups; job.group++) {
        job.is_first = true;
        for (int64_t i = 0; i < n_pixels; i += PIXELS) {
            job.first_pixel = i;
            job.n_pixels = min_i64(PIXELS, n_pixels - i);
            run_tasks(call->threads, pack_gradient, &job, ceil_div(job.view.outputs, INT_WIDTH),
                      work);
            shares_open(&job.shared, ceil_div(job.plan.depth, job.plan.rows), n_workers);
            run_tasks(call->threads, grad_task, &job, n_workers, work * job.plan.depth);
            job.is_first = false;
        }
    }
    add_bias(call);
}
