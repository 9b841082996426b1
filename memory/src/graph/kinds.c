/*
 * kinds.c - the kinds of a step's tensors and ops: names of classes, which tensors are static or
 * sliced, which ops write out and read back.
 */
#include <mem/graph.h>

const char *dunlin__mem_class_name(dunlin_mem_class mem_class)
{
    static const char *const names[DUNLIN_MEM_N_CLASSES] = {
        "weights", "statistics", "optimizer",    "inputs",   "activations",
        "saved",   "gradients",  "accumulators", "workspace"};
    return (unsigned)mem_class < DUNLIN_MEM_N_CLASSES ? names[mem_class] : "unknown";
}

dunlin_mem_swap dunlin__mem_swap_of(const dunlin_mem_graph *graph, uint32_t op)
{
    if (op < graph->n_ops || op >= dunlin__mem_n_all_ops(graph)) {
        return DUNLIN_MEM_SWAP_NO;
    }
    return (op - graph->n_ops) % 2 == 0 ? DUNLIN_MEM_SWAP_OUT : DUNLIN_MEM_SWAP_IN;
}

uint32_t dunlin__mem_n_all_ops(const dunlin_mem_graph *graph)
{
    return graph->n_ops + 2 * graph->n_swaps;
}

bool dunlin__mem_is_static(const dunlin_mem_tensor *tensor)
{
    return tensor->is_persistent || tensor->is_pinned;
}

bool dunlin__mem_is_sliced(const dunlin_mem_tensor *tensor)
{
    return tensor->sample_bytes != 0 || tensor->is_per_slice;
}

bool dunlin__graph_is_per_slice(const dunlin_mem_graph *graph)
{
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        if (graph->tensors[t].is_per_slice) {
            return true;
        }
    }
    return false;
}
