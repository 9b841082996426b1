/*
 * suspension.h - a round that waits for the conditions of its device.
 */
#ifndef DUNLIN_SDK_SUSPENSION_H
#define DUNLIN_SDK_SUSPENSION_H

#include "context/client_context.h"

/* Checks the conditions before the current round continues. True: they do not hold. The event is
 * UNFIT, with the time until they are looked at again, as long as the grace period lasts; a
 * checkpoint is written once. INELIGIBLE after it. */
bool dunlin__round_is_suspended(dunlin_client *client, int64_t now_ms, dunlin__event *out_event);

/* How long the round has waited for its conditions. */
int64_t dunlin__round_suspended_ms(const dunlin_client *client, int64_t now_ms);

#endif
