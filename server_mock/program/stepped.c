/*
 * stepped.c - the server's time as lines of standard input.
 *
 * Invariant: the clock stands still between two lines, so what happens follows from the order of
 * requests and lines alone.
 */
#include "stepped.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 200 /* for signals */

int64_t stepped_now_ms(void *ctx)
{
    stepped *time = ctx;
    return atomic_load(&time->now_ms);
}

bool stepped_parse(const char *line, int64_t least, int64_t *out_ms)
{
    char *end = NULL;
    if (line[0] < '0' || line[0] > '9') {
        return false;
    }
    errno = 0;
    *out_ms = strtoll(line, &end, 10);
    return errno == 0 && *end == '\0' && *out_ms >= least && *out_ms <= STEPPED_MOST_MS;
}

static dunlin_status fail_with(dunlin_error *error, dunlin_status status, const char *what,
                               const char *value)
{
    error->status = status;
    (void)snprintf(error->text, sizeof error->text, "--stepped: %s: %s", what, value);
    return status;
}

static dunlin_status answer(stepped *time, dunlin_error *error, const char *word, int64_t number)
{
    return fprintf(time->out, "%s %" PRId64 "\n", word, number) > 0 && fflush(time->out) == 0
               ? DUNLIN_OK
               : fail_with(error, DUNLIN_IO, "standard output", strerror(errno));
}

/* "keep N", "settle N": a moment of the simulation. False: the line is another one. */
static bool take_moment(stepped *time, dunlin_server *server, const char *line,
                        dunlin_status *out_status, dunlin_error *error)
{
    int64_t number = 0;
    const bool keeps = strncmp(line, "keep ", 5) == 0;
    if ((!keeps && strncmp(line, "settle ", 7) != 0) ||
        !stepped_parse(line + (keeps ? 5 : 7), 1, &number)) {
        return false;
    }
    *out_status = keeps ? dunlin_server_keep(server, (uint64_t)number, error)
                        : dunlin_server_settle(server, error);
    if (*out_status == DUNLIN_OK) {
        *out_status = answer(time, error, keeps ? "kept" : "settled", number);
    }
    return true;
}

/* One moment: the clock, what is due, the answer. */
static dunlin_status take_line(stepped *time, dunlin_server *server, const char *line,
                               dunlin_error *error)
{
    int64_t ms = 0;
    dunlin_status taken = DUNLIN_OK;
    if (take_moment(time, server, line, &taken, error)) {
        return taken;
    }
    if (!stepped_parse(line, atomic_load(&time->now_ms), &ms)) {
        return fail_with(error, DUNLIN_DATA, "no moment, in ms, at or after the last one", line);
    }
    atomic_store(&time->now_ms, ms);
    const dunlin_status status = dunlin_server_step(server, error);
    return status == DUNLIN_OK ? answer(time, error, "at", ms) : status;
}

/* What has come, line by line; the beginning of another one stays. */
static dunlin_status take_bytes(stepped *time, dunlin_server *server, dunlin_error *error)
{
    char *begin = time->line;
    char *end = NULL;
    dunlin_status status = DUNLIN_OK;
    time->line[time->n_line] = '\0';
    while (status == DUNLIN_OK && (end = strchr(begin, '\n')) != NULL) {
        *end = '\0';
        status = take_line(time, server, begin, error);
        begin = end + 1;
    }
    time->n_line -= (size_t)(begin - time->line);
    memmove(time->line, begin, time->n_line);
    if (status == DUNLIN_OK && time->n_line == STEPPED_LINE_BYTES - 1) {
        time->line[time->n_line] = '\0';
        return fail_with(error, DUNLIN_DATA, "a line of more than 62 bytes", time->line);
    }
    return status;
}

static bool has_signal(const sigset_t *awaited)
{
    const struct timespec at_once = {0};
    const int number = sigtimedwait(awaited, NULL, &at_once);
    return number == SIGTERM || number == SIGINT;
}

dunlin_status stepped_attend(stepped *time, dunlin_server *server, const sigset_t *awaited,
                             dunlin_error *error)
{
    dunlin_status status = DUNLIN_OK;
    while (status == DUNLIN_OK) {
        struct pollfd input = {.fd = time->fd, .events = POLLIN};
        if (has_signal(awaited)) {
            return DUNLIN_OK;
        }
        if (poll(&input, 1, LOOK_MS) <= 0) {
            continue;
        }
        const ssize_t n =
            read(time->fd, time->line + time->n_line, STEPPED_LINE_BYTES - 1 - time->n_line);
        if (n == 0) {
            return DUNLIN_OK;
        }
        if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return fail_with(error, DUNLIN_IO, "standard input", strerror(errno));
        }
        time->n_line += n > 0 ? (size_t)n : 0;
        status = take_bytes(time, server, error);
    }
    return status;
}
