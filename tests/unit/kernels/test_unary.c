/*
 * test_unary.c - functions of one element whose values are known to the bit: the leaky ReLU.
 */
#include "checks/buffers.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <string.h>

TestSuite(unary, .timeout = 900);

#define LONG 100003 /* beyond what one thread keeps to itself */

/* Numbers around the kink, and random ones. */
static float *values_of(int64_t n, uint64_t *state)
{
    static const float odd[] = {0.0F,     -0.0F,    FLT_MIN,   -FLT_MIN, FLT_MAX,
                                -FLT_MAX, INFINITY, -INFINITY, 1.0F,     -1.0F};
    float *values = buffer_random(n, state);
    for (int64_t i = 0; i < n; i += 3) {
        values[i] = odd[test_random_below(state, sizeof odd / sizeof odd[0])];
    }
    return values;
}

static void check_leaky(const dunlin_kernels *kernels, int64_t n, float a, dunlin_threads *threads)
{
    uint64_t state = 5 + (uint64_t)n;
    float *x = values_of(n, &state);
    float *dy = buffer_random(n, &state);
    float *y = buffer_new(n);
    float *dx = buffer_new(n);
    float *by_output = buffer_new(n);
    dunlin_unary_call call = {
        .fn = DUNLIN_UNARY_LEAKY_RELU, .a = a, .n = n, .x = x, .out = y, .threads = threads};
    kernels->unary(&call);
    call.dy = dy;
    call.out = dx;
    kernels->unary(&call);
    call.x = y;
    call.out = by_output;
    kernels->unary(&call);
    for (int64_t i = 0; i < n; i++) {
        const float value = x[i] > 0.0F ? x[i] : a * x[i];
        const float slope = x[i] > 0.0F ? dy[i] : dy[i] * a;
        cr_assert(memcmp(&y[i], &value, sizeof value) == 0 || (isnan(y[i]) && isnan(value)),
                  "%s, a = %g: f(%g) is %g", kernels->isa, (double)a, (double)x[i], (double)y[i]);
        cr_assert_eq(memcmp(&dx[i], &slope, sizeof slope), 0, "%s, a = %g: f'(%g) dy is %g, not %g",
                     kernels->isa, (double)a, (double)x[i], (double)dx[i], (double)slope);
    }
    /* With a factor that keeps signs the gradient may be made from the output. */
    cr_assert(a < 0.0F || buffer_same_bits(dx, by_output, n), "%s, a = %g", kernels->isa,
              (double)a);
    float *const all[] = {x, dy, y, dx, by_output};
    for (int i = 0; i < 5; i++) {
        cr_assert(buffer_is_intact(all[i]));
        buffer_free(all[i]);
    }
}

static void check_set(const dunlin_kernels *kernels)
{
    static const float factors[] = {0.01F, 0.0F, 1.0F, 3.0F, -0.5F};
    dunlin_threads *threads = start_threads(3);
    for (size_t f = 0; f < sizeof factors / sizeof factors[0]; f++) {
        for (int64_t n = 1; n <= 40; n++) {
            check_leaky(kernels, n, factors[f], NULL);
        }
        check_leaky(kernels, LONG, factors[f], threads);
    }
    stop_threads(threads);
}

Test(unary, leaky_relu_is_its_formula_to_the_bit)
{
    each_isa(check_set);
}
