/*
 * telemetry.h - numbers about rounds, if the user has agreed: recorded when a round ends, sent in
 * batches under random names, without the device's key or id.
 *
 * They lie in a database of their own, which exists only once something was recorded. Nothing here
 * fails a round: what cannot be recorded or sent is dropped.
 */
#ifndef DUNLIN_SDK_TELEMETRY_H
#define DUNLIN_SDK_TELEMETRY_H

#include "context/client_context.h"

/* Records that wait, of a client; the oldest go first. */
#define DUNLIN_TELEMETRY_WAITING 512

/* Records how the current round ended, from its report and the phases' times. */
void dunlin__telemetry_note(dunlin_client *client, const dunlin_round_report *report,
                            dunlin_status status);
/* Sends the oldest batch: one request, a few seconds at most. */
void dunlin__telemetry_send(dunlin_client *client);
/* Removes what waits. LOCKED, IO, ...: it could not be removed. */
dunlin_status dunlin__telemetry_wipe(dunlin_client *client, dunlin_error *error);

#endif
