/*
 * int_depthwise.c - depthwise convolutions in integers, forward and input gradient: for each pixel
 * of a view the sums of a run of channels, over all taps in registers.
 */
#include "int_columns.h"

typedef struct int_depthwise_job {
    const dunlin_int_conv_call *call;
    const conv_view *view;
    bool is_input_grad;
    const int8_t *source;
    int64_t channels, n_taps, groups, n_runs;
    int64_t at_once;     /* pixels that a run takes where they lie together: few channels */
    run_group *weights;  /* [run of channels][group of taps or tap] */
    int_run *starts;     /* of each run of channels, then of one pixel's part of a run */
    const int8_t *zeros; /* a pixel of them */
    int_tally *tally;
} int_depthwise_job;

#define GROUPS_3X3 (RUN_VECTORS == 1 ? 9 : (9 + RUN_GROUP - 1) / RUN_GROUP)

static int64_t depthwise_groups(int64_t n_taps)
{
    return RUN_VECTORS == 1 ? n_taps : ceil_div(n_taps, RUN_GROUP);
}

uint64_t K(int_depthwise_bytes)(const dunlin_conv_shape *shape, dunlin_conv_pass pass,
                                size_t n_threads)
{
    const uint64_t of_columns = K(int_columns_bytes)(shape, pass, n_threads);
    const int64_t taps = (int64_t)shape->kernel_h * shape->kernel_w;
    const int64_t runs = ceil_div(shape->in_c, RUN_CHANNELS);
    const uint64_t own =
        (uint64_t)(runs * depthwise_groups(taps) * (int64_t)sizeof(run_group) +
                   (runs + 1) * (int64_t)sizeof(int_run) + int_room(runs * RUN_CHANNELS));
    return of_columns > own ? of_columns : own;
}

#if RUN_VECTORS > 1

/* A tap's weights from channel c on, again for each pixel that is taken at once. */
static void copy_weights(const int_depthwise_job *job, int64_t tap, int64_t c, int64_t n,
                         int8_t *to)
{
    const int8_t *from = job->call->w + view_tap(job->view, tap) * job->channels + c;
    for (int64_t i = 0; i < job->at_once; i++) {
        memcpy(to + i * n, from, (size_t)n);
    }
}

static void pack_run(const int_depthwise_job *job, int64_t run)
{
    const int64_t c = run * RUN_CHANNELS;
    const int64_t n = min_i64(RUN_CHANNELS, job->channels - c);
    run_group *to = job->weights + run * job->groups;
    int_run start = {{{0}}};
    for (int64_t g = 0; g < job->groups; g++) {
        int8_t taps[RUN_GROUP][RUN_CHANNELS] = {{0}};
        const int8_t *rows[RUN_GROUP];
        for (int64_t i = 0; i < RUN_GROUP; i++) {
            const int64_t tap = g * RUN_GROUP + i;
            rows[i] = taps[i];
            if (tap < job->n_taps) {
                copy_weights(job, tap, c, n, taps[i]);
            }
        }
        to[g] = run_rows(rows, 0, RUN_CHANNELS, 0);
        start = run_total(start, &to[g]);
    }
    int_run one = start;
    for (int j = 0; j < RUN_VECTORS; j++) {
        start.of[j] *= -DOT_OFFSET;
        one.of[j] *= -DOT_OFFSET;
        for (int i = 0; !job->is_input_grad && job->call->bias != NULL && i < VEC; i++) {
            const int64_t at = i / 4 * 16 + j * 4 + i % 4;
            start.of[j][i] += at < n * job->at_once ? job->call->bias[c + at % n] : 0;
            one.of[j][i] += at < n ? job->call->bias[c + at] : 0;
        }
    }
    job->starts[run] = start;
    job->starts[job->n_runs] = one;
}

ALWAYS_INLINE int_run run_sums(const int_depthwise_job *job, const int8_t *const *taps, int64_t run,
                               int64_t n, int_run sums, int64_t groups)
{
    const run_group *weights = job->weights + run * job->groups;
    for (int64_t g = 0; g < groups; g++) {
        const run_group x =
            run_rows(taps + g * RUN_GROUP, run * RUN_CHANNELS, n, (int8_t)-DOT_OFFSET);
        sums = run_dot(sums, &x, &weights[g]);
    }
    return sums;
}

#else

static void pack_run(const int_depthwise_job *job, int64_t run)
{
    const int64_t c = run * RUN_CHANNELS;
    const int32_t n = (int32_t)min_i64(RUN_CHANNELS, job->channels - c);
    for (int64_t tap = 0; tap < job->n_taps; tap++) {
        job->weights[run * job->groups + tap].of[0] =
            vint_chars(job->call->w + view_tap(job->view, tap) * job->channels + c, n);
    }
    job->starts[run].of[0] = (vint){0};
    for (int32_t i = 0; !job->is_input_grad && job->call->bias != NULL && i < n; i++) {
        job->starts[run].of[0][i] = job->call->bias[c + i];
    }
}

ALWAYS_INLINE int_run run_sums(const int_depthwise_job *job, const int8_t *const *taps, int64_t run,
                               int64_t n, int_run sums, int64_t groups)
{
    const run_group *weights = job->weights + run * job->groups;
    for (int64_t tap = 0; tap < groups; tap++) {
        sums.of[0] += vint_chars(taps[tap] + run * RUN_CHANNELS, (int32_t)n) * weights[tap].of[0];
    }
    return sums;
}

#endif

/* The taps of a line of pixels: where each lies, and how far it goes with the next pixel. */
typedef struct tap_line {
    const int8_t *at[INT_DEPTHWISE_TAPS + RUN_GROUP];
    int64_t steps[INT_DEPTHWISE_TAPS + RUN_GROUP];
    int64_t moved; /* pixels that `at` stood for */
    int64_t next;  /* the pixel after them; 0: taps are to be looked for */
} tap_line;

/* Whether all columns of taps of pixel u lie in the source. */
static inline bool is_inner(const conv_view *view, int64_t u)
{
    const int64_t x0 = u * view->w.step + view->w.offset;
    return x0 >= 0 && x0 + (int64_t)(view->w.n_taps - 1) * view->w.pitch < view->w.n_source;
}

/* Where each tap of grid pixel (t, u) lies; those past the last as zeros. */
static void find_taps(const int_depthwise_job *job, const int8_t *sample, int64_t t, int64_t u,
                      tap_line *taps)
{
    const conv_view *view = job->view;
    const int64_t y0 = t * view->h.step + view->h.offset;
    const int64_t x0 = u * view->w.step + view->w.offset;
    int64_t k = 0;
    for (int64_t i = 0; i < view->h.n_taps; i++) {
        const int64_t y = y0 + i * view->h.pitch;
        const bool is_line = y >= 0 && y < view->h.n_source;
        for (int64_t j = 0; j < view->w.n_taps; j++, k++) {
            const int64_t x = x0 + j * view->w.pitch;
            taps->at[k] = is_line && x >= 0 && x < view->w.n_source
                              ? sample + (y * view->w.n_source + x) * job->channels
                              : job->zeros;
            taps->steps[k] = is_line ? view->w.step * job->channels : 0;
        }
    }
    for (; k % RUN_GROUP != 0; k++) {
        taps->at[k] = job->zeros;
        taps->steps[k] = 0;
    }
}

/* The same for `pixels` pixels, from those before if all are inner ones. */
static void next_taps(const int_depthwise_job *job, const int8_t *sample, int64_t t, int64_t u,
                      int64_t pixels, tap_line *taps)
{
    const bool is_in = is_inner(job->view, u);
    if (u > 0 && taps->next == u && is_in) {
        for (int64_t k = 0; k < job->n_taps; k++) {
            taps->at[k] += taps->steps[k] * taps->moved;
        }
    } else {
        find_taps(job, sample, t, u, taps);
    }
    taps->moved = pixels;
    taps->next = is_in ? u + pixels : 0;
}

/* All channels of a pixel, or of several, whose first is element `at` of the output. */
ALWAYS_INLINE void depthwise_pixel(const int_depthwise_job *job, const int8_t *const *taps,
                                   int64_t at, int64_t pixels, int_target *target, void *count,
                                   int64_t groups)
{
    for (int64_t run = 0; run < job->n_runs; run++) {
        const int64_t c = run * RUN_CHANNELS;
        const int64_t n = min_i64(RUN_CHANNELS, job->channels - c) * pixels;
        const bool is_part = pixels < job->at_once;
        const int_run start = job->starts[is_part ? job->n_runs : run];
        const int_run sums = n == RUN_CHANNELS /* no load looks at n */
                                 ? run_sums(job, taps, run, RUN_CHANNELS, start, groups)
                                 : run_sums(job, taps, run, n, start, groups);
#if RUN_VECTORS > 1
        if (target->addend == NULL && target->real == NULL) {
            run_finish(target, &sums, at + c, n, (run_count *)count);
            continue;
        }
#endif
        K(int_store_run)(target, &sums, n, at + c);
    }
    (void)count;
}

static void depthwise_task(void *ctx, size_t task)
{
    const int_depthwise_job *job = (const int_depthwise_job *)ctx;
    const dunlin_int_conv_call *call = job->call;
    const conv_view *view = job->view;
    const int64_t sample = (int64_t)task / view->h.n_grid;
    const int64_t t = (int64_t)task % view->h.n_grid;
    const int8_t *source =
        job->source + sample * view->h.n_source * view->w.n_source * job->channels;
    tap_line taps;
    memset(&taps, 0, sizeof taps);
    int_target target = int_target_of(call, job->is_input_grad);
#if RUN_VECTORS > 1
    run_count count = {{0}, 0};
#else
    int count = 0;
#endif
    int64_t pixels = 1;
    for (int64_t u = 0; u < view->w.n_grid; u += pixels) {
        const int64_t at = view_out_pixel(view, sample, t, u) * job->channels;
        const int64_t last = u + job->at_once - 1;
        pixels =
            last < view->w.n_grid && is_inner(view, u) && is_inner(view, last) ? job->at_once : 1;
        next_taps(job, source, t, u, pixels, &taps);
        if (job->groups == GROUPS_3X3) {
            depthwise_pixel(job, taps.at, at, pixels, &target, &count, GROUPS_3X3);
        } else {
            depthwise_pixel(job, taps.at, at, pixels, &target, &count, job->groups);
        }
    }
#if RUN_VECTORS > 1
    count_close(&count, &target);
#endif
    int_target_take(&target, job->tally);
}

void K(int_depthwise)(const dunlin_int_conv_call *call, const conv_view *view, bool is_input_grad,
                      int_tally *tally)
{
    if (K(int_columns_run)(call, view, is_input_grad, tally)) {
        return;
    }
    int_depthwise_job job = {.call = call,
                             .view = view,
                             .is_input_grad = is_input_grad,
                             .source = is_input_grad ? call->dy : call->x,
                             .channels = view->source_pitch,
                             .n_taps = (int64_t)view->h.n_taps * view->w.n_taps,
                             .tally = tally};
    job.groups = depthwise_groups(job.n_taps);
    const bool is_together = RUN_VECTORS > 1 && view->w.step == 1 && view->w.out_step == 1 &&
                             RUN_CHANNELS % job.channels == 0;
    job.at_once = is_together ? RUN_CHANNELS / job.channels : 1;
    job.n_runs = ceil_div(job.channels, RUN_CHANNELS);
    job.starts = (int_run *)call->workspace;
    job.weights = (run_group *)(void *)(job.starts + job.n_runs + 1);
    int8_t *zeros = (int8_t *)(void *)(job.weights + job.n_runs * job.groups);
    memset(zeros, 0, (size_t)(job.n_runs * RUN_CHANNELS));
    job.zeros = zeros;
    for (int64_t run = 0; run < job.n_runs; run++) {
        pack_run(&job, run);
    }
    const int64_t n_rows = call->n_samples * view->h.n_grid;
    run_tasks(call->threads, depthwise_task, &job, n_rows,
              n_rows * view->w.n_grid * job.channels * max_i64(1, job.n_taps));
}
