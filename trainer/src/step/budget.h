/*
 * budget.h - plans in one form, for forms.c, which chooses among forms.
 */
#ifndef DUNLIN_STEP_BUDGET_H
#define DUNLIN_STEP_BUDGET_H

#include "handle.h"

/* What looking for a plan within the budget came to. */
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
/* The plans at hand are within the budget and the slab. */
bool dunlin__budget_holds(const dunlin_trainer *trainer);

#endif
