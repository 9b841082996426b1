/*
 * agree.h - whether the ranks of a run are of one build, and have one task, one data set, one seed.
 */
#ifndef SAMPLES_MEMORY_AGREE_H
#define SAMPLES_MEMORY_AGREE_H

#include "engine.h"

/* Commit and instruction set of this program. */
const char *agree_build(void);

/* EXIT_OK, or the line has been printed, which names the first difference and the ranks. */
int agree_on_run(ranks *processes, const fleet_flags *flags, const fleet_world *world,
                 const dunlin__memory *rounds);

#endif
