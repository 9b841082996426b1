/*
 * shrink.c - what the arrays of a built graph have grown too large goes back.
 */
#include "shrink.h"

#include <mem/support.h>

#include <string.h>

static bool shrink_array(const dunlin_alloc *alloc, void **array, size_t *capacity, size_t n,
                         size_t bytes)
{
    if (n == *capacity || n == 0) {
        return true;
    }
    void *exact = dunlin__alloc_array(alloc, n, bytes);
    if (exact == NULL) {
        return false;
    }
    memcpy(exact, *array, n * bytes);
    dunlin__free_array(alloc, *array, *capacity, bytes);
    *array = exact;
    *capacity = n;
    return true;
}

dunlin_status dunlin__step_shrink(dunlin_step_graph *graph, dunlin_error *error)
{
    void *tensors = graph->tensors;
    void *ops = graph->ops;
    bool is_ok = shrink_array(&graph->alloc, &tensors, &graph->tensors_capacity, graph->n_tensors,
                              sizeof *graph->tensors);
    is_ok = is_ok && shrink_array(&graph->alloc, &ops, &graph->ops_capacity, graph->n_ops,
                                  sizeof *graph->ops);
    graph->tensors = tensors;
    graph->ops = ops;
    return is_ok ? DUNLIN_OK
                 : dunlin__fail(error, DUNLIN_MEMORY, "step", 0, "no memory for a graph of %zu ops",
                                graph->n_ops);
}
