/*
 * keep.h - the files of a simulation that can be gone on with.
 */
#ifndef SAMPLES_SIMULATE_KEEP_H
#define SAMPLES_SIMULATE_KEEP_H

#include "simulation.h"

#define SIM_MOMENT "simulation.run"        /* the last moment */
#define SIM_SETTLED "simulation.settled"   /* the number of the last one that is settled */
#define SIM_SERVER_MOMENT "server/moment-" /* and a number: what the server has in memory */
#define SIM_FILES "kept-"                  /* and a number: the files of rounds under way */

#define SIM_MAGIC "dunlin simulation 1"

/* What a moment begins with. */
typedef struct sim_keep_head {
    char magic[24];
    char fingerprint[SIM_SHA256_TEXT];
    uint64_t number;
    int64_t told_us; /* the server's clock */
    int64_t n_clients, n_rounds;
    uint64_t client_bytes;
} sim_keep_head;

/* "FOLDER/NAME"; false: it is too long. */
bool sim_keep_path(char out[FLEET_PATH_BYTES], const char *folder, const char *name);

/* ---- keep_files.c: false, errno says why ---- */

/* Other names for the files that clients and server have for what is under way. */
bool sim_keep_link(const char *folder, uint64_t number);
/* Both databases are one file each: says so, and removes what is of the moment before. And the
 * number that was said last; 0: none. */
bool sim_keep_settle(const char *folder, uint64_t number);
uint64_t sim_keep_settled(const char *folder);

/*
 * Before anything of a folder is opened: puts its files back to its last moment, if there is one
 * (`is_there`, `number`, the server's time in it), or removes a run that never came to one.
 */
bool sim_keep_rewind(const char *folder, bool *out_is_there, uint64_t *out_number,
                     int64_t *out_told_us);
/* Whether a folder's run may be gone on with, or was begun to be. */
bool sim_keep_is_there(const char *folder);

#endif
