/*
 * guard.c - one call at a time into a trainer, and its end.
 *
 * Invariant: a call that finds another one at work changes nothing, not even the detail of the last
 * failure, and nothing of a trainer is freed while a call works on it.
 */
#include "guard.h"

#include "context.h"

#include <dunlin/trainer_advanced.h>
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

void dunlin_trainer_stop(dunlin_trainer *trainer)
{
    atomic_store(&trainer->is_stopping, true);
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
