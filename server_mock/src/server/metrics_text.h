/*
 * metrics_text.h - the answer of /metrics, for Prometheus and what reads its format.
 */
#ifndef DUNLIN_SERVER_METRICS_TEXT_H
#define DUNLIN_SERVER_METRICS_TEXT_H

#include "exposition.h"
#include "state/context.h"

/* Fills `out_text`, which is zeroed before; give it back with dunlin__exposition_free(). False when
 * out of memory. Any thread. */
bool dunlin__server_metrics_text(dunlin__server *server, dunlin__exposition *out_text);

#endif
