/*
 * secure.h - the device's part in the secure aggregation of its round.
 *
 * Once it has learned, a device agrees with its neighbours on masks (steps advertise and share) and
 * masks its update; once that is committed it says what unmasks the sum (steps mask, consistency,
 * unmask). The session is in memory alone: a round that goes on after a kill sends what was masked,
 * if it was, and tells nothing more.
 */
#ifndef DUNLIN_SDK_SECURE_H
#define DUNLIN_SDK_SECURE_H

#include "context/client_context.h"

bool dunlin__round_is_secure(const dunlin_client *client);

/* One call of what comes before the upload: an event AWAIT for each, until the masked update is
 * written; then *out_is_done, without an event. */
dunlin_status dunlin__secure_agree(dunlin_client *client, dunlin__event *out_event,
                                   bool *out_is_done, dunlin__fault *out_fault);

/* After a commit: whether something is left to be told. The event of the commit is kept for the
 * end. */
bool dunlin__secure_hold(dunlin_client *client, const dunlin__event *committed);

/* One call of what comes after the commit: AWAIT, and at the end the event that was kept. */
dunlin_status dunlin__secure_tell(dunlin_client *client, dunlin__event *out_event,
                                  dunlin__fault *out_fault);
/* The server goes on without what is left to be told: the event that was kept. @return OK. */
dunlin_status dunlin__secure_give_up(dunlin_client *client, dunlin__event *out_event);
bool dunlin__secure_is_telling(const dunlin_client *client);

/* Wipes all secrets. */
void dunlin__secure_drop(dunlin_client *client);

#endif
