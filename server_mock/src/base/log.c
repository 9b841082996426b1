/*
 * log.c - log lines of the program, one write each, so lines of several threads do not mix.
 */
#include "log.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define BURST_LINES 1000u /* at once */
#define LINES_A_SECOND 50u

/* How many lines may still go out, so that nobody can fill a disk from outside. */
static struct {
    pthread_mutex_t lock;
    int64_t since_ms;
    uint64_t n_left;
    uint64_t n_dropped;
} allowance = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_left = BURST_LINES};

bool dunlin__server_log_may(int64_t now_ms, uint64_t *out_n_dropped)
{
    (void)pthread_mutex_lock(&allowance.lock);
    int64_t passed_ms = now_ms - allowance.since_ms;
    uint64_t n_new = passed_ms > 0 ? (uint64_t)passed_ms * LINES_A_SECOND / 1000 : 0;
    if (n_new > 0) {
        allowance.since_ms = now_ms;
        allowance.n_left =
            allowance.n_left + n_new < BURST_LINES ? allowance.n_left + n_new : BURST_LINES;
    }
    bool may = allowance.n_left > 0;
    *out_n_dropped = may ? allowance.n_dropped : 0;
    if (may) {
        allowance.n_left--;
        allowance.n_dropped = 0;
    } else {
        allowance.n_dropped++;
    }
    (void)pthread_mutex_unlock(&allowance.lock);
    return may;
}

static int64_t uptime_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void write_line(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    (void)ctx;
    char line[704];
    uint64_t n_dropped = 0;
    if (!dunlin__server_log_may(uptime_ms(), &n_dropped)) {
        return;
    }
    char left_out[64] = "";
    if (n_dropped > 0) {
        (void)snprintf(left_out, sizeof left_out, "(%llu lines were left out) ",
                       (unsigned long long)n_dropped);
    }
    bool is_bad = level <= DUNLIN_LOG_WARNING;
    const char *kind = "";
    if (is_bad) {
        kind = level == DUNLIN_LOG_ERROR ? "error: " : "warning: ";
    }
    int n =
        snprintf(line, sizeof line, "dunlin-server: %s%s%s: %s\n", left_out, kind, subsystem, text);
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
