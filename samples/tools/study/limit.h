/*
 * limit.h - how long the studies of one run may take, on the wall's clock and of the processor.
 *
 * Nothing is stopped in its middle: after the limit no part begins. While several studies are to
 * come each has a share of what is left, so that all of them are reached; a share that is not used
 * goes to those that follow.
 */
#ifndef SAMPLES_STUDY_LIMIT_H
#define SAMPLES_STUDY_LIMIT_H

#include <stdbool.h>

/* All times in milliseconds; INFINITY where there is no limit. */
typedef struct study_limit {
    double wall_end_ms;      /* of the run, by clock_ms() */
    double processor_end_ms; /* of the run, by processor_ms() */
    double wall_share_ms;    /* of the study that runs */
    double processor_share_ms;
    double longest_ms; /* processor time of the longest part so far */
} study_limit;

/* From now on, in minutes; 0: no limit. */
study_limit limit_begin(double wall_minutes, double processor_minutes);

/* Whether there is one at all. */
bool limit_is_set(const study_limit *limit);

/* Gives the study that comes next `share` (above 0, at most 1) of what is left of the run. */
void limit_share(study_limit *limit, double share);

/* Whether a part may begin. The first of a study may while the run has time, whatever its share
 * says; and none may that, with the processor time of the longest so far, would end past the limit.
 */
bool limit_allows(const study_limit *limit, bool is_first);

/* Takes note of a part that began when processor_ms() was `begin_ms`. */
void limit_end_part(study_limit *limit, double begin_ms);

/* Processor time of this process and of its children that have ended, in milliseconds. */
double processor_ms(void);

#endif
