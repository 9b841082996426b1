/*
 * forms.h - which form of the training graph a trainer takes, and its plans.
 */
#ifndef DUNLIN_STEP_FORMS_H
#define DUNLIN_STEP_FORMS_H

#include "step/context/context.h"

/*
 * Prepares and plans within the options' budget: form, graphs, plans, arena_bytes, and
 * least_budget_bytes where planning came by it. Neither the tables nor the scratch that making them
 * takes ever pass the budget when it succeeds.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_plan(dunlin_trainer *trainer, const dunlin_net *net,
                                                    dunlin_error *error);

/* least_budget_bytes of a planned trainer that is not sealed, if planning has not come by it; with
 * tables of its own, beyond the budget. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_find_least(dunlin_trainer *trainer,
                                                          dunlin_error *error);

/* The least budget of a batch, that of neither form above what its fixed attempts take. Options as
 * the library sees them; budget_bytes, least_budget_bytes and cache_dir are not looked at. */
DUNLIN_NODISCARD dunlin_status dunlin__batch_least(const dunlin_net *net,
                                                   const dunlin_trainer_options *options,
                                                   int64_t batch, uint64_t *out_bytes,
                                                   dunlin_error *error);

#endif
