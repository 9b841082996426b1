/*
 * int_columns.c - see int_columns.h: forward pass and input gradient.
 *
 * A group is RUN_GROUP lines of the source. Several output lines whose windows lie in the same
 * groups are a strip: each has weights of its own, the kernel's rows further down between zeros.
 */
#include "int_columns.h"

#if DOT_OFFSET != 0

typedef struct columns_plan {
    int64_t n_groups; /* of lines */
    int64_t n_terms;  /* groups and taps of a row */
    int64_t n_lines;  /* output lines of a strip */
    int64_t n_strips; /* of a sample */
    int64_t n_parts;  /* of a line */
    int64_t n_pixels; /* of a part at most */
    int64_t n_columns;
    int64_t at_once;
    int64_t n_runs;
    int64_t weight_bytes, room_bytes;
} columns_plan;

typedef struct columns_job {
    const dunlin_int_conv_call *call;
    const conv_view *view;
    bool is_input_grad;
    const int8_t *source;
    columns_plan plan;
    int_run *weights; /* [run][line][term] */
    int_run *starts;  /* [run] */
    char *rooms;
    shares shared;
    int_tally *tally;
} columns_job;

static bool plan_columns(const conv_view *view, columns_plan *plan)
{
    if (view->h.n_taps < 1 || view->w.n_taps < 1 || view->h.n_grid < 1 || view->w.n_grid < 1) {
        return false;
    }
    const bool is_close = view->h.step == 1 && (view->h.pitch == 1 || view->h.n_taps == 1);
    plan->n_groups = ceil_div(view->h.n_taps, RUN_GROUP);
    plan->n_terms = plan->n_groups * view->w.n_taps;
    plan->n_lines = is_close ? plan->n_groups * RUN_GROUP - view->h.n_taps + 1 : 1;
    plan->n_lines = min_i64(plan->n_lines, view->h.n_grid);
    plan->n_strips = ceil_div(view->h.n_grid, plan->n_lines);
    plan->at_once = int_columns_together(view, view->w.n_grid);
    plan->n_runs = ceil_div(view->source_pitch, RUN_CHANNELS);
    const int64_t column = plan->n_groups * (int64_t)sizeof(int_run);
    const int64_t more = (int64_t)(view->w.n_taps - 1) * view->w.pitch + 1;
    const int64_t fit = (COLUMNS_BYTES / column - more) / view->w.step;
    plan->n_pixels = round_up(max_i64(16, min_i64(fit, view->w.n_grid)), plan->at_once);
    plan->n_parts = ceil_div(view->w.n_grid, plan->n_pixels);
    plan->n_pixels = round_up(ceil_div(view->w.n_grid, plan->n_parts), plan->at_once);
    plan->n_parts = ceil_div(view->w.n_grid, plan->n_pixels);
    plan->n_columns = (plan->n_pixels - 1) * view->w.step + more;
    plan->weight_bytes =
        plan->n_runs * (plan->n_lines * plan->n_terms + 1) * (int64_t)sizeof(int_run);
    plan->room_bytes = int_room(plan->n_columns * column);
    return plan->room_bytes <= COLUMNS_MOST && plan->weight_bytes <= INT_PART_BYTES;
}

uint64_t K(int_columns_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                              size_t n_threads)
{
    conv_view view;
    columns_plan plan;
    uint64_t most = 0;
    const bool is_input_grad = pass == DUNLIN_CONV_INPUT_GRAD;
    dunlin__view_forward(shape, &view);
    if (pass == DUNLIN_CONV_WEIGHT_GRAD) {
        return K(int_columns_grad_bytes)(&view, n_threads);
    }
    for (int32_t i = 0; i < (is_input_grad ? shape->stride_h : 1); i++) {
        for (int32_t j = 0; j < (is_input_grad ? shape->stride_w : 1); j++) {
            if (is_input_grad) {
                dunlin__view_input_grad(shape, i, j, &view);
            }
            if (plan_columns(&view, &plan)) {
                const uint64_t bytes =
                    (uint64_t)plan.weight_bytes + (uint64_t)plan.room_bytes * (uint64_t)n_threads;
                most = bytes > most ? bytes : most;
            }
        }
    }
    return most;
}

/* Weights of a run for output line `line`: of each term the rows of its group. */
static void columns_weights(const columns_job *job, int64_t run, int64_t line, int_run *to)
{
    const conv_view *view = job->view;
    const int64_t channels = view->source_pitch;
    const int64_t c = run * RUN_CHANNELS;
    const int64_t n = min_i64(RUN_CHANNELS, channels - c);
    for (int64_t term = 0; term < job->plan.n_terms; term++) {
        int8_t bytes[RUN_GROUP][RUN_CHANNELS] = {{0}};
        const int8_t *rows[RUN_GROUP];
        for (int64_t g = 0; g < RUN_GROUP; g++) {
            const int64_t row = term / view->w.n_taps * RUN_GROUP + g - line;
            const int64_t tap = row * view->w.n_taps + term % view->w.n_taps;
            rows[g] = bytes[g];
            for (int64_t p = 0; row >= 0 && row < view->h.n_taps && p < job->plan.at_once; p++) {
                memcpy(bytes[g] + p * n, job->call->w + view_tap(view, tap) * channels + c,
                       (size_t)n);
            }
        }
        to[term] = run_rows(rows, 0, RUN_CHANNELS, 0);
    }
}

static void columns_run_weights(const columns_job *job, int64_t run)
{
    const int64_t c = run * RUN_CHANNELS;
    const int64_t n = min_i64(RUN_CHANNELS, job->view->source_pitch - c);
    const int64_t n_terms = job->plan.n_terms;
    const int32_t *bias = job->is_input_grad ? NULL : job->call->bias;
    const vint ones = (vint){0} + 0x01010101;
    int_run *to = job->weights + run * job->plan.n_lines * n_terms;
    int_run start = {{{0}}};
    for (int64_t line = 0; line < job->plan.n_lines; line++) {
        columns_weights(job, run, line, to + line * n_terms);
    }
    for (int j = 0; j < RUN_VECTORS; j++) {
        for (int64_t term = 0; term < n_terms; term++) {
            start.of[j] = vdot(start.of[j], ones, to[term].of[j]);
        }
        start.of[j] *= -DOT_OFFSET;
        for (int i = 0; bias != NULL && i < VEC; i++) {
            const int64_t at = i / 4 * 16 + j * 4 + i % 4;
            start.of[j][i] += at < n * job->plan.at_once ? bias[c + at % n] : 0;
        }
    }
    job->starts[run] = start;
}

/* Some output lines over all pixels of a part. */
typedef struct columns_lines {
    const columns_job *job;
    const int_run *columns;
    const int_run *weights; /* of the first line; the next line's follow */
    int_run start;
    int64_t n_pixels;
    int64_t at[2]; /* element of the output of the first pixel, by line */
    int64_t n;     /* bytes of a run */
} columns_lines;

ALWAYS_INLINE void columns_strip(const columns_lines *lines, int n_lines, int64_t n_terms,
                                 int64_t n_taps, int_target *target, run_count *count)
{
    const conv_view *view = lines->job->view; /* copies: nothing stored changes them */
    const int64_t at_once = lines->job->plan.at_once;
    const int64_t n_columns = lines->job->plan.n_columns;
    const int64_t out_step = (int64_t)view->w.out_step * view->source_pitch;
    const int64_t step = view->w.step;
    const int64_t pitch = view->w.pitch;
    const columns_lines here = *lines;
    const bool is_plain = target->addend == NULL && target->real == NULL;
    const int_target plain = *target;
    run_count counted = {{0}, 0};
    for (int64_t u = 0; u < here.n_pixels; u += at_once) {
        int_run sums[2];
        UNROLL
        for (int i = 0; i < n_lines; i++) {
            sums[i] = here.start;
        }
        for (int64_t term = 0; term < n_terms; term++) {
            const int64_t column = term / n_taps * n_columns + u * step + term % n_taps * pitch;
            const int_run *x = here.columns + column;
            UNROLL
            for (int i = 0; i < n_lines; i++) {
                const int_run *w = here.weights + i * n_terms + term;
                UNROLL
                for (int j = 0; j < RUN_VECTORS; j++) {
                    sums[i].of[j] = vdot(sums[i].of[j], x->of[j], w->of[j]);
                }
            }
        }
        UNROLL
        for (int i = 0; i < n_lines; i++) {
            const int64_t at = here.at[i] + u * out_step;
            if (is_plain) {
                run_finish(&plain, &sums[i], at, here.n, &counted);
            } else {
                const int_run done = sums[i];
                K(int_store_run)(target, &done, here.n, at);
            }
        }
    }
    count->largest = vint_max(count->largest, counted.largest);
    count->n_clipped += counted.n_clipped;
}

static void columns_two(const columns_lines *lines, int_target *target, run_count *count)
{
    const int64_t n_taps = lines->job->view->w.n_taps;
    if (lines->job->plan.n_terms == 3 && n_taps == 3) {
        columns_strip(lines, 2, 3, 3, target, count);
    } else {
        columns_strip(lines, 2, lines->job->plan.n_terms, n_taps, target, count);
    }
}

static void columns_one(const columns_lines *lines, int_target *target, run_count *count)
{
    const int64_t n_taps = lines->job->view->w.n_taps;
    if (lines->job->plan.n_terms == 3 && n_taps == 3) {
        columns_strip(lines, 1, 3, 3, target, count);
    } else {
        columns_strip(lines, 1, lines->job->plan.n_terms, n_taps, target, count);
    }
}

/* The columns of a strip's part, a run of channels. */
static void columns_fill(const columns_job *job, int64_t sample, int64_t t, int64_t u, int64_t run,
                         int_run *to)
{
    const conv_view *view = job->view;
    const int64_t channels = view->source_pitch;
    const int64_t c = run * RUN_CHANNELS;
    const int64_t line_bytes = (int64_t)view->w.n_source * channels;
    int_columns columns = {.width = view->w.n_source,
                           .channels = channels,
                           .n = min_i64(RUN_CHANNELS, channels - c) * job->plan.at_once,
                           .at_once = job->plan.at_once,
                           .flip = (int8_t)-DOT_OFFSET};
    const int64_t pitch = view->h.n_taps == 1 ? 1 : view->h.pitch;
    const int64_t lacking = max_i64(0, u + job->plan.n_pixels - view->w.n_grid) * view->w.step;
    for (int64_t group = 0; group < job->plan.n_groups; group++) {
        for (int64_t g = 0; g < RUN_GROUP; g++) {
            const int64_t y = t * view->h.step + view->h.offset + (group * RUN_GROUP + g) * pitch;
            const bool is_in = y >= 0 && y < view->h.n_source;
            columns.lines[g] =
                is_in ? job->source + (sample * view->h.n_source + y) * line_bytes + c : NULL;
        }
        K(int_columns_pack)
        (&columns, u * view->w.step + view->w.offset, 1, job->plan.n_columns - lacking,
         to + group * job->plan.n_columns);
    }
}

static void columns_unit(const columns_job *job, int64_t unit, int_run *columns, int_target *target,
                         run_count *count)
{
    const columns_plan *plan = &job->plan;
    const conv_view *view = job->view;
    const int64_t channels = view->source_pitch;
    const int64_t u = unit % plan->n_parts * plan->n_pixels;
    const int64_t sample = unit / plan->n_parts / plan->n_strips;
    const int64_t t = unit / plan->n_parts % plan->n_strips * plan->n_lines;
    const int64_t n_lines = min_i64(plan->n_lines, view->h.n_grid - t);
    for (int64_t run = 0; run < plan->n_runs; run++) {
        const int64_t c = run * RUN_CHANNELS;
        columns_lines lines = {.job = job,
                               .columns = columns,
                               .start = job->starts[run],
                               .n_pixels = min_i64(plan->n_pixels, view->w.n_grid - u),
                               .n = min_i64(RUN_CHANNELS, channels - c) * plan->at_once};
        columns_fill(job, sample, t, u, run, columns);
        for (int64_t i = 0; i < n_lines; i += 2) {
            lines.weights = job->weights + (run * plan->n_lines + i) * plan->n_terms;
            lines.at[0] = view_out_pixel(view, sample, t + i, u) * channels + c;
            lines.at[1] = view_out_pixel(view, sample, t + i + 1, u) * channels + c;
            if (i + 1 < n_lines) {
                columns_two(&lines, target, count);
            } else {
                columns_one(&lines, target, count);
            }
        }
    }
}

static void columns_task(void *ctx, size_t slot)
{
    columns_job *job = (columns_job *)ctx;
    int_run *columns = (int_run *)(void *)(job->rooms + (int64_t)slot * job->plan.room_bytes);
    int_target target = int_target_of(job->call, job->is_input_grad);
    run_count count = {{0}, 0};
    for (int64_t unit = shares_take(&job->shared, (int64_t)slot); unit < job->shared.n_units;
         unit = shares_take(&job->shared, (int64_t)slot)) {
        columns_unit(job, unit, columns, &target, &count);
    }
    count_close(&count, &target);
    int_target_take(&target, job->tally);
}

bool K(int_columns_run)(const dunlin_int_conv_call *call, const conv_view *view, bool is_input_grad,
                        int_tally *tally)
{
    columns_job job = {.call = call,
                       .view = view,
                       .is_input_grad = is_input_grad,
                       .source = is_input_grad ? call->dy : call->x,
                       .tally = tally};
    if (!plan_columns(view, &job.plan)) {
        return false;
    }
    const columns_plan *plan = &job.plan;
    const int64_t n_workers = (int64_t)task_threads(call->threads);
    job.starts = (int_run *)call->workspace;
    job.weights = job.starts + plan->n_runs;
    job.rooms = (char *)call->workspace + plan->weight_bytes;
    for (int64_t run = 0; run < plan->n_runs; run++) {
        columns_run_weights(&job, run);
    }
    shares_open(&job.shared, call->n_samples * plan->n_strips * plan->n_parts, n_workers);
    run_tasks(call->threads, columns_task, &job, n_workers,
              call->n_samples * view_rows(view) * view->source_pitch * view->w.n_taps *
                  view->h.n_taps);
    return true;
}

#else

uint64_t K(int_columns_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                              size_t n_threads)
{
    (void)shape;
    (void)pass;
    (void)n_threads;
    return 0;
}

bool K(int_columns_run)(const dunlin_int_conv_call *call, const conv_view *view, bool is_input_grad,
                        int_tally *tally)
{
    (void)call;
    (void)view;
    (void)is_input_grad;
    (void)tally;
    return false;
}

#endif
