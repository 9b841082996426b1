/*
 * emit_integer.h - a step in integers, in place of the walk in floats.
 */
#ifndef DUNLIN_STEP_EMIT_INTEGER_H
#define DUNLIN_STEP_EMIT_INTEGER_H

#include "graph/emit.h"

/* The persistent table of sites, after all parameters. */
void dunlin__emit_integer_sites(dunlin_emit *emit);
/* Everything from the input op on. */
void dunlin__emit_integer_step(dunlin_emit *emit);

#endif
