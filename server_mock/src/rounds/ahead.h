/*
 * ahead.h - the order of the clients in a round, and in how many rounds one is asked. Locked.
 */
#ifndef DUNLIN_SERVER_AHEAD_H
#define DUNLIN_SERVER_AHEAD_H

#include "state/context.h"

/* Rounds until a client is asked again, 1 for the next; looks ahead only so far, and 1 when there
 * is no memory. What a round asks for is found out once, not for each client that waits. */
uint64_t dunlin__server_rounds_ahead(dunlin__server *server, uint64_t client_index);
void dunlin__ahead_free(dunlin__server *server);

/* The last of those whom a round asks, which are the lowest by rank. */
DUNLIN_NODISCARD dunlin_status dunlin__server_last_asked(const dunlin__server *server,
                                                         uint64_t round, dunlin__ranked *out_last,
                                                         dunlin_error *error);
/* Whether a client is one of those up to that last one. */
bool dunlin__server_is_asked(const dunlin__server *server, uint64_t round, uint64_t client_index,
                             const dunlin__ranked *last);

/* The rank of a client in a round, the lowest are chosen. */
uint64_t dunlin__server_rank(uint64_t seed, uint64_t round, uint64_t client_index);
/* The seed of one client's work in one round. */
uint64_t dunlin__server_work_seed(uint64_t seed, uint64_t round, uint64_t client_index);

#endif
