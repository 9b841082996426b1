/*
 * glyphs.h - the ten figures of the synthetic set as strokes, and the pen that draws them.
 */
#ifndef DUNLIN_DATA_GLYPHS_H
#define DUNLIN_DATA_GLYPHS_H

#include <stdbool.h>
#include <stdint.h>

#define DUNLIN_GLYPH_CLASSES 10
#define DUNLIN_GLYPH_FORMS 2 /* ways to write each: open or closed, with or without a bar ... */
#define DUNLIN_GLYPH_IMAGE 28
#define DUNLIN_GLYPH_MAX_POINTS 28 /* of all strokes of one form together */
#define DUNLIN_GLYPH_MAX_STROKES 4

typedef struct dunlin_glyph_point {
    float x, y; /* about -0.65..0.65 and -1..1, y downwards */
} dunlin_glyph_point;

/* One way to write a figure. Strokes of two points are straight but for the writer's bow. */
typedef struct dunlin_glyph_form {
    int32_t n_strokes;
    int32_t n_points[DUNLIN_GLYPH_MAX_STROKES];
    dunlin_glyph_point points[DUNLIN_GLYPH_MAX_POINTS]; /* stroke after stroke */
} dunlin_glyph_form;

const dunlin_glyph_form *dunlin__glyph_form(int32_t class_index, int32_t form_index);

/* How a writer writes: drawn once for each writer. */
typedef struct dunlin_glyph_style {
    uint64_t key; /* of the writer's habits: the lasting change of each point of each form */
    double slant;
    double height;    /* pixels, half of it */
    double aspect;    /* width over what the form has */
    double turn;      /* of the whole figure, radians */
    double radius;    /* of the pen, pixels */
    double pressure;  /* how much thinner a stroke gets towards its ends, 0 to 1 */
    double ink;       /* 0 to 255 */
    double roundness; /* 0: from point to point, 1: smooth curves */
    double bow;       /* of straight strokes, part of their length */
    double habit;     /* size of the lasting changes */
    double jitter;    /* size of what changes from one example to the next */
    double wobble;    /* an unsteady hand: amplitude along the stroke */
    uint32_t forms;   /* bit c: the form that the writer prefers for class c */
} dunlin_glyph_style;

/* Draws one example: `example_key` decides what is not style. image: 28 x 28, overwritten. */
void dunlin__glyph_draw(const dunlin_glyph_style *style, int32_t class_index, uint64_t example_key,
                        uint8_t *image);

#endif
