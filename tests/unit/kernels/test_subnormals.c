/*
 * test_subnormals.c - numbers too small to be normal count as zero where the caller says so, for
 * its workers too, and for nobody else.
 */
#include "checks/buffers.h"
#include "kernels/simd/denormals.h"
#include "start_threads.h"

#include <criterion/criterion.h>

#include <float.h>
#include <sched.h>
#include <stdatomic.h>

TestSuite(subnormals, .timeout = 900);

#define LONG 100003 /* beyond what one thread keeps to itself */

/* Momenta that are not zero after a step without a gradient. */
static int64_t momenta_left(const dunlin_kernels *kernels, dunlin_threads *threads)
{
    float *w = buffer_new(LONG);
    float *m = buffer_new(LONG);
    float *g = buffer_new(LONG);
    for (int64_t i = 0; i < LONG; i++) {
        w[i] = 1.0F;
        m[i] = i % 2 == 0 ? FLT_MIN / 4.0F : -FLT_TRUE_MIN;
        g[i] = 0.0F;
    }
    const dunlin_sgd_call call = {.n = LONG,
                                  .weights = w,
                                  .momentum = m,
                                  .gradient = {.values = g, .limit = FLT_MAX, .factor = 1.0F},
                                  .lr = 0.1F,
                                  .momentum_factor = 0.9F,
                                  .threads = threads};
    kernels->sgd(&call);
    int64_t n = 0;
    for (int64_t i = 0; i < LONG; i++) {
        n += m[i] != 0.0F ? 1 : 0;
    }
    buffer_free(w);
    buffer_free(m);
    buffer_free(g);
    return n;
}

static void check_momenta(const dunlin_kernels *kernels)
{
    dunlin_threads *pools[] = {NULL, start_threads(3)};
    for (int p = 0; p < 2; p++) {
        const uint64_t mode = subnormals_flush();
        const int64_t flushed = momenta_left(kernels, pools[p]);
        float_mode_set(mode);
        cr_expect_eq(flushed, 0, "%d threads", p == 0 ? 1 : 3);
        cr_expect_eq(momenta_left(kernels, pools[p]), LONG);
    }
    stop_threads(pools[1]);
}

Test(subnormals, momentum_comes_to_rest_on_every_thread)
{
    each_isa(check_momenta);
}

#define N_WORKERS 4

typedef struct modes {
    atomic_int n_begun, n_flushed;
} modes;

/* Waits until all have begun, so that each thread has one. */
static void look_task(void *ctx, size_t index)
{
    modes *seen = ctx;
    (void)index;
    atomic_fetch_add(&seen->n_flushed, subnormals_are_flushed() ? 1 : 0);
    atomic_fetch_add(&seen->n_begun, 1);
    while (atomic_load(&seen->n_begun) < N_WORKERS) {
        (void)sched_yield();
    }
}

Test(subnormals, workers_take_over_the_mode_of_the_caller)
{
    dunlin_threads threads;
    cr_assert(dunlin__threads_open(&threads, N_WORKERS));
    for (int round = 0; round < 6; round++) {
        const bool is_flushed = round % 2 == 1;
        modes seen = {.n_begun = 0};
        const uint64_t mode = is_flushed ? subnormals_flush() : float_mode_get();
        dunlin__threads_run(&threads, look_task, &seen, N_WORKERS);
        float_mode_set(mode);
        cr_expect_eq(atomic_load(&seen.n_flushed), is_flushed ? N_WORKERS : 0, "round %d", round);
    }
    dunlin__threads_close(&threads);
}

Test(subnormals, the_mode_comes_back)
{
    volatile float small = FLT_MIN;
    cr_assert(!subnormals_are_flushed());
    const uint64_t mode = subnormals_flush();
    cr_expect(subnormals_are_flushed());
    const float gone = small / 2.0F;
    float_mode_set(mode);
    cr_expect(!subnormals_are_flushed());
    cr_expect_eq(gone, 0.0F);
    cr_expect_gt(small / 2.0F, 0.0F);
}
