/*
 * simulate.h - what dunlin-fleet has of unequal devices in simulated time.
 */
#ifndef SAMPLES_SIMULATE_SIMULATE_H
#define SAMPLES_SIMULATE_SIMULATE_H

#include <fleet/fleet.h>

/* What goes with --devices; EXIT_OK, or the line has been printed. */
int sim_check(const fleet_flags *flags);

/* --make-devices: what goes with it, and the file. EXIT_OK, or the line has been printed. */
int sim_check_make(const fleet_flags *flags);
int sim_make(const fleet_flags *flags);

#endif
