/*
 * state.h - the state folder of a server: created, read into memory, cleaned.
 *
 * Calls before the server's threads run, but reload and drop_uploads.
 */
#ifndef DUNLIN_SERVER_STATE_H
#define DUNLIN_SERVER_STATE_H

#include "state/context.h"

/* Makes the folder and those in it, and locks it: LOCKED if another server has it. */
DUNLIN_NODISCARD dunlin_status dunlin__state_make_folders(dunlin__server *server,
                                                          dunlin_error *error);

/* Opens the database, begins the run if there is none, and reads what is stored. MISMATCH if the
 * folder is another task's. */
DUNLIN_NODISCARD dunlin_status dunlin__state_open(dunlin__server *server, dunlin_error *error);

/* Reads all rows again, after the start or a transaction that failed. Locked. */
DUNLIN_NODISCARD dunlin_status dunlin__server_reload(dunlin__server *server, dunlin_error *error);

/* Removes what a kill has left in a folder: uploads without an assignment, or (is_spool) files that
 * never counted. */
void dunlin__state_sweep(dunlin__server *server, const char *folder_name, bool is_spool);

/* Removes what came up for assignments of a round that has closed. Locked. */
void dunlin__state_drop_uploads(dunlin__server *server, uint64_t round);

#endif
