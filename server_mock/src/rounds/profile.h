/*
 * profile.h - what is known of devices' work, and whom a round asks by it. Locked.
 *
 * Known clients: the cohort is chosen by it when a round opens. Unknown ones: those that a round
 * asks first are served as they come; the others wait until these have had time to ask twice, at
 * most for half of the deadline, so no round stands still for want of the best.
 */
#ifndef DUNLIN_SERVER_PROFILE_H
#define DUNLIN_SERVER_PROFILE_H

#include "state/context.h"

/* A device's report has been counted. */
void dunlin__profile_report(dunlin__server *server, dunlin__server_device *device,
                            const dunlin__contribution_row *row, int64_t now_ms);
/* It took work and came too late, or had not come by then: so long at least it takes. */
void dunlin__profile_late(dunlin__server_device *device, int64_t at_ms);

/* Known clients: sets in_cohort for the round by what is known of them. */
DUNLIN_NODISCARD dunlin_status dunlin__profile_choose(dunlin__server *server, dunlin_error *error);
/* Unknown clients: whether a device gets work now, as far as this goes. Once a round it looks at
 * all devices. */
bool dunlin__profile_is_welcome(dunlin__server *server, const dunlin__server_device *device,
                                int64_t now_ms);

/* After a start: reports of the last rounds; of the time only what devices said of their training.
 */
DUNLIN_NODISCARD dunlin_status dunlin__profile_load(dunlin__server *server, dunlin_error *error);

#endif
