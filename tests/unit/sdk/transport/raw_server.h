/*
 * raw_server.h - plain sockets on the loopback that answer HTTP in any wrong way a test wants.
 */
#ifndef DUNLIN_TESTS_RAW_SERVER_H
#define DUNLIN_TESTS_RAW_SERVER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

/* What follows the bytes of an answer. */
typedef enum raw_then { RAW_CLOSE, RAW_STALL, RAW_KEEP, RAW_RESET } raw_then;

typedef struct raw_server {
    const char *answer; /* to each request, as it is */
    size_t answer_bytes;
    size_t send_bytes; /* of the answer, then... */
    raw_then then;
    char url[64];
    /* Its own. */
    int fd;
    pthread_t thread;
    atomic_bool is_ending;
    atomic_int n_requests;
    atomic_int n_connections;
    atomic_int n_open;
    atomic_int n_open_peak;
    atomic_int n_threads;
} raw_server;

/* Listens and answers `text` (from a thread each connection). */
void raw_server_start(raw_server *server, const char *text);
void raw_server_stop(raw_server *server);

#endif
