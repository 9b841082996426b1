/*
 * stepped.h - a server in simulated time: moments come in lines, and each is answered when what is
 * due by then has been done.
 */
#ifndef DUNLIN_SERVER_STEPPED_H
#define DUNLIN_SERVER_STEPPED_H

#include <dunlin/server.h>

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>

#define STEPPED_MOST_MS INT64_C(253402300799999) /* the year 9999 */
#define STEPPED_LINE_BYTES 64

/* Where the time comes from and what the server's clock says; zeroed but for the first members. */
typedef struct stepped {
    int fd;    /* moments, a line each */
    FILE *out; /* "at MS", when it is done */
    _Atomic int64_t now_ms;
    char line[STEPPED_LINE_BYTES]; /* as much of one as has come */
    size_t n_line;
} stepped;

/* For dunlin_server_options.now_ms_fn; ctx is the struct. */
int64_t stepped_now_ms(void *ctx);

/*
 * Takes moments until the input ends or a signal comes: sets the clock, closes what is due, folds,
 * evaluates, and says so. "keep N" and "settle N" are dunlin_server_keep() and
 * dunlin_server_settle(), answered by "kept N" and "settled N".
 *
 * @return OK; DATA: a line is no moment, or one before the last; IO of input or output; what those
 * calls return.
 */
dunlin_status stepped_attend(stepped *time, dunlin_server *server, const sigset_t *awaited,
                             dunlin_error *error);

/* One line, without its end, into a moment that is not before `least`; false: it is none. */
bool stepped_parse(const char *line, int64_t least, int64_t *out_ms);

#endif
