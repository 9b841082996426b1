/*
 * test_optim.c - the optimisers' updates and the squares of the global norm: each against its
 * definition in double, serial and on threads.
 */
#include "checks/buffers.h"
#include "random.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(optim, .timeout = 900);

#define LONG 100003 /* beyond what one thread keeps to itself */

static dunlin_threads *pools[2]; /* none, three threads */

static void each(each_isa_fn fn)
{
    pools[1] = start_threads(3);
    each_isa(fn);
    stop_threads(pools[1]);
}

/* A parameter, its gradient and two states, with their first values in double. */
typedef struct state {
    float *w, *m, *v, *g;
    double *w0, *m0, *v0;
} state;

static void open_state(state *s)
{
    uint64_t rng = 7;
    s->w = buffer_random(LONG, &rng);
    s->m = buffer_random(LONG, &rng);
    s->v = buffer_random(LONG, &rng);
    s->g = buffer_random(LONG, &rng);
    for (int64_t i = 0; i < LONG; i++) {
        s->v[i] = s->v[i] * s->v[i];
    }
    s->w0 = buffer_doubles(s->w, LONG);
    s->m0 = buffer_doubles(s->m, LONG);
    s->v0 = buffer_doubles(s->v, LONG);
}

static void close_state(const state *s)
{
    cr_assert(buffer_is_intact(s->w) && buffer_is_intact(s->m) && buffer_is_intact(s->v));
    buffer_free(s->w);
    buffer_free(s->m);
    buffer_free(s->v);
    buffer_free(s->g);
    free(s->w0);
    free(s->m0);
    free(s->v0);
}

/* What an update takes in of g. */
static double taken(const dunlin_update_gradient *gradient, float g)
{
    const double limit = (double)gradient->limit;
    return fmax(-limit, fmin(limit, (double)g)) * (double)gradient->factor;
}

typedef struct sgd_kind {
    bool has_momentum, is_nesterov;
    float decay, limit, factor;
} sgd_kind;

static void check_sgd_kind(const dunlin_kernels *kernels, const sgd_kind *kind,
                           dunlin_threads *pool)
{
    state s;
    open_state(&s);
    const dunlin_sgd_call call = {.n = LONG,
                                  .weights = s.w,
                                  .momentum = kind->has_momentum ? s.m : NULL,
                                  .gradient = {s.g, kind->limit, kind->factor},
                                  .lr = 0.1f,
                                  .momentum_factor = 0.9f,
                                  .weight_decay = kind->decay,
                                  .is_nesterov = kind->is_nesterov,
                                  .threads = pool};
    cr_assert(kernels->sgd(&call));
    for (int64_t i = 0; i < LONG; i++) {
        double step = taken(&call.gradient, s.g[i]) + (double)kind->decay * s.w0[i];
        double v = (double)0.9f * s.m0[i] + step;
        double move = !kind->has_momentum ? step : kind->is_nesterov ? step + (double)0.9f * v : v;
        cr_assert_float_eq(s.w[i], s.w0[i] - (double)0.1f * move, 1e-6);
        cr_assert_float_eq(s.m[i], kind->has_momentum ? v : s.m0[i], 1e-6);
    }
    close_state(&s);
}

static void check_sgd(const dunlin_kernels *kernels)
{
    static const sgd_kind kinds[] = {
        {false, false, 0.0f, INFINITY, 1.0f}, {false, false, 0.01f, INFINITY, 0.5f},
        {true, false, 0.0f, 0.25f, 1.0f},     {true, false, 0.01f, INFINITY, 1.0f},
        {true, true, 0.01f, 0.25f, 0.5f},     {false, false, 0.0f, 0.25f, 1.0f}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        check_sgd_kind(kernels, &kinds[i], pools[i % 2]);
    }
}

Test(optim, sgd)
{
    each(check_sgd);
}

static void check_adam_kind(const dunlin_kernels *kernels, bool is_decoupled, int t,
                            const dunlin_update_gradient *like, dunlin_threads *pool)
{
    state s;
    open_state(&s);
    const dunlin_adam_call call = {.n = LONG,
                                   .weights = s.w,
                                   .mean = s.m,
                                   .square = s.v,
                                   .gradient = {s.g, like->limit, like->factor},
                                   .lr = 0.01,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-3,
                                   .weight_decay = 0.1,
                                   .correction1 = 1.0 - pow(0.9, t),
                                   .correction2 = 1.0 - pow(0.999, t),
                                   .is_decoupled = is_decoupled,
                                   .threads = pool};
    cr_assert(kernels->adam(&call));
    for (int64_t i = 0; i < LONG; i++) {
        const double g =
            taken(&call.gradient, s.g[i]) + (is_decoupled ? 0.0 : call.weight_decay * s.w0[i]);
        const double m = 0.9 * s.m0[i] + 0.1 * g;
        const double v = 0.999 * s.v0[i] + 0.001 * g * g;
        const double move =
            call.lr * (m / call.correction1) / (sqrt(v / call.correction2) + call.eps);
        const double kept = is_decoupled ? s.w0[i] * (1.0 - call.lr * call.weight_decay) : s.w0[i];
        const double limit = 4e-7 * (1.0 + fabs(move));
        cr_assert(fabs((double)s.w[i] - (kept - move)) <= limit, "%s: step %d: %.9g, not %.9g",
                  kernels->isa, t, (double)s.w[i], kept - move);
        cr_assert_float_eq(s.m[i], m, 3e-7);
        cr_assert_float_eq(s.v[i], v, 3e-7);
    }
    close_state(&s);
}

static void check_adam(const dunlin_kernels *kernels)
{
    const dunlin_update_gradient whole = {NULL, INFINITY, 1.0f};
    const dunlin_update_gradient clipped = {NULL, 0.5f, 0.25f};
    check_adam_kind(kernels, false, 1, &whole, pools[0]);
    check_adam_kind(kernels, false, 7, &clipped, pools[1]);
    check_adam_kind(kernels, true, 1, &clipped, pools[1]);
    check_adam_kind(kernels, true, 1000000, &whole, pools[0]);
}

Test(optim, adam_and_adamw)
{
    each(check_adam);
}

/* A gradient of zero moves nothing and divides by no zero. */
static void check_adam_at_rest(const dunlin_kernels *kernels)
{
    float w = 3.0f;
    float m = 0.0f;
    float v = 0.0f;
    const float g = 0.0f;
    const dunlin_adam_call call = {.n = 1,
                                   .weights = &w,
                                   .mean = &m,
                                   .square = &v,
                                   .gradient = {&g, INFINITY, 1.0f},
                                   .lr = 0.01,
                                   .beta1 = 0.9,
                                   .beta2 = 0.999,
                                   .eps = 1e-8,
                                   .correction1 = 0.1,
                                   .correction2 = 0.001};
    cr_assert(kernels->adam(&call));
    cr_assert(w == 3.0f && m == 0.0f && v == 0.0f);
}

Test(optim, adam_at_rest)
{
    each_isa(check_adam_at_rest);
}

/* The values of one element before an update of which some result is not finite. */
typedef struct overflow {
    float w, m, v, g;
    bool is_adam_alone;
} overflow;

static const overflow overflows[] = {
    {1.0f, 1.0f, 1.0f, NAN, false},       {1.0f, 1.0f, 1.0f, INFINITY, false},
    {1.0f, 1.0f, 1.0f, -INFINITY, false}, {3.4e38f, 1.0f, 1.0f, -3.4e38f, false},
    {1.0f, 1.0f, 1.0f, 1e30f, true},      {1.0f, 1.0f, 3.4e38f, 3e20f, true},
};

static bool update(const dunlin_kernels *kernels, int way, const state *s, float limit,
                   dunlin_threads *pool)
{
    if (way < 3) {
        return kernels->sgd(&(dunlin_sgd_call){.n = LONG,
                                               .weights = s->w,
                                               .momentum = way > 0 ? s->m : NULL,
                                               .gradient = {s->g, limit, 1.0f},
                                               .lr = 1.0f,
                                               .momentum_factor = 0.9f,
                                               .weight_decay = 0.01f,
                                               .is_nesterov = way == 2,
                                               .threads = pool});
    }
    return kernels->adam(&(dunlin_adam_call){.n = LONG,
                                             .weights = s->w,
                                             .mean = s->m,
                                             .square = s->v,
                                             .gradient = {s->g, limit, 1.0f},
                                             .lr = 0.01,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .eps = 1e-8,
                                             .weight_decay = 0.1,
                                             .correction1 = 0.1,
                                             .correction2 = 0.001,
                                             .is_decoupled = way == 4,
                                             .threads = pool});
}

/* Returns false, and not a bit of weights or state has changed. */
static void check_not_written(const dunlin_kernels *kernels)
{
    enum { WAYS = 5, BYTES = LONG * sizeof(float) };
    float *before = malloc(3 * (size_t)BYTES);
    state s;
    open_state(&s);
    for (size_t k = 0; k < sizeof overflows / sizeof overflows[0]; k++) {
        const overflow *of = &overflows[k];
        for (int way = of->is_adam_alone ? 3 : 0; way < (k == 3 ? 3 : WAYS); way++) {
            const int64_t at = way == 0 ? 0 : way % 2 == 0 ? LONG - 1 : LONG / 2;
            const state old = {&s.w[at], &s.m[at], &s.v[at], &s.g[at], NULL, NULL, NULL};
            const overflow kept = {*old.w, *old.m, *old.v, *old.g, false};
            s.w[at] = of->w, s.m[at] = of->m, s.v[at] = of->v, s.g[at] = of->g;
            memcpy(before, s.w, BYTES);
            memcpy(before + LONG, s.m, BYTES);
            memcpy(before + (ptrdiff_t)2 * LONG, s.v, BYTES);
            /* Clipping by value hides no gradient that is not finite. */
            const float limit = k < 3 && way % 2 == 0 ? 0.5f : INFINITY;
            cr_expect_not(update(kernels, way, &s, limit, pools[way % 2]), "%s: %zu, way %d",
                          kernels->isa, k, way);
            cr_expect(memcmp(before, s.w, BYTES) == 0 && memcmp(before + LONG, s.m, BYTES) == 0 &&
                          memcmp(before + (ptrdiff_t)2 * LONG, s.v, BYTES) == 0,
                      "%s: %zu, way %d was written", kernels->isa, k, way);
            s.w[at] = kept.w, s.m[at] = kept.m, s.v[at] = kept.v, s.g[at] = kept.g;
        }
    }
    free(before);
    close_state(&s);
}

Test(optim, what_is_not_finite_is_not_written)
{
    each(check_not_written);
}

static void check_squares(const dunlin_kernels *kernels)
{
    enum { BLOCKS = (LONG + DUNLIN_SQUARE_BLOCK - 1) / DUNLIN_SQUARE_BLOCK };
    uint64_t rng = 9;
    float *x = buffer_random(LONG, &rng);
    double sums[2][BLOCKS];
    const float limits[] = {INFINITY, 0.5f};
    for (int k = 0; k < 2; k++) {
        kernels->square_sums(LONG, x, limits[k], sums[0], pools[0]);
        kernels->square_sums(LONG, x, limits[k], sums[1], pools[1]);
        for (int64_t b = 0; b < BLOCKS; b++) {
            double sum = 0.0;
            for (int64_t i = b * DUNLIN_SQUARE_BLOCK; i < LONG && i < (b + 1) * DUNLIN_SQUARE_BLOCK;
                 i++) {
                const double v = fmin((double)limits[k], fabs((double)x[i]));
                sum += v * v;
            }
            cr_assert_float_eq(sums[0][b], sum, 1e-11 * sum);
            cr_assert(sums[0][b] == sums[1][b], "%s: threads change block %d", kernels->isa,
                      (int)b);
        }
    }
    x[LONG - 1] = NAN;
    kernels->square_sums(LONG, x, 0.5f, sums[0], pools[0]);
    cr_assert(isnan(sums[0][BLOCKS - 1]) && isfinite(sums[0][0]));
    x[LONG - 1] = -INFINITY;
    kernels->square_sums(LONG, x, 0.5f, sums[0], pools[0]);
    cr_assert(!isfinite(sums[0][BLOCKS - 1]) && isfinite(sums[0][0]));
    buffer_free(x);
}

Test(optim, squares_of_blocks)
{
    each(check_squares);
}
