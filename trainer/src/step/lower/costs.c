/*
 * costs.c - a table of measured costs, and how it takes the roofline's place in a lowered graph.
 *
 * Invariant: a table does not change once it was handed out, so trainers on several threads may
 * read one.
 */
#include "costs.h"

#include <mem/hash.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

dunlin_costs *dunlin__costs_new(const dunlin_alloc *alloc, size_t n_rows, size_t texts_bytes)
{
    dunlin_costs *costs = dunlin__alloc_zeroed(alloc, 1, sizeof *costs);
    if (costs == NULL) {
        return NULL;
    }
    costs->alloc = *alloc;
    costs->n_rows = n_rows;
    costs->texts_bytes = texts_bytes;
    costs->rows = dunlin__alloc_zeroed(alloc, n_rows, sizeof *costs->rows);
    costs->texts = dunlin__alloc_zeroed(alloc, texts_bytes, 1);
    if (costs->rows == NULL || costs->texts == NULL) {
        dunlin_costs_free(costs);
        return NULL;
    }
    return costs;
}

void dunlin_costs_free(dunlin_costs *costs)
{
    if (costs != NULL) {
        const dunlin_alloc alloc = costs->alloc;
        dunlin__free_array(&alloc, costs->rows, costs->n_rows, sizeof *costs->rows);
        dunlin__free_array(&alloc, costs->texts, costs->texts_bytes, 1);
        dunlin__free_array(&alloc, costs, 1, sizeof *costs);
    }
}

bool dunlin__costs_are_of(const dunlin_costs *costs, const dunlin_mem_graph *graph)
{
    return costs->n_rows == graph->n_ops && costs->graph == dunlin__graph_hash(graph, false);
}

dunlin_status dunlin__costs_check(const dunlin_costs *costs, const char *isa, int32_t n_threads,
                                  const dunlin_mem_graph *train, dunlin_error *error)
{
    if (strcmp(costs->isa, isa) != 0) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "costs", 0,
                            "the costs were measured with %s, and the trainer runs with %s",
                            costs->isa, isa);
    }
    if (costs->n_threads != n_threads) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "costs", 0,
                            "the costs were measured with %" PRId32
                            " threads, and the trainer has %" PRId32,
                            costs->n_threads, n_threads);
    }
    if (!dunlin__costs_are_of(costs, train)) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "costs", 0,
                            "the costs were measured for another model or input size, or with "
                            "another optimiser, loss or option that changes the step (%zu "
                            "operations; here it has %" PRIu32 ")",
                            costs->n_rows, train->n_ops);
    }
    return DUNLIN_OK;
}

static bool is_row_of(const dunlin_costs *costs, size_t row, const dunlin_step_op *op)
{
    return strcmp(costs->texts + costs->rows[row].name, op->name) == 0 &&
           strcmp(costs->texts + costs->rows[row].kernel, op->kernel->name) == 0;
}

/* The row of an op of another graph of the same network, looked for from `*next` on and around:
 * both graphs have much the same order. NULL: there is none. */
static const dunlin_cost_row *find_row(const dunlin_costs *costs, const dunlin_step_op *op,
                                       size_t *next)
{
    for (size_t i = 0; i < costs->n_rows; i++) {
        const size_t row = (*next + i) % costs->n_rows;
        if (is_row_of(costs, row, op)) {
            *next = row + 1;
            return &costs->rows[row];
        }
    }
    return NULL;
}

static uint64_t scaled(uint64_t ns, double scale)
{
    const double product = (double)ns * scale;
    return product < (double)DUNLIN_COSTS_MAX_NS ? (uint64_t)product : DUNLIN_COSTS_MAX_NS;
}

void dunlin__costs_apply(const dunlin_costs *costs, const dunlin_step_graph *step, bool is_same,
                         dunlin_lowered *lowered)
{
    size_t next = 0;
    for (size_t i = 0; i < step->n_ops; i++) {
        dunlin_mem_variant *variant = &lowered->variants[i];
        const dunlin_cost_row *row =
            is_same ? &costs->rows[i] : find_row(costs, &step->ops[i], &next);
        if (row != NULL) {
            variant->cost_fixed_ns = row->fixed_ns;
            variant->cost_sample_ns =
                step->ops[i].kernel->parts == DUNLIN_MEM_FIXED ? 0 : row->sample_ns;
        } else {
            variant->cost_fixed_ns = scaled(variant->cost_fixed_ns, costs->scale);
            variant->cost_sample_ns = scaled(variant->cost_sample_ns, costs->scale);
        }
    }
}
