/*
 * costs.h - the internal form of measured costs: rows by operation, and how they get into a lowered
 * graph.
 */
#ifndef DUNLIN_STEP_COSTS_H
#define DUNLIN_STEP_COSTS_H

#include "lower.h"

#include <dunlin/costs.h>

#define DUNLIN_COSTS_MAX_NS UINT64_C(1000000000000000)
#define DUNLIN_COSTS_MAX_ROWS 1000000

typedef struct dunlin_cost_row {
    uint64_t fixed_ns;  /* per slice */
    uint64_t sample_ns; /* per sample */
    size_t kernel;      /* where the texts begin in `texts` */
    size_t name;
} dunlin_cost_row;

/* Row i is op i of the training graph that was measured. */
struct dunlin_costs {
    dunlin_alloc alloc;
    uint64_t graph; /* dunlin__graph_hash() of it, without costs */
    char isa[16];
    int32_t n_threads;
    int64_t batches[2]; /* that were measured; equal if only one fitted */
    double scale;       /* median over the rows of measured time by the roofline's */
    dunlin_cost_row *rows;
    size_t n_rows;
    char *texts;
    size_t texts_bytes;
};

/* An empty table with room for so many rows and bytes of text; NULL without memory. */
dunlin_costs *dunlin__costs_new(const dunlin_alloc *alloc, size_t n_rows, size_t texts_bytes);

/* The table is of this very graph. */
bool dunlin__costs_are_of(const dunlin_costs *costs, const dunlin_mem_graph *graph);

/* MISMATCH if the table is of another instruction set, number of threads or training graph. */
DUNLIN_NODISCARD dunlin_status dunlin__costs_check(const dunlin_costs *costs, const char *isa,
                                                   int32_t n_threads, const dunlin_mem_graph *train,
                                                   dunlin_error *error);

/*
 * Replaces the costs of a freshly lowered graph by those of the rows with the same kernel and name;
 * of ops that have none the roofline's are scaled. `is_same`: the table is of this very graph. A
 * table serves both forms of a step: their ops have the same names, and a sum that is read through
 * its terms takes hardly longer.
 */
void dunlin__costs_apply(const dunlin_costs *costs, const dunlin_step_graph *step, bool is_same,
                         dunlin_lowered *lowered);

#endif
