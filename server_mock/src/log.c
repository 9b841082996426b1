/*
 * log.c - log lines of the program, one write each, so lines of several threads do not mix.
 */
#include "log.h"

#include <stdio.h>
#include <unistd.h>

static void write_line(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    (void)ctx;
    char line[640];
    bool is_bad = level <= DUNLIN_LOG_WARNING;
    const char *kind = "";
    if (is_bad) {
        kind = level == DUNLIN_LOG_ERROR ? "error: " : "warning: ";
    }
    int n = snprintf(line, sizeof line, "dunlin-server: %s%s: %s\n", kind, subsystem, text);
    if (n > 0) {
        size_t n_bytes = (size_t)n < sizeof line ? (size_t)n : sizeof line - 1;
        ssize_t ignored = write(is_bad ? STDERR_FILENO : STDOUT_FILENO, line, n_bytes);
        (void)ignored;
    }
}

dunlin_log dunlin__server_log(dunlin_log_level level)
{
    return (dunlin_log){.write_fn = write_line, .level = level};
}
