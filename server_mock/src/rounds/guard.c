/*
 * guard.c - limits the norm of an update: the bound of a round, and the norms that give it.
 *
 * Invariant: the bound follows from what is stored and from the round's own updates in the order of
 * client indices, so a close that is repeated scales by the same numbers.
 */
#include "guard.h"

#include "model/models.h"
#include "state/context.h"
#include "state/db.h"
#include "task/task.h"
#include "task/together.h"

#include <mem/support.h>

#include <math.h>
#include <stdlib.h>

bool dunlin__guard_is_on(const dunlin__server_task *task)
{
    return dunlin__together_is_on(dunlin__together_traits(task), DUNLIN_TRAIT_NORM_BOUND);
}

/* ---- the history ---- */

typedef struct collector {
    dunlin__norms *norms;
    const dunlin_alloc *alloc;
    dunlin_error *error;
} collector;

static dunlin_status take_norm(void *ctx, double norm)
{
    collector *to = ctx;
    void *values = to->norms->values;
    bool has_room = dunlin__grow_array(to->alloc, &values, &to->norms->capacity, to->norms->n + 1,
                                       sizeof *to->norms->values);
    to->norms->values = values;
    if (!has_room) {
        return dunlin__fail(to->error, DUNLIN_MEMORY, "rounds", 0, "norm %zu", to->norms->n + 1);
    }
    to->norms->values[to->norms->n] = norm;
    to->norms->n++;
    return DUNLIN_OK;
}

dunlin_status dunlin__guard_history(dunlin__server *server, dunlin__norms *out_norms,
                                    dunlin_error *error)
{
    collector to = {out_norms, &server->alloc, error};
    return dunlin__server_db_each_norm(server->db, DUNLIN_GUARD_ROUNDS, take_norm, &to, error);
}

void dunlin__norms_free(dunlin__norms *norms, const dunlin_alloc *alloc)
{
    dunlin__free_array(alloc, norms->values, norms->capacity, sizeof *norms->values);
    *norms = (dunlin__norms){0};
}

/* ---- the bound ---- */

static int compare_norms(const void *left, const void *right)
{
    const double *a = left;
    const double *b = right;
    return (*a > *b) - (*a < *b);
}

double dunlin__guard_bound(const dunlin__norms *history, dunlin__norms *own)
{
    const dunlin__norms *norms = history;
    if (history->n < DUNLIN_GUARD_UPDATES) {
        if (own->n > 1) {
            qsort(own->values, own->n, sizeof *own->values, compare_norms);
        }
        norms = own;
    }
    if (norms->n < DUNLIN_GUARD_UPDATES) {
        return 0;
    }
    return DUNLIN_GUARD_TIMES * norms->values[(norms->n - 1) / 2];
}
