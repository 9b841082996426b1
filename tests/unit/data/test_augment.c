/*
 * test_augment.c - cut-out, shift, mix-up and noise of pipelines: what is drawn, by what it is
 * decided, and what is refused.
 */
#include <dunlin/pipeline.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(augment, .timeout = 120);

#define N_EXAMPLES 12
#define CHANNELS 2
#define SIDE 9
#define N_PIXELS (SIDE * SIDE)
#define N_ELEMENTS (CHANNELS * N_PIXELS)

/* Bytes that are never the mean, so that only what was cut out is 0. */
static dunlin_status read_bytes(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                int32_t *out_y)
{
    int64_t *n_reads = ctx;
    *n_reads += n;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t k = 0; k < N_ELEMENTS; k++) {
            ((unsigned char *)out_x)[i * N_ELEMENTS + k] =
                (unsigned char)(1 + (indices[i] * 37 + k * 5) % 97);
        }
        out_y[i] = (int32_t)(indices[i] % 3);
    }
    return DUNLIN_OK;
}

static const float means[CHANNELS] = {0.5F, 0.625F};
static const float deviations[CHANNELS] = {0.25F, 2.0F};
static const dunlin_shape image = {.n_dims = 3, .dims = {CHANNELS, SIDE, SIDE}};
static const dunlin_shape signal = {.n_dims = 2, .dims = {CHANNELS, N_PIXELS}};

static dunlin_source byte_source(int64_t *n_reads)
{
    return (dunlin_source){.struct_size = sizeof(dunlin_source),
                           .ctx = n_reads,
                           .read_fn = read_bytes,
                           .n_examples = N_EXAMPLES,
                           .dtype = DUNLIN_U8,
                           .scale = 1.0F / 128.0F,
                           .mean = means,
                           .std = deviations};
}

/* Element k of example `index`, normalised. */
static float normal_at(int64_t index, int64_t k)
{
    const float x = (float)(1 + (index * 37 + k * 5) % 97);
    return (x / 128.0F - means[k / N_PIXELS]) / deviations[k / N_PIXELS];
}

static dunlin_pipeline *make(const dunlin_source *below, const dunlin_shape *shape,
                             const dunlin_pipeline_options *options, dunlin_source *out_source)
{
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_pipeline_create(below, shape, options, NULL, &pipeline, &error), DUNLIN_OK,
                 "%s", error.text);
    dunlin_pipeline_source(pipeline, out_source);
    return pipeline;
}

static void read_at(const dunlin_source *source, int64_t step, int64_t index, float *x)
{
    int32_t label = -1;
    source->step_fn(source->ctx, step);
    cr_assert_eq(source->read_fn(source->ctx, &index, 1, x, &label), DUNLIN_OK);
    cr_assert_eq(label, (int32_t)(index % 3));
}

/* --- each kind --- */

#define SQUARE 4

Test(augment, a_square_about_any_pixel)
{
    int64_t n_reads = 0;
    const dunlin_source below = byte_source(&n_reads);
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.cutout = SQUARE;
    options.seed = 4;
    dunlin_source source;
    dunlin_pipeline *pipeline = make(&below, &image, &options, &source);
    cr_assert(source.dtype == DUNLIN_F32 && source.mean == NULL && source.std == NULL);
    bool seen[SIDE][SIDE] = {{false}};
    for (int64_t step = 0; step < 200; step++) {
        for (int64_t index = 0; index < N_EXAMPLES; index++) {
            float x[N_ELEMENTS];
            int64_t n_found = 0;
            read_at(&source, step, index, x);
            for (int64_t at = 0; at < N_PIXELS; at++) { /* the pixel that it lies about */
                const int64_t top = at / SIDE - SQUARE / 2;
                const int64_t left = at % SIDE - SQUARE / 2;
                bool is_it = true;
                for (int64_t k = 0; k < N_ELEMENTS && is_it; k++) {
                    const int64_t row = k % N_PIXELS / SIDE;
                    const int64_t column = k % SIDE;
                    const bool is_cut = row >= top && row < top + SQUARE && column >= left &&
                                        column < left + SQUARE;
                    is_it = is_cut ? x[k] == 0.0F : x[k] == normal_at(index, k);
                }
                n_found += is_it ? 1 : 0;
                seen[at / SIDE][at % SIDE] |= is_it;
            }
            cr_assert_eq(n_found, 1, "step %d, example %d", (int)step, (int)index);
        }
    }
    for (int64_t at = 0; at < N_PIXELS; at++) {
        cr_assert(seen[at / SIDE][at % SIDE], "never about pixel %d", (int)at);
    }
    dunlin_pipeline_destroy(pipeline);
}

#define PLACES 3

Test(augment, signals_move_and_zeros_come_in)
{
    int64_t n_reads = 0;
    const dunlin_source below = byte_source(&n_reads);
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.shift = PLACES;
    dunlin_source source;
    dunlin_pipeline *pipeline = make(&below, &signal, &options, &source);
    const dunlin_shape made = dunlin_pipeline_shape(pipeline);
    cr_assert(made.n_dims == 2 && made.dims[0] == CHANNELS && made.dims[1] == N_PIXELS);
    int seen[2 * PLACES + 1] = {0};
    for (int64_t step = 0; step < 30; step++) {
        float x[N_ELEMENTS];
        int32_t n_found = 0;
        read_at(&source, step, step % N_EXAMPLES, x);
        for (int64_t by = -PLACES; by <= PLACES; by++) {
            bool is_it = true;
            for (int64_t k = 0; k < N_ELEMENTS && is_it; k++) {
                const int64_t from = k % N_PIXELS - by;
                is_it =
                    x[k] ==
                    (from < 0 || from >= N_PIXELS ? 0.0F : normal_at(step % N_EXAMPLES, k - by));
            }
            n_found += is_it ? 1 : 0;
            seen[by + PLACES] += is_it ? 1 : 0;
        }
        cr_assert_eq(n_found, 1, "step %d", (int)step);
    }
    for (int32_t i = 0; i <= 2 * PLACES; i++) {
        cr_assert(seen[i] > 0, "never by %d", (int)i - PLACES);
    }
    dunlin_pipeline_destroy(pipeline);
}

Test(augment, noise_is_in_units_of_the_input)
{
    int64_t n_reads = 0;
    const dunlin_source below = byte_source(&n_reads);
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.noise = 0.5F;
    dunlin_source source;
    dunlin_pipeline *pipeline = make(&below, &image, &options, &source);
    double sum = 0.0;
    double squares = 0.0;
    double fourth = 0.0;
    double n = 0.0;
    for (int64_t step = 0; step < 60; step++) {
        for (int64_t index = 0; index < N_EXAMPLES; index++) {
            float x[N_ELEMENTS];
            read_at(&source, step, index, x);
            for (int64_t k = 0; k < N_ELEMENTS; k++) {
                const double d = (double)(x[k] - normal_at(index, k)) / 0.5;
                sum += d;
                squares += d * d;
                fourth += d * d * d * d;
                n += 1.0;
            }
        }
    }
    cr_assert_float_eq(sum / n, 0.0, 0.02);
    cr_assert_float_eq(squares / n, 1.0, 0.02);
    cr_assert_float_eq(fourth / n, 3.0, 0.2, "not normal: %g", fourth / n);
    dunlin_pipeline_destroy(pipeline);
}

/* --- mix-up: example i is a 1 at place i, so a mixture tells what it is made of --- */

#define N_MIXED 40

static dunlin_status read_places(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    (void)ctx;
    memset(out_x, 0, (size_t)n * N_MIXED * sizeof(float));
    for (int64_t i = 0; i < n; i++) {
        ((float *)out_x)[i * N_MIXED + indices[i]] = 1.0F;
        out_y[i] = (int32_t)(indices[i] % 5);
    }
    return DUNLIN_OK;
}

/* Example 7 does not count, and has no label. */
static float weigh_places(void *ctx, int64_t index)
{
    (void)ctx;
    return index == 7 ? 0.0F : 1.0F;
}

static const dunlin_source places = {.struct_size = sizeof(dunlin_source),
                                     .read_fn = read_places,
                                     .n_examples = N_MIXED,
                                     .dtype = DUNLIN_F32};
static const dunlin_shape vector = {.n_dims = 1, .dims = {N_MIXED}};

static dunlin_pipeline_options mixing(float alpha)
{
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.mixup = alpha;
    options.n_classes = 5;
    options.seed = 11;
    return options;
}

/* Checks x against its targets, and adds up how it is mixed. */
static void check_mixture(const float *x, const float *targets, int64_t index, double *io_sum,
                          double *io_squares, int32_t *io_partners)
{
    float expected[5] = {0.0F};
    double total = 0.0;
    for (int64_t i = 0; i < N_MIXED; i++) {
        cr_assert(x[i] >= 0.0F && x[i] <= 1.0F);
        total += (double)x[i];
        expected[i % 5] += x[i];
        io_partners[i] += i != index && x[i] > 0.0F ? 1 : 0;
    }
    cr_assert_float_eq(total, 1.0, 1e-6);
    for (int32_t c = 0; c < 5; c++) {
        cr_assert_float_eq(targets[c], expected[c], 1e-6F);
    }
    *io_sum += (double)x[index];
    *io_squares += (double)x[index] * (double)x[index];
}

static void check_alpha(float alpha)
{
    const dunlin_pipeline_options options = mixing(alpha);
    dunlin_source source;
    dunlin_pipeline *pipeline = make(&places, &vector, &options, &source);
    cr_assert_eq(source.n_targets, 5);
    double sum = 0.0;
    double squares = 0.0;
    int32_t partners[N_MIXED] = {0};
    const int64_t n_steps = 400;
    for (int64_t step = 0; step < n_steps; step++) {
        source.step_fn(source.ctx, step);
        for (int64_t index = 0; index < N_MIXED; index++) {
            float x[N_MIXED];
            float targets[5];
            cr_assert_eq(source.read_targets_fn(source.ctx, &index, 1, x, targets), DUNLIN_OK);
            check_mixture(x, targets, index, &sum, &squares, partners);
        }
    }
    /* One in so many is mixed with itself: it stays as it is. */
    const double n = (double)(n_steps * N_MIXED);
    const double alone = 1.0 / N_MIXED;
    const double mean = sum / n;
    const double square = squares / n;
    const double variance = 0.25 / (2.0 * (double)alpha + 1.0); /* of Beta(alpha, alpha) */
    cr_assert_float_eq(mean, alone + (1.0 - alone) * 0.5, 0.01, "alpha %g: %g", (double)alpha,
                       mean);
    cr_assert_float_eq(square, alone + (1.0 - alone) * (variance + 0.25), 0.01, "alpha %g: %g",
                       (double)alpha, square);
    for (int32_t i = 0; i < N_MIXED && alpha >= 1.0F; i++) {
        cr_assert(partners[i] > 300 && partners[i] < 500, "example %d is mixed in %d times", (int)i,
                  (int)partners[i]);
    }
    dunlin_pipeline_destroy(pipeline);
}

Test(augment, mixtures_and_their_targets)
{
    check_alpha(0.2F);
    check_alpha(1.0F);
    check_alpha(8.0F);
}

Test(augment, what_does_not_count_is_not_mixed_in)
{
    dunlin_source below = places;
    below.weight_fn = weigh_places;
    const dunlin_pipeline_options options = mixing(2.0F);
    dunlin_source source;
    dunlin_pipeline *pipeline = make(&below, &vector, &options, &source);
    for (int64_t step = 0; step < 100; step++) {
        source.step_fn(source.ctx, step);
        for (int64_t index = 0; index < N_MIXED; index++) {
            float x[N_MIXED];
            float targets[5];
            cr_assert_eq(source.read_targets_fn(source.ctx, &index, 1, x, targets), DUNLIN_OK);
            cr_assert(index == 7 || x[7] == 0.0F);
            cr_assert(index != 7 || targets[0] + targets[1] + targets[2] == 0.0F);
        }
    }
    dunlin_pipeline_destroy(pipeline);
}

Test(augment, labels_cannot_be_mixed)
{
    dunlin_pipeline_options options = mixing(1.0F);
    dunlin_source source;
    dunlin_pipeline *pipeline = make(&places, &vector, &options, &source);
    const int64_t index = 4;
    float x[N_MIXED];
    float targets[5];
    int32_t label = 0;
    source.step_fn(source.ctx, 3);
    cr_assert_eq(source.read_fn(source.ctx, &index, 1, x, &label), DUNLIN_ARGUMENT);
    cr_assert(strstr(source.error_fn(source.ctx), "SOFT_CROSS_ENTROPY") != NULL);
    source.step_fn(source.ctx, -1); /* in an evaluation nothing is mixed */
    cr_assert_eq(source.read_fn(source.ctx, &index, 1, x, &label), DUNLIN_OK);
    cr_assert(label == 4 && x[4] == 1.0F);
    cr_assert_eq(source.read_targets_fn(source.ctx, &index, 1, x, targets), DUNLIN_OK);
    cr_assert(targets[4] == 1.0F && targets[0] == 0.0F && x[4] == 1.0F);
    dunlin_pipeline_destroy(pipeline);
    options.n_classes = 4;
    pipeline = make(&places, &vector, &options, &source);
    source.step_fn(source.ctx, 0);
    cr_assert_eq(source.read_targets_fn(source.ctx, &index, 1, x, targets), DUNLIN_DATA);
    cr_assert(strstr(source.error_fn(source.ctx), "label 4 of example 4") != NULL, "%s",
              source.error_fn(source.ctx));
    dunlin_pipeline_destroy(pipeline);
}

/* --- what decides --- */

static dunlin_pipeline_options all_options(int64_t epoch_steps, uint64_t prefetch_bytes)
{
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.crop_height = SIDE;
    options.is_random_crop = true;
    options.padding = 2;
    options.is_flip = true;
    options.cutout = 3;
    options.mixup = 0.4F;
    options.n_classes = 3;
    options.noise = 0.1F;
    options.seed = 21;
    options.epoch_steps = epoch_steps;
    options.prefetch_bytes = prefetch_bytes;
    return options;
}

#define ROW (N_ELEMENTS + 3)

/* Two epochs in batches of `batch`, each example into its own place; `first` epochs are left out.
 */
static void run_epochs(int64_t batch, uint64_t prefetch_bytes, int64_t first, float *out)
{
    int64_t n_reads = 0;
    const dunlin_source below = byte_source(&n_reads);
    const int64_t n_steps = N_EXAMPLES / batch;
    const dunlin_pipeline_options options = all_options(n_steps, prefetch_bytes);
    dunlin_source source;
    dunlin_pipeline *pipeline = make(&below, &image, &options, &source);
    for (int64_t step = first * n_steps; step < 2 * n_steps; step++) {
        int64_t now[N_EXAMPLES];
        int64_t next[N_EXAMPLES];
        for (int64_t i = 0; i < batch; i++) {
            now[i] = (step * batch + i) * 7 % N_EXAMPLES;
            next[i] = ((step + 1) * batch + i) * 7 % N_EXAMPLES;
        }
        source.step_fn(source.ctx, step);
        source.hint_fn(source.ctx, step + 1, next, batch);
        for (int64_t i = 0; i < batch; i++) {
            float *to = out + ((step / n_steps) * N_EXAMPLES + now[i]) * ROW;
            cr_assert_eq(source.read_targets_fn(source.ctx, &now[i], 1, to, to + N_ELEMENTS),
                         DUNLIN_OK);
        }
    }
    dunlin_pipeline_report report = DUNLIN_PIPELINE_REPORT_INIT;
    cr_assert_eq(dunlin_pipeline_get_report(pipeline, &report), DUNLIN_OK);
    cr_assert(prefetch_bytes == 0 || report.n_slots > 0);
    cr_assert_geq(report.bytes, prefetch_bytes / 2 + 5 * N_ELEMENTS);
    dunlin_pipeline_destroy(pipeline);
}

Test(augment, batch_and_reading_ahead_change_no_bit)
{
    const size_t bytes = sizeof(float) * 2 * N_EXAMPLES * ROW;
    float *expected = calloc(1, bytes);
    float *found = calloc(1, bytes);
    run_epochs(4, 0, 0, expected);
    cr_assert(memcmp(expected, expected + N_EXAMPLES * ROW, bytes / 2) != 0, "epochs are alike");
    static const struct {
        int64_t batch;
        uint64_t prefetch_bytes;
    } ways[] = {{1, 0}, {6, 0}, {12, 0}, {4, 1 << 16}, {6, 1000}, {3, 1 << 16}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        memset(found, 0, bytes);
        run_epochs(ways[i].batch, ways[i].prefetch_bytes, 0, found);
        cr_assert_eq(memcmp(expected, found, bytes), 0, "way %d", (int)i);
    }
    memset(found, 0, bytes);
    run_epochs(4, 0, 1, found); /* resumed after the first epoch */
    cr_assert_eq(memcmp(expected + N_EXAMPLES * ROW, found + N_EXAMPLES * ROW, bytes / 2), 0);
    free(expected);
    free(found);
}

Test(augment, one_change_moves_no_other)
{
    int64_t n_reads = 0;
    const dunlin_source below = byte_source(&n_reads);
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.cutout = 3;
    dunlin_source alone;
    dunlin_source both;
    dunlin_pipeline *first = make(&below, &image, &options, &alone);
    options.noise = 1e-4F;
    dunlin_pipeline *second = make(&below, &image, &options, &both);
    for (int64_t index = 0; index < N_EXAMPLES; index++) {
        float x[N_ELEMENTS];
        float y[N_ELEMENTS];
        read_at(&alone, 5, index, x);
        read_at(&both, 5, index, y);
        for (int64_t k = 0; k < N_ELEMENTS; k++) {
            cr_assert_float_eq(x[k], y[k], 1e-3F);
        }
        read_at(&both, -1, index, y); /* an evaluation */
        for (int64_t k = 0; k < N_ELEMENTS; k++) {
            cr_assert_eq(y[k], normal_at(index, k));
        }
    }
    dunlin_pipeline_destroy(first);
    dunlin_pipeline_destroy(second);
}

/* --- refusals --- */

static void refuse(const dunlin_source *below, const dunlin_shape *shape,
                   const dunlin_pipeline_options *options, dunlin_status status, const char *text)
{
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_pipeline_create(below, shape, options, NULL, &pipeline, &error), status,
                 "%s", text);
    cr_assert(pipeline == NULL && strstr(error.text, text) != NULL, "\"%s\" not in \"%s\"", text,
              error.text);
}

Test(augment, what_is_refused)
{
    int64_t n_reads = 0;
    dunlin_source below = byte_source(&n_reads);
    const dunlin_pipeline_options none = DUNLIN_PIPELINE_OPTIONS_INIT;
    dunlin_pipeline_options options = none;
    options.cutout = SIDE + 1;
    refuse(&below, &image, &options, DUNLIN_ARGUMENT,
           "a cut-out of 10 x 10 is larger than the image of 9 x 9");
    options.cutout = -1;
    refuse(&below, &image, &options, DUNLIN_ARGUMENT, "cutout -1");
    options = none;
    options.cutout = 2;
    refuse(&below, &signal, &options, DUNLIN_ARGUMENT, "larger than the image of 1 x 81");
    options = none;
    options.shift = 2;
    refuse(&below, &image, &options, DUNLIN_ARGUMENT, "a shift of 2 is for signals");
    options.shift = N_PIXELS;
    refuse(&below, &signal, &options, DUNLIN_ARGUMENT, "leaves nothing of signals of length 81");
    options = none;
    options.is_flip = true;
    refuse(&below, &signal, &options, DUNLIN_ARGUMENT, "are for images (C, H, W)");
    const float wrong[] = {-0.1F, NAN, INFINITY, 1001.0F};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        options = none;
        options.noise = wrong[i];
        refuse(&below, &image, &options, DUNLIN_ARGUMENT, "noise");
        options = none;
        options.mixup = wrong[i];
        options.n_classes = 3;
        refuse(&below, &image, &options, DUNLIN_ARGUMENT, "mixup");
    }
    options = none;
    options.mixup = 1.0F;
    refuse(&below, &image, &options, DUNLIN_ARGUMENT, "targets of 0 classes");
    options.n_classes = 3;
    below.dtype = DUNLIN_I32;
    refuse(&below, &signal, &options, DUNLIN_UNSUPPORTED, "tokens are neither mixed nor changed");
}
