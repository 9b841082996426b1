/*
 * simulate.h - what dunlin-fleet has of unequal devices in simulated time.
 */
#ifndef SAMPLES_SIMULATE_SIMULATE_H
#define SAMPLES_SIMULATE_SIMULATE_H

#include <fleet/fleet.h>

/* When simulated time begins, in ms since 1970: midnight of a Monday. */
#define SIM_BEGIN_MS INT64_C(1767571200000)
/* What a simulation tells the page of its server, in the folder of the run. */
#define SIM_LIVE "simulated.json"
/* --windows without it: a device that took part asks again after a minute, another one after five.
 */
#define SIM_WINDOWS "60000:300000:3600000"

/* What goes with --devices and the other flags of simulated time; how many devices there are.
 * EXIT_OK, or the line has been printed. */
int sim_check(fleet_flags *flags);

/* A run over the server that has been opened, to its results; EXIT_OK, or the line was printed. */
int sim_run(const fleet_flags *flags, const fleet_world *world, fleet_server *server,
            const char *command, json_t **out_result);

/* SHA-256 of the file of the last model, as a server of ours keeps it (a new reference); null: it
 * is not there. */
json_t *sim_model_hash(const fleet_server *server, const json_t *status);

/* Whether a run with these flags keeps moments, from which it goes on after a kill. */
bool sim_can_keep(const fleet_flags *flags);
/* The folder of a run, before anything is opened there: what `server` says of moments is filled in,
 * and the folder is as it was at the last one. EXIT_OK, or the line has been printed. And given
 * back, which the end of the process does as well. */
int sim_folder_take(const fleet_flags *flags, fleet_server *server);
void sim_folder_give(fleet_server *server);

/* The pipes to the clock of a server that is going to be a child: made, in the child, in the
 * parent, closed. False: errno says why. */
bool sim_pipes_make(fleet_server *server);
void sim_pipes_child(const fleet_server *server);
void sim_pipes_parent(fleet_server *server);
void sim_pipes_close(fleet_server *server);

/* --make-devices: what goes with it, and the file. EXIT_OK, or the line has been printed. */
int sim_check_make(const fleet_flags *flags);
int sim_make(const fleet_flags *flags);

#endif
