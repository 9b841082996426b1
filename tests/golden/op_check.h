/*
 * op_check.h - one operator, forward and backward, against PyTorch in float64, on every instruction
 * set of this machine.
 *
 * Errors are measured in units of eps x the sum of |a||b| over the terms of each number, which the
 * file holds. make_golden.py tells the names of a case's parts: x, weight, bias, mean, variance go
 * in, and `fixed`, `cos`, `sin`, which are never trained; y, dx, dweight, dbias come out.
 */
#ifndef DUNLIN_TESTS_OP_CHECK_H
#define DUNLIN_TESTS_OP_CHECK_H

#include "golden.h"
#include "graph/build.h"

/* Opens data/FILE_NAME and an empty network, which is returned; for one case each time. */
dunlin_net *op_check_open(const char *file_name);
void op_check_close(void);
/* How the graph is built; may be changed before op_check(). */
dunlin_step_build_options *op_check_options(void);

/* The array CASE/PART of the file, or NULL. */
const golden_array *op_check_find(const char *case_name, const char *part);

/* The case's input after a layer that changes nothing. The operator's own parameters, which the
 * caller adds, start at index 1: weight, bias, mean, variance. */
uint32_t op_check_begin(const char *name);
/* The input itself, which gets no gradient (the file holds none); parameters start at index 0. */
uint32_t op_check_begin_bare(const char *name);
/* Ends the network with the operator's output y and compares; `x` is what op_check_begin() gave. */
void op_check(const char *name, uint32_t x, uint32_t y);

#endif
