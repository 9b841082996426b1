/*
 * pack_cases.h - packing problems: blocks with live ranges, taken from plans or read from files.
 */
#ifndef TESTS_BENCH_PACK_CASES_H
#define TESTS_BENCH_PACK_CASES_H

#include "pack/portfolio.h"

#include <mem/plan.h>

#define PACK_CASE_NAME 96

typedef struct pack_case {
    char name[PACK_CASE_NAME];
    dunlin_pack_block *blocks;
    uint32_t n_blocks;
    uint32_t n_steps;
    uint64_t capacity_bytes; /* that the instance is known to fit in; 0: not known */
    uint64_t shipped_bytes;  /* height in the plan it is from; 0: from no plan */
} pack_case;

/* The allocations of a plan as blocks; tensors that lie on each other in place are one. False: no
 * memory. */
bool pack_case_from_plan(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                         pack_case *out_case);

/* A file of lines "id,lower,upper,size" below a head line, upper excluded, as MiniMalloc's
 * benchmarks have them; the number in "NAME.NUMBER.csv" is the capacity. False: not such a file. */
bool pack_case_read(const char *path, pack_case *out_case);

/* Writes such a file, named after the case. False: it could not be written. */
bool pack_case_write(const pack_case *written, const char *folder);

void pack_case_free(pack_case *freed);

#endif
