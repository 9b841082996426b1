/*
 * test_ahead_threads.c - reading ahead with several threads: the same bytes, memory within what was
 * said, really in parallel, and an end at any moment.
 */
#include <dunlin/pipeline.h>

#include <criterion/criterion.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define SIDE 12
#define WINDOW 8
#define N_EXAMPLES 61
#define N_BATCH 17
#define N_STEPS 9
#define OUT_BYTES (WINDOW * WINDOW)

TestSuite(ahead_threads, .timeout = 120);

/* Example i has one value at every pixel, another in each example; reads may fail or wait. */
typedef struct steady {
    _Atomic int64_t bad_index;  /* -1: none */
    pthread_barrier_t *meeting; /* NULL: nobody waits in a read */
    atomic_int n_to_meet;
} steady;

static dunlin_status read_steady(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    steady *self = ctx;
    for (int64_t i = 0; i < n; i++) {
        memset((unsigned char *)out_x + i * SIDE * SIDE, (int)indices[i] + 1, SIDE * SIDE);
        out_y[i] = (int32_t)indices[i];
        if (indices[i] == atomic_load(&self->bad_index)) {
            return DUNLIN_IO;
        }
    }
    if (self->meeting != NULL && atomic_fetch_sub(&self->n_to_meet, 1) > 0) {
        (void)pthread_barrier_wait(self->meeting);
    }
    return DUNLIN_OK;
}

static const char *steady_text(void *ctx)
{
    (void)ctx;
    return "a broken file";
}

static dunlin_source steady_source(steady *of)
{
    return (dunlin_source){.struct_size = sizeof(dunlin_source),
                           .ctx = of,
                           .read_fn = read_steady,
                           .n_examples = N_EXAMPLES,
                           .dtype = DUNLIN_U8,
                           .error_fn = steady_text};
}

static const dunlin_shape shape = {.n_dims = 3, .dims = {1, SIDE, SIDE}};

static dunlin_pipeline_options threaded(uint64_t bytes, int32_t n_threads)
{
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.resize_height = 10;
    options.crop_height = WINDOW;
    options.is_random_crop = true;
    options.padding = 3;
    options.is_flip = true;
    options.seed = 11;
    options.prefetch_bytes = bytes;
    options.prefetch_threads = n_threads;
    return options;
}

static dunlin_pipeline *make(steady *below, const dunlin_pipeline_options *options,
                             dunlin_source *out_source)
{
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    const dunlin_source source = steady_source(below);
    cr_assert_eq(dunlin_pipeline_create(&source, &shape, options, NULL, &pipeline, &error),
                 DUNLIN_OK, "%s", error.text);
    dunlin_pipeline_source(pipeline, out_source);
    return pipeline;
}

static void batch_of(int64_t step, int64_t out[N_BATCH])
{
    for (int64_t i = 0; i < N_BATCH; i++) {
        out[i] = (step * 13 + i * 5) % N_EXAMPLES;
    }
}

static void begin(const dunlin_source *source, int64_t step)
{
    int64_t next[N_BATCH];
    batch_of(step + 1, next);
    source->step_fn(source->ctx, step);
    source->hint_fn(source->ctx, step + 1, next, N_BATCH);
}

#define ALL_BYTES (N_STEPS * N_BATCH * OUT_BYTES)

static dunlin_pipeline_report run(const dunlin_pipeline_options *options, unsigned char *out)
{
    steady below = {.bad_index = -1};
    dunlin_source source;
    dunlin_pipeline *pipeline = make(&below, options, &source);
    for (int64_t step = 0; step < N_STEPS; step++) {
        int64_t indices[N_BATCH];
        int32_t labels[N_BATCH];
        batch_of(step, indices);
        begin(&source, step);
        cr_assert_eq(
            source.read_fn(source.ctx, indices, N_BATCH, out + step * N_BATCH * OUT_BYTES, labels),
            DUNLIN_OK);
        for (int64_t i = 0; i < N_BATCH; i++) {
            cr_assert_eq(labels[i], (int32_t)indices[i]);
        }
    }
    dunlin_pipeline_report report = DUNLIN_PIPELINE_REPORT_INIT;
    cr_assert_eq(dunlin_pipeline_get_report(pipeline, &report), DUNLIN_OK);
    dunlin_pipeline_destroy(pipeline);
    return report;
}

Test(ahead_threads, the_same_bytes_whatever_their_number)
{
    static unsigned char expected[ALL_BYTES];
    static unsigned char found[ALL_BYTES];
    const dunlin_pipeline_options plain = threaded(0, 0);
    (void)run(&plain, expected);
    const int32_t numbers[] = {1, 2, 5, 16};
    const uint64_t sizes[] = {24000, 60000, 1 << 20};
    for (size_t k = 0; k < 4; k++) {
        for (size_t i = 0; i < 3; i++) {
            memset(found, 0, sizeof found);
            const dunlin_pipeline_options options = threaded(sizes[i], numbers[k]);
            const dunlin_pipeline_report report = run(&options, found);
            cr_expect_eq(memcmp(expected, found, sizeof found), 0, "%d threads, %d bytes",
                         (int)numbers[k], (int)sizes[i]);
            cr_expect_eq(report.n_threads, numbers[k]);
            cr_expect_eq(report.n_ready + report.n_waited + report.n_direct, N_STEPS * N_BATCH);
            cr_expect_eq(report.n_waited > 0, report.waited_ns > 0);
            cr_expect_gt(report.direct_ns, 0U, "nothing announces the first step");
        }
    }
}

/* Threads, tables and examples stay within what was said; what is not theirs is what a pipeline
 * without them holds. */
Test(ahead_threads, all_that_they_take_counts)
{
    static unsigned char found[ALL_BYTES];
    const dunlin_pipeline_options plain = threaded(0, 0);
    const uint64_t without = run(&plain, found).bytes;
    for (int32_t n = 1; n <= 16; n++) {
        dunlin_pipeline_options options = threaded(40000, n);
        const dunlin_pipeline_report report = run(&options, found);
        cr_expect_leq(report.bytes, without + 40000, "%d threads", (int)n);
        cr_expect_gt(report.bytes, without + 30000, "%d threads", (int)n);
        options.prefetch_examples = 20;
        const dunlin_pipeline_report capped = run(&options, found);
        cr_expect_eq(capped.n_slots, 20);
        cr_expect_lt(capped.bytes, report.bytes);
    }
}

/* Two reads that wait for each other: one thread at a time would wait for ever. */
Test(ahead_threads, the_source_is_read_in_parallel)
{
    pthread_barrier_t meeting;
    cr_assert_eq(pthread_barrier_init(&meeting, NULL, 3), 0);
    steady below = {.bad_index = -1, .meeting = &meeting, .n_to_meet = 3};
    const dunlin_pipeline_options options = threaded(1 << 20, 3);
    dunlin_source source;
    dunlin_pipeline *pipeline = make(&below, &options, &source);
    begin(&source, 0);
    int64_t indices[N_BATCH];
    int32_t labels[N_BATCH];
    static unsigned char x[N_BATCH * OUT_BYTES];
    batch_of(1, indices);
    while (atomic_load(&below.n_to_meet) > 0) {
    }
    begin(&source, 1);
    cr_expect_eq(source.read_fn(source.ctx, indices, N_BATCH, x, labels), DUNLIN_OK);
    dunlin_pipeline_destroy(pipeline);
    (void)pthread_barrier_destroy(&meeting);
}

/* Whichever thread meets it first, the read names the example; the step works once it is mended. */
Test(ahead_threads, a_failure_is_named_by_the_read_that_asks)
{
    for (int64_t at = 0; at < N_BATCH; at++) {
        int64_t indices[N_BATCH];
        int32_t labels[N_BATCH];
        static unsigned char x[N_BATCH * OUT_BYTES];
        batch_of(1, indices);
        steady below = {.bad_index = indices[at]};
        const dunlin_pipeline_options options = threaded(1 << 20, 4);
        dunlin_source source;
        dunlin_pipeline *pipeline = make(&below, &options, &source);
        char expected[64];
        (void)snprintf(expected, sizeof expected, "example %d: a broken file", (int)indices[at]);
        begin(&source, 0);
        begin(&source, 1);
        for (int time = 0; time < 2; time++) {
            cr_expect_eq(source.read_fn(source.ctx, indices, N_BATCH, x, labels), DUNLIN_IO);
            cr_expect_not_null(strstr(source.error_fn(source.ctx), expected), "%s",
                               source.error_fn(source.ctx));
        }
        atomic_store(&below.bad_index, -1);
        cr_expect_eq(source.read_fn(source.ctx, indices, N_BATCH, x, labels), DUNLIN_OK);
        dunlin_pipeline_destroy(pipeline);
    }
}

/* Destroyed with work left, before, within and after a step. */
Test(ahead_threads, they_end_at_any_moment)
{
    for (int i = 0; i < 60; i++) {
        steady below = {.bad_index = i % 3 == 0 ? 5 : -1};
        const dunlin_pipeline_options options = threaded(20000 + 400 * (uint64_t)i, 1 + i % 6);
        dunlin_source source;
        dunlin_pipeline *pipeline = make(&below, &options, &source);
        if (i % 4 > 0) {
            begin(&source, i);
        }
        int64_t indices[N_BATCH];
        int32_t labels[N_BATCH];
        static unsigned char x[N_BATCH * OUT_BYTES];
        batch_of(i + 1, indices);
        if (i % 4 > 1) {
            begin(&source, i + 1);
            (void)source.read_fn(source.ctx, indices, i % 4 == 2 ? 3 : N_BATCH, x, labels);
        }
        dunlin_pipeline_destroy(pipeline);
    }
}

static void refuse(const dunlin_pipeline_options *options, const char *word)
{
    steady below = {.bad_index = -1};
    const dunlin_source source = steady_source(&below);
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_pipeline_create(&source, &shape, options, NULL, &pipeline, &error),
                 DUNLIN_ARGUMENT);
    cr_expect(pipeline == NULL && strstr(error.text, word) != NULL, "%s", error.text);
}

Test(ahead_threads, what_is_refused)
{
    dunlin_pipeline_options options = threaded(1 << 20, 17);
    refuse(&options, "prefetch_threads 17");
    options = threaded(1 << 20, -1);
    refuse(&options, "prefetch_threads -1");
    options = threaded(1 << 20, 2);
    options.prefetch_examples = -1;
    refuse(&options, "prefetch_examples -1");
    options = threaded(1000, 4);
    refuse(&options, "1000 bytes to read ahead: 4 threads alone take");
    options = threaded(800, 1);
    refuse(&options, "hold no example");
}
