/*
 * formats_server.h - what the golden file of the server's database holds. As formats.h says: it is
 * committed, so it is not changed; a new schema gets a file beside the old one.
 */
#ifndef DUNLIN_TESTS_FORMATS_SERVER_H
#define DUNLIN_TESTS_FORMATS_SERVER_H

#include "formats.h"
#include "state/db.h"

#define FORMATS_SERVER_DB "server_9.db"
#define FORMATS_SERVER_SCHEMA 9
#define FORMATS_SERVER_N_DEVICES 2

/* Device i, of row i + 1. */
dunlin__device_row formats_server_device(int64_t index);
dunlin__session_row formats_server_session(void);
dunlin__assignment_row formats_server_assignment(void);
dunlin__contribution_row formats_server_contribution(void);
/* Round 1 has closed with noise, round 2 is open and draws. */
dunlin__round_row formats_server_round(uint64_t round);
dunlin__answer_row formats_server_answer(void);

/* Fills the empty database of a path, one row or more of each table; a failure ends the program. */
void formats_server_fill(const char *path);

#endif
