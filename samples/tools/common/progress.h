/*
 * progress.h - a line on the terminal that says how far a program is, its rate and the time left.
 */
#ifndef SAMPLES_COMMON_PROGRESS_H
#define SAMPLES_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool is_shown; /* stderr is a terminal */
    const char *unit;
    double begin_ms, shown_ms;
    int width; /* of the line on the screen */
} progress;

/* `unit` is what is counted, in the plural: "examples", "rounds". Silent when piped. */
void progress_begin(progress *line, const char *unit);
/* At most ten times a second; `note` (may be NULL) comes last. total 0: not known. */
void progress_update(progress *line, int64_t done, int64_t total, const char *note);
/* Wipes the line, so that something else can be printed. */
void progress_end(progress *line);

/* Milliseconds of a clock that only goes forward. */
double clock_ms(void);

#endif
