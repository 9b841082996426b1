/*
 * adapt_calls.c - the public calls for budgets and pauses while the trainer exists.
 *
 * Invariant: a budget that is refused changes nothing; one that is accepted is in force at the next
 * op. All of it may come from any thread, but for dunlin_trainer_set_budget_at().
 */
#include "step/adapt/adapt.h"
#include "step/context/context.h"
#include "step/context/guard.h"
#include "step/context/rungs.h"

#include <dunlin/trainer_experimental.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

static dunlin_status fail_fixed(dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "trainer", 0,
                        "the trainer was made without option least_budget_bytes: its budget and "
                        "its memory stay as they are");
}

/* BUDGET with the least that works; else the budget as it is meant (0: none). */
static dunlin_status check_budget(const dunlin_ladder *ladder, uint64_t *budget_bytes,
                                  dunlin_error *error)
{
    if (ladder->top_bytes != 0 && (*budget_bytes == 0 || *budget_bytes > ladder->top_bytes)) {
        *budget_bytes = ladder->top_bytes;
    }
    if (dunlin__ladder_fallback_for(ladder, *budget_bytes) < ladder->n_fallbacks) {
        return DUNLIN_OK;
    }
    const uint64_t least =
        ladder->fallbacks[ladder->n_fallbacks - 1].arena_bytes + ladder->table_bytes;
    return dunlin__fail_budget(error, "trainer", *budget_bytes, least);
}

dunlin_status dunlin_trainer_set_budget(dunlin_trainer *trainer, uint64_t budget_bytes,
                                        dunlin_error *out_error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin__error_clear(error);
    dunlin_ladder *ladder = trainer->ladder;
    if (ladder == NULL) {
        return fail_fixed(error);
    }
    dunlin__ladder_lock(ladder);
    dunlin_status status = check_budget(ladder, &budget_bytes, error);
    if (status == DUNLIN_OK) {
        ladder->asked_bytes = budget_bytes;
        dunlin__ladder_tell(ladder);
        status = ladder->is_running ? DUNLIN_OK : dunlin__adapt_obey(trainer, error);
    }
    dunlin__ladder_unlock(ladder);
    return status;
}

dunlin_status dunlin_trainer_set_budget_at(dunlin_trainer *trainer, int64_t step, double percent,
                                           uint64_t budget_bytes)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    dunlin_ladder *ladder = trainer->ladder;
    if (ladder == NULL) {
        return fail_fixed(trainer->error);
    }
    if (step < trainer->step || !(percent >= 0.0 && percent <= 100.0)) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "a budget at %g %% of step %" PRId64 ": expected 0 to 100, and a step "
                            "from %" PRId64 " on",
                            percent, step, trainer->step);
    }
    dunlin__ladder_lock(ladder);
    dunlin_status status = check_budget(ladder, &budget_bytes, trainer->error);
    if (status == DUNLIN_OK && ladder->n_wishes == DUNLIN_LADDER_MAX_CHANGES) {
        status = dunlin__fail(trainer->error, DUNLIN_LIMIT, "trainer", 0,
                              "%d changes of the budget wait already", DUNLIN_LADDER_MAX_CHANGES);
    }
    if (status == DUNLIN_OK) {
        uint32_t i = ladder->n_wishes++;
        for (; i > 0 &&
               (ladder->wishes[i - 1].step > step ||
                (ladder->wishes[i - 1].step == step && ladder->wishes[i - 1].percent > percent));
             i--) {
            ladder->wishes[i] = ladder->wishes[i - 1];
        }
        ladder->wishes[i] = (dunlin_ladder_wish){step, percent, budget_bytes};
        dunlin__ladder_tell(ladder);
    }
    dunlin__ladder_unlock(ladder);
    return status;
}

dunlin_status dunlin_trainer_pause(dunlin_trainer *trainer, bool gives_back)
{
    dunlin_ladder *ladder = trainer->ladder;
    if (ladder == NULL) {
        return DUNLIN_UNSUPPORTED;
    }
    dunlin_status status = DUNLIN_OK;
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__ladder_lock(ladder);
    ladder->is_paused = true;
    ladder->gives_back = gives_back;
    dunlin__ladder_tell(ladder);
    if (gives_back && !ladder->is_running) {
        status = dunlin__adapt_resize(trainer, trainer->train.plan->persistent_bytes, &error);
    }
    /* One that waits without having given anything back looks again. */
    (void)pthread_cond_broadcast(&ladder->resumed);
    dunlin__ladder_unlock(ladder);
    return status;
}

int64_t dunlin_trainer_n_budget_changes(const dunlin_trainer *trainer)
{
    dunlin_ladder *ladder = trainer->ladder;
    if (ladder == NULL) {
        return 0;
    }
    dunlin__ladder_lock(ladder);
    const int64_t n = ladder->n_changes;
    dunlin__ladder_unlock(ladder);
    return n;
}

dunlin_status dunlin_trainer_budget_change(const dunlin_trainer *trainer, int64_t index,
                                           dunlin_budget_change *out_change)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    DUNLIN_TRY(dunlin__struct_check(out_change, "dunlin_budget_change", trainer->error));
    const int64_t n = dunlin_trainer_n_budget_changes(trainer);
    const int64_t kept = n < DUNLIN_LADDER_MAX_CHANGES ? n : DUNLIN_LADDER_MAX_CHANGES;
    if (index < n - kept || index >= n) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "change %" PRId64 " of %" PRId64, index, n);
    }
    dunlin__ladder_lock(trainer->ladder);
    dunlin_budget_change change = trainer->ladder->changes[index % DUNLIN_LADDER_MAX_CHANGES];
    dunlin__ladder_unlock(trainer->ladder);
    dunlin__struct_give(&change, sizeof change, out_change);
    return DUNLIN_OK;
}
