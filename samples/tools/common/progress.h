/*
 * progress.h - a line on the terminal that says how far a program is, its rate and the time left.
 *
 * There is one line a process, and nothing at all unless standard error is a terminal. A thread of
 * the line's own writes it, five times a second, from the second second of what it tells of, so it
 * also tells of work that cannot be counted, and of steps that take long.
 */
#ifndef SAMPLES_COMMON_PROGRESS_H
#define SAMPLES_COMMON_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#define PROGRESS_NOTE_BYTES 64
#define PROGRESS_WHAT_BYTES 96

typedef struct progress {
    bool is_shown;                  /* it has the terminal; all calls do nothing otherwise */
    char what[PROGRESS_WHAT_BYTES]; /* "training" */
    const char *unit;               /* in the plural, "examples"; NULL: nothing is counted */
    int64_t done, total;            /* total 0: not known */
    double per_s, left_s;           /* below 0: not known; left_s was true at told_ms */
    char note[PROGRESS_NOTE_BYTES]; /* comes last */
    double begin_ms, told_ms;
    bool is_reading;      /* done is what the process has read since bytes_before, in bytes */
    int64_t bytes_before; /* of that */
    double hidden_ms;     /* nothing is written before this time */
    int width;            /* of the text on the screen; 0: none */
} progress;

/*
 * Begins a line; it must not move until progress_end(). Silent when standard error is no terminal,
 * and while another line is there. `what` is copied.
 */
void progress_begin(progress *line, const char *what, const char *unit);
/* The same for reading files: what the process reads from here on, of `total` bytes (0: not known).
 */
void progress_begin_reading(progress *line, const char *what, int64_t total);
/* How far it is; `note` may be NULL. Rate and time left follow from the time since the beginning.
 */
void progress_update(progress *line, int64_t done, int64_t total, const char *note);
/* The same where the caller knows better: things a second, and seconds to the end of everything;
 * below 0: not known. */
void progress_tell(progress *line, int64_t done, int64_t total, double per_s, double left_s,
                   const char *note);
/* Wipes the line until its next update, or for a moment, so that something else can be printed now.
 */
void progress_clear(progress *line);
/* The same for the line that is there, if any: for who prints and does not know of one. */
void progress_clear_any(void);
/* Wipes the line for good. Of a line that never began (all zeros), or ended, nothing happens. */
void progress_end(progress *line);

/* No line from here on, as where the results go to the same terminal. */
void progress_forbid(void);

/* Milliseconds of a clock that only goes forward. */
double clock_ms(void);

#endif
