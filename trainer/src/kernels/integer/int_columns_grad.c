/*
 * int_columns_grad.c - see int_columns.h: the weight gradient.
 *
 * A unit is RUN_GROUP output lines, or a part of them. Their columns are packed once, and for each
 * row of the kernel those of the lines that it reads: every tap of the row takes the same ones.
 */
#include "int_columns.h"

#if DOT_OFFSET != 0

/* Products in a lane, far fewer than DUNLIN_INT_MOST_TERMS, before sums go to memory. */
#define COLUMNS_TERMS 32768
#define COLUMNS_PIXELS 48 /* of a part, about: both operands stay in the first cache */
#define COLUMNS_TAPS 3    /* of a row that are summed at once */

typedef struct columns_grad_plan {
    int64_t n_lines; /* groups of output lines of a sample */
    int64_t n_parts, n_pixels;
    int64_t n_columns; /* of the source, of a part */
    int64_t at_once, n_runs;
    int64_t n_taps;
    int64_t dy_bytes, sums_bytes, room_bytes;
} columns_grad_plan;

typedef struct columns_grad_job {
    const dunlin_int_conv_call *call;
    const conv_view *view;
    columns_grad_plan plan;
    int64_t n_rows; /* of the kernel that a task takes */
    char *rooms;
    shares shared;
} columns_grad_job;

/* One worker's memory. */
typedef struct columns_room {
    int_run *dy, *x;
    int_run *sums; /* by tap; then the sum of dy */
} columns_room;

static void plan_columns_grad(const conv_view *view, columns_grad_plan *plan)
{
    plan->at_once = int_columns_together(view, view->w.n_grid);
    plan->n_runs = ceil_div(view->source_pitch, RUN_CHANNELS);
    plan->n_lines = ceil_div(view->h.n_grid, RUN_GROUP);
    plan->n_parts = ceil_div(view->w.n_grid, COLUMNS_PIXELS);
    plan->n_pixels = round_up(ceil_div(view->w.n_grid, plan->n_parts), plan->at_once);
    plan->n_parts = ceil_div(view->w.n_grid, plan->n_pixels);
    plan->n_columns =
        (plan->n_pixels - 1) * view->w.step + (int64_t)(view->w.n_taps - 1) * view->w.pitch + 1;
    plan->n_taps = (int64_t)view->h.n_taps * view->w.n_taps;
    plan->dy_bytes = plan->n_pixels * (int64_t)sizeof(int_run);
    plan->sums_bytes = (plan->n_taps + 1) * (int64_t)sizeof(int_run);
    plan->room_bytes =
        plan->dy_bytes + plan->sums_bytes + plan->n_columns * (int64_t)sizeof(int_run);
}

uint64_t K(int_columns_grad_bytes)(const conv_view *view, size_t n_threads)
{
    columns_grad_plan plan;
    plan_columns_grad(view, &plan);
    return plan.room_bytes > COLUMNS_MOST ? 0 : (uint64_t)plan.room_bytes * (uint64_t)n_threads;
}

/* A run's columns of RUN_GROUP lines, `step` apart, of which those within [0, n_lines) are there.
 */
static int_columns columns_of(const columns_grad_job *job, const int8_t *lines, int64_t n_lines,
                              int64_t first, int64_t step, int64_t width, int64_t run)
{
    const int64_t channels = job->view->source_pitch;
    const int64_t c = run * RUN_CHANNELS;
    int_columns columns = {.width = width,
                           .channels = channels,
                           .n = min_i64(RUN_CHANNELS, channels - c) * job->plan.at_once,
                           .at_once = job->plan.at_once};
    for (int64_t g = 0; g < RUN_GROUP; g++) {
        const int64_t y = first + g * step;
        columns.lines[g] = y >= 0 && y < n_lines ? lines + y * width * channels + c : NULL;
    }
    return columns;
}

/* Taps [0, n_taps) of a row: products of all pixels of a part. */
ALWAYS_INLINE void columns_taps(const columns_grad_job *job, const int_run *x, const int_run *dy,
                                int64_t n_pixels, int n_taps, int_run *sums)
{
    const int64_t step = job->view->w.step;
    const int64_t pitch = job->view->w.pitch;
    const int64_t at_once = job->plan.at_once;
    int_run of[COLUMNS_TAPS];
    UNROLL
    for (int tap = 0; tap < n_taps; tap++) {
        of[tap] = sums[tap];
    }
    for (int64_t i = 0; i * at_once < n_pixels; i++) {
        const int_run d = dy[i];
        UNROLL
        for (int tap = 0; tap < n_taps; tap++) {
            const int_run *at = x + i * at_once * step + tap * pitch;
            UNROLL
            for (int j = 0; j < RUN_VECTORS; j++) {
                of[tap].of[j] = vdot(of[tap].of[j], at->of[j], d.of[j]);
            }
        }
    }
    UNROLL
    for (int tap = 0; tap < n_taps; tap++) {
        sums[tap] = of[tap];
    }
}

static void columns_row(const columns_grad_job *job, const int_run *x, const int_run *dy,
                        int64_t n_pixels, int_run *sums)
{
    const int64_t n_taps = job->view->w.n_taps;
    int64_t tap = 0;
    for (; tap + COLUMNS_TAPS <= n_taps; tap += COLUMNS_TAPS) {
        columns_taps(job, x + tap * job->view->w.pitch, dy, n_pixels, COLUMNS_TAPS, sums + tap);
    }
    for (; tap < n_taps; tap++) {
        columns_taps(job, x + tap * job->view->w.pitch, dy, n_pixels, 1, sums + tap);
    }
}

/* Sums of rows [row, end) of the kernel to memory, and from zero again. */
static void columns_flush(const columns_grad_job *job, int64_t run, int64_t row, int64_t end,
                          const columns_room *room)
{
    const dunlin_int_conv_call *call = job->call;
    const int64_t n_taps = job->view->w.n_taps;
    const int64_t channels = job->view->source_pitch;
    const int64_t c = run * RUN_CHANNELS;
    const int64_t n = min_i64(RUN_CHANNELS, channels - c);
    int_run *dy = room->sums + job->plan.n_taps;
    for (int64_t tap = row * n_taps; tap < end * n_taps; tap++) {
        int32_t ints[RUN_CHANNELS];
        int_run *sums = room->sums + tap;
        for (int j = 0; j < RUN_VECTORS; j++) {
            sums->of[j] -= dy->of[j] * DOT_OFFSET;
        }
        run_ints(sums, ints);
        memset(sums, 0, sizeof *sums);
        for (int64_t i = n; i < n * job->plan.at_once; i++) {
            ints[i % n] += ints[i];
        }
        for (int64_t i = 0; i < n; i++) {
            if (call->sums != NULL) {
                call->sums[tap * channels + c + i] += ints[i];
            } else {
                call->wide_sums[tap * channels + c + i] += ints[i];
            }
        }
    }
    memset(dy, 0, sizeof *dy);
}

/* Rows [row, end) of the kernel: what a unit adds to a run's sums. */
static void columns_grad_unit(const columns_grad_job *job, int64_t unit, int64_t run, int64_t row,
                              int64_t end, const columns_room *room)
{
    const conv_view *view = job->view;
    const columns_grad_plan *plan = &job->plan;
    const int64_t u = unit % plan->n_parts * plan->n_pixels;
    const int64_t sample = unit / plan->n_parts / plan->n_lines;
    const int64_t t = unit / plan->n_parts % plan->n_lines * RUN_GROUP;
    const int64_t n_pixels = min_i64(plan->n_pixels, view->w.n_grid - u);
    const int64_t channels = view->source_pitch;
    const int64_t n_dy = ceil_div(n_pixels, plan->at_once);
    const vint ones = (vint){0} + 0x01010101;
    int_run *of_dy = room->sums + plan->n_taps;
    const int8_t *dy = job->call->dy + sample * view_rows(view) * channels;
    const int8_t *x =
        job->call->x + sample * view->h.n_source * (int64_t)view->w.n_source * channels;
    const int_columns dy_columns = columns_of(job, dy, view->h.n_grid, t, 1, view->w.n_grid, run);
    K(int_columns_pack)(&dy_columns, u, plan->at_once, n_dy, room->dy);
    for (int64_t i = 0; i < n_dy; i++) {
        UNROLL
        for (int j = 0; j < RUN_VECTORS; j++) {
            of_dy->of[j] = vdot(of_dy->of[j], ones, room->dy[i].of[j]);
        }
    }
    const int64_t n_columns = plan->n_columns - (plan->n_pixels - n_pixels) * view->w.step;
    for (int64_t r = row; r < end; r++) {
        const int64_t first = t * view->h.step + view->h.offset + r * view->h.pitch;
        int_columns columns =
            columns_of(job, x, view->h.n_source, first, view->h.step, view->w.n_source, run);
        columns.flip = (int8_t)-DOT_OFFSET;
        K(int_columns_pack)
        (&columns, u * view->w.step + view->w.offset, 1, n_columns, room->x);
        columns_row(job, room->x, room->dy, n_pixels, room->sums + r * view->w.n_taps);
    }
}

static void columns_grad_task(void *ctx, size_t slot)
{
    columns_grad_job *job = (columns_grad_job *)ctx;
    const columns_grad_plan *plan = &job->plan;
    const int64_t n_units = job->call->n_samples * plan->n_lines * plan->n_parts;
    const int64_t n_parts = ceil_div(job->view->h.n_taps, job->n_rows);
    char *memory = job->rooms + (int64_t)slot * plan->room_bytes;
    const columns_room room = {.dy = (int_run *)(void *)memory,
                               .sums = (int_run *)(void *)(memory + plan->dy_bytes),
                               .x =
                                   (int_run *)(void *)(memory + plan->dy_bytes + plan->sums_bytes)};
    for (int64_t task = shares_take(&job->shared, (int64_t)slot); task < job->shared.n_units;
         task = shares_take(&job->shared, (int64_t)slot)) {
        const int64_t run = task / n_parts;
        const int64_t row = task % n_parts * job->n_rows;
        const int64_t end = min_i64(row + job->n_rows, job->view->h.n_taps);
        int64_t terms = 0;
        memset(room.sums, 0, (size_t)plan->sums_bytes);
        for (int64_t unit = 0; unit < n_units; unit++) {
            columns_grad_unit(job, unit, run, row, end, &room);
            terms += plan->n_pixels * RUN_GROUP;
            if (terms > COLUMNS_TERMS) {
                columns_flush(job, run, row, end, &room);
                terms = 0;
            }
        }
        columns_flush(job, run, row, end, &room);
    }
}

bool K(int_columns_grad)(const dunlin_int_conv_call *call, const conv_view *view)
{
    columns_grad_job job = {.call = call, .view = view, .rooms = (char *)call->workspace};
    plan_columns_grad(view, &job.plan);
    if (job.plan.room_bytes > COLUMNS_MOST) {
        return false;
    }
    const int64_t n_workers = (int64_t)task_threads(call->threads);
    const int64_t n = job.plan.n_taps * view->source_pitch;
    job.n_rows = job.plan.n_runs < n_workers ? 1 : view->h.n_taps;
    if (call->is_reset && call->sums != NULL) {
        memset(call->sums, 0, (size_t)n * sizeof *call->sums);
    } else if (call->is_reset) {
        memset(call->wide_sums, 0, (size_t)n * sizeof *call->wide_sums);
    }
    shares_open(&job.shared, job.plan.n_runs * ceil_div(view->h.n_taps, job.n_rows), n_workers);
    run_tasks(call->threads, columns_grad_task, &job, n_workers,
              n * call->n_samples * view_rows(view));
    return true;
}

#else

uint64_t K(int_columns_grad_bytes)(const conv_view *view, size_t n_threads)
{
    (void)view;
    (void)n_threads;
    return 0;
}

bool K(int_columns_grad)(const dunlin_int_conv_call *call, const conv_view *view)
{
    (void)call;
    (void)view;
    return false;
}

#endif
