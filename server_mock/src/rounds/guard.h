/*
 * guard.h - limits the norm of an update: the bound of a round, and the norms that give it.
 *
 * An update with a far larger norm than the others is scaled down to the bound, so that no single
 * device determines the next model.
 */
#ifndef DUNLIN_SERVER_GUARD_H
#define DUNLIN_SERVER_GUARD_H

#include "model/models.h"
#include "state/context.h"
#include "task/together.h"

#define DUNLIN_GUARD_ROUNDS 5u  /* closed rounds whose norms count */
#define DUNLIN_GUARD_TIMES 10.0 /* the median that an update may be long */

/* Norms of updates, in ascending order where a call says so. Zero-initialise. */
typedef struct dunlin__norms {
    double *values;
    size_t n;
    size_t capacity;
} dunlin__norms;

/* False where no bound is wanted: with SCAFFOLD, and in cohorts that are too small for a median. */
bool dunlin__guard_is_on(const dunlin__server_task *task);

/* The norms of the last closed rounds whose models stayed, ascending. Locked. Follow by
 * dunlin__norms_free(), also after a failure. */
DUNLIN_NODISCARD dunlin_status dunlin__guard_history(dunlin__server *server,
                                                     dunlin__norms *out_norms, dunlin_error *error);
void dunlin__norms_free(dunlin__norms *norms, const dunlin_alloc *alloc);

/*
 * Ten times the lower median of the history, or of the round's own norms (which are put in order)
 * while the history has fewer than five. 0: no bound, for there are too few, or half of them are 0.
 */
double dunlin__guard_bound(const dunlin__norms *history, dunlin__norms *own);

#endif
