/*
 * tools.h - what programs about the library have and an app has no use for: drawings of plans.
 *
 * It is a library of its own, dunlin_tools (CMake: dunlin::tools, pkg-config: dunlin-tools).
 */
#ifndef DUNLIN_TOOLS_H
#define DUNLIN_TOOLS_H

#include <dunlin/trainer_experimental.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The plan as an SVG drawing, address (up) over steps (right), given in pieces of text: one
 * rectangle a place, coloured by what it holds, hatched where that was made again. `title` is
 * escaped; NULL: one made from the plan.
 */
DUNLIN_API void dunlin_trainer_draw_plan(const dunlin_trainer *trainer, const char *title,
                                         dunlin_text_fn text_fn, void *ctx);

#ifdef __cplusplus
}
#endif

#endif
