/*
 * guard.h - one call at a time into a trainer.
 */
#ifndef DUNLIN_STEP_GUARD_H
#define DUNLIN_STEP_GUARD_H

#include "context.h"

/*
 * Around a public call that works on the trainer: STATE while another one does, on whatever thread.
 * Nothing of the trainer may be read after leave, which frees one that was destroyed meanwhile.
 */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_enter(dunlin_trainer *trainer);
dunlin_status dunlin__trainer_leave(dunlin_trainer *trainer, dunlin_status status);
/* At the beginning of one that reads, or sets what the next step looks at: STATE while another call
 * works, but for the owner's progress_fn, which stands between two steps. */
DUNLIN_NODISCARD dunlin_status dunlin__trainer_look(const dunlin_trainer *trainer);

#endif
