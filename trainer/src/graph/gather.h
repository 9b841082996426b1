/*
 * gather.h - concatenations that are not stored, where some input is stored in fewer bits: whoever
 * reads one reads its inputs where they are stored, each in its own way, and puts them together in
 * the floats of a piece (narrow.h).
 *
 * So nothing is rounded twice, and an input that is not rounded stays as it is. For the planner
 * there is no such tensor: an op that reads it reads its members.
 */
#ifndef DUNLIN_GRAPH_GATHER_H
#define DUNLIN_GRAPH_GATHER_H

#include "emit.h"

/* The inputs of such a concatenation. */
struct dunlin_step_gather {
    int64_t channels;   /* of a row, all members together */
    uint32_t n_members; /* at most DUNLIN_NET_MAX_INPUTS */
    uint32_t members[]; /* tensors, compact, in the order of their channels */
};

static inline int64_t dunlin__gather_rows(const dunlin_step_tensor *tensor)
{
    return tensor->n_elements / tensor->gather->channels;
}

/* --- before anything is emitted --- */

/* The value will be stored rounded (rounded.h). */
bool dunlin__gather_is_rounded(const dunlin_emit *emit, uint32_t value);
/* No other concatenation goes on from this node, nor this one from any. */
bool dunlin__gather_is_apart(const dunlin_emit *emit, size_t node_index);
/* Decides which concatenations are gathered, when activations have been folded. */
void dunlin__gather_plan(dunlin_emit *emit);

/* --- while it is emitted --- */

/* Makes the tensor of a concatenation that is gathered. */
void dunlin__gather_emit(dunlin_emit *emit, uint32_t node_index);

/*
 * The accesses of an op in the graph's pool: those of its kernel, in which the first member stands
 * in for what is gathered, then reads of all members, then, if there are any, those of the kernel
 * as they are (dunlin__step_own()). `out_n`: of the first two. OVERFLOW: the op touches too many;
 * MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__gather_accesses(dunlin_step_graph *graph,
                                                       const dunlin_emit_op *op,
                                                       const dunlin_mem_access **out_accesses,
                                                       uint32_t *out_n);

#endif
