/*
 * pen.c - draws a figure in a writer's style: control points bent, joined by curves, inked.
 *
 * Invariant: the image follows from the style, the class and the example's key alone. A stroke is a
 * cardinal spline through its points, cut into short pieces; a pixel's ink is how far a round pen
 * on the nearest piece covers it, so edges are smooth. Source of the curve: Catmull, Rom, "A class
 * of local interpolating splines", 1974.
 */
#include "data/common/draw.h"
#include "glyphs.h"

#include <string.h>

#define PIECES 6 /* of the curve between two points */

enum { PURPOSE_HABIT = 0x47454E, PURPOSE_EXAMPLE };

typedef struct point {
    double x, y;
} point;

/* What one example adds to the style. */
typedef struct placement {
    double slant, turn, height, width;
    double left, top; /* of the middle, pixels */
    double radius, ink;
    double wobble, wobble_phase, wobble_rate;
} placement;

typedef struct canvas {
    float coverage[DUNLIN_GLYPH_IMAGE][DUNLIN_GLYPH_IMAGE];
} canvas;

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

static placement place(const dunlin_glyph_style *style, dunlin_draw *draw)
{
    double j = style->jitter;
    double middle = (DUNLIN_GLYPH_IMAGE - 1) / 2.0;
    placement made = {0};
    made.slant = style->slant + 0.9 * j * dunlin__draw_normal(draw);
    made.turn = style->turn + 0.8 * j * dunlin__draw_normal(draw);
    made.height = style->height * (1.0 + 0.9 * j * dunlin__draw_normal(draw));
    made.width = made.height * style->aspect * (1.0 + 1.1 * j * dunlin__draw_normal(draw));
    made.left = middle + dunlin__draw_range(draw, -1.4, 1.4);
    made.top = middle + dunlin__draw_range(draw, -1.2, 1.2);
    made.radius = clamp(style->radius * (1.0 + 1.5 * j * dunlin__draw_normal(draw)), 0.45, 2.2);
    made.ink = clamp(style->ink + 14.0 * dunlin__draw_normal(draw), 120.0, 255.0);
    made.wobble = style->wobble;
    made.wobble_phase = dunlin__draw_range(draw, 0.0, 6.283185307179586);
    made.wobble_rate = dunlin__draw_range(draw, 3.0, 7.0);
    return made;
}

/* From the figure's plane to pixels. */
static point to_pixels(const placement *where, point from)
{
    double x = from.x * where->width - where->slant * from.y * where->height;
    double y = from.y * where->height;
    double c = cos(where->turn);
    double s = sin(where->turn);
    return (point){.x = where->left + c * x - s * y, .y = where->top + s * x + c * y};
}

/* Inks the piece from a to b with a round pen whose radius goes from r_a to r_b. */
static void ink_piece(canvas *paper, point a, point b, double r_a, double r_b)
{
    double widest = (r_a > r_b ? r_a : r_b) + 1.0;
    int last = DUNLIN_GLYPH_IMAGE - 1;
    int x_low = (int)floor(clamp((a.x < b.x ? a.x : b.x) - widest, 0.0, last));
    int x_high = (int)ceil(clamp((a.x > b.x ? a.x : b.x) + widest, 0.0, last));
    int y_low = (int)floor(clamp((a.y < b.y ? a.y : b.y) - widest, 0.0, last));
    int y_high = (int)ceil(clamp((a.y > b.y ? a.y : b.y) + widest, 0.0, last));
    double dx = b.x - a.x;
    double dy = b.y - a.y;
    double length2 = dx * dx + dy * dy;
    for (int y = y_low; y <= y_high; y++) {
        for (int x = x_low; x <= x_high; x++) {
            double along = length2 > 0.0 ? ((x - a.x) * dx + (y - a.y) * dy) / length2 : 0.0;
            along = clamp(along, 0.0, 1.0);
            double off_x = x - (a.x + along * dx);
            double off_y = y - (a.y + along * dy);
            double reach = r_a + along * (r_b - r_a) + 0.5;
            double covered = clamp(reach - sqrt(off_x * off_x + off_y * off_y), 0.0, 1.0);
            if ((float)covered > paper->coverage[y][x]) {
                paper->coverage[y][x] = (float)covered;
            }
        }
    }
}

/* A point of the spline between points[i] and points[i + 1]. */
static point on_curve(const point *points, int32_t n, int32_t i, double t, double roundness)
{
    point p0 = points[i > 0 ? i - 1 : i];
    point p1 = points[i];
    point p2 = points[i + 1];
    point p3 = points[i + 2 < n ? i + 2 : i + 1];
    double t2 = t * t;
    double t3 = t2 * t;
    double a = 2.0 * t3 - 3.0 * t2 + 1.0;
    double b = 3.0 * t2 - 2.0 * t3;
    double c = 0.5 * roundness * (t3 - 2.0 * t2 + t);
    double d = 0.5 * roundness * (t3 - t2);
    /* With little roundness the curve must still run evenly from point to point. */
    double e = (1.0 - roundness) * (t - b);
    return (point){
        .x = a * p1.x + b * p2.x + c * (p2.x - p0.x) + d * (p3.x - p1.x) + e * (p2.x - p1.x),
        .y = a * p1.y + b * p2.y + c * (p2.y - p0.y) + d * (p3.y - p1.y) + e * (p2.y - p1.y)};
}

static void draw_stroke(canvas *paper, const dunlin_glyph_style *style, const placement *where,
                        const point *points, int32_t n)
{
    int32_t n_pieces = (n - 1) * PIECES;
    point before = {0};
    double radius_before = 0.0;
    for (int32_t k = 0; k <= n_pieces; k++) {
        int32_t i = k == n_pieces ? n - 2 : k / PIECES;
        double t = (double)(k - i * PIECES) / PIECES;
        point at = on_curve(points, n, i, t, style->roundness);
        double along = (double)k / n_pieces;
        double sway = where->wobble_rate * 2.0 * along + where->wobble_phase;
        at.x += where->wobble * sin(sway);
        at.y += where->wobble * cos(1.3 * sway);
        point pixel = to_pixels(where, at);
        double from_middle = 2.0 * along - 1.0;
        double radius = where->radius * (1.0 - style->pressure * from_middle * from_middle);
        if (k > 0) {
            ink_piece(paper, before, pixel, radius_before, radius);
        }
        before = pixel;
        radius_before = radius;
    }
}

/* A stroke's points as this writer makes them, this time; a straight one gets a bowed middle. */
static int32_t bend(const dunlin_glyph_style *style, const dunlin_glyph_point *from, int32_t n,
                    dunlin_draw *habit, dunlin_draw *draw, point *out)
{
    int32_t n_out = 0;
    for (int32_t i = 0; i < n; i++) {
        double x = (double)from[i].x;
        double y = (double)from[i].y;
        x += style->habit * dunlin__draw_normal(habit) + style->jitter * dunlin__draw_normal(draw);
        y += style->habit * dunlin__draw_normal(habit) + style->jitter * dunlin__draw_normal(draw);
        out[n_out] = (point){.x = x, .y = y};
        n_out++;
        if (n == 2 && i == 0) {
            n_out++; /* the middle, when both ends are known */
        }
    }
    if (n == 2) {
        double bow = style->bow + 0.8 * style->jitter * dunlin__draw_normal(draw);
        double dx = out[2].x - out[0].x;
        double dy = out[2].y - out[0].y;
        out[1].x = 0.5 * (out[0].x + out[2].x) - bow * dy;
        out[1].y = 0.5 * (out[0].y + out[2].y) + bow * dx;
    }
    return n_out;
}

static void put_down(const canvas *paper, double ink, dunlin_draw *draw, uint8_t *image)
{
    for (int y = 0; y < DUNLIN_GLYPH_IMAGE; y++) {
        for (int x = 0; x < DUNLIN_GLYPH_IMAGE; x++) {
            double grain = dunlin__draw_range(draw, 0.82, 1.0);
            double covered = (double)paper->coverage[y][x];
            double value = covered * ink * grain;
            image[y * DUNLIN_GLYPH_IMAGE + x] = (uint8_t)clamp(value + 0.5, 0.0, 255.0);
        }
    }
}

void dunlin__glyph_draw(const dunlin_glyph_style *style, int32_t class_index, uint64_t example_key,
                        uint8_t *image)
{
    dunlin_draw draw = dunlin__draw_begin(example_key, PURPOSE_EXAMPLE, 0);
    int32_t form_index = (int32_t)(style->forms >> class_index & 1U);
    if (dunlin__draw_unit(&draw) < 0.08) {
        form_index = 1 - form_index; /* nobody is always the same */
    }
    const dunlin_glyph_form *form = dunlin__glyph_form(class_index, form_index);
    dunlin_draw habit =
        dunlin__draw_begin(style->key, PURPOSE_HABIT,
                           (uint64_t)class_index * DUNLIN_GLYPH_FORMS + (uint64_t)form_index);
    placement where = place(style, &draw);
    canvas paper;
    memset(&paper, 0, sizeof paper);
    const dunlin_glyph_point *from = form->points;
    for (int32_t stroke = 0; stroke < form->n_strokes; stroke++) {
        point points[DUNLIN_GLYPH_MAX_POINTS + 1] = {{0}};
        int32_t n = bend(style, from, form->n_points[stroke], &habit, &draw, points);
        draw_stroke(&paper, style, &where, points, n);
        from += form->n_points[stroke];
    }
    put_down(&paper, where.ink, &draw, image);
}
