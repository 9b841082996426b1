/*
 * update.c - what happens to one parameter when its gradient is complete: the application's hook,
 * clipping, the optimiser. One op, so that the gradient's live range ends with it.
 *
 * With clipping by the global norm it is two: the hook and the gradient's squares at once, the
 * update when the norm of all is known. The squares of one parameter are added to those of the
 * ones before it, op by op, so their order is that of the graph.
 *
 * Invariant: nothing after the update reads the gradient; the hook may change it in place. A
 * parameter and its state are written whole and finite, or not at all: then the step ends. With
 * clipping by the global norm it ends before the first update if any gradient is not finite.
 */
#include "graph/emit.h"
#include "integer/precision.h"
#include "kernels/simd/finite.h"

#include <mem/support.h>

#include <math.h>

typedef struct update_params {
    const char *name; /* the parameter's, the graph's copy */
    int64_t n_elements;
    int64_t n_rows, width; /* of a table whose gradient is kept by rows; n_rows 0: it is dense */
    int32_t param_index;
    int32_t momentum_operand; /* -1: none */
    int32_t square_operand;
    int32_t rows_operand;   /* what is known of rows */
    int32_t factor_operand; /* what the global norm leaves of the gradient */
    int32_t before_operand; /* the sum of the squares of those before */
    int32_t sum_operand;
    int32_t first_slot_operand;
    int32_t n_slots;
    int32_t kept_bits; /* of a weight within +-1; 0: float32 */
    bool has_hook;
    bool is_decoupled;
    float lr_factor, decay_factor; /* its group's */
} update_params;

static double rate_of(const dunlin_kernel_call *call)
{
    const update_params *params = call->params;
    return (double)call->run->lr * (double)params->lr_factor;
}

static double decay_of(const dunlin_kernel_call *call)
{
    const update_params *params = call->params;
    return (double)call->run->weight_decay * (double)params->decay_factor;
}

static void run_hook(const dunlin_kernel_call *call, float *gradient, const float *weights)
{
    const update_params *params = call->params;
    const dunlin_step_run *run = call->run;
    if (run->gradient_fn == NULL || !params->has_hook) {
        return;
    }
    float *slots[DUNLIN_STEP_MAX_SLOTS] = {NULL, NULL, NULL, NULL};
    for (int32_t s = 0; s < params->n_slots; s++) {
        slots[s] = call->operands[params->first_slot_operand + s];
    }
    run->gradient_fn(run->gradient_ctx, params->param_index, params->n_elements, weights, gradient,
                     slots);
}

static float clip_limit(const dunlin_step_run *run)
{
    return run->clip_value > 0.0F ? run->clip_value : INFINITY;
}

/* Where the gradient's values are; of a gradient by rows also the rest of it. */
static float *take_values(const dunlin_kernel_call *call, dunlin_update_rows *out_rows)
{
    const update_params *params = call->params;
    const dunlin_step_run *run = call->run;
    if (params->n_rows == 0) {
        return call->operands[0];
    }
    const dunlin_row_sums sums = dunlin__row_sums_at(call->operands[0], params->n_rows);
    const bool has_rows = params->rows_operand >= 0;
    /* Adam divides a mean of zero by eps. */
    const bool is_defined = params->square_operand < 0 || (float)run->eps > 0.0F;
    *out_rows =
        (dunlin_update_rows){.width = params->width,
                             .slots = sums.slots,
                             .states = has_rows ? call->operands[params->rows_operand] : NULL,
                             .may_skip = (float)decay_of(call) == 0.0F && is_defined};
    return sums.values;
}

static bool run_adam(const dunlin_kernel_call *call, const dunlin_update_gradient *gradient,
                     const dunlin_update_rows *rows)
{
    const update_params *params = call->params;
    const dunlin_step_run *run = call->run;
    const double t = (double)run->step + 1.0;
    return run->kernels->adam(&(dunlin_adam_call){
        .n = params->n_elements,
        .weights = call->operands[1],
        .mean = call->operands[params->momentum_operand],
        .square = call->operands[params->square_operand],
        .gradient = *gradient,
        .rows = rows,
        .lr = rate_of(call),
        .beta1 = run->beta1,
        .beta2 = run->beta2,
        .eps = run->eps,
        .weight_decay = decay_of(call),
        .correction1 = 1.0 - pow(run->beta1, t),
        .correction2 = 1.0 - pow(run->beta2, t),
        .is_decoupled = params->is_decoupled,
        .threads = run->threads,
    });
}

static bool run_sgd(const dunlin_kernel_call *call, const dunlin_update_gradient *gradient,
                    const dunlin_update_rows *rows)
{
    const update_params *params = call->params;
    const dunlin_step_run *run = call->run;
    return run->kernels->sgd(&(dunlin_sgd_call){
        .n = params->n_elements,
        .weights = call->operands[1],
        .momentum = params->momentum_operand >= 0 ? call->operands[params->momentum_operand] : NULL,
        .gradient = *gradient,
        .rows = rows,
        .lr = (float)rate_of(call),
        .momentum_factor = run->momentum,
        .weight_decay = (float)decay_of(call),
        .is_nesterov = run->is_nesterov,
        .threads = run->threads,
    });
}

/* Gradients that there are: all, or those of a table's slots. */
static int64_t n_gradients(const dunlin_kernel_call *call)
{
    const update_params *params = call->params;
    return params->n_rows == 0
               ? params->n_elements
               : *dunlin__row_sums_at(call->operands[0], params->n_rows).n * params->width;
}

/* To the grid of so many bits within +-1; 24 of them a float holds. */
static void keep_bits(int32_t bits, int64_t n, float *weights)
{
    const double unit = ldexp(1.0, 1 - bits);
    const double most = 1.0 - unit;
    for (int64_t i = 0; i < n; i++) {
        const double w = rint((double)weights[i] / unit) * unit;
        weights[i] = (float)(w > most ? most : w < -most ? -most : w);
    }
}

/* operands: gradient, weights, state of the optimiser, of rows, factor, slots */
static dunlin_status run_update(const dunlin_kernel_call *call)
{
    const update_params *params = call->params;
    const dunlin_step_run *run = call->run;
    if (run->is_calibrating) {
        return DUNLIN_OK;
    }
    run_hook(call, call->operands[0], call->operands[1]);
    dunlin_update_rows table;
    dunlin_update_gradient gradient = {
        .values = take_values(call, &table), .limit = clip_limit(run), .factor = 1.0F};
    const dunlin_update_rows *rows = params->n_rows > 0 ? &table : NULL;
    if (params->factor_operand >= 0) {
        gradient.factor = (float)*(const double *)call->operands[params->factor_operand];
    }
    if (params->square_operand >= 0 ? run_adam(call, &gradient, rows)
                                    : run_sgd(call, &gradient, rows)) {
        if (params->kept_bits > 0) {
            keep_bits(params->kept_bits, params->n_elements, call->operands[1]);
        }
        dunlin__run_note_change(run);
        return DUNLIN_OK;
    }
    const int64_t n = n_gradients(call);
    const bool is_of_gradient = finite_count(gradient.values, n) < n;
    return dunlin__run_not_finite(run, is_of_gradient ? "the gradient of" : "the update of",
                                  params->name);
}

static const dunlin_step_kernel update_kernel = {.name = "update",
                                                 .run_fn = run_update,
                                                 .parts = DUNLIN_MEM_FIXED,
                                                 .in_place_write = -1,
                                                 .in_place_read = -1};

/* --- the global norm --- */

static int64_t square_blocks(int64_t n_elements)
{
    return (n_elements + DUNLIN_SQUARE_BLOCK - 1) / DUNLIN_SQUARE_BLOCK;
}

static uint64_t squares_workspace(const dunlin_kernels *kernels, const void *params,
                                  size_t n_threads, uint64_t *out_sample_bytes)
{
    const update_params *of = params;
    (void)kernels;
    (void)n_threads;
    *out_sample_bytes = 0;
    return (uint64_t)square_blocks(of->n_elements) * sizeof(double);
}

/* operands: gradient, weights, slots, the sum before this one if there is any, the sum with it */
static dunlin_status run_squares(const dunlin_kernel_call *call)
{
    const update_params *params = call->params;
    const dunlin_step_run *run = call->run;
    if (run->is_calibrating) { /* no update follows that would look at it */
        *(double *)call->operands[params->sum_operand] = 0.0;
        return DUNLIN_OK;
    }
    run_hook(call, call->operands[0], call->operands[1]);
    double *blocks = call->workspace;
    const float *values = params->n_rows == 0
                              ? call->operands[0]
                              : dunlin__row_sums_at(call->operands[0], params->n_rows).values;
    const int64_t n = n_gradients(call);
    run->kernels->square_sums(n, values, clip_limit(run), blocks, run->threads);
    double sum = 0.0;
    const int64_t n_blocks = square_blocks(n);
    for (int64_t i = 0; i < n_blocks; i++) {
        sum += blocks[i];
    }
    if (!isfinite(sum)) {
        return dunlin__run_not_finite(run, "the gradient of", params->name);
    }
    if (params->before_operand >= 0) {
        sum += *(const double *)call->operands[params->before_operand];
    }
    *(double *)call->operands[params->sum_operand] = sum;
    return DUNLIN_OK;
}

static const dunlin_step_kernel squares_kernel = {.name = "squares",
                                                  .run_fn = run_squares,
                                                  .parts = DUNLIN_MEM_FIXED,
                                                  .in_place_write = -1,
                                                  .in_place_read = -1,
                                                  .workspace_fn = squares_workspace};

/* operands: sum of all squares, factor of all gradients */
static dunlin_status run_clip(const dunlin_kernel_call *call)
{
    const dunlin_step_run *run = call->run;
    const double norm = sqrt(*(const double *)call->operands[0]);
    if (!isfinite(norm)) {
        return dunlin__fail(run->error, DUNLIN_NUMERIC, "step", 0,
                            "the norm of the gradients of step %lld is not finite (%f)",
                            (long long)run->step, norm);
    }
    const double factor = (double)run->clip_norm / (norm + 1e-6);
    *(double *)call->operands[1] = factor < 1.0 ? factor : 1.0;
    return DUNLIN_OK;
}

static const dunlin_step_kernel clip_kernel = {.name = "clip_norm",
                                               .run_fn = run_clip,
                                               .parts = DUNLIN_MEM_FIXED,
                                               .in_place_write = -1,
                                               .in_place_read = -1};

/* --- emitting --- */

#define MAX_UPDATE_ACCESSES (7 + DUNLIN_STEP_MAX_SLOTS)

/* An op under construction on one parameter. */
typedef struct update_draft {
    update_params params;
    dunlin_mem_access accesses[MAX_UPDATE_ACCESSES];
    uint32_t n;
} update_draft;

static int32_t add_access(update_draft *draft, uint32_t tensor, dunlin_mem_mode mode)
{
    if (tensor == DUNLIN_STEP_NONE) {
        return -1;
    }
    draft->accesses[draft->n] =
        (dunlin_mem_access){.tensor = tensor, .mode = (uint8_t)mode, .parts = DUNLIN_MEM_FIXED};
    return (int32_t)draft->n++;
}

static void begin_draft(const dunlin_emit *emit, uint32_t param, uint32_t gradient,
                        dunlin_mem_mode weights_mode, update_draft *draft)
{
    *draft = (update_draft){.params = {.name = dunlin__emit_param_name(emit, param),
                                       .n_elements = emit->net->params[param].n_elements,
                                       .param_index = (int32_t)param,
                                       .momentum_operand = -1,
                                       .square_operand = -1,
                                       .rows_operand = -1,
                                       .factor_operand = -1,
                                       .before_operand = -1,
                                       .sum_operand = -1}};
    if (emit->params[param].n_slots > 0) {
        draft->params.n_rows = emit->net->params[param].shape.dims[0];
        draft->params.width = emit->net->params[param].shape.dims[1];
    }
    (void)add_access(draft, gradient, DUNLIN_MEM_READ);
    (void)add_access(draft, emit->graph->params[param].tensor, weights_mode);
}

static void add_hook(const dunlin_emit *emit, uint32_t param, update_draft *draft)
{
    const dunlin_step_param *step_param = &emit->graph->params[param];
    draft->params.has_hook = draft->params.n_rows == 0;
    draft->params.first_slot_operand = (int32_t)draft->n;
    for (size_t s = 0; s < DUNLIN_STEP_MAX_SLOTS; s++) {
        draft->params.n_slots +=
            add_access(draft, step_param->slots[s], DUNLIN_MEM_UPDATE) >= 0 ? 1 : 0;
    }
}

static void emit_draft(dunlin_emit *emit, uint32_t param, const update_draft *draft,
                       const dunlin_step_kernel *kernel, const char *suffix)
{
    const char *node_name = emit->node_name;
    emit->node_name = emit->net->params[param].name;
    dunlin__emit_run(emit,
                     &(dunlin_emit_op){.kernel = kernel,
                                       .suffix = suffix,
                                       .params = &draft->params,
                                       .params_bytes = sizeof draft->params,
                                       .accesses = draft->accesses,
                                       .n_accesses = draft->n,
                                       .flops_fixed = 4.0 * (double)draft->params.n_elements});
    emit->node_name = node_name;
}

/* Of the weights of products alone. */
static int32_t kept_bits_of(const dunlin_emit *emit, uint32_t param)
{
    const dunlin_precision *precision = emit->options->precision;
    for (size_t i = 0; precision != NULL && i < emit->net->n_nodes; i++) {
        const dunlin_net_node *node = &emit->net->nodes[i];
        if (dunlin__emit_is_product(emit, node) && node->params[0] == param) {
            return precision->products->update_bits;
        }
    }
    return 0;
}

static void emit_optimizer(dunlin_emit *emit, uint32_t param, uint32_t gradient, uint32_t factor)
{
    const dunlin_step_param *step_param = &emit->graph->params[param];
    update_draft draft;
    begin_draft(emit, param, gradient, DUNLIN_MEM_UPDATE, &draft);
    draft.params.momentum_operand = add_access(&draft, step_param->momentum, DUNLIN_MEM_UPDATE);
    draft.params.square_operand = add_access(&draft, step_param->square, DUNLIN_MEM_UPDATE);
    draft.params.rows_operand = add_access(&draft, step_param->rows, DUNLIN_MEM_UPDATE);
    draft.params.factor_operand = add_access(&draft, factor, DUNLIN_MEM_READ);
    draft.params.is_decoupled = emit->options->optimizer == DUNLIN_OPTIMIZER_ADAMW;
    draft.params.kept_bits = kept_bits_of(emit, param);
    draft.params.lr_factor = emit->params[param].lr_factor;
    draft.params.decay_factor = emit->params[param].decay_factor;
    if (factor == DUNLIN_STEP_NONE) {
        add_hook(emit, param, &draft);
    }
    emit_draft(emit, param, &draft, &update_kernel, "/update");
}

/* One double that FIXED ops hand on. */
static uint32_t add_number(dunlin_emit *emit, const char *first, const char *second)
{
    return dunlin__emit_named_tensor(emit, first, second,
                                     &(dunlin_step_tensor){.dtype = DUNLIN_F64,
                                                           .n_elements = 1,
                                                           .mem_class = DUNLIN_MEM_ACCUMULATOR});
}

static void emit_squares(dunlin_emit *emit, uint32_t param)
{
    update_draft draft;
    begin_draft(emit, param, emit->params[param].gradient, DUNLIN_MEM_READ, &draft);
    add_hook(emit, param, &draft);
    draft.params.before_operand = add_access(&draft, emit->squares, DUNLIN_MEM_READ);
    emit->squares = add_number(emit, emit->net->params[param].name, "/squares");
    draft.params.sum_operand = add_access(&draft, emit->squares, DUNLIN_MEM_WRITE);
    emit_draft(emit, param, &draft, &squares_kernel, "/squares");
}

void dunlin__emit_update(dunlin_emit *emit, uint32_t param)
{
    if (emit->options->clips_norm) {
        emit_squares(emit, param);
        emit->params[param].waiting = emit->params[param].gradient;
    } else if (emit->options->updates_last) {
        emit->params[param].waiting = emit->params[param].gradient;
    } else {
        emit_optimizer(emit, param, emit->params[param].gradient, DUNLIN_STEP_NONE);
    }
}

/* What the global norm leaves of all gradients. */
static uint32_t emit_clip(dunlin_emit *emit)
{
    const uint32_t factor = add_number(emit, "clip_norm", "/factor");
    const dunlin_mem_access accesses[] = {
        {.tensor = emit->squares, .mode = DUNLIN_MEM_READ, .parts = DUNLIN_MEM_FIXED},
        {.tensor = factor, .mode = DUNLIN_MEM_WRITE, .parts = DUNLIN_MEM_FIXED},
    };
    emit->node_name = "clip_norm";
    dunlin__emit_run(
        emit, &(dunlin_emit_op){
                  .kernel = &clip_kernel, .suffix = "", .accesses = accesses, .n_accesses = 2});
    return factor;
}

void dunlin__emit_waiting_updates(dunlin_emit *emit)
{
    const uint32_t factor = emit->squares == DUNLIN_STEP_NONE ? DUNLIN_STEP_NONE : emit_clip(emit);
    for (uint32_t i = 0; i < emit->net->n_params; i++) {
        if (emit->params[i].waiting != DUNLIN_STEP_NONE) {
            emit_optimizer(emit, i, emit->params[i].waiting, factor);
        }
    }
}
