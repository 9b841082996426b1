/*
 * bench_profile.h - the time of a training step: by kind of op, and the slowest ops.
 */
#ifndef TESTS_BENCH_PROFILE_H
#define TESTS_BENCH_PROFILE_H

#include "step/context/context.h"

typedef struct bench_profile bench_profile;

/* Watches the steps of `trainer` from now on; NULL without memory. Ended by bench_profile_free(),
 * before the trainer is destroyed. */
bench_profile *bench_profile_new(dunlin_trainer *trainer);
void bench_profile_free(bench_profile *profile);

/* Two tables on stdout: per kernel, and the `n_worst` ops that take longest; means per step. */
void bench_profile_print(const bench_profile *profile, int64_t n_steps, int32_t n_worst);

/* Milliseconds of the monotonic clock. */
double bench_now_ms(void);

#endif
