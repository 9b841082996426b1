/*
 * draw.h - the frame of a drawing: where steps and addresses lie, and what classes look like.
 */
#ifndef DUNLIN_MEM_DRAW_H
#define DUNLIN_MEM_DRAW_H

#include "draw_text.h"

#include <mem/draw.h>

#define DRAW_WIDTH 1600
#define DRAW_HEIGHT 1000
#define DRAW_LEFT 84
#define DRAW_RIGHT (DRAW_WIDTH - 118) /* of the plot */
#define DRAW_TOP 152
#define DRAW_BOTTOM (DRAW_HEIGHT - 96)

typedef struct drawing {
    const dunlin_mem_graph *graph;
    const dunlin_plan *plan;
    dunlin_plan_caption caption;
    dunlin_plan_summary summary;
    dunlin_plan_account account;
    uint32_t first_backward; /* step */
    uint64_t full_bytes;     /* at the top of the plot */
    draw_writer to;
} drawing;

double dunlin__draw_x_of(const drawing *out, uint32_t step);
double dunlin__draw_y_of(const drawing *out, uint64_t offset_bytes);

/* "weights", ...: also the classes of the style sheet, by number. */
const char *dunlin__draw_class_name(dunlin_mem_class mem_class);

/* --- draw_places.c --- */

/* A rectangle for each allocation, the line of live bytes over them, and the names over both. */
void dunlin__draw_places(const drawing *out);

#endif
