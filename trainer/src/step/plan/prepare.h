/*
 * prepare.h - what a trainer plans: its copy of the network and its graphs.
 */
#ifndef DUNLIN_STEP_PREPARE_H
#define DUNLIN_STEP_PREPARE_H

#include "step/context/context.h"

/* Network copy, both graphs (training in the trainer's form), both lowered; no plans
 * yet. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_prepare(dunlin_trainer *trainer,
                                                       const dunlin_net *net, dunlin_error *error);
/* The training graph alone, anew in the trainer's form, in place of the current one and its plan.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_prepare_train(dunlin_trainer *trainer,
                                                             dunlin_error *error);

#endif
