/*
 * evaluate_plan.h - what the server asks of a named model besides its weights. In builds with a
 * trainer.
 */
#ifndef DUNLIN_SERVER_EVALUATE_PLAN_H
#define DUNLIN_SERVER_EVALUATE_PLAN_H

#include "task/task.h"

struct dunlin_model;

/* ARGUMENT, UNSUPPORTED: the plan's groups or prefixes name nothing of the model, or leave nothing
 * to train, or its precision has not what the model has. */
DUNLIN_NODISCARD dunlin_status dunlin__evaluator_check_plan(const struct dunlin_model *model,
                                                            const dunlin__server_task *task,
                                                            dunlin_error *error);

/* Which of the model's parameters are running variances: one each, to be freed by
 * dunlin__free_array(alloc, variances, n_parameters, sizeof *variances). */
DUNLIN_NODISCARD dunlin_status dunlin__evaluator_find_variances(const struct dunlin_model *model,
                                                                const dunlin_alloc *alloc,
                                                                bool **out_variances,
                                                                dunlin_error *error);

#endif
