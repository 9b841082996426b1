/*
 * cut_ends.h - a network with several outputs without what their losses take from their ends.
 */
#ifndef DUNLIN_STEP_CUT_ENDS_H
#define DUNLIN_STEP_CUT_ENDS_H

#include "graph/build.h"
#include "graph/end.h"

/* The loss of an output. */
dunlin_step_loss dunlin__loss_of(const dunlin_step_build_options *options, uint32_t index);

/* A copy, to be freed, and what was taken from each output that it still has. MEMORY, IO. */
DUNLIN_NODISCARD dunlin_status dunlin__ends_cut(const dunlin_net *net,
                                                const dunlin_step_build_options *options,
                                                const dunlin_alloc *alloc, dunlin_net *out_cut,
                                                dunlin_end *out_ends, dunlin_error *error);

#endif
