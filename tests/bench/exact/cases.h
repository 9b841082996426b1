/*
 * cases.h - the small training steps on which the planner is compared with an exact solver.
 *
 * Every step is for one "sample": the whole batch at once, so that nothing can be sliced and what
 * is measured is rematerialisation alone.
 */
#ifndef DUNLIN_BENCH_EXACT_CASES_H
#define DUNLIN_BENCH_EXACT_CASES_H

#include "planner/graphs.h"

#include <stddef.h>
#include <stdio.h>

typedef struct exact_case {
    const char *name;
    void (*build_fn)(test_graph *graph, const struct exact_case *self);
    uint32_t size; /* layers or blocks */
    uint32_t form; /* what else the family wants to know */
} exact_case;

/* Steps made up here: chains, joins, skips, random ones. */
const exact_case *exact_made_cases(size_t *out_n);

/* Small networks as the trainer lowers them. */
const exact_case *exact_net_cases(size_t *out_n);

/* The whole step as JSON. */
void exact_write_json(const dunlin_mem_graph *graph, FILE *file);

#endif
