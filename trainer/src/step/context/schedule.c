/*
 * schedule.c - learning rates as a function of the number of steps done.
 *
 * Invariant: nothing is kept between two steps, so a resumed run has the rates that it would have
 * had.
 */
#include "schedule.h"

#include <dunlin/base.h>
#include <dunlin/trainer_advanced.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>

#define MOST_BEFORE (INT64_C(1) << 60)

static dunlin_status fail_steps(dunlin_error *error, const char *name, int64_t value,
                                const char *limit)
{
    return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                        "option schedule.%s is %" PRId64 "; it must be %s", name, value, limit);
}

static dunlin_status fail_real(dunlin_error *error, const char *name, double value,
                               const char *limit)
{
    return dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0,
                        "option schedule.%s is %g; it must be %s", name, value, limit);
}

dunlin_status dunlin__schedule_take(const dunlin_schedule *from, dunlin_schedule *out,
                                    dunlin_error *error)
{
    *out = (dunlin_schedule)DUNLIN_SCHEDULE_INIT;
    return from != NULL ? DUNLIN_STRUCT_TAKE(dunlin_schedule, from, out, error) : DUNLIN_OK;
}

dunlin_status dunlin__schedule_check(const dunlin_schedule *schedule, dunlin_error *error)
{
    const dunlin_schedule_kind kind = schedule->kind;
    if (kind < DUNLIN_SCHEDULE_CONSTANT || kind > DUNLIN_SCHEDULE_LINEAR) {
        return fail_steps(error, "kind", (int64_t)kind, "one of dunlin_schedule_kind");
    }
    if (schedule->warmup_steps < 0) {
        return fail_steps(error, "warmup_steps", schedule->warmup_steps, "0 or more");
    }
    if (schedule->first_step < -MOST_BEFORE) {
        return fail_steps(error, "first_step", schedule->first_step, "-2^60 or more");
    }
    if (schedule->period_steps < 0) {
        return fail_steps(error, "period_steps", schedule->period_steps, "0 or more");
    }
    const bool has_gamma = kind == DUNLIN_SCHEDULE_STEP || kind == DUNLIN_SCHEDULE_EXPONENTIAL;
    if (has_gamma && !(schedule->gamma > 0.0 && schedule->gamma <= 1.0)) {
        return fail_real(error, "gamma", schedule->gamma, "in (0, 1]");
    }
    const bool has_total = kind == DUNLIN_SCHEDULE_COSINE || kind == DUNLIN_SCHEDULE_LINEAR;
    if (has_total && schedule->total_steps <= schedule->warmup_steps) {
        return fail_steps(error, "total_steps", schedule->total_steps, "above warmup_steps");
    }
    if (has_total && !(schedule->min_lr >= 0.0 && isfinite(schedule->min_lr))) {
        return fail_real(error, "min_lr", schedule->min_lr, "finite and not negative");
    }
    return DUNLIN_OK;
}

double dunlin__schedule_rate(const dunlin_schedule *schedule, double lr, int64_t n_steps)
{
    static const double pi = 3.14159265358979323846;
    const int64_t at = n_steps > schedule->first_step ? n_steps - schedule->first_step : 0;
    const int64_t warmup = schedule->warmup_steps;
    if (at < warmup) {
        return lr * ((double)at + 1.0) / ((double)warmup + 1.0);
    }
    const int64_t u = at - warmup;
    const int64_t period = schedule->period_steps > 0 ? schedule->period_steps : 1;
    const int64_t length = schedule->total_steps - warmup;
    double left = 1.0; /* of the way from the base rate to the least */
    switch (schedule->kind) {
    case DUNLIN_SCHEDULE_CONSTANT:
        return lr;
    case DUNLIN_SCHEDULE_STEP:
        return lr * pow(schedule->gamma, floor((double)u / (double)period));
    case DUNLIN_SCHEDULE_EXPONENTIAL:
        return lr * pow(schedule->gamma, (double)u / (double)period);
    case DUNLIN_SCHEDULE_COSINE:
        left = u < length ? (1.0 + cos(pi * (double)u / (double)length)) / 2.0 : 0.0;
        break;
    case DUNLIN_SCHEDULE_LINEAR:
        left = u < length ? 1.0 - (double)u / (double)length : 0.0;
        break;
    }
    return schedule->min_lr + (lr - schedule->min_lr) * left;
}
