/*
 * schedule.h - the learning rate of a step.
 */
#ifndef DUNLIN_STEP_SCHEDULE_H
#define DUNLIN_STEP_SCHEDULE_H

#include <dunlin/trainer.h>

/* The app's schedule (NULL: a constant rate) as ours. ARGUMENT, VERSION; nothing is checked that
 * dunlin__schedule_check() checks. */
DUNLIN_NODISCARD dunlin_status dunlin__schedule_take(const dunlin_schedule *from,
                                                     dunlin_schedule *out, dunlin_error *error);

/* ARGUMENT, naming the field, its value and its limit. */
DUNLIN_NODISCARD dunlin_status dunlin__schedule_check(const dunlin_schedule *schedule,
                                                      dunlin_error *error);

/* The rate of the step after `n_steps` ones, from base rate `lr`. */
double dunlin__schedule_rate(const dunlin_schedule *schedule, double lr, int64_t n_steps);

#endif
