/*
 * options.h - a trainer's options, checked.
 */
#ifndef DUNLIN_STEP_OPTIONS_H
#define DUNLIN_STEP_OPTIONS_H

#include "context.h"

/*
 * The options as this version of the library sees them, zeros replaced by the defaults,
 * all limits checked. ARGUMENT.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_take_options(const dunlin_trainer_options *from,
                                                            dunlin_trainer_options *out,
                                                            dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__trainer_check_lr(float lr, dunlin_error *error);
/* option storage, and the options that it does not go with. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_check_storage(const dunlin_trainer_options *options,
                                                             dunlin_error *error);

#endif
