/*
 * forms.c - which form of the training graph a trainer takes: residual sums read backward through
 * their terms, or as they were stored.
 *
 * Reading terms frees sums early and costs nothing, but where tensors are recomputed, backward ops
 * then ask for two of them. So the form with terms is planned first; where its plan costs more than
 * the plain step, the other one is planned too, and the one with the less predicted time is taken.
 *
 * Invariant: what is taken is what that form alone would get under the same budget: the second is
 * planned beside the first only while both fit into the limit, and else one after the other, each
 * from nothing; planning is repeatable. The least budget is the smaller of both forms' least. All
 * fallback plans are of one form: that of the first budget, unless only the other comes as low as
 * the lowest budget, or lower where neither does.
 */
#include "forms.h"

#include "budget.h"
#include "cache.h"
#include "prepare.h"
#include "step/context/context.h"
#include "step/run/clock.h"

#include <mem/support.h>

/* The outcome of planning one form. */
typedef struct outcome {
    dunlin_status status;
    uint64_t cost_ns;
    dunlin_error error;
} outcome;

/* A form with its plans, while another is planned. */
typedef struct aside {
    dunlin_step_form form;
    dunlin_program train;
    dunlin_plan *infer_plan;
    dunlin_swap *swap;
    uint64_t train_bytes;
    uint64_t arena_bytes;
} aside;

static dunlin_step_form other_than(dunlin_step_form form)
{
    return form == DUNLIN_FORM_TERMS ? DUNLIN_FORM_SUMS : DUNLIN_FORM_TERMS;
}

/* The current graph has another form, which may be taken. */
static bool has_other(const dunlin_trainer *trainer)
{
    return !trainer->is_form_fixed && trainer->train.step != NULL &&
           (trainer->form == DUNLIN_FORM_SUMS || trainer->train.step->reads_terms);
}

static aside put_aside(dunlin_trainer *trainer)
{
    const aside put = {.form = trainer->form,
                       .train = trainer->train,
                       .infer_plan = trainer->infer.plan,
                       .swap = trainer->swap,
                       .train_bytes = trainer->train_bytes,
                       .arena_bytes = trainer->arena_bytes};
    trainer->aside_bytes =
        put.train_bytes + put.train.plan->table_bytes + put.infer_plan->table_bytes;
    trainer->train = (dunlin_program){.step = NULL};
    trainer->infer.plan = NULL;
    trainer->swap = NULL;
    trainer->train_bytes = 0;
    trainer->arena_bytes = 0;
    return put;
}

/* Restores a form in place of the current one. */
static void take_back(dunlin_trainer *trainer, const aside *put)
{
    dunlin__trainer_unprepare_train(trainer);
    dunlin__plan_destroy(trainer->infer.plan);
    trainer->form = put->form;
    trainer->train = put->train;
    trainer->infer.plan = put->infer_plan;
    trainer->swap = put->swap;
    trainer->train_bytes = put->train_bytes;
    trainer->arena_bytes = put->arena_bytes;
    trainer->aside_bytes = 0;
}

static void drop(dunlin_trainer *trainer, aside *put)
{
    if (put->swap != NULL) {
        put->swap->free_fn(put->swap);
    }
    dunlin__program_free(&put->train);
    dunlin__plan_destroy(put->infer_plan);
    trainer->aside_bytes = 0;
}

/* In this form, from nothing. */
static void plan_in(dunlin_trainer *trainer, const dunlin_net *net, dunlin_step_form form,
                    outcome *out)
{
    *out = (outcome){.cost_ns = UINT64_MAX};
    dunlin__error_clear(&out->error);
    trainer->form = form;
    out->status = dunlin__budget_plan(trainer, net, &out->error);
    if (out->status == DUNLIN_OK) {
        out->cost_ns = trainer->train.plan->cost_ns;
    }
}

/* Nothing is recomputed, and there are no slices but those asked for. */
static bool is_plain(const dunlin_trainer *trainer)
{
    const dunlin_trainer_options *options = &trainer->options;
    const dunlin_plan *plan = trainer->train.plan;
    uint64_t slice = plan->batch;
    if (options->micro_batch > 0 && (uint64_t)options->micro_batch < slice &&
        (options->policy == DUNLIN_POLICY_MICROBATCH ||
         dunlin__trainer_has_fixed_slices(trainer))) {
        slice = (uint64_t)options->micro_batch;
    }
    return plan->cost_ns <=
           dunlin__graph_plain_ns(&trainer->train.lowered.graph, plan->batch, slice);
}

/*
 * Plans the other form beside the current one; the better one becomes the current one.
 * `*out_is_decided`: else the second could not be planned so, and they are to be planned one after
 * the other.
 */
static dunlin_status plan_beside(dunlin_trainer *trainer, bool *out_is_decided, dunlin_error *error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_fit fit = DUNLIN_FIT_UNKNOWN;
    aside first = put_aside(trainer);
    trainer->form = other_than(first.form);
    dunlin_status status = dunlin__trainer_prepare_train(trainer, &local);
    if (status == DUNLIN_OK) {
        status = dunlin__budget_within(trainer, &fit, &local);
    }
    *out_is_decided = status == DUNLIN_OK && fit != DUNLIN_FIT_UNKNOWN;
    if (*out_is_decided && fit == DUNLIN_FIT_FOUND &&
        trainer->train.plan->cost_ns < first.train.plan->cost_ns) {
        drop(trainer, &first);
    } else {
        take_back(trainer, &first);
    }
    if (status != DUNLIN_OK && status != DUNLIN_MEMORY) {
        *error = local;
        return status;
    }
    return DUNLIN_OK;
}

static bool is_better(const outcome *second, const outcome *first)
{
    return second->status == DUNLIN_OK &&
           (first->status != DUNLIN_OK || second->cost_ns < first->cost_ns);
}

/* The other form from nothing; then, if it was the better one, the first again. */
static dunlin_status plan_after(dunlin_trainer *trainer, const dunlin_net *net, outcome *first,
                                dunlin_error *error)
{
    outcome second;
    const dunlin_step_form form = trainer->form;
    plan_in(trainer, net, other_than(form), &second);
    const outcome *taken = &second;
    if (!is_better(&second, first)) {
        taken = first;
        if (first->status == DUNLIN_OK) {
            plan_in(trainer, net, form, first);
        }
    }
    *error = taken->error;
    return taken->status;
}

/* --- the least --- */

/* The smaller of both forms' least budgets; the trainer is left in that form. */
static dunlin_status find_least(dunlin_trainer *trainer, const dunlin_net *net, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__budget_least(trainer, net, error));
    if (!has_other(trainer)) {
        return DUNLIN_OK;
    }
    const dunlin_step_form form = trainer->form;
    const uint64_t first = trainer->least_budget_bytes;
    trainer->form = other_than(form);
    DUNLIN_TRY(dunlin__budget_least(trainer, net, error));
    if (first < trainer->least_budget_bytes) {
        trainer->least_budget_bytes = first;
        trainer->form = form;
    }
    return DUNLIN_OK;
}

/* The smallest arena in the current form. */
static dunlin_status least_arena(const dunlin_trainer *trainer, uint64_t *out_bytes,
                                 dunlin_error *error)
{
    const dunlin_plan_options options =
        dunlin__trainer_plan_options(trainer, trainer->options.batch, 0);
    return dunlin__plan_least_bytes(&trainer->train.lowered.graph, &options, out_bytes, error);
}

/* --- planning, and what is said where nothing fits --- */

/* The plan that the least budget has, in its form: searches within more memory can miss what one
 * within less has found. The budget stays what it is. */
static dunlin_status plan_in_least(dunlin_trainer *trainer, const dunlin_net *net,
                                   dunlin_error *error)
{
    const uint64_t budget = trainer->options.budget_bytes;
    outcome made;
    trainer->options.budget_bytes = trainer->least_budget_bytes;
    plan_in(trainer, net, trainer->form, &made);
    trainer->options.budget_bytes = budget;
    trainer->counter.limit_bytes = budget;
    *error = made.error;
    return made.status;
}

static bool may_be_too_small(const dunlin_trainer *trainer, dunlin_status status)
{
    return trainer->options.budget_bytes != 0 &&
           (status == DUNLIN_BUDGET || status == DUNLIN_MEMORY);
}

static dunlin_status plan_best(dunlin_trainer *trainer, const dunlin_net *net, dunlin_error *error)
{
    outcome first;
    plan_in(trainer, net, trainer->is_form_fixed ? trainer->form : DUNLIN_FORM_TERMS, &first);
    const bool is_planned = first.status == DUNLIN_OK;
    if ((!is_planned && !may_be_too_small(trainer, first.status)) || !has_other(trainer)) {
        *error = first.error;
        return first.status;
    }
    if (is_planned) {
        bool is_decided = is_plain(trainer);
        if (!is_decided && dunlin__budget_is_used(&trainer->options)) {
            DUNLIN_TRY(plan_beside(trainer, &is_decided, error));
        }
        if (is_decided) {
            return DUNLIN_OK;
        }
    }
    return plan_after(trainer, net, &first, error);
}

/* The limit, or the application's hooks or slab? The least budget, for which no limit holds, tells;
 * it is the smaller of both forms'. */
static dunlin_status plan_forms(dunlin_trainer *trainer, const dunlin_net *net, dunlin_error *error)
{
    const dunlin_status status = plan_best(trainer, net, error);
    if (trainer->is_trial || !may_be_too_small(trainer, status)) {
        return status;
    }
    dunlin_error local = {.status = DUNLIN_OK};
    trainer->counter.limit_bytes = 0;
    const dunlin_status found = find_least(trainer, net, &local);
    if (found != DUNLIN_OK) {
        *error = local;
        return found;
    }
    return trainer->least_budget_bytes <= trainer->options.budget_bytes
               ? plan_in_least(trainer, net, error)
               : dunlin__budget_fail(trainer, trainer->least_budget_bytes, error);
}

/* For fallback plans: the other form if this one does not come as low as is asked for and that one
 * comes lower. A failure here changes nothing; making the fallback plans will report it. */
static dunlin_status reach_lowest(dunlin_trainer *trainer, const dunlin_net *net,
                                  dunlin_error *error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    const dunlin_step_form form = trainer->form;
    const uint64_t lowest = trainer->options.least_budget_bytes;
    uint64_t own = 0;
    uint64_t others = 0;
    outcome made;
    if (lowest == 0 || !has_other(trainer) || least_arena(trainer, &own, &local) != DUNLIN_OK ||
        trainer->counter.now_bytes + own <= lowest) {
        return DUNLIN_OK;
    }
    const aside first = put_aside(trainer);
    trainer->form = other_than(form);
    dunlin_status status = dunlin__trainer_prepare_train(trainer, &local);
    if (status == DUNLIN_OK) {
        status = least_arena(trainer, &others, &local);
    }
    take_back(trainer, &first);
    if (status != DUNLIN_OK || others >= own) {
        return DUNLIN_OK;
    }
    plan_in(trainer, net, other_than(form), &made);
    if (made.status != DUNLIN_OK) {
        plan_in(trainer, net, form, &made);
    }
    *error = made.error;
    return made.status;
}

/* --- with kept plans --- */

static dunlin_cache_options cache_options(const dunlin_trainer *trainer)
{
    const int64_t batch = trainer->options.batch;
    return (dunlin_cache_options){
        .train = dunlin__trainer_plan_options(trainer, batch, trainer->options.budget_bytes),
        .infer = {.batch = (uint64_t)batch,
                  .policy = DUNLIN_PLAN_AUTO,
                  .alloc = trainer->counter.hooks},
        .key = trainer->cache_key,
    };
}

static void keep(const dunlin_trainer *trainer)
{
    const dunlin_cache_options options = cache_options(trainer);
    dunlin__cache_save(trainer, &options);
}

/* Plans that were kept, if they are right and within the budget. `*out_may_keep`: there are none,
 * or none that can be used. */
static bool plan_from_cache(dunlin_trainer *trainer, const dunlin_net *net, bool *out_may_keep)
{
    dunlin_error local = {.status = DUNLIN_OK};
    *out_may_keep = false;
    if (dunlin__trainer_prepare(trainer, net, &local) != DUNLIN_OK) {
        return false;
    }
    dunlin_cache_options options = cache_options(trainer);
    options.key = dunlin__cache_key(trainer, &options);
    trainer->cache_key = options.key;
    const dunlin_status status = dunlin__cache_load(trainer, &options);
    *out_may_keep = status != DUNLIN_MEMORY;
    trainer->is_plan_kept = status == DUNLIN_OK && dunlin__budget_holds(trainer);
    return trainer->is_plan_kept;
}

dunlin_status dunlin__trainer_find_least(dunlin_trainer *trainer, dunlin_error *error)
{
    dunlin_trainer *other = NULL;
    if (trainer->least_budget_bytes != 0) {
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__trainer_make(&trainer->options, &other, error));
    other->is_form_fixed = trainer->is_form_fixed;
    other->form = trainer->is_form_fixed ? trainer->form : DUNLIN_FORM_TERMS;
    const dunlin_status status = find_least(other, &trainer->net, error);
    trainer->least_budget_bytes = other->least_budget_bytes;
    /* A plan was found within this budget, though the search for the least one found a larger
     * number. */
    const uint64_t budget = trainer->options.budget_bytes;
    if (budget != 0 && budget < trainer->least_budget_bytes) {
        trainer->least_budget_bytes = budget;
    }
    dunlin_trainer_destroy(other);
    if (status == DUNLIN_OK && trainer->cache_key != 0 && trainer->ladder == NULL) {
        keep(trainer);
    }
    return status;
}

dunlin_status dunlin__batch_least(const dunlin_net *net, const dunlin_trainer_options *options,
                                  int64_t batch, uint64_t *out_bytes, dunlin_error *error)
{
    dunlin_trainer_options one = *options;
    dunlin_trainer *trainer = NULL;
    one.batch = batch;
    one.budget_bytes = 0;
    one.least_budget_bytes = 0;
    one.cache_dir = NULL;
    DUNLIN_TRY(dunlin__trainer_make(&one, &trainer, error));
    const dunlin_status status = find_least(trainer, net, error);
    *out_bytes = trainer->least_budget_bytes;
    dunlin_trainer_destroy(trainer);
    return status;
}

dunlin_status dunlin__trainer_plan(dunlin_trainer *trainer, const dunlin_net *net,
                                   dunlin_error *error)
{
    const double start_ms = dunlin__clock_ms();
    const bool has_cache = trainer->options.cache_dir != NULL;
    bool may_keep = false;
    trainer->counter.limit_bytes = trainer->options.budget_bytes;
    if (!has_cache || !plan_from_cache(trainer, net, &may_keep)) {
        DUNLIN_TRY(plan_forms(trainer, net, error));
        DUNLIN_TRY(reach_lowest(trainer, net, error));
        if (may_keep && trainer->train.plan != NULL && trainer->infer.plan != NULL) {
            keep(trainer);
        }
    }
    trainer->plan_ms = dunlin__clock_ms() - start_ms;
    return DUNLIN_OK;
}
