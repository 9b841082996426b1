/*
 * log.h - where the server's lines go: information to stdout, failures to stderr.
 *
 * A line is "2026-11-27T08:15:30.123Z dunlin-server: warning: rounds: the text". Its time is UTC by
 * the system's clock. Nothing of a text can begin a line or move a terminal's cursor: whatever is
 * neither a printable character of ASCII nor well-formed UTF-8 is written as \xNN, and so are
 * control characters; a backslash is written twice.
 */
#ifndef DUNLIN_SERVER_LOG_H
#define DUNLIN_SERVER_LOG_H

#include <dunlin/log.h>

#include <stddef.h>

/* The subsystem of the lines that clients cause, however many: they have an allowance of their own,
 * so that nobody outside can keep the others from being written. */
#define DUNLIN_SERVER_LOG_DEVICES "devices"

/* A line is never longer. */
#define DUNLIN_SERVER_LOG_BYTES 2304u

/* Whether one more line may go out now: at most 1,000 at once and 50 a second, of each of two
 * allowances. True: how many were left out since the last that went out. */
bool dunlin__server_log_may(bool is_by_devices, int64_t now_ms, uint64_t *out_n_dropped);

/* Makes the line of a text, with its line feed, at `now_ms` since 1970; gives its length. */
size_t dunlin__server_log_line(int64_t now_ms, dunlin_log_level level, const char *subsystem,
                               const char *text, uint64_t n_dropped,
                               char out_line[DUNLIN_SERVER_LOG_BYTES]);

dunlin_log dunlin__server_log(dunlin_log_level level);

#endif
