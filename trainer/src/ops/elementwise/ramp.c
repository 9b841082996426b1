/*
 * ramp.c - the same even steps for every sample: first, first + step, ...; what positions are
 * looked up with.
 *
 * Invariant: nothing depends on the input but the number of samples.
 */
#include "ops/common/support.h"

#include <mem/support.h>

#include <inttypes.h>

typedef struct ramp_params {
    int64_t n;
    float first, step;
} ramp_params;

/* Operands: the input (not looked at), y. */
static dunlin_status run_forward(const dunlin_kernel_call *call)
{
    const ramp_params *p = call->params;
    float *y = call->operands[1];
    for (int64_t sample = 0; sample < call->n_samples; sample++) {
        for (int64_t i = 0; i < p->n; i++) {
            y[sample * p->n + i] = p->first + (float)i * p->step;
        }
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel ramp_kernel = {
    .name = "ramp",
    .run_fn = run_forward,
    .parts = DUNLIN_MEM_MAP,
    .may_recompute = true,
    .in_place_write = -1,
    .in_place_read = -1,
};

static void forward(dunlin_emit *emit, const dunlin_net_node *node)
{
    const ramp_params params = {node->u.ramp.n, node->u.ramp.first, node->u.ramp.step};
    const dunlin_mem_access accesses[] = {
        {dunlin__emit_value(emit, node->inputs[0]), DUNLIN_MEM_READ, DUNLIN_MEM_MAP},
        {dunlin__emit_output(emit, node->output), DUNLIN_MEM_WRITE, DUNLIN_MEM_MAP},
    };
    dunlin__emit_run(emit, &(dunlin_emit_op){
                               .kernel = &ramp_kernel,
                               .suffix = "",
                               .params = &params,
                               .params_bytes = sizeof params,
                               .accesses = accesses,
                               .n_accesses = 2,
                           });
}

/* Steps have no gradient. */
static void backward(dunlin_emit *emit, const dunlin_net_node *node)
{
    (void)emit;
    (void)node;
}

static dunlin_status infer(dunlin_net *net, dunlin_net_node *node, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__op_want_inputs(node, 1, error));
    if (node->inputs[0] != net->input) {
        return dunlin__fail(error, DUNLIN_MODEL, "net", 0,
                            "node '%.120s' counts samples by something other than the input",
                            node->name);
    }
    net->values[node->output].layout = DUNLIN_LAYOUT_PLAIN;
    net->values[node->output].shape = (dunlin_shape){1, {node->u.ramp.n}};
    return DUNLIN_OK;
}

static dunlin_status from_onnx(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node)
{
    (void)net;
    (void)node;
    return dunlin__onnx_reject(onnx, "", "is no operator of ONNX");
}

static int64_t step_at(const void *ctx, int32_t index)
{
    const dunlin_net_node *node = ctx;
    return (int64_t)(node->u.ramp.first + (float)index * node->u.ramp.step);
}

/* Stored integers, which broadcast over the samples. */
static void to_onnx(dunlin_onnx_writer *writer, const dunlin_net *net, const dunlin_net_node *node)
{
    enum { MOST = 4096 }; /* what the reader keeps of integers */
    (void)net;
    const int32_t n = node->u.ramp.n < MOST ? (int32_t)node->u.ramp.n : MOST;
    dunlin__onnx_begin_node(writer, "Identity", node);
    dunlin__onnx_add_made_ints(writer, "/steps", step_at, node, n);
    dunlin__onnx_end_node(writer);
}

static const char *const onnx_names[] = {NULL};

const dunlin_op_row dunlin__op_ramp = {
    .kind = DUNLIN_OP_RAMP,
    .name = "ramp",
    .onnx_names = onnx_names,
    .infer_fn = infer,
    .from_onnx_fn = from_onnx,
    .to_onnx_fn = to_onnx,
    .forward_fn = forward,
    .backward_fn = backward,
};
