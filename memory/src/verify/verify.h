/*
 * verify.h - what the two halves of the verifier share: where a fault lies, and the simulation of
 * what allocations hold. Knows graph/graph.h and search/search.h alone.
 */
#ifndef DUNLIN_MEM_VERIFY_H
#define DUNLIN_MEM_VERIFY_H

#include <mem/plan.h>

typedef struct dunlin_verifier {
    const dunlin_mem_graph *graph;
    const dunlin_plan *plan;
    const dunlin_alloc *alloc;
    dunlin_error *error;
} dunlin_verifier;

/* MISMATCH: "step 3 (conv1), tensor x: ...". `step` and `tensor` may be NONE. */
dunlin_status dunlin__verify_fail(const dunlin_verifier *verifier, uint32_t step, uint32_t tensor,
                                  const char *format, ...) DUNLIN_PRINTF(4, 5);

/* True if `above` is the tensor or one of its parents. */
bool dunlin__verify_is_within(const dunlin_mem_graph *graph, uint32_t tensor, uint32_t above);

/*
 * Simulates the plan: every read finds the version that the graph's own order gives it, of the
 * current slice; accumulators are complete when they are read. The plan's structure has been
 * checked before.
 */
DUNLIN_NODISCARD dunlin_status dunlin__verify_flow(const dunlin_verifier *verifier);

#endif
