/*
 * local.h - a request that comes from the server's own process, without HTTP.
 */
#ifndef DUNLIN_SERVER_LOCAL_H
#define DUNLIN_SERVER_LOCAL_H

#include "state/context.h"
#include "state/reply.h"

/*
 * Makes clients of this process those that the server has: their requests need no signature, and
 * nothing has to outlive more than the process. After open, before the first request. `has_moments`
 * of dunlin__server_db_relax().
 */
DUNLIN_NODISCARD dunlin_status dunlin__server_trust_callers(dunlin__server *server,
                                                            bool has_moments, dunlin_error *error);

/*
 * Answers one request, as HTTP does it: finds its call by method and path, counts it and its bytes.
 * `request` has method, path, header values and the whole body, also of a chunk; the route is
 * filled in. The reply may be a part of a file (fd), which the caller closes, and is ended by
 * dunlin__server_reply_end().
 */
void dunlin__server_perform(dunlin__server *server, dunlin__server_request *request,
                            dunlin__server_reply *reply);

#endif
