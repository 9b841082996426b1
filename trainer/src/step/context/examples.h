/*
 * examples.h - whether a source's examples are what a network takes.
 */
#ifndef DUNLIN_STEP_EXAMPLES_H
#define DUNLIN_STEP_EXAMPLES_H

#include "graph/build.h"

/*
 * The types and, of a source with arrays, their number, sizes and names. `subsystem` is whose error
 * it is. ARGUMENT: there is nothing to read from, or of another type. MISMATCH.
 */
DUNLIN_NODISCARD dunlin_status dunlin__examples_check(const dunlin_source *source,
                                                      const dunlin_step_graph *step,
                                                      const char *subsystem, dunlin_error *error);

#endif
