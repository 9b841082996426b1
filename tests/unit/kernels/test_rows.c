/*
 * test_rows.c - blend, close and sums in all their combinations against double; the same bits for
 * every slice and thread count.
 */
#include "checks/sink_check.h"
#include "checks/view_double.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(rows, .timeout = 900);

static bool toss(uint64_t *state)
{
    return test_random_below(state, 2) == 0;
}

static int64_t pitch_of(int32_t channels, uint64_t *state)
{
    return channels + (toss(state) ? 0 : (int64_t)test_random_below(state, 20));
}

static int32_t any_channels(uint64_t *state)
{
    static const int32_t channels[] = {1, 3, 8, 17, 24, 40, 300, 600};
    return channels[test_random_below(state, 8)];
}

static int64_t any_rows(uint64_t *state)
{
    static const int64_t rows[] = {1, 4, 49, 63, 64, 100, 196, 1000};
    return rows[test_random_below(state, 8)];
}

/* --- close --- */

typedef struct close_data {
    int64_t rows_per_sample, n_samples, n_pixels;
    int32_t channels;
    bool has_factor, has_raw;
    int64_t pitch, raw_pitch;
    float *g, *raw, *factor, *slope, *offset;
    epilogue_data epilogue;
} close_data;

static void close_open(close_data *d, uint64_t *state)
{
    d->rows_per_sample = any_rows(state);
    d->channels = any_channels(state);
    d->n_samples =
        d->rows_per_sample * d->channels > 100000 ? 2 : 1 + (int64_t)test_random_below(state, 4);
    d->n_pixels = d->rows_per_sample * d->n_samples;
    d->has_factor = toss(state);
    d->has_raw = toss(state);
    d->pitch = pitch_of(d->channels, state);
    d->raw_pitch = pitch_of(d->channels, state);
    d->g = buffer_random(d->n_pixels * d->pitch, state);
    d->raw = buffer_random(d->n_pixels * d->raw_pitch, state);
    d->factor = buffer_random(d->channels, state);
    d->slope = buffer_random(d->channels, state);
    d->offset = buffer_random(d->channels, state);
    epilogue_data_open(&d->epilogue, d->n_pixels, d->channels, state);
    d->epilogue.is_sums_alone = d->epilogue.n_stats > 0 && test_random_below(state, 4) == 0;
}

static void close_close(close_data *d)
{
    float *all[] = {d->g, d->raw, d->factor, d->slope, d->offset};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        buffer_free(all[i]);
    }
    epilogue_data_close(&d->epilogue);
}

static float *workspace_of(const dunlin_kernels *kernels, const close_data *d, int64_t n)
{
    uint64_t sample_bytes = 0;
    uint64_t bytes = kernels->close_workspace_bytes(d->channels, d->rows_per_sample, &sample_bytes);
    return buffer_new((int64_t)(bytes + sample_bytes * (uint64_t)n) / 4);
}

static void close_run(const dunlin_kernels *kernels, const close_data *d, int64_t slice,
                      dunlin_threads *threads, epilogue_result *r)
{
    epilogue_result_open(&d->epilogue, r);
    for (int64_t s = 0; s < d->n_samples; s += slice) {
        const int64_t n = d->n_samples - s < slice ? d->n_samples - s : slice;
        const int64_t first = s * d->rows_per_sample;
        float *workspace = workspace_of(kernels, d, n);
        dunlin_close_call call = {.rows_per_sample = d->rows_per_sample,
                                  .n_samples = n,
                                  .channels = d->channels,
                                  .from = {.g = d->g + first * d->pitch,
                                           .pitch = d->pitch,
                                           .factor = d->has_factor ? d->factor : NULL,
                                           .raw = d->has_raw ? d->raw + first * d->raw_pitch : NULL,
                                           .raw_pitch = d->raw_pitch,
                                           .slope = d->slope,
                                           .offset = d->offset},
                                  .to = epilogue_of(&d->epilogue, r, first),
                                  .is_reset = s == 0,
                                  .workspace = workspace,
                                  .threads = threads};
        kernels->close(&call);
        cr_assert(buffer_is_intact(workspace), "%s: wrote outside its workspace", kernels->isa);
        buffer_free(workspace);
    }
}

static double *close_dx(const close_data *d, double **out_size)
{
    double *dx = buffer_doubles(NULL, d->n_pixels * d->channels);
    *out_size = buffer_doubles(NULL, d->n_pixels * d->channels);
    for (int64_t i = 0; i < d->n_pixels * d->channels; i++) {
        const int64_t c = i % d->channels;
        const double factor = d->has_factor ? (double)d->factor[c] : 1.0;
        dx[i] = (double)d->g[i / d->channels * d->pitch + c] * factor;
        (*out_size)[i] = fabs(dx[i]);
        if (d->has_raw) {
            const double term =
                (double)d->raw[i / d->channels * d->raw_pitch + c] * (double)d->slope[c];
            dx[i] += term + (double)d->offset[c];
            (*out_size)[i] += fabs(term) + fabs((double)d->offset[c]);
        }
    }
    return dx;
}

static void check_close(const dunlin_kernels *kernels, uint64_t seed)
{
    uint64_t state = seed;
    close_data d;
    close_open(&d, &state);
    char what[96];
    (void)snprintf(what, sizeof what, "%s: close, seed %llu", kernels->isa,
                   (unsigned long long)seed);
    epilogue_result whole;
    close_run(kernels, &d, d.n_samples, NULL, &whole);
    double *size = NULL;
    double *dx = close_dx(&d, &size);
    epilogue_compare(what, &d.epilogue, &whole, dx, size, 8.0);
    const size_t n_threads = 2 + (size_t)test_random_below(&state, 3);
    dunlin_threads *threads = start_threads(n_threads);
    epilogue_result other;
    close_run(kernels, &d, 1, threads, &other);
    epilogue_compare_bits(what, &d.epilogue, &whole, &other);
    stop_threads(threads);
    epilogue_result_close(&other);
    epilogue_result_close(&whole);
    free(dx);
    free(size);
    close_close(&d);
}

static void check_closes(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(51);
    for (int i = 0; i < test_cases(60); i++) {
        check_close(kernels, seed++);
    }
}

Test(rows, close_agrees_with_double)
{
    each_isa(check_closes);
}

/* Writing over what it reads. */
static void check_close_in_place(const dunlin_kernels *kernels)
{
    uint64_t state = 7;
    const int64_t n = 200 * 24;
    float *g = buffer_random(n, &state);
    float *mask = buffer_random(n, &state);
    float *apart = buffer_new(n);
    dunlin_close_call call = {
        .rows_per_sample = 100,
        .n_samples = 2,
        .channels = 24,
        .from = {.g = g, .pitch = 24},
        .to = {
            .out = apart, .pitch = 24, .mask = mask, .mask_pitch = 24, .low = 0.0f, .high = 1.0f}};
    kernels->close(&call);
    call.to.out = g;
    kernels->close(&call);
    cr_assert(buffer_same_bits(g, apart, n), "%s", kernels->isa);
    buffer_free(g);
    buffer_free(mask);
    buffer_free(apart);
}

Test(rows, close_may_write_over_its_gradient)
{
    each_isa(check_close_in_place);
}

/* --- sums --- */

static void sums_run(const dunlin_kernels *kernels, const close_data *d, int64_t slice,
                     dunlin_threads *threads, double *sums)
{
    for (int64_t s = 0; s < d->n_samples; s += slice) {
        const int64_t n = d->n_samples - s < slice ? d->n_samples - s : slice;
        float *workspace = workspace_of(kernels, d, n);
        dunlin_sums_call call = {.rows_per_sample = d->rows_per_sample,
                                 .n_samples = n,
                                 .channels = d->channels,
                                 .stat = {.raw = d->g + s * d->rows_per_sample * d->pitch,
                                          .raw_pitch = d->pitch,
                                          .about = d->offset,
                                          .sums = sums},
                                 .is_reset = s == 0,
                                 .workspace = workspace,
                                 .threads = threads};
        kernels->sums(&call);
        buffer_free(workspace);
    }
}

static void check_sum(const dunlin_kernels *kernels, uint64_t seed)
{
    uint64_t state = seed;
    close_data d;
    close_open(&d, &state);
    const size_t bytes = 2 * (size_t)d.channels * sizeof(double);
    double *sums = malloc(bytes);
    double *other = malloc(bytes);
    cr_assert(sums != NULL && other != NULL);
    sums_run(kernels, &d, d.n_samples, NULL, sums);
    for (int64_t c = 0; c < d.channels; c++) {
        double expected[2] = {0.0, 0.0};
        double size = 0.0;
        for (int64_t i = 0; i < d.n_pixels; i++) {
            const double v = (double)d.g[i * d.pitch + c] - (double)d.offset[c];
            expected[0] += v;
            expected[1] += v * v;
            size += fabs(v) + v * v;
        }
        const double bound = 8.0 * (double)FLT_EPSILON * size;
        cr_assert(fabs(sums[c] - expected[0]) <= bound &&
                      fabs(sums[d.channels + c] - expected[1]) <= bound,
                  "%s: seed %llu", kernels->isa, (unsigned long long)seed);
    }
    dunlin_threads *threads = start_threads(3);
    sums_run(kernels, &d, 1, threads, other);
    cr_assert_eq(memcmp(sums, other, bytes), 0, "%s: bits, seed %llu", kernels->isa,
                 (unsigned long long)seed);
    stop_threads(threads);
    free(sums);
    free(other);
    close_close(&d);
}

static void check_all_sums(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(52);
    for (int i = 0; i < test_cases(30); i++) {
        check_sum(kernels, seed++);
    }
}

Test(rows, sums_agree_with_double)
{
    each_isa(check_all_sums);
}

/* --- blend --- */

typedef struct side {
    dunlin_view view;
    float *x, *scale, *shift;
} side;

static side side_open(int64_t n_pixels, int32_t channels, uint64_t *state)
{
    side s = {.view = {.pitch = pitch_of(channels, state), .low = -INFINITY, .high = INFINITY}};
    s.x = buffer_random(n_pixels * s.view.pitch, state);
    s.scale = buffer_random(channels, state);
    s.shift = buffer_random(channels, state);
    s.view.x = s.x;
    s.view.scale = toss(state) ? s.scale : NULL;
    s.view.shift = s.shift;
    s.view.fn = view_fn_random(state);
    for (int32_t c = 0; c < channels && s.view.fn != DUNLIN_VIEW_CLIP; c++) {
        s.scale[c] *= 4.0f; /* beyond the kinks */
    }
    if (toss(state)) {
        s.view.low = -0.25f;
        s.view.high = 0.5f;
    }
    return s;
}

static void side_close(side *s)
{
    buffer_free(s->x);
    buffer_free(s->scale);
    buffer_free(s->shift);
}

static double side_value(const side *s, int64_t pixel, int64_t c)
{
    double v = (double)s->x[pixel * s->view.pitch + c];
    if (s->view.scale != NULL) {
        v = v * (double)s->scale[c] + (double)s->shift[c];
        v = view_double(s->view.fn, v, (double)s->view.low, (double)s->view.high);
    }
    return v;
}

static void check_blend(const dunlin_kernels *kernels, uint64_t seed)
{
    uint64_t state = seed;
    const int32_t channels = any_channels(&state);
    const int64_t rows = any_rows(&state);
    side a = side_open(2 * rows, channels, &state);
    side b = side_open(2 * rows, channels, &state);
    const bool has_b = test_random_below(&state, 3) > 0;
    dunlin_threads *threads = toss(&state) ? start_threads(2) : NULL;
    dunlin_blend_call call = {.rows_per_sample = rows,
                              .n_samples = 2,
                              .channels = channels,
                              .a = a.view,
                              .b = b.view,
                              .low = toss(&state) ? -0.5f : -INFINITY,
                              .high = toss(&state) ? 0.75f : INFINITY,
                              .out_pitch = pitch_of(channels, &state),
                              .threads = threads};
    if (!has_b) {
        call.b.x = NULL;
    }
    float *out = buffer_new(2 * rows * call.out_pitch);
    call.out = out;
    kernels->blend(&call);
    for (int64_t i = 0; i < 2 * rows * channels; i++) {
        const int64_t pixel = i / channels;
        const int64_t c = i % channels;
        double v = side_value(&a, pixel, c) + (has_b ? side_value(&b, pixel, c) : 0.0);
        v = fmin(fmax(v, (double)call.low), (double)call.high);
        cr_assert(fabs((double)out[pixel * call.out_pitch + c] - v) <= 16.0 * (double)FLT_EPSILON,
                  "%s: seed %llu", kernels->isa, (unsigned long long)seed);
    }
    cr_assert(buffer_is_intact(out));
    stop_threads(threads);
    buffer_free(out);
    side_close(&a);
    side_close(&b);
}

static void check_blends(const dunlin_kernels *kernels)
{
    uint64_t seed = test_seed(53);
    for (int i = 0; i < test_cases(60); i++) {
        check_blend(kernels, seed++);
    }
}

Test(rows, blend_agrees_with_double)
{
    each_isa(check_blends);
}

/* A sum that is more than caches keep is written past them; its samples, one by one, are not. */
static void check_vast_blend(const dunlin_kernels *kernels)
{
    enum { ROWS = 48000, CHANNELS = 96, N = 2 };
    uint64_t state = 54;
    const int64_t n = (int64_t)N * ROWS * CHANNELS;
    float *x = buffer_random(n, &state);
    float *y = buffer_random(n, &state);
    float *whole = buffer_new(n);
    float *parts = buffer_new(n);
    dunlin_blend_call call = {.rows_per_sample = ROWS,
                              .n_samples = N,
                              .channels = CHANNELS,
                              .a = {.x = x, .pitch = CHANNELS},
                              .b = {.x = y, .pitch = CHANNELS},
                              .low = 0.0f,
                              .high = INFINITY,
                              .out = whole,
                              .out_pitch = CHANNELS,
                              .threads = start_threads(2)};
    kernels->blend(&call);
    call.n_samples = 1;
    for (int64_t i = 0; i < N; i++) {
        const int64_t at = i * ROWS * CHANNELS;
        call.a.x = x + at;
        call.b.x = y + at;
        call.out = parts + at;
        kernels->blend(&call);
    }
    cr_assert(buffer_same_bits(whole, parts, n), "%s", kernels->isa);
    cr_assert(buffer_is_intact(whole));
    stop_threads(call.threads);
    buffer_free(x);
    buffer_free(y);
    buffer_free(whole);
    buffer_free(parts);
}

Test(rows, a_vast_blend_has_the_bits_of_its_parts)
{
    each_isa(check_vast_blend);
}

/* A clip lets not-a-number through, so that a bad value is seen. */
static void check_bad_value(const dunlin_kernels *kernels)
{
    float x[40];
    float out[40];
    for (int i = 0; i < 40; i++) {
        x[i] = i % 7 == 0 ? NAN : 2.0f;
    }
    dunlin_blend_call call = {.rows_per_sample = 1,
                              .n_samples = 1,
                              .channels = 40,
                              .a = {.x = x, .pitch = 40},
                              .low = 0.0f,
                              .high = 1.0f,
                              .out_pitch = 40};
    call.out = out;
    kernels->blend(&call);
    for (int i = 0; i < 40; i++) {
        cr_assert(i % 7 == 0 ? isnan(out[i]) : out[i] == 1.0f, "%s: element %d", kernels->isa, i);
    }
}

Test(rows, a_clip_passes_not_a_number)
{
    each_isa(check_bad_value);
}
