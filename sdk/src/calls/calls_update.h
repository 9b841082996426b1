/*
 * calls_update.h - the calls about an update: put, commit, abort.
 */
#ifndef DUNLIN_SDK_CALLS_UPDATE_H
#define DUNLIN_SDK_CALLS_UPDATE_H

#include "context/client_context.h"

dunlin_status dunlin__call_put(dunlin_client *client, dunlin__event *out_event,
                               dunlin__fault *out_fault);
dunlin_status dunlin__call_commit(dunlin_client *client, dunlin__event *out_event,
                                  dunlin__fault *out_fault);
dunlin_status dunlin__call_abort(dunlin_client *client, int32_t reason, dunlin__fault *out_fault);

/* What a commit says of the round's work, from the journal, beside the app's own metrics. */
void dunlin__commit_fill(const dunlin_client *client, dunlin__commit_request *out);

#endif
