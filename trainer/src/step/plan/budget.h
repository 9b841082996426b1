/*
 * budget.h - plans in one form, for forms.c, which chooses among forms.
 */
#ifndef DUNLIN_STEP_BUDGET_H
#define DUNLIN_STEP_BUDGET_H

#include "step/context/context.h"

/* The result of looking for a plan within the budget. */
typedef enum dunlin_fit {
    DUNLIN_FIT_UNKNOWN = 0, /* none was found; the least plan may fit */
    DUNLIN_FIT_NONE,        /* not even the least plan fits */
    DUNLIN_FIT_FOUND
} dunlin_fit;

/* More bytes than the least make another plan, under this policy. */
bool dunlin__budget_is_used(const dunlin_trainer_options *options);

/*
 * From nothing, in the trainer's form, under the budget as a limit: a plan within the budget, else
 * the least one. BUDGET if that is too large, MEMORY if making it takes more than the limit, or the
 * hooks fail.
 */
DUNLIN_NODISCARD dunlin_status dunlin__budget_plan(dunlin_trainer *trainer, const dunlin_net *net,
                                                   dunlin_error *error);
/* Both plans of a prepared trainer within the budget, if they are found. */
DUNLIN_NODISCARD dunlin_status dunlin__budget_within(dunlin_trainer *trainer, dunlin_fit *out_fit,
                                                     dunlin_error *error);
/* From nothing, in the trainer's form: least_budget_bytes. The trainer then has the plan with the
 * smallest arena. Only the counter's limit bounds what this allocates. */
DUNLIN_NODISCARD dunlin_status dunlin__budget_least(dunlin_trainer *trainer, const dunlin_net *net,
                                                    dunlin_error *error);
/* BUDGET, naming the least bytes, and the node that keeps the batch whole if there is one.
 * Needs the prepared training graph. */
dunlin_status dunlin__budget_fail(const dunlin_trainer *trainer, uint64_t least_bytes,
                                  dunlin_error *error);
/* The current plans are within the budget and the slab. */
bool dunlin__budget_holds(const dunlin_trainer *trainer);

/* The planner's options for a training plan within so many bytes of arena (0: no limit). */
dunlin_plan_options dunlin__trainer_plan_options(const dunlin_trainer *trainer, int64_t batch,
                                                 uint64_t arena_bytes);

/* A plan for inference beside a training plan of so many bytes; it may need more. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_plan_infer(dunlin_trainer *trainer, int64_t batch,
                                                          uint64_t train_bytes,
                                                          dunlin_plan **out_plan,
                                                          dunlin_error *error);

/* The slices are part of what is computed (ghost statistics), and options.micro_batch sets them. */
bool dunlin__trainer_has_fixed_slices(const dunlin_trainer *trainer);

/*
 * The least budget with which a step of `batch` samples works in the trainer's form, under the
 * options' policy; no plans are kept. Needs a trainer that is prepared, for this batch if its graph
 * follows the batch.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_least_budget(dunlin_trainer *trainer, int64_t batch,
                                                            uint64_t *out_bytes,
                                                            dunlin_error *error);

/* The plans anew, for what the tables now leave of the budget: a faster one if there is room, else
 * the least. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_replan(dunlin_trainer *trainer, dunlin_error *error);

#endif
