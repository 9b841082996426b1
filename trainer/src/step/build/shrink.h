/*
 * shrink.h - memory of a graph that is built.
 */
#ifndef DUNLIN_STEP_SHRINK_H
#define DUNLIN_STEP_SHRINK_H

#include "graph/build.h"

/* Tensors and ops in arrays of just their size; MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__step_shrink(dunlin_step_graph *graph, dunlin_error *error);

#endif
