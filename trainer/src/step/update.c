/*
 * update.c - what happens to one parameter when its gradient is complete: the application's hook,
 * then SGD. One op, so that the gradient dies with it.
 *
 * Invariant: nothing after this op reads the gradient; the hook may change it in place.
 */
#include "emit.h"

typedef struct update_params {
    int64_t n_elements;
    int32_t param_index;
    int32_t momentum_operand; /* -1: none */
    int32_t first_slot_operand;
    int32_t n_slots;
} update_params;

/* operands: gradient, weights, momentum if there is one, slots */
static dunlin_status run_update(const dunlin_kernel_call *call)
{
    const update_params *params = call->params;
    const dunlin_step_run *run = call->run;
    float *gradient = call->operands[0];
    float *weights = call->operands[1];
    if (run->gradient_fn != NULL) {
        float *slots[DUNLIN_STEP_MAX_SLOTS] = {NULL, NULL, NULL, NULL};
        for (int32_t s = 0; s < params->n_slots; s++) {
            slots[s] = call->operands[params->first_slot_operand + s];
        }
        run->gradient_fn(run->gradient_ctx, params->param_index, params->n_elements, weights,
                         gradient, slots);
    }
    run->kernels->sgd(&(dunlin_sgd_call){
        .n = params->n_elements,
        .weights = weights,
        .momentum = params->momentum_operand >= 0 ? call->operands[params->momentum_operand] : NULL,
        .gradient = gradient,
        .lr = run->lr,
        .momentum_factor = run->momentum,
        .weight_decay = run->weight_decay,
        .is_nesterov = run->is_nesterov,
        .threads = run->threads,
    });
    return DUNLIN_OK;
}

static const dunlin_step_kernel update_kernel = {.name = "update",
                                                 .run_fn = run_update,
                                                 .parts = DUNLIN_MEM_FIXED,
                                                 .in_place_write = -1,
                                                 .in_place_read = -1};

void dunlin__emit_update(dunlin_emit *emit, uint32_t param)
{
    const dunlin_step_param *step_param = &emit->graph->params[param];
    update_params params = {.n_elements = emit->net->params[param].n_elements,
                            .param_index = (int32_t)param,
                            .momentum_operand = -1};
    dunlin_mem_access accesses[3 + DUNLIN_STEP_MAX_SLOTS];
    uint32_t n = 0;
    accesses[n++] = (dunlin_mem_access){
        .tensor = emit->params[param].gradient, .mode = DUNLIN_MEM_READ, .parts = DUNLIN_MEM_FIXED};
    accesses[n++] = (dunlin_mem_access){
        .tensor = step_param->tensor, .mode = DUNLIN_MEM_UPDATE, .parts = DUNLIN_MEM_FIXED};
    if (step_param->momentum != DUNLIN_STEP_NONE) {
        params.momentum_operand = (int32_t)n;
        accesses[n++] = (dunlin_mem_access){
            .tensor = step_param->momentum, .mode = DUNLIN_MEM_UPDATE, .parts = DUNLIN_MEM_FIXED};
    }
    params.first_slot_operand = (int32_t)n;
    for (size_t s = 0; s < DUNLIN_STEP_MAX_SLOTS; s++) {
        if (step_param->slots[s] != DUNLIN_STEP_NONE) {
            accesses[n++] = (dunlin_mem_access){.tensor = step_param->slots[s],
                                                .mode = DUNLIN_MEM_UPDATE,
                                                .parts = DUNLIN_MEM_FIXED};
            params.n_slots++;
        }
    }
    const char *node_name = emit->node_name;
    emit->node_name = emit->net->params[param].name;
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &update_kernel,
                                             .suffix = "/update",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = n,
                                             .flops_fixed = 4.0 * (double)params.n_elements});
    emit->node_name = node_name;
}
