/*
 * metrics.h - the app's own metrics of a round that closes.
 */
#ifndef DUNLIN_SERVER_METRICS_H
#define DUNLIN_SERVER_METRICS_H

#include "state/context.h"

/* Within the transaction that closes the round: makes the means, writes metrics/NNNNNN.csv if the
 * task wants what single devices said, and drops that. */
DUNLIN_NODISCARD dunlin_status dunlin__metrics_close(dunlin__server *server, uint64_t round,
                                                     dunlin_error *error);

#endif
