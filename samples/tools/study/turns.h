/*
 * turns.h - several studies in turn, within one limit of time.
 */
#ifndef SAMPLES_STUDY_TURNS_H
#define SAMPLES_STUDY_TURNS_H

#include "study.h"

/* A study of a run. */
typedef struct study_turn {
    const study_kind *kind;
    study_flags flags; /* its own */
    double share;      /* of the time of a limited run, beside the others' */
    /* Of the run. */
    bool is_open;
    int64_t n_parts, n_left_out;
    char filter[256]; /* why parts were left out by the lists; "": none were */
} study_turn;

/* Runs all of them in turn, then again those that had to leave out parts, with the time that others
 * did not need; tables and the report are written after each. EXIT_OK, or the line is printed. */
int study_turns_run(const study_flags *flags, study_turn *turns, size_t n);

/* Prints what was left out for want of time. */
void study_turns_tell(const study_flags *flags, const study_turn *turns, size_t n);

/* main.c: the report over every study that there is. */
int study_report_all(const study_flags *flags);

#endif
