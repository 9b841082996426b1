/*
 * contribution.h - put, commit, abort: how a finished update gets into a round. Locked, but where
 * it is said.
 */
#ifndef DUNLIN_SERVER_CONTRIBUTION_H
#define DUNLIN_SERVER_CONTRIBUTION_H

#include "call.h"

void dunlin__serve_put(dunlin__call_state *call);
void dunlin__serve_commit(dunlin__call_state *call);
void dunlin__serve_abort(dunlin__call_state *call);
/* Not locked. False: the reply says why. */
bool dunlin__serve_commit_prepare(dunlin__call_state *call);
/* Finds the assignment and that it is the device's; fills the reply and returns false otherwise.
 * Locked. */
bool dunlin__server_find_assignment(dunlin__server *server, const char *id,
                                    const dunlin__server_device *device,
                                    dunlin__assignment_row *out_assignment,
                                    dunlin__server_reply *reply);

#endif
