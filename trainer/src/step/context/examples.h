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

/*
 * The labels or targets: as many as the outputs have rows and numbers, for each output or one for
 * all, in the form that its loss takes. In predictions they are not looked at, but for how many
 * floats are written. ARGUMENT: the loss is over what the source does not have. MISMATCH.
 */
DUNLIN_NODISCARD dunlin_status dunlin__answers_check(const dunlin_source *source,
                                                     const dunlin_step_graph *step,
                                                     bool is_predicting, dunlin_error *error);

#endif
