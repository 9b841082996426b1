/*
 * app_metrics.h - numbers of the app's own that go up with a contribution.
 *
 * They are kept in the round's folder before the journal says that the work is done, so that a
 * commit repeated after a kill has the same bytes. A bad one never ends a round.
 */
#ifndef DUNLIN_SDK_APP_METRICS_H
#define DUNLIN_SDK_APP_METRICS_H

#include "client_context.h"

/* Takes those of a report that is_done, instead of what was there. MEMORY. */
dunlin_status dunlin__metrics_of_learner(dunlin_client *client,
                                         const dunlin_learner_report *report);

/* Takes those of the app's hook too, and brings all to the storage. MEMORY, IO, SPACE. */
dunlin_status dunlin__metrics_keep(dunlin_client *client);

/* Puts them into a commit: from memory, or from the storage if the round was resumed. */
void dunlin__metrics_fill(dunlin_client *client, dunlin__commit_request *out);

#endif
