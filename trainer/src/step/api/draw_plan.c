/*
 * draw_plan.c - the library of tools: a trainer's plan as a drawing.
 */
#include "graph/narrow.h"
#include "step/context/context.h"

#include <dunlin/tools.h>
#include <mem/draw.h>

#include <inttypes.h>
#include <stdio.h>

/* What is stored in fewer bits; NULL: nothing. `room` for the text. */
static const char *stored_note(const dunlin_step_graph *graph, char *text, size_t room)
{
    uint32_t n_int8 = 0;
    uint32_t n_bf16 = 0;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const dunlin_step_tensor *tensor = &graph->tensors[i];
        const bool is_int8 = dunlin__narrow_is_scaled(tensor);
        n_int8 += is_int8 ? 1 : 0;
        n_bf16 += dunlin__narrow_is(tensor) && !is_int8 ? 1 : 0;
    }
    if (n_int8 > 0) {
        (void)snprintf(text, room, "%" PRIu32 " tensors stored in int8, %" PRIu32 " in bf16",
                       n_int8, n_bf16);
    } else {
        (void)snprintf(text, room, "%" PRIu32 " tensors stored in bf16", n_bf16);
    }
    return n_int8 + n_bf16 > 0 ? text : NULL;
}

void dunlin_trainer_draw_plan(const dunlin_trainer *trainer, const char *title,
                              dunlin_text_fn text_fn, void *ctx)
{
    const uint64_t budget = trainer->options.budget_bytes;
    const uint64_t tables = trainer->counter.now_bytes;
    char note[80];
    const dunlin_plan_caption caption = {.title = title,
                                         .budget_bytes = budget > tables ? budget - tables : 0,
                                         .note =
                                             stored_note(trainer->train.step, note, sizeof note)};
    dunlin__plan_draw(&trainer->train.lowered.graph, trainer->train.plan, &caption, text_fn, ctx);
}
