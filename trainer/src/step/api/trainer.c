/*
 * trainer.c - creates, reports and destroys a trainer: plans are made, the arena is opened, weights
 * are loaded; estimate does the same without the arena.
 *
 * Invariant: a handle that was handed out holds two verified plans, an arena that both fit in, and
 * finite weights.
 */
#include "graph/narrow.h"
#include "integer/precision.h"
#include "scales.h"
#include "step/adapt/ladder.h"
#include "step/context/context.h"
#include "step/context/guard.h"
#include "step/context/options.h"
#include "step/context/rungs.h"
#include "step/plan/budget.h"
#include "step/plan/forms.h"
#include "step/run/layout.h"
#include "weights.h"

#include <dunlin/trainer_advanced.h>
#include <mem/platform.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

static dunlin_status open_arena(dunlin_trainer *trainer, dunlin_error *error)
{
    const dunlin_trainer_options *options = &trainer->options;
    const dunlin_arena_source source = {
        .slab = options->slab,
        .slab_bytes = options->slab_bytes,
        .hooks = options->alloc,
        .trim_fn = options->trim_fn,
        .trim_ctx = options->trim_ctx,
    };
    DUNLIN_TRY(dunlin__arena_open(&source, trainer->arena_bytes, trainer->arena_bytes,
                                  &trainer->arena, error));
    if (options->n_threads > 1) {
        if (!dunlin__threads_open(&trainer->workers, (size_t)options->n_threads)) {
            return dunlin__fail(error, DUNLIN_MEMORY, "trainer", 0,
                                "%" PRId32 " threads could not be started", options->n_threads);
        }
        trainer->threads = &trainer->workers;
    }
    if (trainer->swap != NULL) {
        DUNLIN_TRY(trainer->swap->begin_fn(trainer->swap, trainer->train.step, trainer->train.plan,
                                           options->swap_dir, error));
    }
    DUNLIN_TRY(dunlin__program_init_weights(&trainer->train, &trainer->net, trainer->seed,
                                            trainer->arena_bytes, &trainer->arena, error));
    dunlin__net_drop_store(&trainer->net);
    dunlin__exec_poison_pool(&trainer->train, &trainer->arena);
    return DUNLIN_OK;
}

/* What the application lent for the call alone is not looked at again; the line stays hard. */
static void seal(dunlin_trainer *trainer)
{
    trainer->options.frozen_prefixes = NULL;
    trainer->options.trained_prefixes = NULL;
    trainer->options.groups = NULL;
    trainer->options.n_groups = 0;
    trainer->options.isa = NULL;
    trainer->options.precision = NULL;
    trainer->options.grad_bits = NULL;
    trainer->options.costs = NULL;
    trainer->options.cache_dir = NULL;
    trainer->options.swap_dir = NULL;
    if (trainer->options.budget_bytes != 0) {
        trainer->counter.limit_bytes = trainer->options.budget_bytes - trainer->arena_bytes;
    }
    trainer->counter.peak_bytes = trainer->counter.now_bytes;
    if (trainer->ladder != NULL) {
        trainer->ladder->table_bytes = trainer->counter.now_bytes;
    }
}

static dunlin_status make_planned(const dunlin_model *model, const dunlin_trainer_options *options,
                                  dunlin_trainer **out_trainer, dunlin_error *error)
{
    *out_trainer = NULL;
    if (model == NULL) {
        (void)dunlin__fail(error, DUNLIN_ARGUMENT, "trainer", 0, "model is NULL");
        return DUNLIN_ARGUMENT;
    }
    dunlin_trainer *trainer = NULL;
    DUNLIN_TRY(dunlin__trainer_make(options, &trainer, error));
    dunlin_status status = dunlin__trainer_plan(trainer, &model->net, error);
    if (status == DUNLIN_OK && trainer->options.least_budget_bytes > 0) {
        status = dunlin__ladder_make(trainer, error);
    }
    if (status != DUNLIN_OK) {
        dunlin_trainer_destroy(trainer);
        return status;
    }
    *out_trainer = trainer;
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_create(const dunlin_model *model,
                                    const dunlin_trainer_options *options,
                                    dunlin_trainer **out_trainer, dunlin_error *out_error)
{
    if (out_trainer == NULL) {
        return DUNLIN_ARGUMENT;
    }
    *out_trainer = NULL;
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin__error_clear(error);
    dunlin_trainer *trainer = NULL;
    DUNLIN_TRY(make_planned(model, options, &trainer, error));
    dunlin__heap_give_back(); /* what planning took, before the arena is touched */
    const dunlin_status status = open_arena(trainer, error);
    if (status != DUNLIN_OK) {
        dunlin_trainer_destroy(trainer);
        return status;
    }
    seal(trainer);
    dunlin__log(&trainer->options.log, DUNLIN_LOG_INFO, "trainer",
                "%zu parameters, batch %" PRId64 ", arena %" PRIu64 " bytes, tables %" PRIu64
                " bytes, %s, planned in %.1f ms",
                trainer->net.n_params, trainer->options.batch, trainer->arena_bytes,
                trainer->counter.now_bytes, trainer->kernels->isa, trainer->plan_ms);
    *out_trainer = trainer;
    return DUNLIN_OK;
}

const dunlin_error *dunlin_trainer_last_error(const dunlin_trainer *trainer)
{
    return trainer->error;
}

dunlin_status dunlin_trainer_set_lr(dunlin_trainer *trainer, float lr)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    DUNLIN_TRY(dunlin__numbers_want_rate(trainer->precision, trainer->error));
    DUNLIN_TRY(dunlin__trainer_check_lr(lr, trainer->error));
    trainer->options.lr = lr;
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_set_schedule(dunlin_trainer *trainer, const dunlin_schedule *schedule)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    if (schedule == NULL) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0, "schedule is NULL");
    }
    DUNLIN_TRY(dunlin__numbers_want_rate(trainer->precision, trainer->error));
    dunlin_schedule taken;
    DUNLIN_TRY(dunlin__schedule_take(schedule, &taken, trainer->error));
    DUNLIN_TRY(dunlin__schedule_check(&taken, trainer->error));
    trainer->schedule = taken;
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_set_grad_bits(dunlin_trainer *trainer, const char *bits,
                                           int64_t n_steps)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    return dunlin__grad_bits_set(trainer->precision, bits, n_steps, &trainer->grad_bits,
                                 trainer->error);
}

dunlin_status dunlin_trainer_set_weight_growth(dunlin_trainer *trainer, int32_t growth)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    return dunlin__weight_growth_set(trainer->precision, growth, &trainer->weight_growth,
                                     trainer->error);
}

float dunlin_trainer_lr(const dunlin_trainer *trainer)
{
    const dunlin_trainer_options *options = &trainer->options;
    if (dunlin__precision_is_whole(trainer->precision)) {
        return 0.0F;
    }
    return (float)dunlin__schedule_rate(&trainer->schedule, (double)options->lr, trainer->step);
}

int64_t dunlin_trainer_n_steps(const dunlin_trainer *trainer)
{
    return trainer->step;
}

void dunlin_trainer_set_seed(dunlin_trainer *trainer, uint64_t seed)
{
    if (dunlin__trainer_look(trainer) == DUNLIN_OK) {
        trainer->seed = seed;
    }
}

static void fill_classes(const dunlin_trainer *trainer, dunlin_class_bytes *out)
{
    dunlin_plan_summary summary;
    dunlin__plan_summarize(&trainer->train.lowered.graph, trainer->train.plan, &summary);
    const uint64_t *bytes = summary.class_bytes;
    uint64_t sum = 0;
    for (size_t i = 0; i < DUNLIN_MEM_N_CLASSES; i++) {
        sum += bytes[i];
    }
    *out = (dunlin_class_bytes){
        .weights = bytes[DUNLIN_MEM_WEIGHT],
        .statistics = bytes[DUNLIN_MEM_STATISTIC],
        .optimizer = bytes[DUNLIN_MEM_OPTIMIZER],
        .input = bytes[DUNLIN_MEM_INPUT],
        .activations = bytes[DUNLIN_MEM_ACTIVATION],
        .saved = bytes[DUNLIN_MEM_SAVED],
        .gradients = bytes[DUNLIN_MEM_GRADIENT],
        .accumulators = bytes[DUNLIN_MEM_ACCUMULATOR],
        .workspace = bytes[DUNLIN_MEM_WORKSPACE],
        .padding = trainer->arena_bytes > sum ? trainer->arena_bytes - sum : 0,
        .tables = trainer->counter.now_bytes,
    };
}

static void fill_account(const dunlin_trainer *trainer, dunlin_trainer_report *out)
{
    const dunlin_mem_graph *graph = &trainer->train.lowered.graph;
    const bool has_fixed_slices = dunlin__trainer_has_fixed_slices(trainer);
    const uint64_t least_slice = has_fixed_slices ? (uint64_t)out->micro_batch : 1;
    dunlin_plan_account account;
    dunlin__plan_account(graph, trainer->train.plan, &account);
    out->ideal_ms = (double)account.ideal_ns * 1e-6;
    out->recompute_ms = (double)account.recompute_ns * 1e-6;
    out->floor_bytes = dunlin__graph_floor_bytes(graph, least_slice) + out->by_class.tables;
    out->kept_bytes = account.kept_bytes;
    out->remade_bytes = account.remade_bytes;
    out->n_kept = (int32_t)account.n_kept;
    out->n_remade = (int32_t)account.n_remade;
    out->n_slices = (int64_t)account.n_slices;
    out->n_ghost_norms = trainer->train.step->n_ghost_norms;
    out->is_ghost = out->n_ghost_norms > 0 && out->n_slices > 1;
    out->storage = trainer->options.storage;
    out->is_exact =
        out->storage == DUNLIN_STORAGE_EXACT && !out->is_ghost && trainer->precision == NULL;
    for (uint32_t i = 0; i < trainer->train.step->n_tensors; i++) {
        const dunlin_step_tensor *tensor = &trainer->train.step->tensors[i];
        const bool is_narrow = dunlin__narrow_is(tensor);
        out->n_narrow += is_narrow ? 1 : 0;
        out->narrow_bytes += is_narrow ? dunlin__step_tensor_bytes(tensor) : 0;
        const bool is_int8 = dunlin__narrow_is_scaled(tensor);
        out->n_int8 += is_int8 ? 1 : 0;
        out->int8_bytes += is_int8 ? dunlin__step_tensor_bytes(tensor) : 0;
    }
    out->n_swapped = (int32_t)account.n_swapped;
    out->swap_out_bytes = account.swap_out_bytes;
    out->swap_in_bytes = account.swap_in_bytes;
    out->swap_ms = (double)account.swap_ns * 1e-6;
}

static void fill_swaps(const dunlin_trainer *trainer, dunlin_trainer_report *out)
{
    out->swap_way = "";
    if (trainer->swap != NULL) {
        const dunlin_swap_file *file = &trainer->swap->file;
        out->swap_way = trainer->swap->way_fn(file);
        out->swapped_out_bytes = file->out_bytes;
        out->swapped_in_bytes = file->in_bytes;
        out->swapped_out_ms = file->out_ms;
        out->swapped_in_ms = file->in_ms;
    }
}

static void fill_report(const dunlin_trainer *trainer, dunlin_trainer_report *out)
{
    const dunlin_plan *plan = trainer->train.plan;
    const dunlin_trainer_options *options = &trainer->options;
    const uint64_t tables = trainer->counter.now_bytes;
    uint64_t slice = 0;
    uint64_t least_slice = (uint64_t)options->batch;
    int32_t n_regions = 0;
    for (uint32_t i = 0; i < plan->n_loops; i++) {
        const uint64_t own = plan->loops[i].slice_samples;
        n_regions += own > 0 ? 1 : 0;
        slice = own > slice ? own : slice;
        least_slice = own > 0 && own < least_slice ? own : least_slice;
    }
    *out = (dunlin_trainer_report){
        .struct_size = sizeof *out,
        .budget_bytes = options->budget_bytes,
        .planned_bytes = trainer->arena_bytes + tables,
        .peak_bytes = trainer->arena.base == NULL
                          ? 0
                          : trainer->arena.high_water_bytes + trainer->counter.peak_bytes,
        .lower_bound_bytes = plan->persistent_bytes + plan->pool_lower_bound_bytes + tables,
        .pool_bytes = plan->pool_bytes,
        .pool_lower_bound_bytes = plan->pool_lower_bound_bytes,
        .least_budget_bytes = trainer->least_budget_bytes,
        .batch = options->batch,
        .micro_batch = (int64_t)slice,
        .least_micro_batch = (int64_t)least_slice,
        .n_regions = n_regions,
        .n_ops = (int32_t)trainer->train.step->n_ops,
        .n_recomputed = (int32_t)plan->n_recompute_ops,
        .n_loops = (int32_t)plan->n_loops,
        .plan_ms = trainer->plan_ms,
        .policy = options->policy,
        .n_threads = options->n_threads,
        .isa = trainer->kernels->isa,
        .packing = plan->packing,
        .predicted_ms = (double)plan->cost_ns * 1e-6,
        .is_plan_kept = trainer->is_plan_kept,
        .precision = dunlin__precision_name(trainer->precision),
        .n_clipped = dunlin__scales_n_clipped(trainer),
        .moved_bytes = trainer->moved_bytes,
    };
    fill_classes(trainer, &out->by_class);
    fill_account(trainer, out);
    fill_swaps(trainer, out);
}

/* Callers built against an older, shorter struct get what fits. */
static dunlin_status hand_out_report(const dunlin_trainer *trainer, dunlin_trainer_report *out,
                                     dunlin_error *error)
{
    DUNLIN_TRY(dunlin__struct_check(out, "dunlin_trainer_report", error));
    dunlin_trainer_report report;
    fill_report(trainer, &report);
    dunlin__struct_give(&report, sizeof report, out);
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_get_report(const dunlin_trainer *trainer,
                                        dunlin_trainer_report *out_report)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    return hand_out_report(trainer, out_report, trainer->error);
}

dunlin_status dunlin_trainer_operand_bytes(const dunlin_trainer *trainer, int64_t n,
                                           uint64_t *out_bytes)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    if (out_bytes == NULL || n < 1 || n > trainer->options.batch) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "operand bytes of a step over %" PRId64
                            " examples: the limits are 1 and %" PRId64 ", and a place for them",
                            n, trainer->options.batch);
    }
    *out_bytes =
        dunlin__plan_operand_bytes(&trainer->train.lowered.graph, trainer->train.plan, (uint64_t)n);
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_estimate(const dunlin_model *model,
                                      const dunlin_trainer_options *options,
                                      dunlin_trainer_report *out_report, dunlin_error *out_error)
{
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin_error *error = out_error != NULL ? out_error : &local;
    dunlin__error_clear(error);
    dunlin_trainer *trainer = NULL;
    DUNLIN_TRY(make_planned(model, options, &trainer, error));
    dunlin_status status = dunlin__trainer_find_least(trainer, error);
    if (status == DUNLIN_OK) {
        status = hand_out_report(trainer, out_report, error);
    }
    dunlin_trainer_destroy(trainer);
    return status;
}
