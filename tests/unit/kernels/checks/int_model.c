/*
 * int_model.c - the model of the integer kernels. Convolutions are one loop over all products,
 * which none of the kernels is.
 */
#include "int_model.h"

#include "random.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

#define GUARD 128
#define GUARD_BYTE 0xA5

void *int_new(int64_t n, size_t size)
{
    const size_t bytes = (size_t)n * size;
    const size_t all = (bytes + 63) / 64 * 64 + 2 * GUARD;
    unsigned char *base = aligned_alloc(64, all);
    cr_assert_not_null(base);
    memset(base, GUARD_BYTE, all);
    memcpy(base, &bytes, sizeof bytes);
    memset(base + GUARD, 0x5A, bytes);
    return base + GUARD;
}

void int_free(void *array)
{
    if (array != NULL) {
        free((unsigned char *)array - GUARD);
    }
}

bool int_is_intact(const void *array)
{
    const unsigned char *at = (const unsigned char *)array;
    size_t bytes = 0;
    memcpy(&bytes, at - GUARD, sizeof bytes);
    for (size_t i = 0; i < GUARD - sizeof bytes; i++) {
        if (at[bytes + i % 64] != GUARD_BYTE || at[-1 - (ptrdiff_t)i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}

int8_t *int_random(int64_t n, uint64_t *state)
{
    int8_t *values = int_new(n, 1);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t draw = test_random_below(state, 300);
        values[i] = (int8_t)(draw < 255   ? (int32_t)draw - 127
                             : draw < 270 ? 127
                             : draw < 285 ? -127
                                          : 0);
    }
    return values;
}

int32_t int_model_fraction(int64_t numerator, int64_t denominator, int64_t *out_clipped)
{
    const int64_t size = numerator < 0 ? -numerator : numerator;
    int64_t q = size / denominator;
    if (2 * (size % denominator) >= denominator) {
        q++;
    }
    if (q > 127) {
        q = 127;
        *out_clipped += 1;
    }
    return (int32_t)(numerator < 0 ? -q : q);
}

int32_t int_model_round(int64_t v, int32_t shift, dunlin_int_stats *stats)
{
    dunlin_int_stats unused = {0, 0};
    dunlin_int_stats *to = stats == NULL ? &unused : stats;
    const int64_t size = v < 0 ? -v : v;
    to->largest = size > to->largest ? size : to->largest;
    return int_model_fraction(v, (int64_t)1 << (shift < 0 ? 0 : shift), &to->n_clipped);
}

/* One window's products. */
static void take_window(const dunlin_conv_shape *s, int64_t sample, int64_t oy, int64_t ox,
                        const int8_t *x, const int8_t *w, const int8_t *dy, const int_sums *to)
{
    const int64_t in_c = s->in_c / s->groups;
    const int64_t out_c = s->out_c / s->groups;
    const int64_t out = ((sample * s->out_h + oy) * s->out_w + ox) * s->out_c;
    for (int64_t i = 0; i < (int64_t)s->kernel_h * s->kernel_w; i++) {
        const int64_t iy = oy * s->stride_h - s->pad_top + i / s->kernel_w * s->dilation_h;
        const int64_t ix = ox * s->stride_w - s->pad_left + i % s->kernel_w * s->dilation_w;
        if (iy < 0 || iy >= s->in_h || ix < 0 || ix >= s->in_w) {
            continue;
        }
        const int64_t in = ((sample * s->in_h + iy) * s->in_w + ix) * s->in_c;
        for (int64_t o = 0; o < s->out_c; o++) {
            const int64_t first = in + o / out_c * in_c;
            for (int64_t c = 0; c < in_c; c++) {
                const int64_t at = (i * in_c + c) * s->out_c + o;
                to->y[out + o] += x[first + c] * w[at];
                to->dx[first + c] += dy[out + o] * w[at];
                to->dw[at] += dy[out + o] * x[first + c];
            }
        }
    }
}

static int64_t *zeros(int64_t n)
{
    int64_t *values = calloc((size_t)n, sizeof *values);
    cr_assert_not_null(values);
    return values;
}

void int_model_conv(const dunlin_conv_shape *s, int64_t n, const int8_t *x, const int8_t *w,
                    const int8_t *dy, int_sums *out_sums)
{
    out_sums->y = zeros(n * s->out_h * s->out_w * s->out_c);
    out_sums->dx = zeros(n * s->in_h * s->in_w * s->in_c);
    out_sums->dw = zeros((int64_t)s->kernel_h * s->kernel_w * (s->in_c / s->groups) * s->out_c);
    out_sums->db = zeros(s->out_c);
    for (int64_t i = 0; i < n * s->out_h * s->out_w; i++) {
        take_window(s, i / s->out_w / s->out_h, i / s->out_w % s->out_h, i % s->out_w, x, w, dy,
                    out_sums);
        for (int64_t o = 0; o < s->out_c; o++) {
            out_sums->db[o] += dy[i * s->out_c + o];
        }
    }
}

void int_sums_free(int_sums *sums)
{
    free(sums->y);
    free(sums->dx);
    free(sums->dw);
    free(sums->db);
}

void int_same(const dunlin_int_kernels *k, const char *what, const int8_t *is, const int8_t *wanted,
              int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        cr_assert_eq(is[i], wanted[i], "%s: %s: element %lld is %d, not %d", k->isa, what,
                     (long long)i, is[i], wanted[i]);
    }
    cr_assert(int_is_intact(is), "%s: %s", k->isa, what);
}

void int_same_stats(const dunlin_int_kernels *k, const char *what, const dunlin_int_stats *is,
                    const dunlin_int_stats *wanted)
{
    cr_assert(is->largest == wanted->largest && is->n_clipped == wanted->n_clipped,
              "%s: %s: largest %lld not %lld, clipped %lld not %lld", k->isa, what,
              (long long)is->largest, (long long)wanted->largest, (long long)is->n_clipped,
              (long long)wanted->n_clipped);
}

void each_int(each_int_fn fn)
{
    cr_assert_not_null(dunlin__int_kernels_isa(0));
    for (int i = 0; dunlin__int_kernels_isa(i) != NULL; i++) {
        fn(dunlin__int_kernels_select(dunlin__int_kernels_isa(i)));
    }
}
