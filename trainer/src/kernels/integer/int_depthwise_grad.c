/*
 * int_depthwise_grad.c - the weight gradient of depthwise convolutions in integers: for each tap
 * and run of channels the sum over all pixels, a group of a line at a time.
 */
#include "int_columns.h"

/* Pixels whose sums are kept in registers: far fewer than DUNLIN_INT_MOST_TERMS. */
#define PIXELS_MOST 32768

typedef struct int_depthwise_grad_job {
    const dunlin_int_conv_call *call;
    conv_view view;
    int64_t channels, n_runs;
    int64_t at_once; /* pixels that a run takes where they lie together: few channels */
    const int8_t *zeros;
} int_depthwise_grad_job;

/* One line of the gradient and the line of the source that a tap of it reads. */
typedef struct grad_line {
    const int8_t *dy;
    const int8_t *x;
    int64_t x0; /* of the first pixel */
    int64_t c, n;
} grad_line;

static const int8_t *source_at(const int_depthwise_grad_job *job, const grad_line *line, int64_t u)
{
    const int64_t x = line->x0 + u * job->view.w.step;
    return u < job->view.w.n_grid && x >= 0 && x < job->view.w.n_source
               ? line->x + x * job->channels
               : job->zeros;
}

#if RUN_VECTORS > 1

/* Two sums: of (x + DOT_OFFSET) dy and, where that is not 0, of dy, over RUN_GROUP rows. */
ALWAYS_INLINE void add_group(const int8_t *const *x, const int8_t *const *dy, int64_t c, int64_t n,
                             int_run *sums, int_run *sums_dy)
{
    const run_group a = run_rows(x, c, n, (int8_t)-DOT_OFFSET);
    const run_group b = run_rows(dy, c, n, 0);
    *sums = run_dot(*sums, &a, &b);
    *sums_dy = run_total(*sums_dy, &b);
}

/* A group of rows of `pixels` pixels each, all in the source. */
ALWAYS_INLINE void add_inner(const int_depthwise_grad_job *job, const grad_line *line, int64_t u,
                             int64_t pixels, int_run *sums, int_run *sums_dy)
{
    const int64_t step = job->view.w.step * job->channels * pixels;
    const int64_t dy_step = job->channels * pixels;
    const int8_t *x0 = line->x + (line->x0 + u * job->view.w.step) * job->channels;
    const int8_t *dy0 = line->dy + u * job->channels;
    const int8_t *x[RUN_GROUP];
    const int8_t *dy[RUN_GROUP];
    UNROLL
    for (int64_t i = 0; i < RUN_GROUP; i++) {
        x[i] = x0 + i * step;
        dy[i] = dy0 + i * dy_step;
    }
    add_group(x, dy, line->c, line->n * pixels, sums, sums_dy);
}

/* Whether pixel u and the next n - 1 have their tap in the source. */
static inline bool are_inner(const int_depthwise_grad_job *job, const grad_line *line, int64_t u,
                             int64_t n)
{
    const int64_t x = line->x0 + u * job->view.w.step;
    return u + n <= job->view.w.n_grid && x >= 0 &&
           x + (n - 1) * job->view.w.step < job->view.w.n_source;
}

ALWAYS_INLINE void add_line(const int_depthwise_grad_job *job, const grad_line *line, int_run *sums,
                            int_run *sums_dy)
{
    const int64_t n_grid = job->view.w.n_grid;
    int64_t u = 0;
    while (u < n_grid) {
        if (job->at_once > 1 && are_inner(job, line, u, RUN_GROUP * job->at_once)) {
            add_inner(job, line, u, job->at_once, sums, sums_dy);
            u += RUN_GROUP * job->at_once;
            continue;
        }
        if (are_inner(job, line, u, RUN_GROUP)) {
            add_inner(job, line, u, 1, sums, sums_dy);
            u += RUN_GROUP;
            continue;
        }
        /* those before the source by themselves, so that the next may be inner ones */
        const int64_t before =
            line->x0 < 0 && u == 0 ? ceil_div(-line->x0, job->view.w.step) : RUN_GROUP;
        const int64_t here = min_i64(RUN_GROUP, before);
        const int8_t *x[RUN_GROUP];
        const int8_t *dy[RUN_GROUP];
        for (int64_t i = 0; i < RUN_GROUP; i++) {
            const bool is_one = i < here && u + i < n_grid;
            x[i] = is_one ? source_at(job, line, u + i) : job->zeros;
            dy[i] = is_one ? line->dy + (u + i) * job->channels : job->zeros;
        }
        add_group(x, dy, line->c, line->n, sums, sums_dy);
        u += here;
    }
}

#else

ALWAYS_INLINE void add_line(const int_depthwise_grad_job *job, const grad_line *line, int_run *sums,
                            int_run *sums_dy)
{
    for (int64_t u = 0; u < job->view.w.n_grid; u++) {
        const vint x = vint_chars(source_at(job, line, u) + line->c, (int32_t)line->n);
        const vint dy = vint_chars(line->dy + u * job->channels + line->c, (int32_t)line->n);
        sums->of[0] += x * dy;
    }
    (void)sums_dy;
}

#endif

static void flush(const int_depthwise_grad_job *job, int64_t at, int64_t n, int_run *sums,
                  int_run *sums_dy)
{
    int32_t ints[RUN_CHANNELS];
    for (int j = 0; j < RUN_VECTORS; j++) {
        sums->of[j] -= sums_dy->of[j] * DOT_OFFSET;
    }
    run_ints(sums, ints);
    for (int64_t i = n; i < n * job->at_once; i++) {
        ints[i % n] += ints[i];
    }
    for (int64_t i = 0; i < n; i++) {
        if (job->call->sums != NULL) {
            job->call->sums[at + i] += ints[i];
        } else {
            job->call->wide_sums[at + i] += ints[i];
        }
    }
    memset(sums, 0, sizeof *sums);
    memset(sums_dy, 0, sizeof *sums_dy);
}

/* A tap and a run of channels. */
static void depthwise_grad_task(void *ctx, size_t task)
{
    const int_depthwise_grad_job *job = (const int_depthwise_grad_job *)ctx;
    const dunlin_int_conv_call *call = job->call;
    const conv_view *view = &job->view;
    const int64_t tap = (int64_t)task / job->n_runs;
    grad_line line = {.c = (int64_t)task % job->n_runs * RUN_CHANNELS};
    line.n = min_i64(RUN_CHANNELS, job->channels - line.c);
    line.x0 = view->w.offset + tap % view->w.n_taps * view->w.pitch;
    int_run sums;
    int_run sums_dy;
    memset(&sums, 0, sizeof sums);
    memset(&sums_dy, 0, sizeof sums_dy);
    const int64_t at = tap * job->channels + line.c;
    for (int64_t i = 0; call->is_reset && i < line.n; i++) {
        if (call->sums != NULL) {
            call->sums[at + i] = 0;
        } else {
            call->wide_sums[at + i] = 0;
        }
    }
    int64_t pixels = 0;
    for (int64_t row = 0; row < call->n_samples * view->h.n_grid; row++) {
        const int64_t y = row % view->h.n_grid * view->h.step + view->h.offset +
                          tap / view->w.n_taps * view->h.pitch;
        if (y < 0 || y >= view->h.n_source) {
            continue;
        }
        line.dy = call->dy + row * view->w.n_grid * job->channels;
        line.x = call->x +
                 (row / view->h.n_grid * view->h.n_source + y) * view->w.n_source * job->channels;
        add_line(job, &line, &sums, &sums_dy);
        pixels += view->w.n_grid;
        if (pixels > PIXELS_MOST) {
            flush(job, at, line.n, &sums, &sums_dy);
            pixels = 0;
        }
    }
    flush(job, at, line.n, &sums, &sums_dy);
}

void K(int_depthwise_grad)(const dunlin_int_conv_call *call)
{
    int_depthwise_grad_job job = {.call = call};
    dunlin__view_forward(call->shape, &job.view);
    if (K(int_columns_grad)(call, &job.view)) {
        return;
    }
    job.channels = call->shape->in_c;
    job.n_runs = ceil_div(job.channels, RUN_CHANNELS);
    const bool is_together =
        RUN_VECTORS > 1 && job.view.w.step == 1 && RUN_CHANNELS % job.channels == 0;
    job.at_once = is_together ? RUN_CHANNELS / job.channels : 1;
    memset(call->workspace, 0, (size_t)(job.n_runs * RUN_CHANNELS));
    job.zeros = (const int8_t *)call->workspace;
    const int64_t n_taps = (int64_t)job.view.h.n_taps * job.view.w.n_taps;
    run_tasks(call->threads, depthwise_grad_task, &job, n_taps * job.n_runs,
              n_taps * job.channels * call->n_samples * view_rows(&job.view));
}
