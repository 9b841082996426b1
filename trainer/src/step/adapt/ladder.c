/*
 * ladder.c - fallback plans for smaller budgets, made when the trainer is created.
 *
 * Invariant: arenas get smaller from one fallback plan to the next, and all plans keep weights, the
 * optimiser's state and the step's fixed tensors at the same addresses, so a step can migrate from
 * any plan to any other. Nothing is allocated after this.
 */
#include "ladder.h"

#include "ladder_cache.h"
#include "step/context/context.h"
#include "step/context/rungs.h"
#include "step/plan/budget.h"

#include <mem/support.h>

#include <assert.h>
#include <inttypes.h>
#include <math.h>

#define MAX_FITS 4
#define N_CUTS 16
/* A step may take so many times longer so that changing its plan costs nothing. */
#define SLICED_SHARE 1.01
/* Plans may take so many times more memory to have common addresses. */
#define ALIGNED_SHARE 1.02

static uint64_t slice_of(const dunlin_plan *plan)
{
    uint64_t most = 0;
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        most = plan->loops[l].slice_samples > most ? plan->loops[l].slice_samples : most;
    }
    return most;
}

/* Steps may be cut into slices, and their size changes nothing. */
static bool may_slice(const dunlin_trainer *trainer)
{
    const dunlin_mem_graph *graph = &trainer->train.lowered.graph;
    return trainer->options.batch > 1 && dunlin__graph_is_sliceable(graph, NULL) &&
           !dunlin__graph_is_per_slice(graph);
}

/* BUDGET means that there is none, and no failure. */
static dunlin_status find_plan(const dunlin_trainer *trainer, const dunlin_plan_options *options,
                               dunlin_plan **out_plan, dunlin_error *error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    *out_plan = NULL;
    const dunlin_status status =
        dunlin__plan_create(&trainer->train.lowered.graph, options, out_plan, &local);
    if (status != DUNLIN_OK && status != DUNLIN_BUDGET && status != DUNLIN_UNSUPPORTED) {
        *error = local;
        return status;
    }
    return DUNLIN_OK;
}

/* Plans within so many bytes of arena; a fallback only if they take less than the last one's. */
static dunlin_status add_fallback(dunlin_trainer *trainer, uint64_t arena_bytes,
                                  dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    const dunlin_fallback *above = &ladder->fallbacks[ladder->n_fallbacks - 1];
    const int64_t batch = trainer->options.batch;
    dunlin_plan_options options = dunlin__trainer_plan_options(trainer, batch, arena_bytes);
    dunlin_fallback *fallback = &ladder->fallbacks[ladder->n_fallbacks];
    *fallback = (dunlin_fallback){.train = NULL};
    DUNLIN_TRY(find_plan(trainer, &options, &fallback->train, error));
    if (fallback->train == NULL || fallback->train->arena_bytes >= above->train->arena_bytes) {
        dunlin__plan_destroy(fallback->train);
        fallback->train = NULL;
        return DUNLIN_OK;
    }
    /* From here on dunlin__ladder_free() knows of it. */
    ladder->n_fallbacks++;
    fallback->arena_bytes = fallback->train->arena_bytes;
    assert(fallback->train->persistent_bytes == above->train->persistent_bytes);
    DUNLIN_TRY(
        dunlin__trainer_plan_infer(trainer, batch, fallback->arena_bytes, &fallback->infer, error));
    if (fallback->infer->arena_bytes > fallback->arena_bytes) {
        fallback->arena_bytes = fallback->infer->arena_bytes;
    }
    const uint64_t slice = slice_of(ladder->fallbacks[0].train);
    if (!may_slice(trainer) || slice == slice_of(fallback->train)) {
        return DUNLIN_OK;
    }
    if (slice == (uint64_t)batch) {
        options.n_cuts = N_CUTS;
    } else {
        options.slice_samples = slice;
        options.is_slice_fixed = true;
    }
    return find_plan(trainer, &options, &fallback->alike, error);
}

/* The arena of the smallest fallback plan. */
static dunlin_status find_low(dunlin_trainer *trainer, uint64_t *out_bytes, dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    const dunlin_plan_options options =
        dunlin__trainer_plan_options(trainer, trainer->options.batch, 0);
    uint64_t low = 0;
    DUNLIN_TRY(dunlin__plan_least_bytes(&trainer->train.lowered.graph, &options, &low, error));
    ladder->least_arena_bytes = low;
    const uint64_t tables = trainer->counter.now_bytes;
    const uint64_t asked = trainer->options.least_budget_bytes;
    *out_bytes = asked > tables && asked - tables > low ? asked - tables : low;
    return DUNLIN_OK;
}

/*
 * Without barriers slices cost almost nothing, but a step that has begun on the whole batch can
 * only migrate at a cost. So the largest plan takes the slices of the smallest one, or the smallest
 * multiple of them that keeps it about as fast.
 */
static dunlin_status slice_top(dunlin_trainer *trainer, uint64_t low_bytes, dunlin_error *error)
{
    dunlin_fallback *top = &trainer->ladder->fallbacks[0];
    if (!may_slice(trainer) || trainer->options.policy != DUNLIN_POLICY_AUTO) {
        return DUNLIN_OK;
    }
    const int64_t batch = trainer->options.batch;
    dunlin_plan_options options = dunlin__trainer_plan_options(trainer, batch, low_bytes);
    dunlin_plan *plan = NULL;
    DUNLIN_TRY(find_plan(trainer, &options, &plan, error));
    uint64_t slice = plan != NULL ? slice_of(plan) : 1;
    const double most_ns = SLICED_SHARE * (double)top->train->cost_ns;
    options = dunlin__trainer_plan_options(trainer, batch, top->arena_bytes);
    options.is_slice_fixed = true;
    for (bool is_found = false; !is_found && slice < slice_of(top->train); slice *= 2) {
        dunlin__plan_destroy(plan);
        options.slice_samples = slice;
        DUNLIN_TRY(find_plan(trainer, &options, &plan, error));
        is_found = plan != NULL && (double)plan->cost_ns <= most_ns;
    }
    if (plan == NULL || (double)plan->cost_ns > most_ns ||
        plan->arena_bytes >= top->train->arena_bytes) {
        dunlin__plan_destroy(plan);
        return DUNLIN_OK;
    }
    dunlin__plan_destroy(top->train);
    top->train = plan;
    top->arena_bytes =
        plan->arena_bytes > top->infer->arena_bytes ? plan->arena_bytes : top->infer->arena_bytes;
    trainer->train.plan = plan;
    trainer->arena_bytes = top->arena_bytes;
    return DUNLIN_OK;
}

/* Inference within the smallest plan's arena, where training in the largest plan needs no more. */
static dunlin_status shrink_infer(dunlin_trainer *trainer, uint64_t low_bytes, dunlin_error *error)
{
    dunlin_fallback *top = &trainer->ladder->fallbacks[0];
    if (top->train->arena_bytes > low_bytes || top->infer->arena_bytes <= low_bytes) {
        return DUNLIN_OK;
    }
    dunlin_plan *infer = NULL;
    DUNLIN_TRY(
        dunlin__trainer_plan_infer(trainer, trainer->options.batch, low_bytes, &infer, error));
    dunlin__plan_destroy(top->infer);
    top->infer = infer;
    trainer->infer.plan = infer;
    const uint64_t train_bytes = top->train->arena_bytes;
    top->arena_bytes = infer->arena_bytes > train_bytes ? infer->arena_bytes : train_bytes;
    trainer->arena_bytes = top->arena_bytes;
    return DUNLIN_OK;
}

/* Arenas from the largest to the smallest, each the same part of the one before. */
static dunlin_status add_fallbacks(dunlin_trainer *trainer, dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    uint64_t low = 0;
    DUNLIN_TRY(find_low(trainer, &low, error));
    DUNLIN_TRY(slice_top(trainer, low, error));
    DUNLIN_TRY(shrink_infer(trainer, low, error));
    const double high = (double)ladder->fallbacks[0].train->arena_bytes;
    for (int i = 1; i < DUNLIN_LADDER_MAX_FALLBACKS && (double)low < high; i++) {
        const double share = (double)i / (DUNLIN_LADDER_MAX_FALLBACKS - 1);
        const bool is_last = i == DUNLIN_LADDER_MAX_FALLBACKS - 1;
        DUNLIN_TRY(add_fallback(
            trainer, is_last ? low : (uint64_t)(high * pow((double)low / high, share)), error));
    }
    return DUNLIN_OK;
}

/* Plans that keep the same tensors keep them at the same addresses: from the smallest plan up, each
 * like that one and, where possible, like the next smaller one. */
static dunlin_status align_fallbacks(dunlin_trainer *trainer, dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    const dunlin_mem_graph *graph = &trainer->train.lowered.graph;
    const dunlin_plan *lowest = ladder->fallbacks[ladder->n_fallbacks - 1].train;
    for (uint32_t i = ladder->n_fallbacks - 1; i > 0; i--) {
        dunlin_fallback *fallback = &ladder->fallbacks[i - 1];
        const uint64_t own = fallback->train->arena_bytes;
        uint64_t most = (uint64_t)(ALIGNED_SHARE * (double)own);
        if (i > 1 && most >= ladder->fallbacks[i - 2].train->arena_bytes) {
            most = ladder->fallbacks[i - 2].train->arena_bytes - DUNLIN_MEM_ALIGN;
        }
        if (i == 1 && trainer->options.slab != NULL) {
            most = own;
        }
        if (i == 1 && trainer->options.budget_bytes != 0) {
            const uint64_t room = trainer->options.budget_bytes - trainer->counter.now_bytes;
            most = most < room ? most : room;
        }
        const dunlin_plan *const others[] = {lowest, ladder->fallbacks[i].train};
        DUNLIN_TRY(dunlin__plan_align(graph, fallback->train, others, others[1] != lowest ? 2 : 1,
                                      most, error));
        fallback->arena_bytes = fallback->train->arena_bytes > fallback->infer->arena_bytes
                                    ? fallback->train->arena_bytes
                                    : fallback->infer->arena_bytes;
    }
    trainer->arena_bytes = ladder->fallbacks[0].arena_bytes;
    return DUNLIN_OK;
}

static dunlin_status open_entries(dunlin_trainer *trainer, dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    const dunlin_mem_graph *graph = &trainer->train.lowered.graph;
    dunlin_switch_sizes sizes = {.n_steps = 0};
    for (uint32_t i = 0; i < ladder->n_fallbacks; i++) {
        dunlin__switch_measure(ladder->fallbacks[i].train, &sizes);
        if (ladder->fallbacks[i].alike != NULL) {
            dunlin__switch_measure(ladder->fallbacks[i].alike, &sizes);
        }
    }
    dunlin__ladder_close_entries(ladder);
    for (size_t i = 0; i < sizeof ladder->entries / sizeof ladder->entries[0]; i++) {
        DUNLIN_TRY(dunlin__switch_open(graph, &sizes, &trainer->counter.hooks, &ladder->entries[i],
                                       error));
    }
    return DUNLIN_OK;
}

/* Plans the smallest fallback again, or one below the only plan, if the tables made since then
 * leave less than it was made for. */
static dunlin_status fit_bottom(dunlin_trainer *trainer, bool *out_is_changed, dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    dunlin_fallback *last = &ladder->fallbacks[ladder->n_fallbacks - 1];
    const uint64_t asked = trainer->options.least_budget_bytes;
    const uint64_t total = trainer->counter.now_bytes + last->arena_bytes;
    if (total <= asked || total - asked >= last->arena_bytes) {
        return DUNLIN_OK;
    }
    const uint64_t wanted = last->arena_bytes - (total - asked);
    const uint64_t least = ladder->least_arena_bytes;
    const uint64_t arena_bytes = wanted > least ? wanted : least;
    if (arena_bytes >= last->arena_bytes) {
        return DUNLIN_OK;
    }
    *out_is_changed = true;
    if (ladder->n_fallbacks == 1 && last->train->arena_bytes <= arena_bytes) {
        return shrink_infer(trainer, arena_bytes, error);
    }
    if (ladder->n_fallbacks > 1) {
        dunlin__fallback_free(last);
        ladder->n_fallbacks--;
    }
    return add_fallback(trainer, arena_bytes, error);
}

/* Shrinks the largest and the smallest plan until they fit their budgets with all tables. */
static dunlin_status fit_ends(dunlin_trainer *trainer, dunlin_error *error)
{
    dunlin_ladder *ladder = trainer->ladder;
    const uint64_t budget = trainer->options.budget_bytes;
    for (int i = 0; i < MAX_FITS; i++) {
        bool is_changed = false;
        DUNLIN_TRY(open_entries(trainer, error));
        DUNLIN_TRY(fit_bottom(trainer, &is_changed, error));
        const uint64_t total = trainer->counter.now_bytes + trainer->arena_bytes;
        if (budget != 0 && total > budget) {
            DUNLIN_TRY(dunlin__trainer_replan(trainer, error));
            dunlin__plan_destroy(ladder->fallbacks[0].alike);
            ladder->fallbacks[0] = (dunlin_fallback){.train = trainer->train.plan,
                                                     .infer = trainer->infer.plan,
                                                     .arena_bytes = trainer->arena_bytes};
            is_changed = true;
        }
        if (!is_changed) {
            return DUNLIN_OK;
        }
    }
    DUNLIN_TRY(open_entries(trainer, error));
    const uint64_t total = trainer->counter.now_bytes + trainer->arena_bytes;
    return budget == 0 || total <= budget ? DUNLIN_OK
                                          : dunlin__fail_budget(error, "trainer", budget, total);
}

/* All fallback plans: those from the cache, or new ones. */
static dunlin_status find_fallbacks(dunlin_trainer *trainer, dunlin_error *error)
{
    const bool has_cache = trainer->options.cache_dir != NULL;
    const uint64_t key = has_cache ? dunlin__ladder_cache_key(trainer) : 0;
    if (has_cache && dunlin__ladder_cache_load(trainer, key)) {
        trainer->ladder->is_kept = true;
        return open_entries(trainer, error);
    }
    DUNLIN_TRY(add_fallbacks(trainer, error));
    DUNLIN_TRY(fit_ends(trainer, error));
    DUNLIN_TRY(align_fallbacks(trainer, error));
    if (has_cache) {
        dunlin__ladder_cache_save(trainer, key);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__ladder_make(dunlin_trainer *trainer, dunlin_error *error)
{
    const dunlin_alloc *alloc = &trainer->counter.hooks;
    dunlin_ladder *ladder = dunlin__alloc_zeroed(alloc, 1, sizeof *ladder);
    const uint32_t n_ops = trainer->train.lowered.graph.n_ops;
    uint64_t *n_taken = dunlin__alloc_zeroed(alloc, n_ops, sizeof *n_taken);
    if (ladder == NULL || n_taken == NULL) {
        dunlin__free_array(alloc, ladder, 1, sizeof *ladder);
        dunlin__free_array(alloc, n_taken, n_ops, sizeof *n_taken);
        return dunlin__fail(error, DUNLIN_MEMORY, "trainer", 0,
                            "no memory for plans of smaller budgets");
    }
    ladder->control.n_taken = n_taken;
    atomic_init(&ladder->is_asked, false);
    (void)pthread_mutex_init(&ladder->lock, NULL);
    (void)pthread_cond_init(&ladder->resumed, NULL);
    trainer->ladder = ladder;
    ladder->fallbacks[0] = (dunlin_fallback){.train = trainer->train.plan,
                                             .infer = trainer->infer.plan,
                                             .arena_bytes = trainer->arena_bytes};
    ladder->n_fallbacks = 1;
    DUNLIN_TRY(find_fallbacks(trainer, error));
    ladder->top_bytes = trainer->options.budget_bytes;
    ladder->budget_bytes = ladder->top_bytes;
    ladder->asked_bytes = ladder->top_bytes;
    return DUNLIN_OK;
}
