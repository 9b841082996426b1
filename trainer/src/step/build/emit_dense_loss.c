/*
 * emit_dense_loss.c - the loss over a vocabulary, with the dense layer that makes its logits: one
 * op, so that they exist for some rows at a time only. Who asks for the logits gets them sample by
 * sample.
 *
 * Invariant: as in emit_loss.c, the op changes no weight.
 */
#include "graph/emit.h"

#include <mem/support.h>

#define WEIGHT_BLOCK 64

typedef struct dense_loss_params {
    dunlin_dense_loss_shape shape;
    float smoothing;
    dunlin_end end;
} dense_loss_params;

/* Operands, in this order. */
enum {
    AT_X = 0,
    AT_W,
    AT_LABELS,
    AT_SUMS,
    AT_BIAS,   /* where there is one */
    AT_N_FIRST /* then what is wanted, at the places of dense_loss_op */
};

/* Which operands there are beyond the first ones; -1: none. */
typedef struct dense_loss_op {
    dense_loss_params loss; /* first */
    bool has_bias;
    int32_t dx, dw, db;
} dense_loss_op;

static void *operand_or_null(const dunlin_kernel_call *call, int32_t index)
{
    return index < 0 ? NULL : call->operands[index];
}

/* The source is asked for weights of samples in blocks; no bit depends on them. */
static void run_in_blocks(const dunlin_kernel_call *call, const dunlin_dense_loss_call *whole)
{
    const dense_loss_op *op = call->params;
    const dunlin_dense_loss_shape *shape = &op->loss.shape;
    const dunlin_step_run *run = call->run;
    float weights[WEIGHT_BLOCK];
    dunlin_dense_loss_call block = *whole;
    block.loss.weights = weights;
    block.loss.rows_per_weight = shape->rows_per_sample;
    for (int64_t first = 0; first < call->n_samples; first += WEIGHT_BLOCK) {
        const int64_t left = call->n_samples - first;
        const int64_t n = left < WEIGHT_BLOCK ? left : WEIGHT_BLOCK;
        for (int64_t i = 0; i < n; i++) {
            const int64_t position = call->first_sample + first + i;
            weights[i] =
                run->source->weight_fn(run->source->ctx, dunlin__run_example(run, position));
        }
        block.loss.n_rows = n * shape->rows_per_sample;
        run->kernels->dense_loss(&block);
        block.x += block.loss.n_rows * shape->width;
        block.loss.labels += block.loss.n_rows;
        block.dx = block.dx == NULL ? NULL : block.dx + block.loss.n_rows * shape->width;
        block.loss.is_reset = false;
    }
}

/* Predictions: what the loss includes is done to the logits. */
static void give_classes(const dunlin_kernel_call *call, dunlin_dense_loss_call *dense)
{
    const dense_loss_op *op = call->params;
    const dunlin_step_run *run = call->run;
    const int64_t width = op->loss.shape.rows_per_sample * op->loss.shape.classes;
    dense->logits = run->logits + call->first_sample * width;
    run->kernels->dense_loss(dense);
    dunlin__end_apply(op->loss.end, run->kernels, dense->loss.n_rows, op->loss.shape.classes,
                      dense->logits, run->threads);
}

/* The logits of a sample at a time, in the room that the run has for them. */
static void count_ranks(const dunlin_kernel_call *call, const dunlin_dense_loss_call *whole)
{
    const dense_loss_op *op = call->params;
    const dunlin_dense_loss_shape *shape = &op->loss.shape;
    const dunlin_step_run *run = call->run;
    const int32_t *labels = call->operands[AT_LABELS];
    dunlin_dense_loss_call one = *whole;
    one.loss.n_rows = shape->rows_per_sample;
    one.loss.sums = NULL;
    one.confusion = NULL;
    one.logits = run->rank_room;
    for (int64_t i = 0; i < call->n_samples; i++) {
        run->kernels->dense_loss(&one);
        for (int64_t row = 0; row < shape->rows_per_sample; row++) {
            dunlin__run_count_rank(run, run->rank_room + row * shape->classes, shape->classes,
                                   labels[i * shape->rows_per_sample + row]);
        }
        one.x += shape->rows_per_sample * shape->width;
        one.loss.labels += shape->rows_per_sample;
    }
}

static dunlin_status run_dense_loss(const dunlin_kernel_call *call)
{
    const dense_loss_op *op = call->params;
    const dunlin_step_run *run = call->run;
    const bool is_reducing = (call->parts & DUNLIN_MEM_REDUCE) != 0;
    dunlin_dense_loss_call dense = {
        .shape = &op->loss.shape,
        .x = call->operands[AT_X],
        .w = call->operands[AT_W],
        .bias = op->has_bias ? call->operands[AT_BIAS] : NULL,
        .loss = {.classes = op->loss.shape.classes,
                 .n_rows = call->n_samples * op->loss.shape.rows_per_sample,
                 .labels = call->operands[AT_LABELS],
                 .class_weights = run->class_weights,
                 .smoothing = op->loss.smoothing,
                 .scale = 1.0F / (float)dunlin__run_divisor(run, 0),
                 .is_reset = call->is_first,
                 .threads = run->threads},
        .workspace = call->workspace,
    };
    if (run->logits != NULL) {
        give_classes(call, &dense);
        return DUNLIN_OK;
    }
    dense.loss.sums = is_reducing ? call->operands[AT_SUMS] : NULL;
    dense.confusion = is_reducing ? run->confusion : NULL;
    dense.dx = operand_or_null(call, op->dx);
    dense.dw = is_reducing ? operand_or_null(call, op->dw) : NULL;
    dense.db = is_reducing ? operand_or_null(call, op->db) : NULL;
    if (is_reducing && run->ranks != NULL) {
        count_ranks(call, &dense);
    }
    if (run->source->weight_fn == NULL) {
        run->kernels->dense_loss(&dense);
    } else {
        run_in_blocks(call, &dense);
    }
    return DUNLIN_OK;
}

static uint64_t dense_loss_workspace(const dunlin_kernels *kernels, const void *params,
                                     size_t n_threads, uint64_t *out_sample_bytes)
{
    const dense_loss_params *loss = params;
    *out_sample_bytes = 0;
    return kernels->dense_loss_workspace_bytes(&loss->shape, n_threads);
}

#define KERNEL(name_, parts_)                                                                      \
    {                                                                                              \
        .name = (name_), .run_fn = run_dense_loss, .parts = (parts_),                              \
        .may_recompute = ((parts_)&DUNLIN_MEM_MAP) != 0, .in_place_write = -1,                     \
        .in_place_read = -1, .workspace_fn = dense_loss_workspace                                  \
    }
/* Without and with the gradient of x. */
static const dunlin_step_kernel dense_loss_kernels[2] = {
    KERNEL("dense_loss", DUNLIN_MEM_REDUCE),
    KERNEL("dense_loss_grad", DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE)};

static int32_t add_access(dunlin_mem_access *accesses, uint32_t *n, uint32_t tensor, uint8_t mode,
                          uint8_t parts)
{
    accesses[*n] = (dunlin_mem_access){.tensor = tensor, .mode = mode, .parts = parts};
    return (int32_t)(*n)++;
}

/* A trained parameter's gradient; -1: it is not trained. */
static int32_t add_param_grad(dunlin_emit *emit, const dunlin_net_node *node, uint32_t slot,
                              dunlin_mem_access *accesses, uint32_t *n)
{
    const uint32_t param = slot < node->n_params ? node->params[slot] : DUNLIN_NET_NONE;
    return dunlin__emit_is_trained(emit, param)
               ? add_access(accesses, n, dunlin__emit_param_grad(emit, param),
                            DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE)
               : -1;
}

void dunlin__emit_dense_loss(dunlin_emit *emit, uint32_t sums)
{
    const dunlin_step_graph *graph = emit->graph;
    const dunlin_net_node *node = &emit->net->nodes[emit->class_layer];
    const uint32_t input = node->inputs[0];
    const bool wants_dx =
        emit->options->mode == DUNLIN_EMIT_TRAIN && dunlin__emit_needs_grad(emit, input);
    const uint8_t both = wants_dx ? DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE : DUNLIN_MEM_REDUCE;
    const int64_t width = emit->net->params[node->params[0]].shape.dims[1];
    dense_loss_op op = {
        .loss = {.shape = {.rows_per_sample = graph->n_rows,
                           .width = (int32_t)width,
                           .classes = graph->n_classes},
                 .smoothing = emit->options->label_smoothing,
                 .end = emit->end},
        .has_bias = node->n_params > 1 && node->params[1] != DUNLIN_NET_NONE,
        .dx = -1,
    };
    dunlin_mem_access accesses[AT_N_FIRST + 3];
    uint32_t n = 0;
    const uint32_t w = dunlin__emit_param(emit, node->params[0]);

    (void)add_access(accesses, &n, dunlin__emit_value(emit, input), DUNLIN_MEM_READ, both);
    (void)add_access(accesses, &n, w, DUNLIN_MEM_READ, both);
    (void)add_access(accesses, &n, graph->labels, DUNLIN_MEM_READ, both);
    (void)add_access(accesses, &n, sums, DUNLIN_MEM_ACCUMULATE, DUNLIN_MEM_REDUCE);
    if (op.has_bias) {
        (void)add_access(accesses, &n, dunlin__emit_param(emit, node->params[1]), DUNLIN_MEM_READ,
                         both);
    }
    if (wants_dx) {
        op.dx = add_access(accesses, &n, dunlin__emit_grad_target(emit, input), DUNLIN_MEM_WRITE,
                           DUNLIN_MEM_MAP);
    }
    op.dw = add_param_grad(emit, node, 0, accesses, &n);
    op.db = add_param_grad(emit, node, 1, accesses, &n);
    const double product = 2.0 * (double)graph->n_rows * (double)width * graph->n_classes;
    const double reduced = op.dw >= 0 ? product : 0.0;
    dunlin__emit_run(
        emit, &(dunlin_emit_op){.kernel = &dense_loss_kernels[wants_dx ? 1 : 0],
                                .suffix = "",
                                .params = &op,
                                .params_bytes = sizeof op,
                                .accesses = accesses,
                                .n_accesses = n,
                                .flops_per_sample = product * (wants_dx ? 2.0 : 1.0) + reduced +
                                                    40.0 * (double)graph->n_rows * graph->n_classes,
                                .reduce_flops_per_sample = reduced});
}
