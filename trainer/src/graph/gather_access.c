/*
 * gather_access.c - what an op touches where it reads concatenations that have no tensor.
 */
#include "gather.h"

#include <string.h>

/* Accesses of an op under construction. */
typedef struct access_list {
    dunlin_mem_access accesses[DUNLIN_STEP_MAX_ACCESSES];
    uint32_t n, n_own;
} access_list;

/* Reads of a member by several accesses of the kernel are one. False: there is no more room. */
static bool add_member(access_list *list, uint32_t tensor, uint8_t parts)
{
    for (uint32_t i = list->n_own; i < list->n; i++) {
        if (list->accesses[i].tensor == tensor) {
            list->accesses[i].parts |= parts;
            return true;
        }
    }
    if (list->n == DUNLIN_STEP_MAX_ACCESSES) {
        return false;
    }
    list->accesses[list->n++] =
        (dunlin_mem_access){.tensor = tensor, .mode = DUNLIN_MEM_READ, .parts = parts};
    return true;
}

static bool add_members(access_list *list, const dunlin_step_gather *gather, uint32_t own)
{
    const uint8_t parts = list->accesses[own].parts;
    list->accesses[own].tensor = gather->members[0];
    for (uint32_t i = 0; i < gather->n_members; i++) {
        if (!add_member(list, gather->members[i], parts)) {
            return false;
        }
    }
    return true;
}

dunlin_status dunlin__gather_accesses(dunlin_step_graph *graph, const dunlin_emit_op *op,
                                      const dunlin_mem_access **out_accesses, uint32_t *out_n)
{
    access_list list = {.n = op->n_accesses, .n_own = op->n_accesses};
    memcpy(list.accesses, op->accesses, op->n_accesses * sizeof *op->accesses);
    bool is_gathering = false;
    for (uint32_t i = 0; i < op->n_accesses; i++) {
        const dunlin_step_tensor *tensor = &graph->tensors[op->accesses[i].tensor];
        is_gathering = is_gathering || tensor->is_gathered;
        if (tensor->is_gathered && !add_members(&list, tensor->gather, i)) {
            return DUNLIN_OVERFLOW;
        }
    }
    *out_n = list.n;
    const size_t n_all = is_gathering ? list.n + op->n_accesses : list.n;
    dunlin_mem_access *accesses = dunlin__step_pool_take(&graph->pool, n_all * sizeof *accesses);
    if (accesses == NULL) {
        return DUNLIN_MEMORY;
    }
    memcpy(accesses, list.accesses, list.n * sizeof *accesses);
    if (is_gathering) {
        memcpy(accesses + list.n, op->accesses, op->n_accesses * sizeof *accesses);
    }
    *out_accesses = accesses;
    return DUNLIN_OK;
}
