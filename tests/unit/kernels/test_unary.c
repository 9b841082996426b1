/*
 * test_unary.c - functions of one element: the leaky ReLU to the bit, others as near to those in
 * double as they claim to be, and what happens at the ends of what they take.
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

/* --- functions that are compared with the C library's in double --- */

static double softplus(double x)
{
    return fmax(x, 0.0) + log1p(exp(-fabs(x)));
}

static double value_in_double(dunlin_unary_fn fn, double a, double b, double x)
{
    switch ((int)fn) {
    case DUNLIN_UNARY_SILU:
        return x / (1.0 + exp(-x));
    case DUNLIN_UNARY_ELU:
        return x > 0.0 ? x : a * expm1(x);
    case DUNLIN_UNARY_SELU:
        return b * (x > 0.0 ? x : a * expm1(x));
    case DUNLIN_UNARY_CELU:
        return x > 0.0 ? x : a * expm1(x / a);
    case DUNLIN_UNARY_SOFTPLUS:
        return softplus(x);
    case DUNLIN_UNARY_SOFTSIGN:
        return x / (1.0 + fabs(x));
    case DUNLIN_UNARY_MISH:
        return x * tanh(softplus(x));
    case DUNLIN_UNARY_EXP:
        return exp(x);
    case DUNLIN_UNARY_LOG:
        return log(x);
    case DUNLIN_UNARY_SIN:
        return sin(x);
    case DUNLIN_UNARY_COS:
        return cos(x);
    case DUNLIN_UNARY_POWER:
        return pow(x, a);
    case DUNLIN_UNARY_HARD_SWISH:
        return x * fmin(fmax(x + 3.0, 0.0), 6.0) / 6.0;
    case DUNLIN_UNARY_HARD_SIGMOID:
        return fmin(fmax(a * x + b, 0.0), 1.0);
    default:
        return NAN;
    }
}

typedef struct accuracy {
    dunlin_unary_fn fn;
    float a, b;
    float low, high;
    double max_units; /* in the last place */
} accuracy;

static const accuracy accuracies[] = {
    {DUNLIN_UNARY_SILU, 0.0F, 0.0F, -80.0F, 40.0F, 4.0},
    {DUNLIN_UNARY_ELU, 0.75F, 0.0F, -20.0F, 3.0F, 3.0},
    {DUNLIN_UNARY_ELU, 1.0F, 0.0F, -0.01F, 0.01F, 3.0},
    {DUNLIN_UNARY_SELU, 1.6732632F, 1.050701F, -20.0F, 3.0F, 4.0},
    {DUNLIN_UNARY_CELU, 2.0F, 0.0F, -40.0F, 3.0F, 3.0},
    {DUNLIN_UNARY_SOFTPLUS, 0.0F, 0.0F, -80.0F, 80.0F, 4.0},
    {DUNLIN_UNARY_SOFTSIGN, 0.0F, 0.0F, -1e6F, 1e6F, 2.0},
    {DUNLIN_UNARY_MISH, 0.0F, 0.0F, -80.0F, 80.0F, 6.0},
    {DUNLIN_UNARY_EXP, 0.0F, 0.0F, -87.0F, 88.7F, 3.0},
    {DUNLIN_UNARY_LOG, 0.0F, 0.0F, 1e-6F, 3.0F, 3.0},
    {DUNLIN_UNARY_LOG, 0.0F, 0.0F, 1.0F, 1e30F, 3.0},
    {DUNLIN_UNARY_POWER, 0.3F, 0.0F, 0.0F, 1e30F, 1.0},
    {DUNLIN_UNARY_POWER, 17.3F, 0.0F, 0.01F, 100.0F, 1.0},
    {DUNLIN_UNARY_POWER, -11.0F, 0.0F, -20.0F, 20.0F, 1.0},
    {DUNLIN_UNARY_HARD_SWISH, 0.0F, 0.0F, -2.5F, 9.0F, 4.0},
    {DUNLIN_UNARY_HARD_SIGMOID, 0.2F, 0.5F, -2.0F, 3.0F, 2.0},
};

static void check_accuracies(const dunlin_kernels *kernels)
{
    enum { N = 50000 };
    float *x = buffer_new(N);
    float *y = buffer_new(N);
    for (size_t k = 0; k < sizeof accuracies / sizeof accuracies[0]; k++) {
        const accuracy *of = &accuracies[k];
        uint64_t state = 3 + k;
        double worst = 0.0;
        test_random_fill(x, N, (double)of->low, (double)of->high, &state);
        kernels->unary(
            &(dunlin_unary_call){.fn = of->fn, .a = of->a, .b = of->b, .n = N, .x = x, .out = y});
        for (int64_t i = 0; i < N; i++) {
            const double wanted =
                value_in_double(of->fn, (double)of->a, (double)of->b, (double)x[i]);
            const double unit = fmax(fabs(wanted), (double)FLT_MIN) * (double)FLT_EPSILON;
            if (fabs(wanted) < (double)FLT_MAX) {
                worst = fmax(worst, fabs((double)y[i] - wanted) / unit);
            }
        }
        cr_expect(worst <= of->max_units, "%s, function %d of %g: %g units in the last place",
                  kernels->isa, (int)of->fn, (double)of->a, worst);
    }
    buffer_free(x);
    buffer_free(y);
}

Test(unary, functions_are_near_those_in_double)
{
    each_isa(check_accuracies);
}

/* A sine is near 0 at multiples of pi, so its error counts against 1; large angles too. */
static void check_angles(const dunlin_kernels *kernels)
{
    enum { N = 50000 };
    static const float ranges[] = {3.2F, 100.0F, 8000.0F, 1e9F, FLT_MAX};
    float *x = buffer_new(N);
    float *y = buffer_new(N);
    for (size_t k = 0; k < 10; k++) {
        const dunlin_unary_fn fn = k % 2 == 0 ? DUNLIN_UNARY_SIN : DUNLIN_UNARY_COS;
        uint64_t state = 3 + k;
        test_random_fill(x, N, -(double)ranges[k / 2], (double)ranges[k / 2], &state);
        kernels->unary(&(dunlin_unary_call){.fn = fn, .n = N, .x = x, .out = y});
        for (int64_t i = 0; i < N; i++) {
            const double wanted = value_in_double(fn, 0.0, 0.0, (double)x[i]);
            cr_assert_float_eq((double)y[i], wanted, 1.5e-7, "%s, function %d of %.9g: %.9g",
                               kernels->isa, (int)fn, (double)x[i], (double)y[i]);
        }
    }
    buffer_free(x);
    buffer_free(y);
}

Test(unary, sines_of_all_angles)
{
    each_isa(check_angles);
}

/* What PyTorch gives at the ends of what a function takes, forward and as the slope. */
static const struct {
    dunlin_unary_fn fn;
    float a, x, y, slope;
} edges[] = {
    {DUNLIN_UNARY_LOG, 0.0F, 0.0F, -INFINITY, INFINITY},
    {DUNLIN_UNARY_LOG, 0.0F, -1.0F, NAN, -1.0F},
    {DUNLIN_UNARY_LOG, 0.0F, INFINITY, INFINITY, 0.0F},
    {DUNLIN_UNARY_LOG, 0.0F, NAN, NAN, NAN},
    {DUNLIN_UNARY_SQRT, 0.0F, 0.0F, 0.0F, INFINITY},
    {DUNLIN_UNARY_SQRT, 0.0F, -1.0F, NAN, NAN},
    {DUNLIN_UNARY_POWER, -1.0F, 0.0F, INFINITY, -INFINITY},
    {DUNLIN_UNARY_POWER, 0.3F, 0.0F, 0.0F, INFINITY},
    {DUNLIN_UNARY_POWER, -0.3F, 0.0F, INFINITY, -INFINITY},
    {DUNLIN_UNARY_POWER, 0.3F, -2.0F, NAN, NAN},
    {DUNLIN_UNARY_POWER, 9.0F, -1.0F, -1.0F, 9.0F},
    {DUNLIN_UNARY_POWER, 10.0F, -1.0F, 1.0F, -10.0F},
    {DUNLIN_UNARY_POWER, 10.0F, INFINITY, INFINITY, INFINITY},
    {DUNLIN_UNARY_POWER, -10.0F, INFINITY, 0.0F, 0.0F},
    {DUNLIN_UNARY_POWER, 10.0F, NAN, NAN, NAN},
    {DUNLIN_UNARY_POWER, 10.0F, 1e9F, INFINITY, INFINITY},
    {DUNLIN_UNARY_POWER, 0.0F, 0.0F, 1.0F, 0.0F},
    {DUNLIN_UNARY_EXP, 0.0F, 88.8F, INFINITY, INFINITY},
    {DUNLIN_UNARY_EXP, 0.0F, -INFINITY, 0.0F, 0.0F},
    {DUNLIN_UNARY_EXP, 0.0F, NAN, NAN, NAN},
    {DUNLIN_UNARY_ABS, 0.0F, 0.0F, 0.0F, 0.0F},
    {DUNLIN_UNARY_ABS, 0.0F, -INFINITY, INFINITY, -1.0F},
    {DUNLIN_UNARY_ELU, 1.0F, 0.0F, 0.0F, 1.0F},
    {DUNLIN_UNARY_ELU, 1.0F, INFINITY, INFINITY, 1.0F},
    {DUNLIN_UNARY_ELU, 1.0F, -INFINITY, -1.0F, 0.0F},
    {DUNLIN_UNARY_SOFTPLUS, 0.0F, INFINITY, INFINITY, 1.0F},
    {DUNLIN_UNARY_SOFTPLUS, 0.0F, -INFINITY, 0.0F, 0.0F},
    {DUNLIN_UNARY_SOFTPLUS, 0.0F, NAN, NAN, NAN},
    {DUNLIN_UNARY_SOFTSIGN, 0.0F, INFINITY, NAN, NAN},
    {DUNLIN_UNARY_MISH, 0.0F, -INFINITY, NAN, NAN},
    {DUNLIN_UNARY_HARD_SWISH, 0.0F, -3.0F, 0.0F, -0.5F},
    {DUNLIN_UNARY_HARD_SWISH, 0.0F, 3.0F, 3.0F, 1.0F},
    {DUNLIN_UNARY_HARD_SWISH, 0.0F, 1e38F, 1e38F, 1.0F},
    {DUNLIN_UNARY_THRESHOLD, 0.5F, 0.5F, 0.0F, 0.0F},
    {DUNLIN_UNARY_THRESHOLD, 0.5F, NAN, NAN, 1.0F},
    {DUNLIN_UNARY_THRESHOLD, 0.5F, -INFINITY, 0.0F, 0.0F},
    {DUNLIN_UNARY_SIN, 0.0F, INFINITY, NAN, NAN},
    {DUNLIN_UNARY_SIGN, 0.0F, -2.5F, -1.0F, 0.0F},
    {DUNLIN_UNARY_SIGN, 0.0F, INFINITY, 1.0F, 0.0F},
    {DUNLIN_UNARY_SIGN, 0.0F, -0.0F, 0.0F, 0.0F},
    {DUNLIN_UNARY_SIGN, 0.0F, NAN, 0.0F, 0.0F},
};

static bool is_alike(float a, float b)
{
    return (isnan(a) && isnan(b)) || a == b;
}

static void check_edges(const dunlin_kernels *kernels)
{
    for (size_t k = 0; k < sizeof edges / sizeof edges[0]; k++) {
        const float one = 1.0F;
        float y = 0.0F;
        float slope = 0.0F;
        dunlin_unary_call call = {
            .fn = edges[k].fn, .a = edges[k].a, .n = 1, .x = &edges[k].x, .out = &y};
        kernels->unary(&call);
        const bool is_from_output = dunlin__unary_is_from_output(call.fn, call.a, call.b);
        call.x = is_from_output ? &y : call.x;
        call.dy = &one;
        call.out = &slope;
        kernels->unary(&call);
        cr_expect(is_alike(y, edges[k].y), "%s, edge %zu: %g, not %g", kernels->isa, k, (double)y,
                  (double)edges[k].y);
        cr_expect(is_alike(slope, edges[k].slope), "%s, edge %zu: slope %g, not %g", kernels->isa,
                  k, (double)slope, (double)edges[k].slope);
    }
}

/* Not PyTorch's: there the slope of a root is infinite at 0, and no number times the slope of what
 * is before it. */
static void check_sizes(const dunlin_kernels *kernels)
{
    static const float powers[][2] = {{0.5F, 2.0F}, {0.3F, 2.0F}, {2.0F, -3.0F}, {1.7F, -3.0F}};
    for (size_t k = 0; k < sizeof powers / sizeof powers[0]; k++) {
        const float x[3] = {0.0F, -0.0F, powers[k][1]};
        const float dy[3] = {1.0F, 1.0F, 1.0F};
        const double a = (double)powers[k][0];
        const double size = fabs((double)x[2]);
        float y[3] = {0.0F};
        float slope[3] = {0.0F};
        dunlin_unary_call call = {
            .fn = DUNLIN_UNARY_ABS_POWER, .a = powers[k][0], .n = 3, .x = x, .out = y};
        kernels->unary(&call);
        call.dy = dy;
        call.out = slope;
        kernels->unary(&call);
        cr_expect(y[0] == 0.0F && y[1] == 0.0F && slope[0] == 0.0F && slope[1] == 0.0F);
        cr_expect_float_eq((double)y[2], pow(size, a), 1e-6 * pow(size, a), "%s, power %g",
                           kernels->isa, a);
        cr_expect_float_eq((double)slope[2], copysign(a * pow(size, a - 1.0), (double)x[2]),
                           2e-6 * pow(size, a - 1.0) * a, "%s, power %g", kernels->isa, a);
    }
}

Test(unary, powers_of_sizes_are_flat_at_zero)
{
    each_isa(check_sizes);
}

Test(unary, edges_are_those_of_pytorch)
{
    each_isa(check_edges);
}
