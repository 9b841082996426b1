/*
 * ladder.h - fallback plans for smaller budgets, made in advance.
 */
#ifndef DUNLIN_STEP_LADDER_H
#define DUNLIN_STEP_LADDER_H

#include "step/context/rungs.h"

/*
 * Makes the plans below those of a planned trainer, which become the largest. The tables of all
 * fallback plans are counted against the budget; BUDGET if they do not fit it.
 */
DUNLIN_NODISCARD dunlin_status dunlin__ladder_make(dunlin_trainer *trainer, dunlin_error *error);

#endif
