/*
 * exchange.h - the checks that every exchange of a client passes.
 */
#ifndef DUNLIN_SDK_EXCHANGE_H
#define DUNLIN_SDK_EXCHANGE_H

#include "context/client_context.h"

/* Performs a request within the round's limits of bytes and time, counts its bodies,
 * and refuses what the server cannot have said. Sets should_stop itself. */
dunlin_status dunlin__client_exchange(dunlin_client *client, const dunlin_http_request *request,
                                      dunlin_http_reply *out_reply, dunlin__fault *out_fault);

#endif
