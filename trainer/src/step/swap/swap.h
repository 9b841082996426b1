/*
 * swap.h - the ops that write tensors of a step out and read them back, for policies that swap.
 */
#ifndef DUNLIN_STEP_SWAP_H
#define DUNLIN_STEP_SWAP_H

#include "graph/build.h"
#include "swap_file.h"

#include <mem/plan.h>

/* Where the tensors of a plan lie in the file. */
struct dunlin_swap {
    dunlin_alloc alloc;
    dunlin_swap_file file;
    uint64_t *offsets; /* by pair */
    size_t n_offsets;
    /* dunlin__swap_free(), dunlin__swap_begin(), dunlin__swap_way(): their file is no part of an
     * app's library. */
    void (*free_fn)(dunlin_swap *swap);
    dunlin_status (*begin_fn)(dunlin_swap *swap, const dunlin_step_graph *graph,
                              const dunlin_plan *plan, const char *folder, dunlin_error *error);
    const char *(*way_fn)(const dunlin_swap_file *file);
};

/* What may be swapped: the inputs of convolutions, or all that the backward pass reads again. */
typedef enum dunlin_swap_what { DUNLIN_SWAP_CONV_INPUTS = 0, DUNLIN_SWAP_ALL } dunlin_swap_what;

/* Adds a pair of ops for each tensor that may be swapped, after the graph's own. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__step_add_swaps(dunlin_step_graph *graph,
                                                      dunlin_swap_what what, dunlin_error *error);

/* Room for where they lie; the file is not made yet. NULL without memory. */
dunlin_swap *dunlin__swap_new(const dunlin_step_graph *graph, const dunlin_alloc *alloc);
/* NULL is fine; closes the file. */
void dunlin__swap_free(dunlin_swap *swap);

/* Makes the file for a plan, if it swaps at all. `folder` NULL: TMPDIR, else /var/tmp. As
 * dunlin__swap_open(). */
DUNLIN_NODISCARD dunlin_status dunlin__swap_begin(dunlin_swap *swap, const dunlin_step_graph *graph,
                                                  const dunlin_plan *plan, const char *folder,
                                                  dunlin_error *error);

#endif
