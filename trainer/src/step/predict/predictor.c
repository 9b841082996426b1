/*
 * predictor.c - inference without a trainer: the graph of an evaluation, its plan, an arena with
 * the weights.
 *
 * Invariant: a handle that was handed out holds a verified plan, an arena that it fits in, and
 * finite weights; all that it owns is within the budget. No call but create allocates.
 */
#include "step/context/context.h"
#include "step/context/examples.h"
#include "step/run/layout.h"

#include <dunlin/predictor.h>
#include <mem/checked.h>
#include <mem/platform.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>

#define MAX_TRIES 4
#define MAX_THREADS 256

struct dunlin_predictor {
    dunlin_alloc base;
    dunlin_alloc_counter counter; /* over `base`: this struct and all tables; not the arena */
    dunlin_predictor_options options;
    dunlin_net net; /* a copy */
    const dunlin_kernels *kernels;
    dunlin_threads workers;
    dunlin_threads *threads; /* those; NULL: serial */
    dunlin_program program;
    dunlin_arena arena;
    atomic_bool is_at_work;
};

/* --- life --- */

static dunlin_status take_options(const dunlin_predictor_options *from,
                                  dunlin_predictor_options *out, dunlin_error *error)
{
    *out = (dunlin_predictor_options){.struct_size = sizeof *out};
    if (from != NULL) {
        DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_predictor_options, from, out, error));
    }
    out->batch = out->batch == 0 ? 1 : out->batch;
    out->n_threads = out->n_threads == 0 ? 1 : out->n_threads;
    if (out->batch < 1 || out->batch > DUNLIN_TRAINER_MAX_BATCH) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "predictor", 0,
                            "option batch is %" PRId64 "; it must be 1 to 2^30", out->batch);
    }
    if (out->n_threads < 1 || out->n_threads > MAX_THREADS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "predictor", 0,
                            "option n_threads is %" PRId32 "; it must be 0 to %d", out->n_threads,
                            MAX_THREADS);
    }
    if ((out->alloc.alloc_fn == NULL) != (out->alloc.free_fn == NULL)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "predictor", 0,
                            "option alloc has no %s; it takes both functions or none",
                            out->alloc.alloc_fn == NULL ? "alloc_fn" : "free_fn");
    }
    return DUNLIN_OK;
}

static dunlin_status build(dunlin_predictor *predictor, const dunlin_net *net, dunlin_error *error)
{
    const dunlin_alloc *hooks = &predictor->counter.hooks;
    const dunlin_status status = dunlin__net_copy(net, hooks, &predictor->net);
    if (status != DUNLIN_OK) {
        dunlin__net_init(&predictor->net, hooks);
        return dunlin__fail(error, status, "predictor", 0,
                            "no %s for a copy of the network of %zu nodes",
                            status == DUNLIN_MEMORY ? "memory" : "descriptor", net->n_nodes);
    }
    const dunlin_step_build_options options = {
        .mode = DUNLIN_EMIT_INFER,
        .is_fused = true,
        .loss = DUNLIN_LOSS_CROSS_ENTROPY,
        .has_first_output_alone = true,
    };
    dunlin_program *program = &predictor->program;
    DUNLIN_TRY(dunlin__step_build(&predictor->net, &options, hooks, &program->step, error));
    return dunlin__lower(program->step, predictor->kernels, (size_t)predictor->options.n_threads,
                         false, hooks, &program->lowered, error);
}

static dunlin_status fail_budget(const dunlin_predictor *predictor, uint64_t needed,
                                 dunlin_error *error)
{
    const dunlin_status status =
        dunlin__fail(error, DUNLIN_BUDGET, "predictor", 0,
                     "a predictor of this network takes %" PRIu64 " bytes; the budget is %" PRIu64,
                     needed, predictor->options.budget_bytes);
    if (error != NULL) {
        error->needed_bytes = needed;
    }
    return status;
}

/* A plan that takes at most `arena_bytes` (0: no limit); where none is found, *out_needed is what
 * an arena has to have. */
static dunlin_status plan_within(dunlin_predictor *predictor, uint64_t arena_bytes,
                                 uint64_t *out_needed, dunlin_error *error)
{
    const dunlin_plan_options options = {
        .batch = (uint64_t)predictor->options.batch,
        .budget_bytes = arena_bytes,
        .policy = DUNLIN_PLAN_AUTO,
        .alloc = predictor->counter.hooks,
    };
    dunlin_error local = {.status = DUNLIN_OK};
    dunlin__plan_destroy(predictor->program.plan);
    predictor->program.plan = NULL;
    const dunlin_status status = dunlin__plan_create(&predictor->program.lowered.graph, &options,
                                                     &predictor->program.plan, &local);
    *out_needed = local.needed_bytes;
    if (status != DUNLIN_OK && status != DUNLIN_BUDGET && error != NULL) {
        *error = local;
    }
    return status;
}

/* The tables depend a little on the plan, so what they leave of the budget is found by trying. */
static dunlin_status plan(dunlin_predictor *predictor, dunlin_error *error)
{
    const uint64_t budget = predictor->options.budget_bytes;
    const uint64_t table_bytes = predictor->counter.now_bytes;
    uint64_t needed = 0;
    if (budget == 0) {
        return plan_within(predictor, 0, &needed, error);
    }
    uint64_t least = table_bytes;
    uint64_t arena_bytes = budget > table_bytes ? budget - table_bytes : 1;
    for (int i = 0; i < MAX_TRIES; i++) {
        const dunlin_status status = plan_within(predictor, arena_bytes, &needed, error);
        if (status == DUNLIN_BUDGET) {
            /* What would do, with the tables of the plan that takes it. */
            DUNLIN_TRY(plan_within(predictor, needed, &needed, error));
            least = predictor->program.plan->arena_bytes + predictor->counter.now_bytes;
            return least <= budget ? DUNLIN_OK : fail_budget(predictor, least, error);
        }
        DUNLIN_TRY(status);
        least = predictor->program.plan->arena_bytes + predictor->counter.now_bytes;
        if (least <= budget) {
            return DUNLIN_OK;
        }
        const uint64_t over = least - budget;
        arena_bytes = arena_bytes > over ? arena_bytes - over : 1;
    }
    return fail_budget(predictor, least, error);
}

static dunlin_status open_arena(dunlin_predictor *predictor, dunlin_error *error)
{
    const dunlin_predictor_options *options = &predictor->options;
    const dunlin_arena_source source = {.hooks = options->alloc};
    const uint64_t bytes = predictor->program.plan->arena_bytes;
    DUNLIN_TRY(dunlin__arena_open(&source, bytes, bytes, &predictor->arena, error));
    if (options->n_threads > 1) {
        if (!dunlin__threads_open(&predictor->workers, (size_t)options->n_threads)) {
            return dunlin__fail(error, DUNLIN_MEMORY, "predictor", 0,
                                "%" PRId32 " threads could not be started", options->n_threads);
        }
        predictor->threads = &predictor->workers;
    }
    DUNLIN_TRY(dunlin__program_init_weights(&predictor->program, &predictor->net, 0, bytes,
                                            &predictor->arena, error));
    dunlin__net_drop_store(&predictor->net);
    dunlin__exec_poison_pool(&predictor->program, &predictor->arena);
    return DUNLIN_OK;
}

static dunlin_status open_all(dunlin_predictor *predictor, const dunlin_model *model,
                              dunlin_error *error)
{
    DUNLIN_TRY(dunlin__select_kernels(predictor->options.isa, &predictor->kernels, error));
    predictor->options.isa = NULL;
    DUNLIN_TRY(build(predictor, &model->net, error));
    DUNLIN_TRY(plan(predictor, error));
    dunlin__heap_give_back(); /* what planning took, before the arena is touched */
    return open_arena(predictor, error);
}

dunlin_status dunlin_predictor_create(const dunlin_model *model,
                                      const dunlin_predictor_options *options,
                                      dunlin_predictor **out_predictor, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (out_predictor != NULL) {
        *out_predictor = NULL;
    }
    if (model == NULL || out_predictor == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "predictor", 0, "%s is NULL",
                            model == NULL ? "model" : "out_predictor");
    }
    dunlin_predictor_options taken;
    DUNLIN_TRY(take_options(options, &taken, out_error));
    const dunlin_alloc base = dunlin__alloc_or_default(&taken.alloc);
    dunlin_predictor *predictor = dunlin__alloc_zeroed(&base, 1, sizeof *predictor);
    if (predictor == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "predictor", 0, "no memory for a predictor");
    }
    predictor->base = base;
    predictor->options = taken;
    dunlin_alloc_counter_init(&predictor->counter, &base);
    predictor->counter.now_bytes = sizeof *predictor;
    dunlin__net_init(&predictor->net, &predictor->counter.hooks);
    atomic_init(&predictor->is_at_work, false);
    const dunlin_status status = open_all(predictor, model, out_error);
    if (status != DUNLIN_OK) {
        dunlin_predictor_destroy(predictor);
        return status;
    }
    *out_predictor = predictor;
    return DUNLIN_OK;
}

void dunlin_predictor_destroy(dunlin_predictor *predictor)
{
    if (predictor == NULL) {
        return;
    }
    if (predictor->arena.base != NULL) {
        dunlin__arena_close(&predictor->arena);
    }
    dunlin__threads_close(&predictor->workers);
    dunlin__program_free(&predictor->program);
    dunlin__net_free(&predictor->net);
    const dunlin_alloc base = predictor->base;
    dunlin__free_array(&base, predictor, 1, sizeof *predictor);
}

/* --- calls --- */

static dunlin_status enter(dunlin_predictor *predictor, dunlin_error *error)
{
    dunlin__error_clear(error);
    if (predictor == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "predictor", 0, "predictor is NULL");
    }
    if (atomic_exchange(&predictor->is_at_work, true)) {
        return dunlin__fail(error, DUNLIN_STATE, "predictor", 0,
                            "another call is at work on this predictor");
    }
    return DUNLIN_OK;
}

static dunlin_status leave(dunlin_predictor *predictor, dunlin_status status)
{
    atomic_store(&predictor->is_at_work, false);
    return status;
}

static dunlin_status check_predict(const dunlin_predictor *predictor, const dunlin_source *source,
                                   int64_t first, int64_t n, const float *out_outputs,
                                   dunlin_error *error)
{
    DUNLIN_TRY(dunlin__examples_check(source, predictor->program.step, "predictor", error));
    if (source->read_fn == NULL && source->read_arrays_fn == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "predictor", 0,
                            "the source has read_targets_fn alone; a predictor takes read_fn");
    }
    if (first < 0 || n < 1 || first > source->n_examples || n > source->n_examples - first) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "predictor", 0,
                            "examples %" PRId64 " + %" PRId64 " of the source's %" PRId64
                            " are asked for",
                            first, n, source->n_examples);
    }
    if (out_outputs == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "predictor", 0, "out_outputs is NULL");
    }
    return DUNLIN_OK;
}

static dunlin_status predict(dunlin_predictor *predictor, const dunlin_source *source,
                             int64_t first, int64_t n, float *out_outputs, dunlin_error *error)
{
    DUNLIN_TRY(check_predict(predictor, source, first, n, out_outputs, error));
    const int64_t batch = predictor->options.batch;
    dunlin_error local = {.status = DUNLIN_OK};
    for (int64_t done = 0; done < n; done += batch) {
        dunlin_step_trace trace = {.largest_example = -1};
        const int64_t n_now = n - done < batch ? n - done : batch;
        const dunlin_step_run run = {
            .kernels = predictor->kernels,
            .threads = predictor->threads,
            .source = source,
            .first_index = first + done,
            .logits = out_outputs +
                      done * predictor->program.step->n_rows * predictor->program.step->n_classes,
            .n_batch = n_now,
            .trace = &trace,
            .error = error != NULL ? error : &local,
        };
        if (source->step_fn != NULL) {
            source->step_fn(source->ctx, -1);
        }
        DUNLIN_TRY(dunlin__exec(&predictor->program, &predictor->arena, NULL, &run));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_predictor_predict(dunlin_predictor *predictor, const dunlin_source *source,
                                       int64_t first, int64_t n, float *out_outputs,
                                       dunlin_error *out_error)
{
    DUNLIN_TRY(enter(predictor, out_error));
    dunlin_source taken = DUNLIN_SOURCE_INIT;
    dunlin_status status = DUNLIN_STRUCT_TAKE(dunlin_source, source, &taken, out_error);
    if (status == DUNLIN_OK) {
        status = predict(predictor, &taken, first, n, out_outputs, out_error);
    }
    return leave(predictor, status);
}

static dunlin_status set_weights(dunlin_predictor *predictor, dunlin_weights_kind kind,
                                 int64_t first, int64_t n, const float *values, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__flat_check(&predictor->net, kind, first, n, values, error));
    DUNLIN_TRY(dunlin__flat_check_finite("the weights", n, values, error));
    for (int64_t done = 0; done < n;) {
        const dunlin_flat_piece piece =
            dunlin__flat_piece(&predictor->net, kind, first + done, n - done);
        float *floats = dunlin__program_floats(&predictor->program, &predictor->arena,
                                               predictor->program.step->params[piece.param].tensor);
        dunlin__layout_store(&predictor->net.params[piece.param], floats, piece.first, piece.n,
                             values + done);
        done += piece.n;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_predictor_set_weights(dunlin_predictor *predictor, dunlin_weights_kind kind,
                                           int64_t first, int64_t n, const float *values,
                                           dunlin_error *out_error)
{
    DUNLIN_TRY(enter(predictor, out_error));
    return leave(predictor, set_weights(predictor, kind, first, n, values, out_error));
}

int64_t dunlin_predictor_n_weights(const dunlin_predictor *predictor, dunlin_weights_kind kind)
{
    return dunlin__flat_count(&predictor->net, kind);
}

dunlin_status dunlin_predictor_get_report(const dunlin_predictor *predictor,
                                          dunlin_predictor_report *out_report)
{
    if (predictor == NULL) {
        return DUNLIN_ARGUMENT;
    }
    DUNLIN_TRY(dunlin__struct_check(out_report, "dunlin_predictor_report", NULL));
    const dunlin_plan *plan = predictor->program.plan;
    dunlin_predictor_report report = {
        .struct_size = sizeof report,
        .budget_bytes = predictor->options.budget_bytes,
        .planned_bytes = plan->arena_bytes + predictor->counter.now_bytes,
        .weights_bytes = plan->persistent_bytes,
        .activations_bytes = plan->arena_bytes - plan->persistent_bytes,
        .tables_bytes = predictor->counter.now_bytes,
        .batch = predictor->options.batch,
        .predicted_ms = (double)plan->cost_ns * 1e-6,
        .isa = predictor->kernels->isa,
    };
    for (uint32_t i = 0; i < plan->n_loops; i++) {
        const int64_t slice = (int64_t)plan->loops[i].slice_samples;
        report.micro_batch = slice > report.micro_batch ? slice : report.micro_batch;
    }
    dunlin__struct_give(&report, sizeof report, out_report);
    return DUNLIN_OK;
}
