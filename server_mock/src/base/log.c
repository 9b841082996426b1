/*
 * log.c - log lines of the program, one write each, so lines of several threads do not mix.
 */
#include "log.h"

#include <wire/protocol.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BURST_LINES 1000u /* at once */
#define LINES_A_SECOND 50u

/* How many lines may still go out, so that nobody can fill a disk from outside. */
typedef struct allowance {
    int64_t since_ms;
    uint64_t n_left;
    uint64_t n_dropped;
} allowance;

static struct {
    pthread_mutex_t lock;
    allowance own;
    allowance by_devices;
} lines = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .own = {.n_left = BURST_LINES},
           .by_devices = {.n_left = BURST_LINES}};

bool dunlin__server_log_may(bool is_by_devices, int64_t now_ms, uint64_t *out_n_dropped)
{
    (void)pthread_mutex_lock(&lines.lock);
    allowance *of = is_by_devices ? &lines.by_devices : &lines.own;
    int64_t passed_ms = now_ms - of->since_ms;
    uint64_t n_new = passed_ms > 0 ? (uint64_t)passed_ms * LINES_A_SECOND / 1000 : 0;
    if (n_new > 0) {
        of->since_ms = now_ms;
        of->n_left = of->n_left + n_new < BURST_LINES ? of->n_left + n_new : BURST_LINES;
    }
    bool may = of->n_left > 0;
    *out_n_dropped = may ? of->n_dropped : 0;
    if (may) {
        of->n_left--;
        of->n_dropped = 0;
    } else {
        of->n_dropped++;
    }
    (void)pthread_mutex_unlock(&lines.lock);
    return may;
}

/* ---- the line ---- */

/* Bytes of the well-formed character that `text` begins with; 0: it is none, or a control
 * character. */
static size_t character(const char *text)
{
    char one[5] = "";
    for (size_t n = 1; n <= 4 && text[n - 1] != 0; n++) {
        memcpy(one, text, n);
        one[n] = 0;
        if (dunlin__text_is_valid(one, n)) {
            return n;
        }
    }
    return 0;
}

/* Appends `text`, escaped, to `out` as far as it fits; gives the new length. */
static size_t add_escaped(char *out, size_t n_out, size_t room, const char *text)
{
    while (*text != 0) {
        char piece[8];
        size_t n_taken = character(text);
        size_t n_piece = n_taken;
        if (n_taken == 0) {
            n_taken = 1;
            n_piece = (size_t)snprintf(piece, sizeof piece, "\\x%02X", (unsigned char)*text);
        } else if (*text == '\\') {
            n_piece = (size_t)snprintf(piece, sizeof piece, "\\\\");
        } else {
            memcpy(piece, text, n_taken);
        }
        if (n_piece >= room - n_out) {
            break;
        }
        memcpy(out + n_out, piece, n_piece);
        n_out += n_piece;
        text += n_taken;
    }
    out[n_out] = 0;
    return n_out;
}

size_t dunlin__server_log_line(int64_t now_ms, dunlin_log_level level, const char *subsystem,
                               const char *text, uint64_t n_dropped,
                               char out_line[DUNLIN_SERVER_LOG_BYTES])
{
    static const char *const kinds[] = {"", "error: ", "warning: ", "", ""};
    const size_t room = DUNLIN_SERVER_LOG_BYTES - 1; /* for the line feed */
    const time_t seconds = (time_t)(now_ms / 1000);
    struct tm parts = {0};
    char left_out[64] = "";
    char when[32] = "";
    (void)gmtime_r(&seconds, &parts);
    (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &parts);
    if (n_dropped > 0) {
        (void)snprintf(left_out, sizeof left_out, "(%llu lines were left out) ",
                       (unsigned long long)n_dropped);
    }
    const char *kind = (unsigned)level < sizeof kinds / sizeof kinds[0] ? kinds[level] : "";
    int n = snprintf(out_line, room, "%s.%03dZ dunlin-server: %s%s%.32s: ", when,
                     (int)(now_ms % 1000), left_out, kind, subsystem);
    size_t n_line = n > 0 && (size_t)n < room ? (size_t)n : 0;
    n_line = add_escaped(out_line, n_line, room, text);
    out_line[n_line] = '\n';
    out_line[n_line + 1] = 0;
    return n_line + 1;
}

static int64_t read_ms(clockid_t clock)
{
    struct timespec now = {0};
    (void)clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void write_line(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    (void)ctx;
    char line[DUNLIN_SERVER_LOG_BYTES];
    uint64_t n_dropped = 0;
    bool is_by_devices = strcmp(subsystem, DUNLIN_SERVER_LOG_DEVICES) == 0;
    if (!dunlin__server_log_may(is_by_devices, read_ms(CLOCK_MONOTONIC), &n_dropped)) {
        return;
    }
    size_t n_bytes =
        dunlin__server_log_line(read_ms(CLOCK_REALTIME), level, subsystem, text, n_dropped, line);
    bool is_bad = level <= DUNLIN_LOG_WARNING;
    ssize_t ignored = write(is_bad ? STDERR_FILENO : STDOUT_FILENO, line, n_bytes);
    (void)ignored;
}

dunlin_log dunlin__server_log(dunlin_log_level level)
{
    return (dunlin_log){.write_fn = write_line, .level = level};
}
