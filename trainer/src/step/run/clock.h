/*
 * clock.h - the time that calls are measured by.
 */
#ifndef DUNLIN_STEP_CLOCK_H
#define DUNLIN_STEP_CLOCK_H

/* Milliseconds of the monotonic clock. */
double dunlin__clock_ms(void);

#endif
