/*
 * budget_support.h - trainers whose bytes a counter of the test knows.
 */
#ifndef DUNLIN_TEST_BUDGET_SUPPORT_H
#define DUNLIN_TEST_BUDGET_SUPPORT_H

#include "random.h"
#include "step/step_support.h"

#include <dunlin/trainer_advanced.h>

/* A trainer whose tables and arena both come from a counter of the test. */
dunlin_trainer *budget_create_counted(const dunlin_model *model, dunlin_trainer_options *options,
                                      dunlin_alloc_counter *counter);
/* Three steps and an evaluation. */
void budget_run_steps(dunlin_trainer *trainer, const dunlin_model *model, int64_t batch);
dunlin_trainer_report budget_report_of(const dunlin_trainer *trainer);

#endif
