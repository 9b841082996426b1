/*
 * calls.h - processes a request in stages.
 */
#ifndef DUNLIN_SERVER_CALLS_H
#define DUNLIN_SERVER_CALLS_H

#include "state/context.h"
#include "state/reply.h"

/* Answers one call but CHUNK_PUT. Any thread. */
void dunlin__server_handle(dunlin__server *server, const dunlin__server_request *request,
                           dunlin__server_reply *reply);

#endif
