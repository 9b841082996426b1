/*
 * draw_text.c - words and numbers of a drawing.
 *
 * Invariant: nothing that is written here can end or begin an XML element but by
 * dunlin__draw_put().
 */
#include "draw_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_LETTERS 13.0 /* sizes of letters in names */
#define MIN_LETTERS 9.0
#define MIN_CUT 13 /* letters: less of a cut name says nothing */
#define LETTER_WIDTH 0.56

void dunlin__draw_put(const draw_writer *to, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    to->write_fn(to->ctx, text);
}

void dunlin__draw_put_escaped(const draw_writer *to, const char *text)
{
    char piece[2] = "";
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            to->write_fn(to->ctx, "&lt;");
            break;
        case '>':
            to->write_fn(to->ctx, "&gt;");
            break;
        case '&':
            to->write_fn(to->ctx, "&amp;");
            break;
        case '"':
            to->write_fn(to->ctx, "&quot;");
            break;
        default:
            piece[0] = (unsigned char)*text < 0x20 ? ' ' : *text;
            to->write_fn(to->ctx, piece);
            break;
        }
    }
}

double dunlin__draw_text_width(const char *text, double size)
{
    return LETTER_WIDTH * size * (double)strlen(text);
}

draw_fit dunlin__draw_fit_text(const char *name, double width, double height)
{
    draw_fit fit = {.text = name, .size = height - 3.0};
    size_t n = strlen(name);
    fit.size = fit.size < MAX_LETTERS ? fit.size : MAX_LETTERS;
    if (fit.size < MIN_LETTERS || width < LETTER_WIDTH * MIN_LETTERS) {
        return fit;
    }
    /* Smaller letters rather than a cut name. */
    const double wanted = (width - 6.0) / (LETTER_WIDTH * (double)(n > 0 ? n : 1));
    if (wanted < fit.size) {
        fit.size = wanted > MIN_LETTERS ? wanted : MIN_LETTERS;
    }
    const double room = (width - 6.0) / (LETTER_WIDTH * fit.size) + 1e-6;
    if ((double)n <= room) {
        fit.n = n;
        return fit;
    }
    if (room < MIN_CUT) {
        return fit;
    }
    fit.is_cut = true;
    fit.text = name + n - ((size_t)room - 1);
    while ((*fit.text & 0xC0) == 0x80) {
        fit.text++; /* not into the middle of a character */
    }
    fit.n = strlen(fit.text);
    return fit;
}

static const draw_unit units[] = {
    {"bytes", 1.0}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};

draw_unit dunlin__draw_unit_of(uint64_t bytes)
{
    size_t i = 0;
    while (i < 3 && (double)bytes >= 8.0 * units[i + 1].bytes) {
        i++;
    }
    return units[i];
}

void dunlin__draw_format_bytes(uint64_t bytes, draw_size *out)
{
    size_t i = 0;
    while (i < 3 && (double)bytes >= 1000.0 * units[i].bytes) {
        i++;
    }
    const double value = (double)bytes / units[i].bytes;
    const int n_digits = i == 0 ? 0 : value >= 100.0 ? 1 : value >= 10.0 ? 2 : 3;
    (void)snprintf(out->text, sizeof out->text, "%.*f %s", n_digits, value, units[i].name);
}

double dunlin__draw_nice_step(double least)
{
    static const double factors[] = {2.0, 2.5, 2.0};
    double step = 1.0;
    for (int i = 0; step < least; i++) {
        step *= factors[i % 3];
    }
    return step;
}
