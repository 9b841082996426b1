/*
 * http_reply.h - sends replies.
 */
#ifndef DUNLIN_SERVER_HTTP_REPLY_H
#define DUNLIN_SERVER_HTTP_REPLY_H

#include "exchange.h"

/* Sends the exchange's reply, with what its fault does to it on the way. */
enum MHD_Result dunlin__http_send(dunlin__exchange *now, struct MHD_Connection *connection);

#endif
