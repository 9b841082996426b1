/*
 * secagg_step.h - what devices send in a round with secure aggregation: the steps' messages, and
 * the masked vector.
 */
#ifndef DUNLIN_SERVER_SECAGG_STEP_H
#define DUNLIN_SERVER_SECAGG_STEP_H

#include "call.h"

/* Answers a step's call of a device that has been authenticated. Nothing is stored: a message that
 * is sent twice changes nothing. Not locked. */
void dunlin__serve_secagg(dunlin__server *server, const dunlin__server_request *request,
                          dunlin__server_reply *reply);

/* Whether a vector of the device still gets into the sum; `*out_text` says why not. Locked. */
bool dunlin__secagg_takes_vector(const dunlin__call_state *call, const char **out_text);

/* Whether all chunks of an assignment's vector are there; else the call is refused. Not locked. */
bool dunlin__secagg_vector_is_whole(dunlin__call_state *call, const char *assignment_id);

/* Adds the vector of an assignment to the sum, unless it is there from a call whose transaction
 * failed. Locked. After a failure the session may have failed. */
DUNLIN_NODISCARD dunlin_status dunlin__secagg_take_vector(dunlin__call_state *call,
                                                          const char *assignment_id,
                                                          dunlin_error *error);

#endif
