/*
 * test_secagg_time.c - whether time tells anything of a secret: shares, selection, comparison.
 *
 * Reparaz, Balasch, Verbauwhede, "Dude, is my code constant time?" (DATE 2017): two classes of
 * inputs, one fixed, one at random, in random order; Welch's t over their times, the longest of
 * each left out. What leaks gives a t of hundreds at this many runs; noise of the machine stays far
 * below the bound, which is therefore generous. A control that does leak shows that the method sees
 * it.
 */
#include "random.h"

#include <wire/digest.h>
#include <wire/shamir.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define N_RUNS 60000
#define T_MOST 60.0

typedef void (*timed_fn)(const uint8_t *input);

/* Results that nobody looks at must be computed none the less. */
static volatile uint8_t sink;

static void time_share(const uint8_t *input)
{
    uint8_t out[32];
    dunlin__shamir_share(input, input + 32, 4, 77, out);
    sink = out[0];
}

static void time_add(const uint8_t *input)
{
    uint8_t sum[32] = {0};
    for (uint8_t weight = 1; weight < 5; weight++) {
        dunlin__shamir_add(sum, weight, input);
    }
    sink = sum[0];
}

static void time_select(const uint8_t *input)
{
    uint8_t out[32];
    for (int i = 0; i < 8; i++) {
        dunlin__shamir_select((input[64] & 1) != 0, input, input + 32, out);
        sink = out[0];
    }
}

static void time_equal(const uint8_t *input)
{
    for (int i = 0; i < 8; i++) {
        sink = dunlin__shamir_equal(input, input + 32) ? 1 : 0;
    }
}

/* The control: the work is as long as a byte is large. */
static void time_leak(const uint8_t *input)
{
    for (uint8_t i = 0; i < input[0]; i++) {
        sink = (uint8_t)(sink * 3 + i);
    }
}

static double now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e9 * (double)now.tv_sec + (double)now.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    const double one = *(const double *)a;
    const double other = *(const double *)b;
    return (one > other) - (one < other);
}

/* Welch's t of two classes, times above the 90th percentile of all left out. */
static double welch(const double *times, const bool *is_fixed)
{
    double *sorted = malloc(N_RUNS * sizeof(sorted[0]));
    double n[2] = {0.0, 0.0};
    double mean[2] = {0.0, 0.0};
    double square[2] = {0.0, 0.0};
    memcpy(sorted, times, N_RUNS * sizeof(sorted[0]));
    qsort(sorted, N_RUNS, sizeof(sorted[0]), compare_doubles);
    const double most = sorted[N_RUNS / 10 * 9];
    free(sorted);
    for (int i = 0; i < N_RUNS; i++) {
        const int class = is_fixed[i] ? 1 : 0;
        if (times[i] <= most) {
            n[class] += 1.0;
            const double off = times[i] - mean[class];
            mean[class] += off / n[class];
            square[class] += off * (times[i] - mean[class]);
        }
    }
    const double spread = square[0] / n[0] / n[0] + square[1] / n[1] / n[1];
    return spread > 0.0 ? (mean[0] - mean[1]) / sqrt(spread) : 0.0;
}

static double measure(const char *name, timed_fn run)
{
    uint64_t state = 1;
    uint8_t(*inputs)[160] = malloc(N_RUNS * sizeof(inputs[0]));
    double *times = malloc(N_RUNS * sizeof(times[0]));
    bool *is_fixed = malloc(N_RUNS * sizeof(is_fixed[0]));
    for (int i = 0; i < N_RUNS; i++) {
        is_fixed[i] = test_random_below(&state, 2) == 0;
        for (size_t j = 0; j < sizeof(inputs[0]); j++) {
            inputs[i][j] = is_fixed[i] ? 0 : (uint8_t)test_random_u64(&state);
        }
    }
    for (int i = 0; i < N_RUNS; i++) {
        const double start = now_ns();
        run(inputs[i]);
        times[i] = now_ns() - start;
    }
    const double t = welch(times, is_fixed);
    printf("%s: t = %.2f over %d runs\n", name, t, N_RUNS);
    free(inputs);
    free(times);
    free(is_fixed);
    return fabs(t);
}

Test(secagg_time, secrets_do_not_change_times)
{
    cr_expect_lt(measure("shamir_share", time_share), T_MOST);
    cr_expect_lt(measure("shamir_add", time_add), T_MOST);
    cr_expect_lt(measure("shamir_select", time_select), T_MOST);
    cr_expect_lt(measure("shamir_equal", time_equal), T_MOST);
    (void)measure("control, which leaks", time_leak);
}
