/*
 * sink_check.c - sinks of random data. Masks are compared as the kernel does, in float, so that no
 * element sits on a bound by rounding.
 */
#include "sink_check.h"

#include "random.h"
#include "view_double.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const float low = -0.3f;
static const float high = 0.5f;

static bool toss(uint64_t *state)
{
    return test_random_below(state, 2) == 0;
}

static int64_t pitch_of(int32_t channels, uint64_t *state)
{
    return channels + (toss(state) ? 0 : (int64_t)test_random_below(state, 20));
}

static void choose(epilogue_data *d, uint64_t *state)
{
    const uint64_t form = test_random_below(state, 4);
    d->is_direct = toss(state);
    d->has_addend = toss(state);
    d->has_mask = toss(state);
    d->is_scaled = d->has_mask && toss(state);
    d->n_stats = (uint32_t)test_random_below(state, 3);
    d->is_raw_mask = d->has_mask && d->n_stats > 0 && toss(state);
    d->has_factor = !d->is_direct && toss(state);
    if (form < 2) {
        d->n_stats = 1;
        d->has_mask = true;
        d->has_factor = false;
        d->is_direct = form == 1;
        d->has_addend = form == 1;
        d->is_scaled = form == 0;
        d->is_raw_mask = form == 0;
    }
    d->mask_fn = d->is_scaled ? view_fn_random(state) : DUNLIN_VIEW_CLIP;
    if (form == 0 && toss(state)) { /* the last that comes to a view with others before it */
        d->is_direct = d->has_addend = true;
    }
    d->is_in_place = d->has_addend && toss(state);
}

void epilogue_data_open(epilogue_data *d, int64_t n_pixels, int32_t channels, uint64_t *state)
{
    *d = (epilogue_data){.n_pixels = n_pixels, .channels = channels};
    choose(d, state);
    d->pitch = pitch_of(channels, state);
    d->addend_pitch = d->is_in_place ? d->pitch : pitch_of(channels, state);
    d->mask_pitch = pitch_of(channels, state);
    d->raw_pitch = d->is_raw_mask ? d->mask_pitch : pitch_of(channels, state);
    d->addend = buffer_random(n_pixels * d->addend_pitch, state);
    d->mask = buffer_random(n_pixels * d->mask_pitch, state);
    d->mask_scale = buffer_random(channels, state);
    d->mask_shift = buffer_random(channels, state);
    for (int32_t c = 0; c < channels && d->mask_fn != DUNLIN_VIEW_CLIP; c++) {
        d->mask_scale[c] *= 4.0f; /* beyond the kinks */
    }
    d->factor = buffer_random(channels, state);
    for (int i = 0; i < DUNLIN_EPILOGUE_MAX_STATS; i++) {
        d->raw[i] = buffer_random(n_pixels * d->raw_pitch, state);
        d->about[i] = buffer_random(channels, state);
    }
}

void epilogue_data_close(epilogue_data *d)
{
    float *all[] = {d->addend, d->mask,   d->mask_scale, d->mask_shift, d->factor,
                    d->raw[0], d->raw[1], d->about[0],   d->about[1]};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        buffer_free(all[i]);
    }
}

void epilogue_result_open(const epilogue_data *d, epilogue_result *r)
{
    r->out = buffer_new(d->n_pixels * d->pitch);
    if (d->is_in_place) {
        memcpy(r->out, d->addend, (size_t)(d->n_pixels * d->pitch) * sizeof(float));
    }
    for (int i = 0; i < DUNLIN_EPILOGUE_MAX_STATS; i++) {
        r->sums[i] = malloc(2 * (size_t)d->channels * sizeof(double));
        cr_assert_not_null(r->sums[i]);
        for (int64_t c = 0; c < 2 * d->channels; c++) {
            r->sums[i][c] = (double)NAN;
        }
    }
}

void epilogue_result_close(epilogue_result *r)
{
    cr_assert(buffer_is_intact(r->out), "wrote outside the output");
    buffer_free(r->out);
    free(r->sums[0]);
    free(r->sums[1]);
}

static const float *raw_of(const epilogue_data *d, uint32_t stat)
{
    return stat == 0 && d->is_raw_mask ? d->mask : d->raw[stat];
}

dunlin_epilogue epilogue_of(const epilogue_data *d, epilogue_result *r, int64_t first)
{
    const float *addend = d->is_in_place ? r->out : d->addend;
    dunlin_epilogue epilogue = {.out = d->is_sums_alone ? NULL : r->out + first * d->pitch,
                                .pitch = d->pitch,
                                .is_direct = d->is_direct,
                                .addend = d->has_addend ? addend + first * d->addend_pitch : NULL,
                                .addend_pitch = d->addend_pitch,
                                .mask = d->has_mask ? d->mask + first * d->mask_pitch : NULL,
                                .mask_pitch = d->mask_pitch,
                                .mask_scale = d->is_scaled ? d->mask_scale : NULL,
                                .mask_shift = d->mask_shift,
                                .mask_fn = d->mask_fn,
                                .low = low,
                                .high = high,
                                .factor = d->has_factor ? d->factor : NULL,
                                .n_stats = d->n_stats};
    for (uint32_t i = 0; i < d->n_stats; i++) {
        epilogue.stats[i] = (dunlin_stat){.raw = raw_of(d, i) + first * d->raw_pitch,
                                          .raw_pitch = d->raw_pitch,
                                          .about = d->about[i],
                                          .sums = r->sums[i]};
    }
    return epilogue;
}

/* What the gradient of an element is multiplied by. */
static double passed(const epilogue_data *d, int64_t pixel, int64_t c)
{
    if (!d->has_mask) {
        return 1.0;
    }
    float v = d->mask[pixel * d->mask_pitch + c];
    if (d->is_scaled) {
        v = v * d->mask_scale[c] + d->mask_shift[c];
    }
    return view_double_slope(d->mask_fn, v, low, high);
}

static void want(const char *what, double got, double expected, double bound)
{
    cr_assert(fabs(got - expected) <= bound * (double)FLT_EPSILON, "%s: %g, not %g (bound %g)",
              what, got, expected, bound * (double)FLT_EPSILON);
}

/* t of every element, and its size. */
static double *make_t(const epilogue_data *d, const double *dx, const double *size,
                      double **out_size)
{
    const int64_t n = d->n_pixels * d->channels;
    double *t = buffer_doubles(NULL, n);
    *out_size = buffer_doubles(NULL, n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t pixel = i / d->channels;
        const int64_t c = i % d->channels;
        const bool adds = d->is_direct && d->has_addend;
        const double addend = (double)d->addend[pixel * d->addend_pitch + c];
        const double by = passed(d, pixel, c);
        if (by < 0.0 || by > 0.0) {
            t[i] = (dx[i] + (adds ? addend : 0.0)) * by;
            (*out_size)[i] = 2.0 * (size[i] + (adds ? fabs(addend) : 0.0));
        }
    }
    return t;
}

static void compare_out(const char *what, const epilogue_data *d, const epilogue_result *r,
                        const double *t, const double *size, double factor)
{
    for (int64_t i = 0; i < d->n_pixels * d->channels; i++) {
        const int64_t pixel = i / d->channels;
        const int64_t c = i % d->channels;
        double expected = t[i];
        double bound = size[i];
        if (d->has_factor) {
            expected *= (double)d->factor[c];
            bound *= fabs((double)d->factor[c]);
        }
        if (!d->is_direct && d->has_addend) {
            const double addend = (double)d->addend[pixel * d->addend_pitch + c];
            expected += addend;
            bound += fabs(addend);
        }
        want(what, (double)r->out[pixel * d->pitch + c], expected, factor * bound);
    }
}

static void compare_sums(const char *what, const epilogue_data *d, const epilogue_result *r,
                         const double *t, const double *size, double factor)
{
    for (uint32_t s = 0; s < d->n_stats; s++) {
        for (int64_t c = 0; c < d->channels; c++) {
            double sum[2] = {0.0, 0.0};
            double bound[2] = {0.0, 0.0};
            for (int64_t pixel = 0; pixel < d->n_pixels; pixel++) {
                const double raw = (double)raw_of(d, s)[pixel * d->raw_pitch + c];
                const double about = (double)d->about[s][c];
                const int64_t i = pixel * d->channels + c;
                sum[0] += t[i];
                sum[1] += t[i] * (raw - about);
                bound[0] += size[i];
                bound[1] += size[i] * (fabs(raw) + fabs(about));
            }
            want(what, r->sums[s][c], sum[0], factor * bound[0]);
            want(what, r->sums[s][d->channels + c], sum[1], factor * bound[1]);
        }
    }
}

void epilogue_compare(const char *what, const epilogue_data *d, const epilogue_result *r,
                      const double *dx, const double *size, double factor)
{
    double *t_size = NULL;
    double *t = make_t(d, dx, size, &t_size);
    if (!d->is_sums_alone) {
        compare_out(what, d, r, t, t_size, factor);
    }
    compare_sums(what, d, r, t, t_size, factor + 4.0);
    free(t);
    free(t_size);
}

void epilogue_compare_bits(const char *what, const epilogue_data *d, const epilogue_result *a,
                           const epilogue_result *b)
{
    for (int64_t pixel = 0; pixel < d->n_pixels && !d->is_sums_alone; pixel++) {
        cr_assert(
            buffer_same_bits(a->out + pixel * d->pitch, b->out + pixel * d->pitch, d->channels),
            "%s: pixel %lld has other bits", what, (long long)pixel);
    }
    for (uint32_t s = 0; s < d->n_stats; s++) {
        cr_assert(memcmp(a->sums[s], b->sums[s], 2 * (size_t)d->channels * sizeof(double)) == 0,
                  "%s: sums have other bits", what);
    }
}
