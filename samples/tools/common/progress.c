/*
 * progress.c - the progress line, and the thread that writes it.
 *
 * Invariant: the terminal has at most one line; whoever looks at it or changes it holds the lock.
 */
#include "progress.h"

#include "common/args.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define FIRST_MS 1000.0 /* shorter work has no line */
#define SHOW_MS 200     /* from one writing to the next */
#define LATE_S 1.0      /* past a time left that was wrong: then the time since the beginning */
#define LINE_BYTES 320

static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    progress *line; /* NULL: there is none */
    pthread_t writer;
    bool is_forbidden;
} terminal = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

double clock_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* All bytes that the process has read so far, as the kernel counts them; 0 where it does not. */
static int64_t read_bytes(void)
{
    int64_t bytes = 0;
    FILE *file = fopen("/proc/self/io", "re");
    if (file != NULL) {
        if (fscanf(file, "rchar: %" SCNd64, &bytes) != 1) {
            bytes = 0;
        }
        (void)fclose(file);
    }
    return bytes;
}

/* --- the text --- */

static size_t add_seconds(char *text, size_t room, double seconds)
{
    int n = 0;
    if (seconds < 100.0) {
        n = snprintf(text, room, "%.0f s", seconds);
    } else if (seconds < 6000.0) {
        n = snprintf(text, room, "%.0f min", seconds / 60.0);
    } else {
        n = snprintf(text, room, "%.1f h", seconds / 3600.0);
    }
    return n < 0 ? 0 : (size_t)n;
}

static size_t add_counts(const progress *line, char *text, size_t room)
{
    int n = 0;
    const char *unit = line->is_reading ? "MB" : line->unit;
    const double done = (double)line->done * (line->is_reading ? 1e-6 : 1.0);
    const double total = (double)line->total * (line->is_reading ? 1e-6 : 1.0);
    const int digits = line->is_reading ? 1 : 0;
    if (line->total > 0) {
        n = snprintf(text, room, " %5.1f %%  %.*f of %.*f %s", 100.0 * done / total, digits, done,
                     digits, total, unit);
    } else {
        n = snprintf(text, room, " %.*f %s", digits, done, unit);
    }
    size_t used = n < 0 ? 0 : (size_t)n;
    if (line->per_s >= 0.0 && used < room) {
        const double per_s = line->per_s * (line->is_reading ? 1e-6 : 1.0);
        n = per_s < 999.5 ? snprintf(text + used, room - used, ", %.3g", per_s)
                          : snprintf(text + used, room - used, ", %.0f", per_s);
        used += n < 0 ? 0 : (size_t)n;
        n = snprintf(text + used, room - used, "%s/s", line->is_reading ? " MB" : "");
        used += n < 0 ? 0 : (size_t)n;
    }
    return used;
}

/* "training  12.5 %  4000 of 32000 examples, 512/s, 55 s left  loss 0.1234" */
static void make_text(const progress *line, double now_ms, char text[LINE_BYTES])
{
    const double left_s = line->left_s - (now_ms - line->told_ms) / 1e3;
    size_t used = (size_t)snprintf(text, LINE_BYTES, "%s", line->what);
    if (line->is_reading || (line->unit != NULL && (line->done > 0 || line->total > 0))) {
        used += add_counts(line, text + used, LINE_BYTES - used);
    }
    used += (size_t)snprintf(text + used, LINE_BYTES - used, ", ");
    if (line->left_s >= 0.0 && left_s > -LATE_S) {
        used += add_seconds(text + used, LINE_BYTES - used, left_s > 0.0 ? left_s : 0.0);
        used += (size_t)snprintf(text + used, LINE_BYTES - used, " left");
    } else {
        used += add_seconds(text + used, LINE_BYTES - used, (now_ms - line->begin_ms) / 1e3);
    }
    if (line->note[0] != '\0') {
        (void)snprintf(text + used, LINE_BYTES - used, "  %s", line->note);
    }
}

/* --- the terminal; all of it under the lock --- */

static void wipe(progress *line)
{
    line->hidden_ms = clock_ms() + SHOW_MS;
    if (line->width > 0) {
        (void)fprintf(stderr, "\r%*s\r", line->width, "");
        (void)fflush(stderr);
        line->width = 0;
    }
}

/* One less than its columns, so that the cursor stays in the line. */
static size_t width_of_terminal(void)
{
    struct winsize size = {0};
    const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    const size_t width = is_known ? size.ws_col - 1U : 79U;
    return width < LINE_BYTES ? width : LINE_BYTES - 1;
}

static void count(progress *line, int64_t done, double now_ms)
{
    const double seconds = (now_ms - line->begin_ms) / 1e3;
    line->done = done;
    line->told_ms = now_ms;
    line->per_s = seconds > 0.0 && done > 0 ? (double)done / seconds : -1.0;
    line->left_s = line->total >= done && line->total > 0 && done > 0
                       ? seconds * (double)(line->total - done) / (double)done
                       : -1.0;
}

static void show(progress *line)
{
    char text[LINE_BYTES];
    const double now_ms = clock_ms();
    if (now_ms < line->hidden_ms || now_ms - line->begin_ms < FIRST_MS) {
        return;
    }
    if (line->is_reading) {
        const int64_t done = read_bytes() - line->bytes_before;
        line->total = done > line->total ? 0 : line->total; /* it was not what is read */
        count(line, done, now_ms);
    }
    make_text(line, now_ms, text);
    text[width_of_terminal()] = '\0';
    const int width = (int)strlen(text);
    (void)fprintf(stderr, "\r%s%*s", text, width < line->width ? line->width - width : 0, "");
    (void)fflush(stderr);
    line->width = width;
}

static void *write_line(void *unused)
{
    (void)unused;
    (void)pthread_mutex_lock(&terminal.lock);
    while (terminal.line != NULL) {
        struct timespec until = {0};
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += SHOW_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&terminal.ended, &terminal.lock, &until);
        if (terminal.line != NULL) {
            show(terminal.line);
        }
    }
    (void)pthread_mutex_unlock(&terminal.lock);
    return NULL;
}

/* Signals stay with the program's own threads. */
static bool start_writer(void)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool is_started = pthread_create(&terminal.writer, NULL, write_line, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_started;
}

/* --- calls --- */

static void begin(progress *line, const char *what, const char *unit, bool is_reading,
                  int64_t total)
{
    memset(line, 0, sizeof *line);
    if (isatty(STDERR_FILENO) != 1) {
        return;
    }
    (void)snprintf(line->what, sizeof line->what, "%s", what);
    line->unit = unit;
    line->is_reading = is_reading;
    line->bytes_before = is_reading ? read_bytes() : 0;
    line->total = total;
    line->begin_ms = clock_ms();
    program_wipe_before(progress_clear_any);
    line->per_s = line->left_s = -1.0;
    (void)pthread_mutex_lock(&terminal.lock);
    if (terminal.line == NULL && !terminal.is_forbidden) {
        terminal.line = line;
        line->is_shown = start_writer();
        terminal.line = line->is_shown ? line : NULL;
    }
    (void)pthread_mutex_unlock(&terminal.lock);
}

void progress_begin(progress *line, const char *what, const char *unit)
{
    begin(line, what, unit, false, 0);
}

void progress_begin_reading(progress *line, const char *what, int64_t total)
{
    begin(line, what, NULL, true, total);
}

static void take_note(progress *line, const char *note)
{
    line->hidden_ms = 0.0; /* whoever wiped it has printed */
    (void)snprintf(line->note, sizeof line->note, "%s", note == NULL ? "" : note);
}

void progress_update(progress *line, int64_t done, int64_t total, const char *note)
{
    if (!line->is_shown) {
        return;
    }
    (void)pthread_mutex_lock(&terminal.lock);
    line->total = total;
    if (done != line->done || line->told_ms <= 0.0) {
        count(line, done, clock_ms());
    }
    take_note(line, note);
    (void)pthread_mutex_unlock(&terminal.lock);
}

void progress_tell(progress *line, int64_t done, int64_t total, double per_s, double left_s,
                   const char *note)
{
    if (!line->is_shown) {
        return;
    }
    (void)pthread_mutex_lock(&terminal.lock);
    line->done = done;
    line->total = total;
    line->per_s = per_s;
    line->left_s = left_s;
    line->told_ms = clock_ms();
    take_note(line, note);
    (void)pthread_mutex_unlock(&terminal.lock);
}

void progress_clear(progress *line)
{
    if (line->is_shown) {
        (void)pthread_mutex_lock(&terminal.lock);
        wipe(line);
        (void)pthread_mutex_unlock(&terminal.lock);
    }
}

void progress_clear_any(void)
{
    (void)pthread_mutex_lock(&terminal.lock);
    if (terminal.line != NULL) {
        wipe(terminal.line);
    }
    (void)pthread_mutex_unlock(&terminal.lock);
}

void progress_end(progress *line)
{
    if (!line->is_shown) {
        return;
    }
    (void)pthread_mutex_lock(&terminal.lock);
    wipe(line);
    line->is_shown = false;
    terminal.line = NULL;
    (void)pthread_cond_signal(&terminal.ended);
    (void)pthread_mutex_unlock(&terminal.lock);
    (void)pthread_join(terminal.writer, NULL);
}

void progress_forbid(void)
{
    (void)pthread_mutex_lock(&terminal.lock);
    terminal.is_forbidden = true;
    (void)pthread_mutex_unlock(&terminal.lock);
}
