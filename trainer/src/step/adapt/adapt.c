/*
 * adapt.c - changes of the budget while the trainer exists: who may ask, when they take effect, and
 * how a step in progress migrates from one plan to another.
 *
 * Invariant: the arena never holds more than the budget in force leaves beside the tables, but from
 * the moment a lower one is asked for until the next op. A step takes every sample once whatever
 * its plans were, so the weights do not depend on them. Nothing here allocates.
 */
#include "adapt.h"

#include "step/context/context.h"
#include "step/context/rungs.h"
#include "step/run/clock.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define MS_PER_NS 1e-6
/* Another plan has to win by so much: moving spoils caches, and the prediction is not exact. */
#define STAY_SHARE 0.98

/* --- under the lock --- */

/* Bytes of arena that a budget leaves. */
static uint64_t room_in(const dunlin_ladder *ladder, uint64_t budget_bytes)
{
    if (budget_bytes == 0) {
        return UINT64_MAX;
    }
    return budget_bytes > ladder->table_bytes ? budget_bytes - ladder->table_bytes : 0;
}

/* The largest fallback plan within the budget; n_fallbacks if there is none. */
uint32_t dunlin__ladder_fallback_for(const dunlin_ladder *ladder, uint64_t budget_bytes)
{
    const uint64_t room = room_in(ladder, budget_bytes);
    uint32_t i = 0;
    while (i < ladder->n_fallbacks && ladder->fallbacks[i].arena_bytes > room) {
        i++;
    }
    return i;
}

static dunlin_budget_change *add_change(dunlin_trainer *trainer, dunlin_budget_way way)
{
    dunlin_ladder *ladder = trainer->ladder;
    dunlin_budget_change *change = &ladder->changes[ladder->n_changes % DUNLIN_LADDER_MAX_CHANGES];
    ladder->n_changes++;
    *change = (dunlin_budget_change){
        .struct_size = sizeof *change,
        .step = trainer->step,
        .from_bytes = ladder->budget_bytes,
        .to_bytes = ladder->asked_bytes,
        .way = way,
    };
    return change;
}

/* The arena of so many bytes; what dies is not looked at in debug builds either. */
dunlin_status dunlin__adapt_resize(dunlin_trainer *trainer, uint64_t arena_bytes,
                                   dunlin_error *error)
{
    dunlin_arena *arena = &trainer->arena;
    dunlin__arena_unpoison(arena, 0, arena->committed_bytes);
    DUNLIN_TRY(dunlin__arena_commit(arena, arena_bytes, error));
    dunlin__arena_unpoison(arena, 0, arena->committed_bytes);
    return DUNLIN_OK;
}

/* The budget that was asked for, with no step in progress. */
dunlin_status dunlin__adapt_obey(dunlin_trainer *trainer, dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    const double start_ms = dunlin__clock_ms();
    const uint32_t at = dunlin__ladder_fallback_for(ladder, ladder->asked_bytes);
    if (at == ladder->n_fallbacks) {
        return dunlin__fail(error, DUNLIN_BUDGET, "trainer", 0,
                            "the trainer's tables have grown: no plan fits %" PRIu64 " bytes",
                            ladder->asked_bytes);
    }
    const dunlin_fallback *fallback = &ladder->fallbacks[at];
    const bool is_new = ladder->asked_bytes != ladder->budget_bytes;
    if (trainer->arena.base != NULL && trainer->arena.committed_bytes != fallback->arena_bytes) {
        DUNLIN_TRY(dunlin__adapt_resize(trainer, fallback->arena_bytes, error));
        dunlin__exec_poison_pool(&trainer->train, &trainer->arena);
    }
    if (is_new) {
        dunlin_budget_change *change = add_change(trainer, DUNLIN_WAY_BETWEEN);
        change->arena_bytes = fallback->arena_bytes;
        change->took_ms = dunlin__clock_ms() - start_ms;
        change->given_back_ms = change->took_ms;
    }
    ladder->fallback = at;
    ladder->budget_bytes = ladder->asked_bytes;
    trainer->train.plan = fallback->train;
    trainer->infer.plan = fallback->infer;
    trainer->arena_bytes = fallback->arena_bytes;
    trainer->options.budget_bytes = ladder->budget_bytes;
    if (ladder->budget_bytes != 0) {
        trainer->counter.limit_bytes = ladder->budget_bytes - fallback->arena_bytes;
    }
    dunlin__ladder_tell(ladder);
    return DUNLIN_OK;
}

/* Until resumed. What a budget asks for meanwhile is obeyed afterwards: there is less already. */
static dunlin_status wait_paused(dunlin_trainer *trainer, bool *out_gave_back, dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    const uint64_t kept_bytes = trainer->train.plan->persistent_bytes;
    while (ladder->is_paused) {
        if (ladder->gives_back && trainer->arena.committed_bytes > kept_bytes) {
            DUNLIN_TRY(dunlin__adapt_resize(trainer, kept_bytes, error));
            *out_gave_back = true;
        }
        (void)pthread_cond_wait(&ladder->resumed, &ladder->lock);
    }
    dunlin__ladder_tell(ladder);
    return DUNLIN_OK;
}

/* --- in the middle of a step --- */

/* The way to go on under `to`, if that is faster than the best so far: `*best` is an index of
 * entries, or the number of them. */
static void consider(dunlin_trainer *trainer, const dunlin_switch_from *from, dunlin_plan *to,
                     uint64_t room_bytes, uint32_t *best, dunlin_plan **out_plan)
{
    dunlin_ladder *ladder = trainer->ladder;
    if (to == NULL || to->arena_bytes > room_bytes) {
        return;
    }
    uint32_t spare = 0;
    while (spare == ladder->entry || spare == *best) {
        spare++;
    }
    const uint64_t committed = trainer->arena.committed_bytes;
    const uint64_t limit = to->arena_bytes > committed ? to->arena_bytes : committed;
    dunlin__switch_find(&trainer->train.lowered.graph, from, to, limit, &ladder->entries[spare]);
    const uint32_t n_entries = (uint32_t)(sizeof ladder->entries / sizeof ladder->entries[0]);
    const bool is_first = *best == n_entries;
    const bool is_plan_current = to == trainer->train.plan;
    const double left = (double)ladder->entries[spare].left_ns * (is_plan_current ? STAY_SHARE : 1);
    if (is_first || left < (double)ladder->entries[*best].left_ns *
                               (*out_plan == trainer->train.plan ? STAY_SHARE : 1)) {
        *best = spare;
        *out_plan = to;
    }
}

static void fill_change(dunlin_ladder *ladder, const dunlin_switch *entry,
                        dunlin_budget_change *change)
{
    change->percent =
        ladder->step_ns == 0 ? 0.0 : 100.0 * (double)ladder->elapsed_ns / (double)ladder->step_ns;
    change->moved_bytes = entry->moved_bytes;
    change->recompute_ms = (double)entry->recompute_ns * MS_PER_NS;
    change->reach_ms = (double)entry->reach_ns * MS_PER_NS;
    change->left_ms = (double)entry->left_ns * MS_PER_NS;
}

/* From here to the last change: that is how long its plan ran. */
static void close_change(dunlin_ladder *ladder)
{
    if (ladder->change_ms > 0.0 && ladder->n_changes > 0) {
        ladder->changes[(ladder->n_changes - 1) % DUNLIN_LADDER_MAX_CHANGES].rest_ms =
            dunlin__clock_ms() - ladder->change_ms;
    }
    ladder->change_ms = 0.0;
}

/* Debug builds look at the way before it is gone: with memory of the C library, for it is much. */
static dunlin_status look_at(const dunlin_trainer *trainer, const dunlin_switch_from *from,
                             const dunlin_plan *to, uint32_t entry, dunlin_error *error)
{
#ifndef NDEBUG
    return dunlin__switch_verify(&trainer->train.lowered.graph, from, to,
                                 &trainer->ladder->entries[entry], NULL, error);
#else
    (void)trainer;
    (void)from;
    (void)to;
    (void)entry;
    (void)error;
    return DUNLIN_OK;
#endif
}

/* Moves over to `to`. The arena holds both ends of the moves until nothing lies above its new end,
 * and is given back there and then. */
static dunlin_status go_over(dunlin_trainer *trainer, dunlin_plan *to, uint32_t entry,
                             dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    const dunlin_switch *way = &ladder->entries[entry];
    if (to->arena_bytes > trainer->arena.committed_bytes) {
        DUNLIN_TRY(dunlin__adapt_resize(trainer, to->arena_bytes, error));
    }
    dunlin__arena_unpoison(&trainer->arena, 0, trainer->arena.committed_bytes);
    dunlin__switch_move(way, 0, way->n_tail_moves, trainer->arena.base);
    DUNLIN_TRY(dunlin__adapt_resize(trainer, to->arena_bytes, error));
    ladder->given_back_ms = dunlin__clock_ms();
    dunlin__switch_move(way, way->n_tail_moves, way->n_moves, trainer->arena.base);
    trainer->train.plan = to;
    ladder->entry = entry;
    ladder->control.entry = way;
    ladder->control.next_late = 0;
    return DUNLIN_OK;
}

/* Chooses among all plans that fit, for what is left of the step. */
static dunlin_status obey_within(dunlin_trainer *trainer, const dunlin_plan_point *point,
                                 bool is_pool_lost, bool *out_is_changed, dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    const double start_ms = dunlin__clock_ms();
    const uint64_t room = room_in(ladder, ladder->asked_bytes);
    const dunlin_switch_from from = {
        .plan = is_pool_lost ? NULL : trainer->train.plan,
        .entry = ladder->control.entry,
        .point = *point,
        .n_taken = ladder->control.n_taken,
        .n_batch = (uint64_t)ladder->n_batch,
    };
    uint32_t best = (uint32_t)(sizeof ladder->entries / sizeof ladder->entries[0]);
    dunlin_plan *plan = NULL;
    for (uint32_t i = 0; i < ladder->n_fallbacks; i++) {
        consider(trainer, &from, ladder->fallbacks[i].train, room, &best, &plan);
        consider(trainer, &from, ladder->fallbacks[i].alike, room, &best, &plan);
    }
    if (plan == NULL) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "trainer", 0,
                            "none of %" PRIu32 " plans fits a budget of %" PRIu64
                            " bytes that was accepted",
                            ladder->n_fallbacks, ladder->asked_bytes);
    }
    const bool stays = plan == trainer->train.plan && !is_pool_lost;
    const dunlin_switch *entry = &ladder->entries[best];
    close_change(ladder);
    dunlin_budget_change *change = add_change(trainer, stays                ? DUNLIN_WAY_STAYED
                                                       : entry->n_moves > 0 ? DUNLIN_WAY_MOVED
                                                                            : DUNLIN_WAY_REMADE);
    fill_change(ladder, entry, change);
    if (stays) {
        DUNLIN_TRY(dunlin__arena_commit(&trainer->arena, plan->arena_bytes, error));
        ladder->given_back_ms = dunlin__clock_ms();
    } else {
        DUNLIN_TRY(look_at(trainer, &from, plan, best, error));
        DUNLIN_TRY(go_over(trainer, plan, best, error));
        *out_is_changed = true;
    }
    change->arena_bytes = plan->arena_bytes;
    ladder->budget_bytes = ladder->asked_bytes;
    trainer->options.budget_bytes = ladder->budget_bytes;
    dunlin__ladder_tell(ladder);
    ladder->change_ms = dunlin__clock_ms();
    change->took_ms = ladder->change_ms - start_ms;
    change->given_back_ms = ladder->given_back_ms - start_ms;
    return DUNLIN_OK;
}

/* The earliest wish whose moment has come becomes what is asked for. False if there is none. */
static bool take_wish(dunlin_trainer *trainer)
{
    dunlin_ladder *ladder = trainer->ladder;
    const double percent =
        ladder->step_ns == 0 ? 0.0 : 100.0 * (double)ladder->elapsed_ns / (double)ladder->step_ns;
    for (uint32_t i = 0; i < ladder->n_wishes; i++) {
        const dunlin_ladder_wish wish = ladder->wishes[i];
        const bool is_due =
            wish.step < trainer->step || (wish.step == trainer->step && wish.percent <= percent);
        if (is_due) {
            ladder->asked_bytes = wish.budget_bytes;
            ladder->n_wishes--;
            memmove(&ladder->wishes[i], &ladder->wishes[i + 1],
                    (ladder->n_wishes - i) * sizeof ladder->wishes[0]);
            return true;
        }
    }
    return false;
}

/* Every wish that is due, in its order, with no step in progress: one op takes one wish, so what
 * was wished for near the end of a step may still wait when its last op has run. */
static dunlin_status obey_wishes(dunlin_trainer *trainer)
{
    dunlin_ladder *ladder = trainer->ladder;
    ladder->elapsed_ns = 0;
    while (take_wish(trainer)) {
        DUNLIN_TRY(dunlin__adapt_obey(trainer, trainer->error));
    }
    return dunlin__adapt_obey(trainer, trainer->error);
}

/* What the op that is next will have taken, by the graph's costs. */
static void count_time(dunlin_trainer *trainer, const dunlin_plan_point *point)
{
    const dunlin_plan *plan = trainer->train.plan;
    const uint64_t slice = plan->loops[point->loop].slice_samples;
    const uint64_t n = (uint64_t)trainer->ladder->n_batch;
    const dunlin_mem_variant *variant =
        &trainer->train.lowered.graph.ops[plan->steps[point->step].op].variants[0];
    trainer->ladder->elapsed_ns +=
        variant->cost_fixed_ns + variant->cost_sample_ns * (slice == 0  ? 0
                                                            : slice < n ? slice
                                                                        : n);
}

static dunlin_status turn(void *ctx, const dunlin_plan_point *point, bool *out_is_changed)
{
    dunlin_trainer *trainer = ctx;
    dunlin_ladder *ladder = trainer->ladder;
    bool is_pool_lost = false;
    dunlin__ladder_lock(ladder);
    if (ladder->n_wishes > 0) {
        (void)take_wish(trainer);
        count_time(trainer, point);
    }
    dunlin_status status = wait_paused(trainer, &is_pool_lost, trainer->error);
    if (status == DUNLIN_OK && (is_pool_lost || ladder->asked_bytes != ladder->budget_bytes)) {
        status = obey_within(trainer, point, is_pool_lost, out_is_changed, trainer->error);
    }
    dunlin__ladder_unlock(ladder);
    return status;
}

/* Inference keeps nothing of a batch but its sums: under another plan the batch begins again. */
static dunlin_status turn_infer(void *ctx, const dunlin_plan_point *point, bool *out_is_changed)
{
    dunlin_trainer *trainer = ctx;
    dunlin_ladder *ladder = trainer->ladder;
    bool is_pool_lost = false;
    (void)point;
    dunlin__ladder_lock(ladder);
    dunlin_status status = wait_paused(trainer, &is_pool_lost, trainer->error);
    if (status == DUNLIN_OK && (is_pool_lost || ladder->asked_bytes != ladder->budget_bytes)) {
        status = dunlin__adapt_obey(trainer, trainer->error);
        *out_is_changed = true;
    }
    dunlin__ladder_unlock(ladder);
    return status;
}

/* --- around steps and calls --- */

void dunlin__adapt_begin(dunlin_trainer *trainer)
{
    if (trainer->ladder != NULL) {
        dunlin__ladder_lock(trainer->ladder);
        trainer->ladder->is_running = true;
        dunlin__ladder_unlock(trainer->ladder);
    }
}

void dunlin__adapt_end(dunlin_trainer *trainer)
{
    if (trainer->ladder != NULL) {
        dunlin__ladder_lock(trainer->ladder);
        trainer->ladder->is_running = false;
        trainer->ladder->table_bytes = trainer->counter.now_bytes;
        dunlin__ladder_unlock(trainer->ladder);
    }
}

dunlin_status dunlin__adapt_between(dunlin_trainer *trainer)
{
    dunlin_ladder *ladder = trainer->ladder;
    if (ladder == NULL) {
        return DUNLIN_OK;
    }
    bool is_pool_lost = false;
    dunlin__ladder_lock(ladder);
    dunlin_status status = wait_paused(trainer, &is_pool_lost, trainer->error);
    if (status == DUNLIN_OK) {
        status = obey_wishes(trainer);
    }
    dunlin__ladder_unlock(ladder);
    return status;
}

dunlin_exec_control *dunlin__adapt_begin_step(dunlin_trainer *trainer, int64_t n_batch)
{
    dunlin_ladder *ladder = trainer->ladder;
    if (ladder == NULL) {
        return NULL;
    }
    dunlin_exec_control *control = &ladder->control;
    memset(control->n_taken, 0, trainer->train.lowered.graph.n_ops * sizeof *control->n_taken);
    control->is_asked = &ladder->is_asked;
    control->entry = NULL;
    control->turn_fn = turn;
    control->ctx = trainer;
    ladder->n_batch = n_batch;
    ladder->elapsed_ns = 0;
    ladder->step_ns =
        trainer->train.plan->cost_ns / (uint64_t)trainer->options.batch * (uint64_t)n_batch;
    ladder->change_ms = 0.0;
    return control;
}

dunlin_exec_control *dunlin__adapt_begin_infer(dunlin_trainer *trainer)
{
    dunlin_ladder *ladder = trainer->ladder;
    if (ladder == NULL) {
        return NULL;
    }
    dunlin_exec_control *control = &ladder->control;
    assert(trainer->infer.lowered.graph.n_ops <= trainer->train.lowered.graph.n_ops);
    control->is_asked = &ladder->is_asked;
    control->entry = NULL;
    control->turn_fn = turn_infer;
    control->ctx = trainer;
    return control;
}

dunlin_status dunlin__adapt_end_step(dunlin_trainer *trainer)
{
    dunlin_ladder *ladder = trainer->ladder;
    if (ladder == NULL) {
        return DUNLIN_OK;
    }
    dunlin__ladder_lock(ladder);
    close_change(ladder);
    ladder->control.entry = NULL;
    const dunlin_status status = obey_wishes(trainer);
    dunlin__ladder_unlock(ladder);
    return status;
}
