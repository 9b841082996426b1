/*
 * run_over.h - tells a device that asks for work that the run is over.
 */
#ifndef DUNLIN_SERVER_RUN_OVER_H
#define DUNLIN_SERVER_RUN_OVER_H

#include "call.h"

#include <wire/messages.h>

/* Puts the signed statement into the answer of a check-in that has no work, once the last round has
 * closed and the model that it has left is settled, for a client that knows the feature. Locked. */
DUNLIN_NODISCARD dunlin_status dunlin__server_state_end(const dunlin__call_state *call,
                                                        const dunlin__capabilities *can,
                                                        dunlin__checkin_response *answer,
                                                        dunlin_error *error);

#endif
