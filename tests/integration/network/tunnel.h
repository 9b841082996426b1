/*
 * tunnel.h - an HTTP proxy that knows CONNECT alone, on a port of its own at 127.0.0.1: connections
 * one after another or beside each other, each passed on byte by byte.
 */
#ifndef DUNLIN_TESTS_TUNNEL_H
#define DUNLIN_TESTS_TUNNEL_H

#include <stdint.h>

typedef struct tunnel tunnel;

/* `refusal`: NULL, or the answer to every request, status line and all. */
tunnel *tunnel_open(const char *refusal);
/* Ends its threads and connections. */
void tunnel_close(tunnel *proxy);

uint16_t tunnel_port(const tunnel *proxy);
/* Requests so far; bytes passed on; and whether any of them was readable HTTP or protobuf of ours.
 */
int tunnel_requests(const tunnel *proxy);
uint64_t tunnel_bytes(const tunnel *proxy);
int tunnel_readable(const tunnel *proxy);

#endif
