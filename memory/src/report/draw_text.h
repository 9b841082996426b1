/*
 * draw_text.h - words and numbers of a drawing: written, escaped, measured, fitted.
 */
#ifndef DUNLIN_MEM_DRAW_TEXT_H
#define DUNLIN_MEM_DRAW_TEXT_H

#include <mem/plan.h>

typedef struct draw_writer {
    dunlin_plan_line_fn write_fn;
    void *ctx;
} draw_writer;

/* Up to 1,000 bytes. */
void dunlin__draw_put(const draw_writer *to, const char *format, ...) DUNLIN_PRINTF(2, 3);

/* With everything replaced that means something to XML. */
void dunlin__draw_put_escaped(const draw_writer *to, const char *text);

/* About how wide a text is; fonts differ. */
double dunlin__draw_text_width(const char *text, double size);

/* The end of a name that fits into a box, and the size of its letters. */
typedef struct draw_fit {
    const char *text;
    size_t n; /* bytes; 0: there is no room */
    double size;
    bool is_cut; /* its front is left out */
} draw_fit;
draw_fit dunlin__draw_fit_text(const char *name, double width, double height);

/* "12.5 MiB" */
typedef struct draw_size {
    char text[32];
} draw_size;
void dunlin__draw_format_bytes(uint64_t bytes, draw_size *out);

/* The unit of an axis that ends at so many bytes. */
typedef struct draw_unit {
    const char *name;
    double bytes;
} draw_unit;
draw_unit dunlin__draw_unit_of(uint64_t bytes);

/* The next of 1, 2, 5, 10, 20, 50 ...; at least 1. */
double dunlin__draw_nice_step(double least);

#endif
