/*
 * auth.h - the check of a signed request.
 */
#ifndef DUNLIN_SERVER_AUTH_H
#define DUNLIN_SERVER_AUTH_H

#include "state/context.h"
#include "state/reply.h"

/* Not locked. Checks a signed request: fills the reply and returns false if it is refused. */
bool dunlin__server_authenticate(dunlin__server *server, const dunlin__server_request *request,
                                 dunlin__server_reply *reply);

#endif
