/*
 * budget.c - plans of a trainer in one form within its budget, and the least budget that works.
 *
 * Invariant: first a plan within the budget is looked for. Where none is found, nor with what is
 * left of the budget while it plans, the *least* attempt is made, always the same for a network,
 * its options, the form and the hooks: the plan with the smallest arena. The least budget is what
 * that plan needs; where looking for it takes more than that, it is the smallest budget within
 * which a search finds a plan, as near as halving finds it. So create succeeds at exactly the least
 * budget and at every larger one (and below it where the search has found a plan after all).
 */
#include "budget.h"

#include "prepare.h"
#include "step/context/context.h"
#include "step/swap/baselines.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>

#define MAX_TRIES 4
#define N_PARTS 32 /* of what planning takes above its plan, how near the least is found */

static void drop_plans(dunlin_trainer *trainer)
{
    dunlin__plan_destroy(trainer->train.plan);
    trainer->train.plan = NULL;
    dunlin__plan_destroy(trainer->infer.plan);
    trainer->infer.plan = NULL;
    trainer->arena_bytes = 0;
}

static dunlin_plan_policy plan_policy(const dunlin_trainer_options *options)
{
    switch (options->policy) {
    case DUNLIN_POLICY_NONE:
        return DUNLIN_PLAN_NONE;
    case DUNLIN_POLICY_POOL:
        return DUNLIN_PLAN_POOL;
    case DUNLIN_POLICY_MICROBATCH:
        return DUNLIN_PLAN_MICROBATCH;
    case DUNLIN_POLICY_IDEAL:
        return DUNLIN_PLAN_IDEAL;
    case DUNLIN_POLICY_RECOMPUTE:
        return DUNLIN_PLAN_RECOMPUTE;
    case DUNLIN_POLICY_SGC:
        return DUNLIN_PLAN_SGC;
    case DUNLIN_POLICY_SAGE:
        return DUNLIN_PLAN_SAGE;
    case DUNLIN_POLICY_MELON:
        return DUNLIN_PLAN_MELON;
    case DUNLIN_POLICY_SUBLINEAR:
        return DUNLIN_PLAN_SUBLINEAR;
    case DUNLIN_POLICY_WHOLE:
        return DUNLIN_PLAN_WHOLE;
    case DUNLIN_POLICY_VDNN:
        return DUNLIN_PLAN_VDNN;
    case DUNLIN_POLICY_CAPUCHIN:
        return DUNLIN_PLAN_CAPUCHIN;
    case DUNLIN_POLICY_AUTO:
        break;
    }
    return DUNLIN_PLAN_AUTO;
}

bool dunlin__budget_is_used(const dunlin_trainer_options *options)
{
    switch (options->policy) {
    case DUNLIN_POLICY_NONE:
    case DUNLIN_POLICY_POOL:
    case DUNLIN_POLICY_IDEAL:
    case DUNLIN_POLICY_SUBLINEAR:
        return false;
    case DUNLIN_POLICY_MICROBATCH:
        return options->micro_batch == 0;
    case DUNLIN_POLICY_RECOMPUTE:
    case DUNLIN_POLICY_SGC:
    case DUNLIN_POLICY_SAGE:
    case DUNLIN_POLICY_MELON:
    case DUNLIN_POLICY_WHOLE:
    case DUNLIN_POLICY_VDNN:
    case DUNLIN_POLICY_CAPUCHIN:
    case DUNLIN_POLICY_AUTO:
        break;
    }
    return true;
}

bool dunlin__trainer_has_fixed_slices(const dunlin_trainer *trainer)
{
    return trainer->train.step->n_ghost_norms > 0 && trainer->options.micro_batch > 0;
}

dunlin_plan_options dunlin__trainer_plan_options(const dunlin_trainer *trainer, int64_t batch,
                                                 uint64_t arena_bytes)
{
    const int64_t micro_batch = trainer->options.micro_batch;
    const dunlin_baselines *baselines = trainer->options.baselines;
    return (dunlin_plan_options){
        .batch = (uint64_t)batch,
        .budget_bytes = arena_bytes,
        .slice_samples = (uint64_t)(micro_batch < batch ? micro_batch : batch),
        .is_slice_fixed = dunlin__trainer_has_fixed_slices(trainer),
        .policy = plan_policy(&trainer->options),
        .baseline_fn = baselines == NULL ? NULL : baselines->plan_fn,
        .alloc = trainer->counter.hooks,
    };
}

/* Inference takes the arena that training has; if even single samples do not fit, what it needs. */
dunlin_status dunlin__trainer_plan_infer(dunlin_trainer *trainer, int64_t batch,
                                         uint64_t train_bytes, dunlin_plan **out_plan,
                                         dunlin_error *error)
{
    *out_plan = NULL;
    dunlin_plan_options options = {
        .batch = (uint64_t)batch,
        .budget_bytes = train_bytes,
        .policy = DUNLIN_PLAN_AUTO,
        .alloc = trainer->counter.hooks,
    };
    dunlin_error local = {.status = DUNLIN_OK};
    const dunlin_mem_graph *graph = &trainer->infer.lowered.graph;
    dunlin_plan *plan = NULL;
    dunlin_status status = dunlin__plan_create(graph, &options, &plan, &local);
    if (status == DUNLIN_BUDGET) {
        options.budget_bytes = local.needed_bytes;
        status = dunlin__plan_create(graph, &options, &plan, &local);
    }
    if (status != DUNLIN_OK || plan == NULL) {
        *error = local;
        return status != DUNLIN_OK ? status : DUNLIN_INTERNAL;
    }
    *out_plan = plan;
    return DUNLIN_OK;
}

/* The training plan is this one; inference is planned beside it. */
static dunlin_status take_plan(dunlin_trainer *trainer, int64_t batch, dunlin_plan *plan,
                               dunlin_error *error)
{
    trainer->train.plan = plan;
    DUNLIN_TRY(
        dunlin__trainer_plan_infer(trainer, batch, plan->arena_bytes, &trainer->infer.plan, error));
    const uint64_t infer_bytes = trainer->infer.plan->arena_bytes;
    trainer->arena_bytes = infer_bytes > plan->arena_bytes ? infer_bytes : plan->arena_bytes;
    return DUNLIN_OK;
}

/* Both plans, the training one within so many bytes of arena (0: no limit). */
static dunlin_status plan_both(dunlin_trainer *trainer, int64_t batch, uint64_t arena_bytes,
                               dunlin_error *error)
{
    drop_plans(trainer);
    const dunlin_plan_options options = dunlin__trainer_plan_options(trainer, batch, arena_bytes);
    dunlin_plan *plan = NULL;
    const dunlin_status status =
        dunlin__plan_create(&trainer->train.lowered.graph, &options, &plan, error);
    return plan == NULL ? status : take_plan(trainer, batch, plan, error);
}

/* The op that finishes the sums which the barrier waits for: it bears the batch norm's name. */
static const char *finish_before(const dunlin_mem_graph *graph, uint32_t barrier)
{
    for (uint32_t i = barrier < graph->n_ops ? barrier : 0; i > 0; i--) {
        if (graph->ops[i - 1].parts == DUNLIN_MEM_FIXED) {
            return graph->ops[i - 1].name;
        }
    }
    return "";
}

/* UNSUPPORTED: slices were asked for, and batch norm forbids them. */
static dunlin_status fail_slices(const dunlin_trainer *trainer, int64_t batch, dunlin_error *error)
{
    uint32_t barrier = 0;
    const dunlin_mem_graph *graph = &trainer->train.lowered.graph;
    (void)dunlin__graph_is_sliceable(graph, &barrier);
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "trainer", 0,
                        "slices of %" PRId64 " of %" PRId64
                        " samples: batch norm takes its statistics over the whole batch "
                        "(\"%.60s\") but with ghost statistics, or if it is frozen",
                        trainer->options.micro_batch, batch, finish_before(graph, barrier));
}

/* Both plans with the smallest arena; `is_quick`: with that of the fixed attempts. */
static dunlin_status plan_least(dunlin_trainer *trainer, int64_t batch, bool is_quick,
                                dunlin_error *error)
{
    drop_plans(trainer);
    dunlin_plan_options options = dunlin__trainer_plan_options(trainer, batch, 0);
    options.is_least_quick = is_quick;
    uint64_t least = 0;
    dunlin_plan *plan = NULL;
    const dunlin_mem_graph *graph = &trainer->train.lowered.graph;
    const dunlin_status status = dunlin__plan_create_least(graph, &options, &least, &plan, error);
    if (status == DUNLIN_UNSUPPORTED) {
        return fail_slices(trainer, batch, error);
    }
    DUNLIN_TRY(status);
    return plan == NULL ? plan_both(trainer, batch, least, error)
                        : take_plan(trainer, batch, plan, error);
}

/* What is taken, but for what is put aside. */
static uint64_t own_bytes(const dunlin_trainer *trainer)
{
    return trainer->counter.now_bytes - trainer->aside_bytes;
}

static dunlin_status total_bytes(const dunlin_trainer *trainer, uint64_t *out_bytes,
                                 dunlin_error *error)
{
    if (!dunlin__add_u64(own_bytes(trainer), trainer->arena_bytes, out_bytes)) {
        return dunlin__fail(error, DUNLIN_OVERFLOW, "trainer", 0,
                            "the bytes of a step do not fit into 64 bits");
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__trainer_least_budget(dunlin_trainer *trainer, int64_t batch,
                                           uint64_t *out_bytes, dunlin_error *error)
{
    const uint64_t peak_before = trainer->counter.peak_bytes;
    DUNLIN_TRY(plan_least(trainer, batch, true, error));
    uint64_t total = 0;
    DUNLIN_TRY(total_bytes(trainer, &total, error));
    const uint64_t peak = trainer->counter.peak_bytes;
    *out_bytes = total > peak ? total : peak;
    /* The next question is about another batch. */
    drop_plans(trainer);
    trainer->counter.peak_bytes = peak_before;
    return DUNLIN_OK;
}

/* The plan with the smallest arena, from nothing, and what it takes while it is made and in the
 * end (least_budget_bytes); `is_quick` as for plan_least(). */
static dunlin_status attempt_least_arena(dunlin_trainer *trainer, const dunlin_net *net,
                                         bool is_quick, uint64_t *out_bytes, dunlin_error *error)
{
    dunlin__trainer_unprepare(trainer);
    trainer->counter.peak_bytes = trainer->counter.now_bytes;
    DUNLIN_TRY(dunlin__trainer_prepare(trainer, net, error));
    DUNLIN_TRY(plan_least(trainer, trainer->options.batch, is_quick, error));
    DUNLIN_TRY(total_bytes(trainer, out_bytes, error));
    trainer->least_budget_bytes =
        *out_bytes > trainer->counter.peak_bytes ? *out_bytes : trainer->counter.peak_bytes;
    return DUNLIN_OK;
}

/*
 * The plan that takes the least, from nothing. A search for a smaller arena may find one whose plan
 * has tables that are larger by more, or take more itself while it looks, than the fixed attempts:
 * the smaller of both counts, so the least budget is not above what they take.
 */
static dunlin_status attempt_least(dunlin_trainer *trainer, const dunlin_net *net,
                                   uint64_t *out_bytes, dunlin_error *error)
{
    uint64_t quick = UINT64_MAX;
    if (trainer->options.policy == DUNLIN_POLICY_AUTO) {
        dunlin_error local = {.status = DUNLIN_OK};
        if (attempt_least_arena(trainer, net, true, out_bytes, &local) == DUNLIN_OK) {
            quick = trainer->least_budget_bytes;
        }
    }
    const dunlin_status status = attempt_least_arena(trainer, net, false, out_bytes, error);
    const bool is_kept = status == DUNLIN_OK && trainer->least_budget_bytes <= quick;
    const bool is_too_small = status == DUNLIN_MEMORY || status == DUNLIN_BUDGET;
    if (quick == UINT64_MAX || is_kept || (status != DUNLIN_OK && !is_too_small)) {
        return status;
    }
    dunlin__error_clear(error);
    return attempt_least_arena(trainer, net, true, out_bytes, error);
}

dunlin_status dunlin__budget_fail(const dunlin_trainer *trainer, uint64_t least_bytes,
                                  dunlin_error *error)
{
    const uint64_t given_bytes = trainer->options.budget_bytes;
    uint32_t barrier = 0;
    const dunlin_mem_graph *graph = &trainer->train.lowered.graph;
    if (dunlin__graph_is_sliceable(graph, &barrier) ||
        trainer->options.policy == DUNLIN_POLICY_AUTO) {
        return dunlin__fail_budget(error, "trainer", given_bytes, least_bytes);
    }
    (void)dunlin__fail(
        error, DUNLIN_BUDGET, "trainer", 0,
        "a budget of %" PRIu64 " bytes is too small: the least that works is %" PRIu64
        " bytes, for the whole batch of %" PRId64
        ": batch norm couples its samples (\"%.60s\") but with ghost statistics",
        given_bytes, least_bytes, trainer->options.batch, finish_before(graph, barrier));
    error->needed_bytes = least_bytes;
    return DUNLIN_BUDGET;
}

static dunlin_status check_slab(const dunlin_trainer *trainer, dunlin_error *error)
{
    const dunlin_trainer_options *options = &trainer->options;
    if (options->slab == NULL || trainer->arena_bytes <= options->slab_bytes) {
        return DUNLIN_OK;
    }
    (void)dunlin__fail(error, DUNLIN_BUDGET, "trainer", 0,
                       "a slab of %" PRIu64 " bytes is too small: the least that works is %" PRIu64
                       " bytes",
                       options->slab_bytes, trainer->arena_bytes);
    error->needed_bytes = trainer->arena_bytes;
    return DUNLIN_BUDGET;
}

static uint64_t table_bytes_of(const dunlin_plan *plan)
{
    return plan == NULL ? 0 : plan->table_bytes;
}

/* What is taken beside the arena and the plans. */
static uint64_t unplanned_bytes(const dunlin_trainer *trainer)
{
    return own_bytes(trainer) - table_bytes_of(trainer->train.plan) -
           table_bytes_of(trainer->infer.plan);
}

/* What has to be left open beside the tables so that the next plan is lower by what this one is too
 * high: it need not have used all that it was given. `room` is the budget without tables. */
static uint64_t more_slack(const dunlin_trainer *trainer, uint64_t room, uint64_t slack,
                           uint64_t total)
{
    const uint64_t budget = trainer->options.budget_bytes;
    const uint64_t over = total > budget ? total - budget : DUNLIN_MEM_ALIGN;
    const uint64_t unused =
        room - slack > trainer->arena_bytes ? room - slack - trainer->arena_bytes : 0;
    return slack + unused + over;
}

/* Tables depend a little on the plan, so what they take is found by trying. */
dunlin_status dunlin__budget_within(dunlin_trainer *trainer, dunlin_fit *out_fit,
                                    dunlin_error *error)
{
    const dunlin_trainer_options *options = &trainer->options;
    const uint64_t budget = options->budget_bytes;
    const uint64_t table_bytes = unplanned_bytes(trainer);
    uint64_t slack = 0;
    *out_fit = DUNLIN_FIT_UNKNOWN;
    for (int i = 0; i < MAX_TRIES; i++) {
        uint64_t arena_bytes = 0;
        if (budget != 0) {
            if (table_bytes + slack >= budget) {
                break;
            }
            arena_bytes = budget - table_bytes - slack;
        }
        if (options->slab != NULL && (arena_bytes == 0 || arena_bytes > options->slab_bytes)) {
            arena_bytes = options->slab_bytes;
        }
        dunlin_error local = {.status = DUNLIN_OK};
        const dunlin_status status = plan_both(trainer, options->batch, arena_bytes, &local);
        if (status != DUNLIN_OK && trainer->counter.limit_bytes == 0 && status != DUNLIN_BUDGET) {
            *error = local;
            return status;
        }
        /* With nothing left open for tables, the smallest arena is too large. */
        if (i == 0 && status == DUNLIN_BUDGET) {
            *out_fit = DUNLIN_FIT_NONE;
        }
        uint64_t total = 0;
        if (status != DUNLIN_OK || total_bytes(trainer, &total, &local) != DUNLIN_OK) {
            break;
        }
        if ((budget == 0 || total <= budget) && check_slab(trainer, &local) == DUNLIN_OK) {
            *out_fit = DUNLIN_FIT_FOUND;
            return DUNLIN_OK;
        }
        slack = budget == 0 ? slack : more_slack(trainer, budget - table_bytes, slack, total);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__trainer_replan(dunlin_trainer *trainer, dunlin_error *error)
{
    dunlin_fit fit = DUNLIN_FIT_UNKNOWN;
    DUNLIN_TRY(dunlin__budget_within(trainer, &fit, error));
    return fit == DUNLIN_FIT_FOUND ? DUNLIN_OK
                                   : plan_least(trainer, trainer->options.batch, false, error);
}

/* A plan within the budget, from nothing. */
static dunlin_status attempt_within(dunlin_trainer *trainer, const dunlin_net *net,
                                    dunlin_fit *out_fit, dunlin_error *error)
{
    *out_fit = DUNLIN_FIT_UNKNOWN;
    dunlin__trainer_unprepare(trainer);
    DUNLIN_TRY(dunlin__trainer_prepare(trainer, net, error));
    return dunlin__budget_within(trainer, out_fit, error);
}

/* Is there a plan within so many bytes, all that planning takes included? */
static dunlin_status works_within(dunlin_trainer *trainer, const dunlin_net *net, uint64_t bytes,
                                  bool *out_works, dunlin_error *error)
{
    const uint64_t budget = trainer->options.budget_bytes;
    const uint64_t limit = trainer->counter.limit_bytes;
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_fit fit = DUNLIN_FIT_UNKNOWN;
    dunlin__trainer_unprepare(trainer);
    trainer->counter.peak_bytes = trainer->counter.now_bytes;
    trainer->options.budget_bytes = bytes;
    trainer->counter.limit_bytes = bytes;
    const dunlin_status status = attempt_within(trainer, net, &fit, &local);
    trainer->options.budget_bytes = budget;
    trainer->counter.limit_bytes = limit;
    *out_works = status == DUNLIN_OK && fit == DUNLIN_FIT_FOUND;
    if (status != DUNLIN_OK && status != DUNLIN_MEMORY) {
        *error = local;
        return status;
    }
    return DUNLIN_OK;
}

/*
 * Where looking for the smallest arena takes more than its plan does (`plan_bytes`), a search that
 * is held to less may still find a plan: the smallest budget with which it does, by halving, as
 * near as one part in N_PARTS of the difference.
 */
static dunlin_status search_least(dunlin_trainer *trainer, const dunlin_net *net,
                                  uint64_t plan_bytes, uint64_t *in_out_bytes, dunlin_error *error)
{
    uint64_t works = *in_out_bytes;
    uint64_t fails = plan_bytes - 1;
    const uint64_t near = (works - fails) / N_PARTS + 1;
    while (works - fails > near) {
        const uint64_t middle = fails + (works - fails) / 2;
        bool is_found = false;
        DUNLIN_TRY(works_within(trainer, net, middle, &is_found, error));
        *(is_found ? &works : &fails) = middle;
    }
    *in_out_bytes = works;
    return DUNLIN_OK;
}

dunlin_status dunlin__budget_least(dunlin_trainer *trainer, const dunlin_net *net,
                                   dunlin_error *error)
{
    uint64_t plan_bytes = 0;
    DUNLIN_TRY(attempt_least(trainer, net, &plan_bytes, error));
    uint64_t least = trainer->least_budget_bytes;
    if (least > plan_bytes && dunlin__budget_is_used(&trainer->options)) {
        DUNLIN_TRY(search_least(trainer, net, plan_bytes, &least, error));
        DUNLIN_TRY(attempt_least(trainer, net, &plan_bytes, error));
        trainer->least_budget_bytes = least;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__budget_plan(dunlin_trainer *trainer, const dunlin_net *net,
                                  dunlin_error *error)
{
    const uint64_t budget = trainer->options.budget_bytes;
    trainer->counter.limit_bytes = budget;
    trainer->least_budget_bytes = 0;
    if (dunlin__budget_is_used(&trainer->options)) {
        dunlin_fit fit = DUNLIN_FIT_UNKNOWN;
        const dunlin_status status = attempt_within(trainer, net, &fit, error);
        if (fit == DUNLIN_FIT_FOUND || (status == DUNLIN_MEMORY && budget == 0)) {
            return status;
        }
        if (trainer->is_trial && (status == DUNLIN_OK || status == DUNLIN_MEMORY)) {
            return dunlin__fail_budget(error, "trainer", budget, 0);
        }
        dunlin__error_clear(error); /* the least attempt says what is wrong */
    }
    uint64_t plan_bytes = 0;
    DUNLIN_TRY(attempt_least(trainer, net, &plan_bytes, error));
    const uint64_t taken = trainer->least_budget_bytes;
    trainer->least_budget_bytes = 0;
    if (budget != 0 && taken > budget) {
        return dunlin__budget_fail(trainer, taken, error);
    }
    return check_slab(trainer, error);
}

bool dunlin__budget_holds(const dunlin_trainer *trainer)
{
    const uint64_t budget = trainer->options.budget_bytes;
    dunlin_error local = {.status = DUNLIN_OK};
    uint64_t total = 0;
    return total_bytes(trainer, &total, &local) == DUNLIN_OK && (budget == 0 || total <= budget) &&
           check_slab(trainer, &local) == DUNLIN_OK;
}
