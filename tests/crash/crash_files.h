/*
 * crash_files.h - how far the rounds have come, by the server's files, and faults in these files.
 */
#ifndef DUNLIN_TESTS_CRASH_FILES_H
#define DUNLIN_TESTS_CRASH_FILES_H

#include "crash_world.h"

/* The model that round `round` begins with is there. */
bool crash_world_is_published(const crash_world *world, int round);
/* A contribution to the current round is counted, or the round has closed. */
bool crash_world_is_counted(const crash_world *world);
/* The closed rounds in the database; one that is not as it must be is complained of. */
int crash_world_count_rounds(crash_world *world);
/* The files of the best model are there whole, or not at all; each may be of another model. */
bool crash_world_best_is_whole(crash_world *world);
/* They are of one model, that which the devices found best by the rows of the rounds. */
bool crash_world_is_best(const crash_world *world);
/* The first complaint stays; returns false. */
bool crash_world_complain(crash_world *world, const char *what, int number);

#endif
