/*
 * choice.h - what the options make of each parameter of a network.
 */
#ifndef DUNLIN_STEP_CHOICE_H
#define DUNLIN_STEP_CHOICE_H

#include "build.h"

typedef struct dunlin_choice {
    bool is_fixed; /* it stays as it is; of a running statistic: batch norm uses it as it is */
    bool is_trained;
} dunlin_choice;

/* The trainer's options that say which parameters are trained, and how. */
void dunlin__choice_options(const dunlin_trainer_options *from, dunlin_step_build_options *out);

/* ARGUMENT for a prefix that begins no parameter's name. */
DUNLIN_NODISCARD dunlin_status dunlin__choice_check(const dunlin_net *net,
                                                    const dunlin_step_build_options *options,
                                                    dunlin_error *error);

/* Of options that were checked. */
dunlin_choice dunlin__choose(const dunlin_net *net, const dunlin_step_build_options *options,
                             uint32_t param);

#endif
