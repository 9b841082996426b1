/*
 * rungs.c - fallback plans as a trainer holds them: their lock, waking waiters, freeing.
 */
#include "rungs.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

void dunlin__ladder_lock(dunlin_ladder *ladder)
{
    (void)pthread_mutex_lock(&ladder->lock);
}

void dunlin__ladder_unlock(dunlin_ladder *ladder)
{
    (void)pthread_mutex_unlock(&ladder->lock);
}

void dunlin__ladder_tell(dunlin_ladder *ladder)
{
    const bool is_asked =
        ladder->asked_bytes != ladder->budget_bytes || ladder->is_paused || ladder->n_wishes > 0;
    atomic_store_explicit(&ladder->is_asked, is_asked, memory_order_release);
}

void dunlin_trainer_resume(dunlin_trainer *trainer)
{
    dunlin_ladder *ladder = trainer->ladder;
    if (ladder == NULL) {
        return;
    }
    dunlin__ladder_lock(ladder);
    ladder->is_paused = false;
    dunlin__ladder_tell(ladder);
    (void)pthread_cond_broadcast(&ladder->resumed);
    dunlin__ladder_unlock(ladder);
}

void dunlin__ladder_close_entries(dunlin_ladder *ladder)
{
    for (size_t i = 0; i < sizeof ladder->entries / sizeof ladder->entries[0]; i++) {
        dunlin__switch_close(&ladder->entries[i]);
    }
}

void dunlin__fallback_free(dunlin_fallback *fallback)
{
    dunlin__plan_destroy(fallback->train);
    dunlin__plan_destroy(fallback->infer);
    dunlin__plan_destroy(fallback->alike);
    *fallback = (dunlin_fallback){.train = NULL};
}

void dunlin__ladder_free(dunlin_trainer *trainer)
{
    dunlin_ladder *ladder = trainer->ladder;
    if (ladder == NULL) {
        return;
    }
    const dunlin_alloc *alloc = &trainer->counter.hooks;
    dunlin__ladder_close_entries(ladder);
    for (uint32_t i = 0; i < ladder->n_fallbacks; i++) {
        /* The programs own the largest plan, whichever they run at the moment. */
        if (i > 0) {
            dunlin__fallback_free(&ladder->fallbacks[i]);
        }
    }
    trainer->train.plan = ladder->fallbacks[0].train;
    trainer->infer.plan = ladder->fallbacks[0].infer;
    dunlin__plan_destroy(ladder->fallbacks[0].alike);
    dunlin__free_array(alloc, ladder->control.n_taken, trainer->train.lowered.graph.n_ops,
                       sizeof *ladder->control.n_taken);
    (void)pthread_cond_destroy(&ladder->resumed);
    (void)pthread_mutex_destroy(&ladder->lock);
    dunlin__free_array(alloc, ladder, 1, sizeof *ladder);
    trainer->ladder = NULL;
}
