/*
 * test_pipeline.c - pipelines: the same bytes with and without reading ahead, asked once or twice,
 * resumed or not; what is drawn; errors and limits.
 */
#include <dunlin/dataset.h>
#include <dunlin/pipeline.h>
#include <dunlin/tools.h>
#include <dunlin/trainer.h>

#include <criterion/criterion.h>

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SIDE 9
#define CHANNELS 2
#define PIXELS (SIDE * SIDE)
#define N_EXAMPLES 50
#define WINDOW 8
#define OUT_BYTES (CHANNELS * WINDOW * WINDOW)

/* A source whose example i is known at every pixel; it can fail, and counts its readers. */
typedef struct pattern {
    int64_t bad_index; /* -1: none fails */
    atomic_int n_readers;
    atomic_bool was_parallel;
    atomic_int n_reads;
} pattern;

static unsigned char pattern_at(int64_t index, int32_t channel, int32_t y, int32_t x)
{
    return (unsigned char)(1 + (index * 31 + channel * 97 + y * 17 + x * 5) % 255);
}

static dunlin_status read_pattern(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                  int32_t *out_y)
{
    pattern *self = ctx;
    if (atomic_fetch_add(&self->n_readers, 1) != 0) {
        atomic_store(&self->was_parallel, true);
    }
    dunlin_status status = DUNLIN_OK;
    for (int64_t i = 0; i < n; i++) {
        unsigned char *x = (unsigned char *)out_x + i * CHANNELS * PIXELS;
        for (int32_t k = 0; k < CHANNELS * PIXELS; k++) {
            x[k] = pattern_at(indices[i], k / PIXELS, k % PIXELS / SIDE, k % SIDE);
        }
        out_y[i] = (int32_t)(indices[i] % 10);
        status = indices[i] == self->bad_index ? DUNLIN_IO : status;
        atomic_fetch_add(&self->n_reads, 1);
    }
    atomic_fetch_sub(&self->n_readers, 1);
    return status;
}

static const char *pattern_text(void *ctx)
{
    (void)ctx;
    return "a scratch on the disk";
}

static dunlin_source pattern_source(pattern *of)
{
    return (dunlin_source){.struct_size = sizeof(dunlin_source),
                           .ctx = of,
                           .read_fn = read_pattern,
                           .n_examples = N_EXAMPLES,
                           .dtype = DUNLIN_U8,
                           .scale = 1.0F / 255.0F,
                           .error_fn = pattern_text};
}

static const dunlin_shape shape = {.n_dims = 3, .dims = {CHANNELS, SIDE, SIDE}};

static dunlin_pipeline_options usual_options(uint64_t prefetch_bytes)
{
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.crop_height = WINDOW;
    options.is_random_crop = true;
    options.padding = 2;
    options.is_flip = true;
    options.seed = 5;
    options.prefetch_bytes = prefetch_bytes;
    return options;
}

static dunlin_pipeline *make(const dunlin_source *below, const dunlin_pipeline_options *options)
{
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_pipeline_create(below, &shape, options, NULL, &pipeline, &error), DUNLIN_OK,
                 "%s", error.text);
    return pipeline;
}

/* The order of step `step`: any 13 of the examples, one of them twice. */
static int64_t index_at(int64_t step, int64_t i)
{
    return i == 12 ? (step * 7) % N_EXAMPLES : (step * 7 + i * 3) % N_EXAMPLES;
}

#define N_BATCH 13
#define N_STEPS 20

/* Steps as a trainer makes them, each example read `n_times` times over; all bytes into `out`. */
static void run_steps(dunlin_pipeline *pipeline, int64_t first, int64_t end, int32_t n_times,
                      unsigned char *out)
{
    dunlin_source source;
    dunlin_pipeline_source(pipeline, &source);
    for (int64_t step = first; step < end; step++) {
        int64_t next[N_BATCH];
        for (int64_t i = 0; i < N_BATCH; i++) {
            next[i] = index_at(step + 1, i);
        }
        source.step_fn(source.ctx, step);
        source.hint_fn(source.ctx, step + 1, next, 6);
        source.hint_fn(source.ctx, step + 1, next + 6, N_BATCH - 6);
        for (int32_t time = 0; time < n_times; time++) {
            for (int64_t i = 0; i < N_BATCH; i++) {
                const int64_t index = index_at(step, i);
                unsigned char *to = out + (step * N_BATCH + i) * OUT_BYTES;
                unsigned char x[OUT_BYTES];
                int32_t label = -1;
                cr_assert_eq(source.read_fn(source.ctx, &index, 1, x, &label), DUNLIN_OK);
                cr_assert_eq(label, (int32_t)(index % 10));
                cr_assert(time == 0 || memcmp(to, x, OUT_BYTES) == 0, "read twice, it differs");
                memcpy(to, x, OUT_BYTES);
            }
        }
    }
}

#define ALL_BYTES (N_STEPS * N_BATCH * OUT_BYTES)

Test(pipeline, same_bytes_with_and_without_reading_ahead)
{
    pattern below = {.bad_index = -1};
    const dunlin_source source = pattern_source(&below);
    unsigned char *expected = calloc(ALL_BYTES, 1);
    unsigned char *found = calloc(ALL_BYTES, 1);
    const dunlin_pipeline_options plain = usual_options(0);
    dunlin_pipeline *pipeline = make(&source, &plain);
    run_steps(pipeline, 0, N_STEPS, 1, expected);
    dunlin_pipeline_destroy(pipeline);
    /* Room for one example, for a few, for more than a step. */
    static const uint64_t sizes[] = {900, 2000, 20000};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        for (int32_t n_times = 1; n_times <= 2; n_times++) {
            const dunlin_pipeline_options options = usual_options(sizes[k]);
            pipeline = make(&source, &options);
            memset(found, 0, ALL_BYTES);
            run_steps(pipeline, 0, N_STEPS, n_times, found);
            cr_assert_eq(memcmp(expected, found, ALL_BYTES), 0, "%d bytes", (int)sizes[k]);
            dunlin_pipeline_report report = DUNLIN_PIPELINE_REPORT_INIT;
            cr_assert_eq(dunlin_pipeline_get_report(pipeline, &report), DUNLIN_OK);
            cr_assert_eq(report.n_ready + report.n_waited + report.n_direct,
                         N_STEPS * N_BATCH * n_times);
            cr_assert_leq(report.bytes, sizes[k] + 4096);
            cr_assert_geq(report.n_slots, 1);
            dunlin_pipeline_destroy(pipeline);
        }
    }
    cr_assert(!atomic_load(&below.was_parallel), "the source was read in parallel");
    free(expected);
    free(found);
}

Test(pipeline, a_resumed_run_repeats_the_bytes)
{
    pattern below = {.bad_index = -1};
    const dunlin_source source = pattern_source(&below);
    unsigned char *expected = calloc(ALL_BYTES, 1);
    unsigned char *found = calloc(ALL_BYTES, 1);
    const dunlin_pipeline_options options = usual_options(20000);
    dunlin_pipeline *pipeline = make(&source, &options);
    run_steps(pipeline, 0, N_STEPS, 1, expected);
    dunlin_pipeline_destroy(pipeline);
    pipeline = make(&source, &options);
    run_steps(pipeline, 0, 8, 1, found);
    dunlin_pipeline_destroy(pipeline);
    pipeline = make(&source, &options);
    run_steps(pipeline, 8, N_STEPS, 1, found);
    dunlin_pipeline_destroy(pipeline);
    cr_assert_eq(memcmp(expected, found, ALL_BYTES), 0);
    free(expected);
    free(found);
}

/* Every window and both directions occur, and each is the source's bytes, or zeros outside. */
Test(pipeline, windows_are_where_they_should_be)
{
    pattern below = {.bad_index = -1};
    const dunlin_source source = pattern_source(&below);
    const dunlin_pipeline_options options = usual_options(0);
    dunlin_pipeline *pipeline = make(&source, &options);
    dunlin_source drawn;
    dunlin_pipeline_source(pipeline, &drawn);
    bool seen[6][6][2] = {{{false}}};
    for (int64_t step = 0; step < 60; step++) {
        drawn.step_fn(drawn.ctx, step);
        for (int64_t index = 0; index < N_EXAMPLES; index++) {
            unsigned char x[OUT_BYTES];
            int32_t label = 0;
            cr_assert_eq(drawn.read_fn(drawn.ctx, &index, 1, x, &label), DUNLIN_OK);
            int32_t n_places = 0;
            for (int32_t place = 0; place < 72; place++) {
                const int32_t top = place / 12 - 2;
                const int32_t left = place / 2 % 6 - 2;
                bool is_equal = true;
                for (int32_t k = 0; k < OUT_BYTES && is_equal; k++) {
                    const int32_t column = k % WINDOW;
                    const int32_t from_x = left + (place % 2 == 1 ? WINDOW - 1 - column : column);
                    const int32_t from_y = top + k / WINDOW % WINDOW;
                    const bool is_inside =
                        from_x >= 0 && from_x < SIDE && from_y >= 0 && from_y < SIDE;
                    const int32_t channel = k / (WINDOW * WINDOW);
                    is_equal = x[k] == (is_inside ? pattern_at(index, channel, from_y, from_x) : 0);
                }
                if (is_equal) {
                    seen[top + 2][left + 2][place % 2] = true;
                    n_places++;
                }
            }
            cr_assert_eq(n_places, 1, "step %d, example %d", (int)step, (int)index);
        }
    }
    for (int32_t k = 0; k < 72; k++) {
        cr_assert(seen[k / 12][k / 2 % 6][k % 2], "window %d never occurs", k);
    }
    dunlin_pipeline_destroy(pipeline);
}

Test(pipeline, an_error_of_the_thread_reaches_the_read)
{
    pattern below = {.bad_index = index_at(1, 4)};
    const dunlin_source source = pattern_source(&below);
    const dunlin_pipeline_options options = usual_options(20000);
    dunlin_pipeline *pipeline = make(&source, &options);
    dunlin_source drawn;
    dunlin_pipeline_source(pipeline, &drawn);
    int64_t next[N_BATCH];
    for (int64_t i = 0; i < N_BATCH; i++) {
        next[i] = index_at(1, i);
    }
    drawn.step_fn(drawn.ctx, 0);
    drawn.hint_fn(drawn.ctx, 1, next, N_BATCH);
    while (atomic_load(&below.n_reads) < 5) {
    }
    drawn.step_fn(drawn.ctx, 1);
    unsigned char x[N_BATCH * OUT_BYTES];
    int32_t labels[N_BATCH];
    cr_assert_eq(drawn.read_fn(drawn.ctx, next, N_BATCH, x, labels), DUNLIN_IO);
    cr_assert(strstr(drawn.error_fn(drawn.ctx), "example 19: a scratch on the disk") != NULL, "%s",
              drawn.error_fn(drawn.ctx));
    /* Once repaired, the same step works. */
    below.bad_index = -1;
    drawn.step_fn(drawn.ctx, 1);
    cr_assert_eq(drawn.read_fn(drawn.ctx, next, N_BATCH, x, labels), DUNLIN_OK);
    dunlin_pipeline_destroy(pipeline);
}

static void refuse(const dunlin_source *below, const dunlin_shape *of,
                   const dunlin_pipeline_options *options, dunlin_status status, const char *text)
{
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_pipeline_create(below, of, options, NULL, &pipeline, &error), status, "%s",
                 text);
    cr_assert(pipeline == NULL && strstr(error.text, text) != NULL, "\"%s\" not in \"%s\"", text,
              error.text);
}

Test(pipeline, what_is_refused)
{
    pattern below = {.bad_index = -1};
    dunlin_source source = pattern_source(&below);
    dunlin_pipeline_options options = usual_options(0);
    options.crop_height = 14;
    refuse(&source, &shape, &options, DUNLIN_ARGUMENT, "14 x 14 is larger than the image of 9 x 9");
    options.crop_height = 5000;
    refuse(&source, &shape, &options, DUNLIN_ARGUMENT, "crop_height 5000: the limits are 0 and");
    options = usual_options(0);
    options.is_random_crop = false;
    refuse(&source, &shape, &options, DUNLIN_ARGUMENT, "padding 2 without a random crop");
    options.padding = 0;
    options.border = DUNLIN_BORDER_MEAN;
    refuse(&source, &shape, &options, DUNLIN_ARGUMENT, "border 1 without a random crop");
    options = usual_options(0);
    options.border = (dunlin_border)2;
    refuse(&source, &shape, &options, DUNLIN_ARGUMENT, "border 2: 0 (zeros) and 1 (the mean)");
    options = usual_options(0);
    options.resize_width = 5;
    refuse(&source, &shape, &options, DUNLIN_ARGUMENT, "resize_height is 0 and its width is not");
    options = usual_options(300);
    refuse(&source, &shape, &options, DUNLIN_ARGUMENT, "300 bytes to read ahead hold no example");
    options = usual_options(0);
    options.resize_height = 4096;
    const dunlin_shape wide = {.n_dims = 3, .dims = {1, 9, 90}};
    refuse(&source, &wide, &options, DUNLIN_ARGUMENT, "the longer side becomes 40960 pixels");
    const dunlin_shape flat = {.n_dims = 1, .dims = {90}};
    refuse(&source, &flat, &options, DUNLIN_ARGUMENT, "images (C, H, W)");
    options = usual_options(0);
    source.dtype = DUNLIN_I32;
    refuse(&source, &shape, &options, DUNLIN_UNSUPPORTED, "u8 or f32");
    source = pattern_source(&below);
    dunlin_pipeline *pipeline = make(&source, &options);
    dunlin_source drawn;
    dunlin_pipeline_source(pipeline, &drawn);
    refuse(&drawn, &shape, &options, DUNLIN_UNSUPPORTED, "cannot be a pipeline itself");
    dunlin_pipeline_destroy(pipeline);
    dunlin_pipeline_destroy(NULL);
}

/* An allocator that gives the first `n` and then nothing. */
static void *scarce_alloc(void *ctx, size_t bytes, size_t align)
{
    int32_t *left = ctx;
    if (*left == 0) {
        return NULL;
    }
    (*left)--;
    return aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void scarce_free(void *ctx, void *memory, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    free(memory);
}

Test(pipeline, no_memory_leaves_nothing)
{
    pattern below = {.bad_index = -1};
    const dunlin_source source = pattern_source(&below);
    dunlin_pipeline_options options = usual_options(5000);
    options.resize_height = 11;
    dunlin_status status = DUNLIN_MEMORY;
    for (int32_t n = 0; status != DUNLIN_OK; n++) {
        int32_t left = n;
        const dunlin_alloc hooks = {.ctx = &left, .alloc_fn = scarce_alloc, .free_fn = scarce_free};
        dunlin_pipeline *pipeline = NULL;
        status = dunlin_pipeline_create(&source, &shape, &options, &hooks, &pipeline, NULL);
        cr_assert(status == DUNLIN_OK || status == DUNLIN_MEMORY);
        cr_assert_lt(n, 40);
        dunlin_pipeline_destroy(pipeline);
    }
}

/* Normalisation of its own, a resize to two sizes, and the shape that is told. */
Test(pipeline, shape_and_normalisation)
{
    pattern below = {.bad_index = -1};
    const dunlin_source source = pattern_source(&below);
    const float mean[CHANNELS] = {0.25F, 0.5F};
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.resize_height = 6;
    options.mean = mean;
    const dunlin_shape wide = {.n_dims = 3, .dims = {CHANNELS, 27, 3}};
    dunlin_pipeline *pipeline = NULL;
    cr_assert_eq(dunlin_pipeline_create(&source, &wide, &options, NULL, &pipeline, NULL),
                 DUNLIN_OK);
    const dunlin_shape made = dunlin_pipeline_shape(pipeline);
    cr_assert(made.dims[0] == CHANNELS && made.dims[1] == 54 && made.dims[2] == 6);
    dunlin_source drawn;
    dunlin_pipeline_source(pipeline, &drawn);
    cr_assert(drawn.mean != mean && drawn.mean[1] == 0.5F && drawn.std == NULL);
    cr_assert_eq(drawn.scale, source.scale);
    dunlin_pipeline_destroy(pipeline);
}

/* --- with a trainer --- */

typedef struct fitted {
    float weights[64];
    dunlin_pipeline_report report;
} fitted;

/* Three epochs of LeNet-5 on the synthetic set, evaluated in between. */
static void fit(uint64_t prefetch_bytes, bool is_in_steps, fitted *out)
{
    dunlin_dataset_options data_options = DUNLIN_DATASET_OPTIONS_INIT;
    data_options.max_examples = 100;
    dunlin_dataset *set = NULL;
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 16;
    options.seed = 3;
    options.momentum = 0.9F;
    cr_assert_eq(dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, &data_options,
                                           NULL, &set, NULL),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, NULL), DUNLIN_OK);
    dunlin_source below;
    dunlin_dataset_source(set, &below);
    const dunlin_shape data_shape = dunlin_dataset_shape(set);
    dunlin_pipeline_options drawn = DUNLIN_PIPELINE_OPTIONS_INIT;
    drawn.resize_height = 30;
    drawn.crop_height = 28;
    drawn.is_random_crop = true;
    drawn.padding = 1;
    drawn.is_flip = true;
    drawn.prefetch_bytes = prefetch_bytes;
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_pipeline_create(&below, &data_shape, &drawn, NULL, &pipeline, &error),
                 DUNLIN_OK, "%s", error.text);
    dunlin_source source;
    dunlin_pipeline_source(pipeline, &source);
    dunlin_fit_options fit_options = DUNLIN_FIT_OPTIONS_INIT;
    fit_options.epochs = 3;
    fit_options.max_steps = is_in_steps ? 1 : 0;
    dunlin_fit_cursor cursor = {0};
    while (!cursor.is_done) {
        dunlin_metrics metrics = {0};
        cr_assert_eq(dunlin_trainer_fit(trainer, &source, &fit_options, &cursor, &metrics),
                     DUNLIN_OK, "%s", dunlin_trainer_last_error(trainer)->text);
        cr_assert_eq(dunlin_trainer_evaluate(trainer, &source, 0, 40, &metrics), DUNLIN_OK);
    }
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, 64, out->weights),
                 DUNLIN_OK);
    out->report = (dunlin_pipeline_report)DUNLIN_PIPELINE_REPORT_INIT;
    cr_assert_eq(dunlin_pipeline_get_report(pipeline, &out->report), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    dunlin_pipeline_destroy(pipeline);
    dunlin_model_destroy(model);
    dunlin_dataset_close(set);
}

Test(pipeline, a_fit_ends_with_the_same_weights)
{
    fitted plain;
    fitted ahead;
    fitted stepped;
    fit(0, false, &plain);
    fit(1 << 20, false, &ahead);
    fit(1 << 20, true, &stepped);
    cr_assert_eq(memcmp(plain.weights, ahead.weights, sizeof plain.weights), 0);
    cr_assert_eq(memcmp(plain.weights, stepped.weights, sizeof plain.weights), 0);
    /* All but the first step's 16 and the 40 evaluated were announced. */
    cr_assert_eq(plain.report.n_direct, 300 + 40);
    cr_assert_eq(ahead.report.n_unlisted, 0);
    cr_assert_gt(ahead.report.n_ready + ahead.report.n_waited, 0);
}
