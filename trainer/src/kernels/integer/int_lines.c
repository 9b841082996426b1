/*
 * int_lines.c - see int_lines.h: forward pass and input gradient.
 *
 * A unit is a strip of a sample's output lines, or a part of one line. Its source lines are copied
 * with their padding; the window of an output pixel is then one run of elements in each of the
 * kernel's rows, which the tile reads where it lies. Runs are whole groups: what a group has beyond
 * the run meets weights of zero.
 *
 * Few outputs leave most columns of a tile empty. So neighbouring pixels are one row of the product
 * where that is cheaper: its window is as much wider, and a pixel's weights stand as much further
 * down its columns, between zeros.
 */
#include "int_lines.h"

#define LINES_ROWS (INT_BLOCK_TILES * INT_ROWS) /* of a unit, about */
#define LINES_TOGETHER 8                        /* pixels of a row at most */

typedef struct int_lines_plan {
    int64_t at_once;    /* neighbouring output pixels that are one row */
    int64_t run;        /* elements of a window in a row of the kernel */
    int64_t run_groups; /* groups of it */
    int64_t groups;     /* of all */
    int64_t columns;    /* outputs of the pixels of a row */
    int64_t n_strips;   /* of a sample */
    int64_t n_parts;    /* of a line; one unless a strip is one line */
    int64_t n_lines;    /* of a strip, at most */
    int64_t n_pixels;   /* of a line or part of it, at most */
    int64_t pitch;      /* of packed source lines, elements */
    int64_t n_room;     /* packed source lines */
    int64_t b_bytes, start_bytes, row_bytes, group_bytes, room_bytes;
} int_lines_plan;

typedef struct int_lines_job {
    const int_lines *lines;
    int_lines_plan plan;
    dot_b *b;
    int32_t *start;
    int32_t *row_at;   /* windows of a unit in its packed lines */
    int32_t *group_at; /* groups of a window */
    int64_t *out_at;   /* pixels of a unit in the output, from its first */
    char *rooms;
    shares shared;
} int_lines_job;

/* Products of a pixel with so many pixels in a row, times 64. */
static int64_t lines_cost(const conv_view *view, int64_t at_once)
{
    const int64_t run = (view->w.n_taps + (at_once - 1) * view->w.step) * (int64_t)view->channels;
    const int64_t vectors = ceil_div(at_once * view->outputs, VEC);
    return 64 * view->h.n_taps * int_groups(run) * vectors / at_once;
}

static int64_t pixels_together(const conv_view *view)
{
    int64_t best = 1;
    for (int64_t i = 2; i <= LINES_TOGETHER && i * view->outputs <= INT_WIDTH; i++) {
        const bool is_whole = view->w.n_grid % i == 0 && view->w.out_step == 1;
        if (is_whole && lines_cost(view, i) < lines_cost(view, best)) {
            best = i;
        }
    }
    return best;
}

static bool plan_lines(const conv_view *view, int_lines_plan *plan)
{
    if (!int_view_has_lines(view) || (view->w.pitch != 1 && view->w.n_taps > 1)) {
        return false;
    }
    const int64_t width = view->w.n_grid;
    const int64_t height = view->h.n_grid;
    const int64_t at_once = pixels_together(view);
    const int64_t most = LINES_ROWS * at_once; /* pixels of a unit */
    plan->at_once = at_once;
    plan->run = (view->w.n_taps + (at_once - 1) * view->w.step) * (int64_t)view->channels;
    plan->run_groups = int_groups(plan->run);
    plan->groups = plan->run_groups * view->h.n_taps;
    plan->columns = at_once * view->outputs;
    plan->n_parts = ceil_div(width, most);
    plan->n_pixels = round_up(ceil_div(width, plan->n_parts), at_once);
    plan->n_strips = ceil_div(height, max_i64(1, most / plan->n_pixels));
    plan->n_lines = plan->n_parts > 1 ? 1 : ceil_div(height, plan->n_strips);
    plan->n_strips = ceil_div(height, plan->n_lines);
    const int64_t line = (plan->n_pixels - 1) * view->w.step + view->w.n_taps;
    plan->pitch = round_up(line * view->channels + DOT_GROUP, 16);
    plan->n_room =
        (plan->n_lines - 1) * view->h.step + (int64_t)(view->h.n_taps - 1) * view->h.pitch + 1;
    const int64_t panels = int_panels_width(plan->columns);
    const int64_t rows = plan->n_lines * (plan->n_pixels / at_once) + INT_FEW;
    plan->b_bytes = int_room(plan->groups * panels * DOT_GROUP * (int64_t)sizeof(dot_b));
    plan->start_bytes = int_room(panels * (int64_t)sizeof(int32_t));
    plan->row_bytes = int_room(rows * (int64_t)(sizeof(int32_t) + sizeof(int64_t)));
    plan->group_bytes = int_room(plan->groups * (int64_t)sizeof(int32_t));
    plan->room_bytes = int_room(plan->n_room * plan->pitch * (int64_t)sizeof(dot_a));
    return plan->b_bytes <= INT_PART_BYTES && plan->room_bytes <= INT_BLOCK_BYTES;
}

uint64_t K(int_lines_bytes)(const conv_view *view, size_t n_threads)
{
    int_lines_plan plan;
    if (!plan_lines(view, &plan)) {
        return 0;
    }
    return (uint64_t)(plan.b_bytes + plan.start_bytes + plan.row_bytes + plan.group_bytes) +
           (uint64_t)plan.room_bytes * (uint64_t)n_threads;
}

/* A panel's weights, element by element; the others stay zero. */
static void scatter_panel(const int_lines_job *job, int64_t column, int64_t width, dot_b *to)
{
    const int_lines *lines = job->lines;
    const conv_view *view = lines->view;
    const dunlin_conv_shape *shape = lines->call->shape;
    const int64_t end = min_i64(width, job->plan.columns - column);
    const int64_t n_taps = (int64_t)view->h.n_taps * view->w.n_taps;
    for (int64_t j = 0; j < end; j++) {
        const int64_t pixel = (column + j) / view->outputs;
        const int64_t out = (column + j) % view->outputs;
        for (int64_t tap = 0; tap < n_taps; tap++) {
            const int64_t first = (tap % view->w.n_taps + pixel * view->w.step) * view->channels;
            const int64_t group = tap / view->w.n_taps * job->plan.run_groups;
            const int64_t element = view_tap(view, tap);
            for (int64_t c = 0; c < view->channels; c++) {
                const int64_t k = first + c;
                const int64_t at = lines->is_input_grad
                                       ? (element * view->outputs + out) * shape->out_c + c
                                       : (element * view->channels + c) * shape->out_c + out;
                to[((group + k / DOT_GROUP) * width + j) * DOT_GROUP + k % DOT_GROUP] =
                    (dot_b)lines->call->w[at];
            }
        }
    }
}

static void lines_panel_task(void *ctx, size_t task)
{
    const int_lines_job *job = (const int_lines_job *)ctx;
    const int_lines *lines = job->lines;
    const conv_view *view = lines->view;
    const int64_t column = (int64_t)task * INT_WIDTH;
    const int64_t width = int_panel(job->plan.columns - column);
    const int64_t n = min_i64(width, job->plan.columns - column);
    const int32_t *bias = lines->is_input_grad ? NULL : lines->call->bias;
    dot_b *to = job->b + column * job->plan.groups * DOT_GROUP;
    int32_t biases[INT_WIDTH];
    if (lines->is_input_grad || job->plan.at_once > 1) {
        memset(to, 0, (size_t)(job->plan.groups * width * DOT_GROUP) * sizeof *to);
        scatter_panel(job, column, width, to);
    } else {
        int_rows panel = {.pitch = view->outputs, .k = job->plan.run, .n = n, .width = width};
        for (int64_t i = 0; i < view->h.n_taps; i++) {
            panel.from = lines->call->w + i * job->plan.run * view->outputs + column;
            K(int_interleave)(&panel, to + i * job->plan.run_groups * width * DOT_GROUP);
        }
    }
    for (int64_t j = 0; bias != NULL && j < n; j++) {
        biases[j] = bias[(column + j) % view->outputs];
    }
    K(int_start)
    (to, job->plan.groups, width, bias == NULL ? NULL : biases, n, job->start + column);
}

/* Elements [first, first + n) of a source line, which may lie outside of it; NULL: all do. */
static void pack_line(const conv_view *view, const int8_t *line, int64_t first, int64_t n,
                      dot_a *to)
{
    const int64_t end = (int64_t)view->w.n_source * view->channels;
    const int64_t before = line == NULL ? n : min_i64(n, max_i64(0, -first));
    const int64_t inside = line == NULL ? 0 : max_i64(0, min_i64(n, end - first) - before);
    K(int_clear_row)(before, to);
    if (inside > 0) {
        K(int_pack_row)(line + first + before, inside, to + before);
    }
    K(int_clear_row)(n - before - inside, to + before + inside);
}

/* The source lines of n output lines from line t on, of the pixels from u on. */
static void pack_lines(const int_lines_job *job, int64_t sample, int64_t t, int64_t n, int64_t u,
                       dot_a *to)
{
    const conv_view *view = job->lines->view;
    const int64_t line_size = (int64_t)view->w.n_source * view->channels;
    const int64_t n_lines =
        (n - 1) * view->h.step + (int64_t)(view->h.n_taps - 1) * view->h.pitch + 1;
    const int64_t first = (u * view->w.step + view->w.offset) * view->channels;
    for (int64_t i = 0; i < n_lines; i++) {
        const int64_t y = t * view->h.step + view->h.offset + i;
        const bool is_in = y >= 0 && y < view->h.n_source;
        const int8_t *line = job->lines->source + (sample * view->h.n_source + y) * line_size;
        pack_line(view, is_in ? line : NULL, first, job->plan.pitch, to + i * job->plan.pitch);
    }
}

static void lines_task(void *ctx, size_t slot)
{
    int_lines_job *job = (int_lines_job *)ctx;
    const int_lines *lines = job->lines;
    const dunlin_int_conv_call *call = lines->call;
    const conv_view *view = lines->view;
    const int_lines_plan *plan = &job->plan;
    dot_a *a = (dot_a *)(void *)(job->rooms + (int64_t)slot * plan->room_bytes);
    int_target target = int_target_of(call, lines->is_input_grad);
    target.at = job->out_at;
    int_block block = {.a = a,
                       .row_at = job->row_at,
                       .group_at = job->group_at,
                       .b = job->b,
                       .start = job->start,
                       .groups = plan->groups,
                       .n = plan->columns,
                       .is_by_rows = plan->columns * plan->groups * DOT_GROUP <= INT_NEAR_BYTES,
                       .store = K(int_store),
                       .target = &target};
    for (int64_t unit = shares_take(&job->shared, (int64_t)slot); unit < job->shared.n_units;
         unit = shares_take(&job->shared, (int64_t)slot)) {
        const int64_t u = unit % plan->n_parts * plan->n_pixels;
        const int64_t strip = unit / plan->n_parts;
        const int64_t sample = strip / plan->n_strips;
        const int64_t t = strip % plan->n_strips * plan->n_lines;
        const int64_t n = min_i64(plan->n_lines, view->h.n_grid - t);
        const int64_t width = min_i64(plan->n_pixels, view->w.n_grid - u);
        pack_lines(job, sample, t, n, u, a);
        target.column = view_out_pixel(view, sample, t, u) * view->out_pitch;
        block.m = n * (width / plan->at_once);
        K(int_gemm)(&block);
    }
    int_target_take(&target, lines->tally);
}

/* Where a unit's windows and their groups are, and where the pixels go. */
static void find_windows(int_lines_job *job)
{
    const int_lines_plan *plan = &job->plan;
    const conv_view *view = job->lines->view;
    const int64_t in_line = plan->n_pixels / plan->at_once;
    const int64_t n_rows = plan->n_lines * in_line;
    for (int64_t i = 0; i < n_rows; i++) {
        const int64_t t = i / in_line;
        const int64_t u = i % in_line * plan->at_once;
        job->row_at[i] =
            (int32_t)(t * view->h.step * plan->pitch + u * view->w.step * view->channels);
        job->out_at[i] =
            (t * view->h.out_step * view->w.n_out + u * view->w.out_step) * view->out_pitch;
    }
    for (int64_t i = n_rows; i < n_rows + INT_FEW; i++) {
        job->row_at[i] = job->row_at[n_rows - 1];
    }
    for (int64_t i = 0; i < plan->groups; i++) {
        job->group_at[i] = (int32_t)(i / plan->run_groups * view->h.pitch * plan->pitch +
                                     i % plan->run_groups * DOT_GROUP);
    }
}

bool K(int_lines_run)(const int_lines *lines)
{
    const dunlin_int_conv_call *call = lines->call;
    const conv_view *view = lines->view;
    int_lines_job job = {.lines = lines};
    const int_lines_plan *plan = &job.plan;
    if (!plan_lines(view, &job.plan)) {
        return false;
    }
    const int64_t n_workers = (int64_t)task_threads(call->threads);
    const int64_t n_rows = plan->n_lines * (plan->n_pixels / plan->at_once) + INT_FEW;
    job.b = (dot_b *)call->workspace;
    job.start = (int32_t *)(void *)((char *)job.b + plan->b_bytes);
    job.out_at = (int64_t *)(void *)((char *)job.start + plan->start_bytes);
    job.row_at = (int32_t *)(void *)(job.out_at + n_rows);
    job.group_at = (int32_t *)(void *)((char *)job.out_at + plan->row_bytes);
    job.rooms = (char *)job.group_at + plan->group_bytes;
    find_windows(&job);
    const int64_t work = plan->columns * plan->groups;
    run_tasks(call->threads, lines_panel_task, &job, ceil_div(plan->columns, INT_WIDTH), work);
    shares_open(&job.shared, call->n_samples * plan->n_strips * plan->n_parts, n_workers);
    run_tasks(call->threads, lines_task, &job, n_workers,
              work * call->n_samples * view_rows(view) / plan->at_once);
    return true;
}
