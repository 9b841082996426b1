/*
 * int_lines_grad.c - see int_lines.h: the weight gradient.
 *
 * A group of the depth is the same pixel of DOT_GROUP output lines. The source lines that a tap
 * reads for these are laid side by side, with their padding, once a row of the kernel; so a tap's
 * elements for the pixels of a line follow one another, whatever stride and dilation are, and all
 * taps of a row share them. The output gradient lies in the same order.
 */
#include "int_lines.h"

#define GRAD_PIXELS 1024      /* of a chunk, about */
#define GRAD_PART 512         /* pixels of a line that are a unit at most */
#define LINES_SLACK INT_WIDTH /* columns behind the last that may be read */

typedef struct lines_grad_plan {
    int64_t depth;    /* rows of the gradient: taps and channels */
    int64_t n_lines;  /* groups of lines of a sample */
    int64_t n_parts;  /* of a line */
    int64_t n_pixels; /* of a part */
    int64_t n_units;  /* of a chunk; a unit is a part of a group of lines */
    int64_t line;     /* elements of a source line of a part, with padding */
    int64_t pitch;    /* groups from a packed row of the kernel to the next */
    int64_t n_copied; /* source lines of a group of lines */
    int64_t a_bytes, b_bytes, start_bytes, row_bytes, group_bytes, room_bytes;
} lines_grad_plan;

typedef struct lines_grad_job {
    const dunlin_int_conv_call *call;
    const conv_view *view;
    lines_grad_plan plan;
    int64_t first, n_units; /* of this chunk */
    bool is_first;
    dot_a *a;
    dot_b *b;
    int32_t *start;
    int32_t *row_at, *group_at;
    char *rooms;
} lines_grad_job;

static bool plan_lines_grad(const conv_view *view, int64_t n_samples, lines_grad_plan *plan)
{
    const int64_t height = view->h.n_grid;
    if (!int_view_has_lines(view) || round_up(height, DOT_GROUP) * 2 > height * 3) {
        return false;
    }
    plan->depth = view_depth(view);
    plan->n_lines = ceil_div(height, DOT_GROUP);
    plan->n_parts = ceil_div(view->w.n_grid, GRAD_PART);
    plan->n_pixels = ceil_div(view->w.n_grid, plan->n_parts);
    plan->line =
        ((plan->n_pixels - 1) * view->w.step + (int64_t)(view->w.n_taps - 1) * view->w.pitch + 1) *
        view->channels;
    plan->pitch = round_up(plan->line, 16);
    plan->n_copied =
        (DOT_GROUP - 1) * (int64_t)view->h.step + (int64_t)(view->h.n_taps - 1) * view->h.pitch + 1;
    const int64_t a_unit = view->h.n_taps * plan->pitch * DOT_GROUP * (int64_t)sizeof(dot_a);
    const int64_t b_unit = plan->n_pixels * view->outputs * DOT_GROUP * (int64_t)sizeof(dot_b);
    const int64_t fit = INT_BLOCK_BYTES / max_i64(a_unit, b_unit);
    const int64_t wanted = GRAD_PIXELS / (plan->n_pixels * DOT_GROUP);
    plan->n_units = max_i64(1, min_i64(wanted, fit));
    if (n_samples > 0) {
        plan->n_units = min_i64(plan->n_units, n_samples * plan->n_lines * plan->n_parts);
    }
    const int64_t slack = LINES_SLACK * DOT_GROUP * (int64_t)sizeof(dot_b);
    const int64_t columns = round_up(view->outputs, INT_WIDTH);
    plan->a_bytes = int_room(plan->n_units * a_unit);
    plan->b_bytes = int_room(plan->n_units * b_unit + slack);
    plan->start_bytes = int_room(columns * (int64_t)sizeof(int32_t));
    plan->row_bytes = int_room((plan->depth + INT_FEW) * (int64_t)sizeof(int32_t));
    plan->group_bytes = int_room(plan->n_units * plan->n_pixels * (int64_t)sizeof(int32_t));
    plan->room_bytes = int_room(plan->n_copied * plan->line);
    return fit > 0;
}

uint64_t K(int_lines_grad_bytes)(const conv_view *view, int64_t n_samples, size_t n_threads)
{
    lines_grad_plan plan;
    if (!plan_lines_grad(view, n_samples, &plan)) {
        return 0;
    }
    return (uint64_t)(plan.a_bytes + plan.b_bytes + plan.start_bytes + plan.row_bytes +
                      plan.group_bytes) +
           (uint64_t)plan.room_bytes * (uint64_t)n_threads;
}

/* The source lines of output lines [t, t + DOT_GROUP), from output pixel u on, with padding. */
static void copy_lines(const lines_grad_job *job, int64_t sample, int64_t t, int64_t u, int8_t *to)
{
    const conv_view *view = job->view;
    const int64_t line = job->plan.line;
    const int64_t end = (int64_t)view->w.n_source * view->channels;
    const int64_t first = (u * view->w.step + view->w.offset) * view->channels;
    const int64_t before = min_i64(line, max_i64(0, -first));
    const int64_t inside = max_i64(0, min_i64(line, end - first) - before);
    for (int64_t i = 0; i < job->plan.n_copied; i++, to += line) {
        const int64_t y = t * view->h.step + view->h.offset + i;
        if (y < 0 || y >= view->h.n_source || inside == 0) {
            memset(to, 0, (size_t)line);
            continue;
        }
        const int8_t *from = job->call->x + (sample * view->h.n_source + y) * end + first + before;
        memset(to, 0, (size_t)before);
        memcpy(to + before, from, (size_t)inside);
        memset(to + before + inside, 0, (size_t)(line - before - inside));
    }
}

/* Pixels that a part lacks are zero in the output gradient. */
static void pack_outputs(const lines_grad_job *job, int64_t sample, int64_t t, int64_t u, dot_b *to)
{
    const conv_view *view = job->view;
    const int64_t here = min_i64(job->plan.n_pixels, view->w.n_grid - u);
    const int64_t pitch = (int64_t)view->w.n_grid * view->outputs;
    const int_rows rows = {.from = job->call->dy + (sample * view->h.n_grid + t) * pitch +
                                   u * view->outputs,
                           .pitch = pitch,
                           .k = min_i64(DOT_GROUP, view->h.n_grid - t),
                           .n = here * view->outputs,
                           .width = job->plan.n_pixels * view->outputs};
    K(int_interleave)(&rows, to);
}

/* One unit of both operands. */
static void lines_grad_pack(const lines_grad_job *job, int64_t i, int8_t *copied)
{
    const conv_view *view = job->view;
    const lines_grad_plan *plan = &job->plan;
    const int64_t unit = job->first + i;
    const int64_t u = unit % plan->n_parts * plan->n_pixels;
    const int64_t sample = unit / plan->n_parts / plan->n_lines;
    const int64_t t = unit / plan->n_parts % plan->n_lines * DOT_GROUP;
    dot_a *a = job->a + i * view->h.n_taps * plan->pitch * DOT_GROUP;
    int_rows rows = {.pitch = view->h.step * plan->line,
                     .k = DOT_GROUP,
                     .n = plan->line,
                     .width = plan->line,
                     .flip = DOT_OFFSET};
    copy_lines(job, sample, t, u, copied);
    for (int64_t j = 0; j < view->h.n_taps; j++) {
        rows.from = copied + j * view->h.pitch * plan->line;
        K(int_interleave)(&rows, (dot_b *)(void *)(a + j * plan->pitch * DOT_GROUP));
    }
    pack_outputs(job, sample, t, u, job->b + i * plan->n_pixels * view->outputs * DOT_GROUP);
}

static void lines_grad_pack_task(void *ctx, size_t slot)
{
    const lines_grad_job *job = (const lines_grad_job *)ctx;
    const int64_t n_workers = (int64_t)task_threads(job->call->threads);
    int8_t *copied = (int8_t *)(job->rooms + (int64_t)slot * job->plan.room_bytes);
    for (int64_t i = (int64_t)slot; i < job->n_units; i += n_workers) {
        lines_grad_pack(job, i, copied);
    }
}

static void lines_grad_store(const int_block *block, int64_t row, int64_t n_rows, int64_t column,
                             int64_t n, const int32_t *tile)
{
    const lines_grad_job *job = (const lines_grad_job *)block->target;
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t at =
            ((block->row_at - job->row_at) + row + i) * job->view->out_pitch + column;
        K(int_add_sums)(job->call, at, n, tile + i * INT_WIDTH, job->is_first);
    }
}

/* A tile's rows of the gradient. */
static void lines_grad_task(void *ctx, size_t task)
{
    lines_grad_job *job = (lines_grad_job *)ctx;
    const int64_t row = (int64_t)task * INT_ROWS;
    const bool is_new = job->is_first && job->call->is_reset && job->call->sums != NULL;
    const int64_t pitch = job->view->out_pitch;
    const int_block block = {.a = job->a,
                             .row_at = job->row_at + row,
                             .group_at = job->group_at,
                             .b = job->b,
                             .b_pitch = (int64_t)job->view->outputs * DOT_GROUP,
                             .start = job->start,
                             .groups = job->n_units * job->plan.n_pixels,
                             .m = min_i64(INT_ROWS, job->plan.depth - row),
                             .n = job->view->outputs,
                             .sums = is_new ? job->call->sums + row * pitch : NULL,
                             .sums_pitch = pitch,
                             .store = lines_grad_store,
                             .target = job};
    K(int_gemm)(&block);
}

/* Where the elements of a row of the gradient begin, and the pixels of all units. */
static void find_elements(lines_grad_job *job)
{
    const lines_grad_plan *plan = &job->plan;
    const conv_view *view = job->view;
    const int64_t a_unit = view->h.n_taps * plan->pitch;
    for (int64_t i = 0; i < plan->depth + INT_FEW; i++) {
        const int64_t row = min_i64(i, plan->depth - 1);
        const int64_t tap = row / view->channels;
        const int64_t at = tap / view->w.n_taps * plan->pitch +
                           tap % view->w.n_taps * view->w.pitch * view->channels +
                           row % view->channels;
        job->row_at[i] = (int32_t)(at * DOT_GROUP);
    }
    for (int64_t i = 0; i < plan->n_units * plan->n_pixels; i++) {
        const int64_t at =
            i / plan->n_pixels * a_unit + i % plan->n_pixels * view->w.step * view->channels;
        job->group_at[i] = (int32_t)(at * DOT_GROUP);
    }
}

bool K(int_lines_grad)(const dunlin_int_conv_call *call, const conv_view *view)
{
    lines_grad_job job = {.call = call, .view = view, .is_first = true};
    const lines_grad_plan *plan = &job.plan;
    if (!plan_lines_grad(view, call->n_samples, &job.plan)) {
        return false;
    }
    job.a = (dot_a *)call->workspace;
    job.b = (dot_b *)(void *)((char *)job.a + plan->a_bytes);
    job.start = (int32_t *)(void *)((char *)job.b + plan->b_bytes);
    job.row_at = (int32_t *)(void *)((char *)job.start + plan->start_bytes);
    job.group_at = (int32_t *)(void *)((char *)job.row_at + plan->row_bytes);
    job.rooms = (char *)job.group_at + plan->group_bytes;
    find_elements(&job);
    const int64_t n_workers = (int64_t)task_threads(call->threads);
    const int64_t n_units = call->n_samples * plan->n_lines * plan->n_parts;
    for (job.first = 0; job.first < n_units; job.first += plan->n_units) {
        job.n_units = min_i64(plan->n_units, n_units - job.first);
        const int64_t groups = job.n_units * plan->n_pixels;
        const int64_t work = groups * view->outputs;
        dot_b *slack = job.b + work * DOT_GROUP;
        run_tasks(call->threads, lines_grad_pack_task, &job, n_workers, work);
        memset(slack, 0, LINES_SLACK * DOT_GROUP * sizeof *slack);
        K(int_start)(job.b, groups, view->outputs, NULL, 0, job.start);
        run_tasks(call->threads, lines_grad_task, &job, ceil_div(plan->depth, INT_ROWS),
                  work * plan->depth);
        job.is_first = false;
    }
    return true;
}
