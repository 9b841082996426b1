/*
 * adapt_support.h - what tests of changing budgets share.
 */
#ifndef DUNLIN_TESTS_ADAPT_SUPPORT_H
#define DUNLIN_TESTS_ADAPT_SUPPORT_H

#include "step_support.h"

/*
 * Trains two trainers side by side, step by step: one keeps its budget, the other's goes down, and
 * in some steps up again, before ops of the step. Their weights must agree after each step.
 * `n_steps` 0: as many as a step has ops, with a first change before each of them in turn; else so
 * many, at ops drawn from the seed. `net` is for the messages.
 */
void test_adapt_check(const dunlin_model *model, const char *net,
                      const dunlin_trainer_options *options, int64_t n_steps, uint64_t seed);

/*
 * The same with `n_changes` budgets at random moments of `n_steps` steps, from the least to the
 * most bytes: every step is done, each change is on record, and what the trainer holds does not
 * grow.
 */
void test_adapt_trace(const dunlin_model *model, const char *net,
                      const dunlin_trainer_options *options, int64_t n_steps, int64_t n_changes,
                      uint64_t seed);

/* An evaluation whose budget goes down and up again after each of its ops: the same metrics. */
void test_adapt_infer(const dunlin_model *model, const dunlin_trainer_options *options);

#endif
