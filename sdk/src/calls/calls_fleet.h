/*
 * calls_fleet.h - the calls about being part of the fleet: enrol, check in, accept, decline,
 * forget.
 */
#ifndef DUNLIN_SDK_CALLS_FLEET_H
#define DUNLIN_SDK_CALLS_FLEET_H

#include "context/client_context.h"

dunlin_status dunlin__call_enrol(dunlin_client *client, dunlin__event *out_event,
                                 dunlin__fault *out_fault);
dunlin_status dunlin__call_checkin(dunlin_client *client, dunlin__event *out_event,
                                   dunlin__fault *out_fault);
dunlin_status dunlin__call_accept(dunlin_client *client, dunlin__event *out_event,
                                  dunlin__fault *out_fault);
dunlin_status dunlin__call_decline(dunlin_client *client, int32_t reason, dunlin__event *out_event,
                                   dunlin__fault *out_fault);
dunlin_status dunlin__call_forget(dunlin_client *client, dunlin__fault *out_fault);

/* The first of these features that this client does not have; NULL: it has them all. */
const uint32_t *dunlin__find_unknown(const uint32_t *features, pb_size_t n_features);

/* Verifies and reads the assignment in round->sealed; MISMATCH if it is not for this client. */
dunlin_status dunlin__assignment_read(dunlin_client *client);
/* Whether this client and its app do what the assignment in round->assignment asks for:
 * UNSUPPORTED, LIMIT. */
dunlin_status dunlin__assignment_check(dunlin_client *client);

#endif
