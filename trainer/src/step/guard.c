/*
 * guard.c - one call at a time into a trainer; the public calls that run plans.
 *
 * Invariant: a call that finds another one at work changes nothing, not even the detail of the last
 * failure, and nothing of a trainer is freed while a call works on it.
 */
#include "handle.h"

#include <mem/support.h>

#define IS_LEAVING ((uintptr_t)1) /* beside the owner's mark: the owner frees the trainer */

/* Its address tells threads apart; it is even. */
static _Thread_local uint64_t mark;

static uintptr_t own_mark(void)
{
    return (uintptr_t)&mark;
}

dunlin_status dunlin__trainer_enter(dunlin_trainer *trainer)
{
    uintptr_t owner = 0;
    if (!atomic_compare_exchange_strong(&trainer->owner, &owner, own_mark())) {
        return DUNLIN_STATE;
    }
    dunlin__trainer_begin(trainer);
    return DUNLIN_OK;
}

dunlin_status dunlin__trainer_leave(dunlin_trainer *trainer, dunlin_status status)
{
    uintptr_t owner = own_mark();
    if (!atomic_compare_exchange_strong(&trainer->owner, &owner, 0)) {
        dunlin__trainer_free(trainer);
    }
    return status;
}

dunlin_status dunlin__trainer_look(const dunlin_trainer *trainer)
{
    const uintptr_t owner = atomic_load(&trainer->owner);
    if (owner != 0 && ((owner & ~IS_LEAVING) != own_mark() || !trainer->is_telling)) {
        return DUNLIN_STATE;
    }
    dunlin__trainer_begin(trainer);
    return DUNLIN_OK;
}

void dunlin_trainer_destroy(dunlin_trainer *trainer)
{
    if (trainer == NULL) {
        return;
    }
    uintptr_t owner = 0;
    if (!atomic_compare_exchange_strong(&trainer->owner, &owner, own_mark())) {
        dunlin_trainer_stop(trainer);
        dunlin_trainer_resume(trainer);
        while (!atomic_compare_exchange_weak(&trainer->owner, &owner,
                                             owner == 0 ? own_mark() : owner | IS_LEAVING)) {
        }
        if (owner != 0) {
            return;
        }
    }
    dunlin__trainer_free(trainer);
}

dunlin_status dunlin_trainer_step(dunlin_trainer *trainer, const dunlin_source *source,
                                  const int64_t *indices, int64_t n, dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer,
                                 dunlin__train_step(trainer, source, indices, n, out_metrics));
}

dunlin_status dunlin_trainer_fit(dunlin_trainer *trainer, const dunlin_source *source,
                                 const dunlin_fit_options *options, dunlin_fit_cursor *cursor,
                                 dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer,
                                 dunlin__train_fit(trainer, source, options, cursor, out_metrics));
}

dunlin_status dunlin_trainer_evaluate(dunlin_trainer *trainer, const dunlin_source *source,
                                      int64_t first, int64_t n, dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer,
                                 dunlin__train_evaluate(trainer, source, first, n, out_metrics));
}

dunlin_status dunlin_trainer_predict(dunlin_trainer *trainer, const dunlin_source *source,
                                     int64_t first, int64_t n, float *out_logits)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer,
                                 dunlin__train_predict(trainer, source, first, n, out_logits));
}
