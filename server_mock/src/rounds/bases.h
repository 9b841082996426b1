/*
 * bases.h - makes the base of a round from an older one and the updates of a round.
 */
#ifndef DUNLIN_SERVER_BASES_H
#define DUNLIN_SERVER_BASES_H

#include "model/aggregate.h"
#include "state/context.h"

/*
 * Publishes base `number`: that of the file `from`, with the updates aggregated into it, and the
 * control variate with SCAFFOLD, the moments of a strategy that has some, and its packed form if
 * the task wants it. The same arguments give the same bytes. Not locked. NUMERIC: the model would
 * have a value that is not finite; OVERFLOW: a value that no sum takes; IO, SPACE, MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__base_make(dunlin__server *server, uint64_t from,
                                                 const dunlin__aggregate_input *inputs,
                                                 size_t n_inputs, uint64_t number,
                                                 dunlin__published *out_model, dunlin_error *error);

#endif
