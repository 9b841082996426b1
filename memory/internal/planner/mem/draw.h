/*
 * draw.h - a plan as a drawing. Its objects are of the library of tools, no part of an app's.
 */
#ifndef DUNLIN_MEM_DRAW_PLAN_H
#define DUNLIN_MEM_DRAW_PLAN_H

#include "mem/plan.h"

/* What a drawing says beside the plan. */
typedef struct dunlin_plan_caption {
    const char *title;     /* NULL: one made from the plan */
    uint64_t budget_bytes; /* for the arena, as a line; 0: none */
    const char *note;      /* goes on after the sizes; NULL: none */
} dunlin_plan_caption;

/*
 * Writes the plan as an SVG drawing, address (up) over steps (right): one rectangle for each
 * allocation, coloured by class, hatched where it holds what was recomputed, named where there is
 * room, the peak and the budget marked. `caption` may be NULL; `write_fn` gets pieces of text.
 */
void dunlin__plan_draw(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                       const dunlin_plan_caption *caption, dunlin_plan_line_fn write_fn, void *ctx);

#endif
