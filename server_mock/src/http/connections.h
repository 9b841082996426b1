/*
 * connections.h - the open connections: how many there are, how old they are, and which one is
 * closed next.
 *
 * Any thread. A connection is ended by shutdown(2) of its socket; libmicrohttpd then closes it.
 */
#ifndef DUNLIN_SERVER_CONNECTIONS_H
#define DUNLIN_SERVER_CONNECTIONS_H

#include <dunlin/alloc.h>

/* 0: no limit. */
typedef struct dunlin__connection_limits {
    int64_t handshake_ms; /* from the first packet to the end of a request's headers */
    int64_t request_ms;   /* for a whole request, or a whole reply, and beside it */
    int64_t idle_ms;      /* between two requests */
    uint64_t least_rate;  /* bytes of its body a second */
} dunlin__connection_limits;

typedef struct dunlin__connections dunlin__connections;
typedef struct dunlin__connection dunlin__connection;

/* Holds at most `limit`, three quarters of them for one peer; one more, and the oldest that has
 * not yet had a good answer goes, else the one that has been idle longest. NULL when out of memory.
 */
dunlin__connections *dunlin__connections_open(uint32_t limit,
                                              const dunlin__connection_limits *limits,
                                              const dunlin_alloc *alloc);
void dunlin__connections_close(dunlin__connections *all);

/* A socket was accepted; `peer` is its address as 16 bytes, NULL for one that is not counted by
 * address (a trusted proxy). NULL when out of memory: the connection is then not watched. */
dunlin__connection *dunlin__connections_add(dunlin__connections *all, int socket,
                                            const uint8_t *peer);
void dunlin__connections_remove(dunlin__connections *all, dunlin__connection *one);

/* A request has begun: its line is there; its headers are; so many bytes of its body are. */
void dunlin__connection_begun(dunlin__connections *all, dunlin__connection *one);
void dunlin__connection_headed(dunlin__connections *all, dunlin__connection *one);
void dunlin__connection_moved(dunlin__connections *all, dunlin__connection *one, uint64_t n_bytes);
/* A reply of so many bytes is on its way. */
void dunlin__connection_answered(dunlin__connections *all, dunlin__connection *one,
                                 uint64_t n_bytes);
/* The exchange is over. `is_good`: what it asked for was done. */
void dunlin__connection_ended(dunlin__connections *all, dunlin__connection *one, bool is_good);

#endif
