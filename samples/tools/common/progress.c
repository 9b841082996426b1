/*
 * progress.c - the progress line. Nothing is written unless stderr is a terminal.
 */
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SHOW_MS 100.0

double clock_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

void progress_begin(progress *line, const char *unit)
{
    memset(line, 0, sizeof *line);
    line->is_shown = isatty(STDERR_FILENO) == 1;
    line->unit = unit;
    line->begin_ms = clock_ms();
}

static void left_text(double seconds, char *text, size_t n)
{
    if (seconds < 100.0) {
        (void)snprintf(text, n, "%.0f s", seconds);
    } else if (seconds < 6000.0) {
        (void)snprintf(text, n, "%.0f min", seconds / 60.0);
    } else {
        (void)snprintf(text, n, "%.1f h", seconds / 3600.0);
    }
}

void progress_update(progress *line, int64_t done, int64_t total, const char *note)
{
    if (!line->is_shown) {
        return;
    }
    double now = clock_ms();
    if (now - line->shown_ms < SHOW_MS) {
        return;
    }
    line->shown_ms = now;
    double seconds = (now - line->begin_ms) / 1e3;
    double rate = seconds > 0.0 ? (double)done / seconds : 0.0;
    char left[32] = "?";
    if (total > 0 && rate > 0.0) {
        left_text((double)(total - done) / rate, left, sizeof left);
    }
    char text[160];
    int width = 0;
    if (total > 0) {
        width = snprintf(text, sizeof text,
                         "%5.1f %%  %" PRId64 " of %" PRId64 " %s, %.3g/s, %s left  %s",
                         100.0 * (double)done / (double)total, done, total, line->unit, rate, left,
                         note == NULL ? "" : note);
    } else {
        width = snprintf(text, sizeof text, "%" PRId64 " %s, %.3g/s  %s", done, line->unit, rate,
                         note == NULL ? "" : note);
    }
    if (width >= (int)sizeof text) {
        width = (int)sizeof text - 1;
    }
    (void)fprintf(stderr, "\r%s%*s", text, width < line->width ? line->width - width : 0, "");
    (void)fflush(stderr);
    line->width = width;
}

void progress_end(progress *line)
{
    if (line->is_shown && line->width > 0) {
        (void)fprintf(stderr, "\r%*s\r", line->width, "");
        (void)fflush(stderr);
        line->width = 0;
    }
}
