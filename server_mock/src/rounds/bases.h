/*
 * bases.h - makes the base of a round from an older one and the updates of a round.
 */
#ifndef DUNLIN_SERVER_BASES_H
#define DUNLIN_SERVER_BASES_H

#include "model/aggregate.h"
#include "state/context.h"

/* What a base is made of. */
typedef struct dunlin__base_work {
    uint64_t from;                         /* the number of the older base */
    const dunlin__aggregate_input *inputs; /* the updates of the round; none: the base stays */
    size_t n_inputs;
    const dunlin__noise *noise; /* on their sum, also where there are none; NULL: no noise */
} dunlin__base_work;

/*
 * Publishes base `number`: an older one with the updates aggregated into it, the control variate
 * with SCAFFOLD, the moments of a strategy that has some, and its packed form if the task wants it.
 * The same work gives the same bytes. Not locked. NUMERIC: the model would have a value that is not
 * finite; OVERFLOW: a value that no sum takes; IO, SPACE, MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__base_make(dunlin__server *server,
                                                 const dunlin__base_work *work, uint64_t number,
                                                 dunlin__published *out_model, dunlin_error *error);

#endif
