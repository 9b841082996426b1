/*
 * draw_plan.c - the library of tools: a trainer's plan as a drawing.
 */
#include "step/context/context.h"

#include <dunlin/tools.h>
#include <mem/draw.h>

void dunlin_trainer_draw_plan(const dunlin_trainer *trainer, const char *title,
                              dunlin_text_fn text_fn, void *ctx)
{
    const uint64_t budget = trainer->options.budget_bytes;
    const uint64_t tables = trainer->counter.now_bytes;
    const dunlin_plan_caption caption = {.title = title,
                                         .budget_bytes = budget > tables ? budget - tables : 0};
    dunlin__plan_draw(&trainer->train.lowered.graph, trainer->train.plan, &caption, text_fn, ctx);
}
