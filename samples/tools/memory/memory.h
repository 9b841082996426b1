/*
 * memory.h - what dunlin-fleet has of --transport memory: server and devices in one process, or in
 * several that MPI has started.
 */
#ifndef SAMPLES_MEMORY_MEMORY_H
#define SAMPLES_MEMORY_MEMORY_H

#include <fleet/fleet.h>

/* Whether --transport is one there is, and what goes with it. EXIT_OK, or the line has been
 * printed.
 */
int memory_check(fleet_flags *flags);

/* Joins the processes of mpirun, of which the first alone speaks and writes files: to be called
 * once, before a run; nothing without --transport memory. EXIT_OK, or the line has been printed.
 * And leaves them: after a failure (neither EXIT_OK nor a signal) the others end as well. */
int memory_join(fleet_flags *flags);
void memory_leave(fleet_flags *flags, int exit_status);

/* A run in memory to its results; EXIT_OK, or the line was printed. Results as fleet_run(). */
int memory_run(const fleet_flags *flags, const fleet_world *world, const char *command,
               json_t **out_result);

#endif
