/*
 * emitter.h - what an operator's row sees of the step under construction (emit.c). After a failure
 * (out of memory, too large) the calls return DUNLIN_STEP_NONE or do nothing, and the emission as a
 * whole fails.
 */
#ifndef DUNLIN_GRAPH_EMITTER_H
#define DUNLIN_GRAPH_EMITTER_H

#include "net/net.h"
#include "step.h"

typedef struct dunlin_emit dunlin_emit;

typedef enum dunlin_emit_mode {
    DUNLIN_EMIT_TRAIN = 0,
    DUNLIN_EMIT_INFER /* evaluate, predict: running statistics, no dropout, nothing saved */
} dunlin_emit_mode;

dunlin_emit_mode dunlin__emit_mode(const dunlin_emit *emit);
const dunlin_net *dunlin__emit_net(const dunlin_emit *emit);
/* Batch norm uses its running statistics and leaves them alone. */
bool dunlin__emit_is_norm_frozen(const dunlin_emit *emit);
/* Batch norm takes its statistics, and the sums of its backward, of each slice alone: what gathers
 * and finishes them are map parts. */
bool dunlin__emit_is_norm_ghost(const dunlin_emit *emit);
/* The parameter gets a gradient (it is trainable and not frozen). */
bool dunlin__emit_is_trained(const dunlin_emit *emit, uint32_t param);
/* Something before the value, or the value itself, leads to a trained parameter. */
bool dunlin__emit_needs_grad(const dunlin_emit *emit, uint32_t value);

/* A new tensor. `suffix` is appended to the current node's name. */
uint32_t dunlin__emit_tensor(dunlin_emit *emit, const char *suffix, dunlin_dtype dtype,
                             bool is_batched, int64_t n_elements, dunlin_mem_class mem_class);

/* The same for what batch norm keeps of its batch, or of each slice if it is a ghost. */
uint32_t dunlin__emit_statistic(dunlin_emit *emit, const char *suffix, dunlin_dtype dtype,
                                bool is_ghost, int64_t n_elements, dunlin_mem_class mem_class);

/* Forward: the tensor that holds a value (existing for inputs of the node). */
uint32_t dunlin__emit_value(dunlin_emit *emit, uint32_t value);
/* Forward: a new float activation for the node's output, or: the output is this existing tensor. */
uint32_t dunlin__emit_output(dunlin_emit *emit, uint32_t value);
void dunlin__emit_alias(dunlin_emit *emit, uint32_t value, uint32_t tensor);

/* The persistent tensor of a parameter. */
uint32_t dunlin__emit_param(dunlin_emit *emit, uint32_t param);
/* Its name, as long as the graph of the step is there; "" after a failure. */
const char *dunlin__emit_param_name(const dunlin_emit *emit, uint32_t param);
/* The accumulator of a trained parameter's gradient (of n_elements floats, in the parameter's inner
 * layout). */
uint32_t dunlin__emit_param_grad(dunlin_emit *emit, uint32_t param);
/* Rows that the accumulator of a table's gradient has room for: it is a block of dunlin_row_sums.
 * 0: it is dense. */
int64_t dunlin__emit_row_slots(const dunlin_emit *emit, uint32_t param);
/* Of a table that a head reads too: rows that the accumulator of the tokens' part has room for; 0:
 * it is part of the whole gradient, and dense. */
int64_t dunlin__emit_part_slots(const dunlin_emit *emit, uint32_t param);
/* That accumulator; and, once its op has been emitted, what adds it to the head's gradient. */
uint32_t dunlin__emit_row_part(dunlin_emit *emit, uint32_t param);
void dunlin__emit_join_part(dunlin_emit *emit, uint32_t param, uint32_t part);

/* Backward: the finished gradient of a value: the sum of all contributions. Its own adds are
 * emitted when needed. */
uint32_t dunlin__emit_grad(dunlin_emit *emit, uint32_t value);
/* Backward: a new float gradient tensor that this node writes as its contribution to `value`. */
uint32_t dunlin__emit_grad_target(dunlin_emit *emit, uint32_t value);
/* Backward: an existing tensor is this node's contribution to `value`. */
void dunlin__emit_grad_alias(dunlin_emit *emit, uint32_t value, uint32_t tensor);

/* Remembers a tensor of the forward pass for the same node's backward (index 0 to 7); NONE if not
 * kept. */
void dunlin__emit_save(dunlin_emit *emit, uint32_t index, uint32_t tensor);
uint32_t dunlin__emit_saved(const dunlin_emit *emit, uint32_t index);

typedef struct dunlin_emit_op {
    const dunlin_step_kernel *kernel;
    const char *suffix; /* "" or "/weight_grad" */
    const void *params; /* copied */
    size_t params_bytes;
    const dunlin_mem_access *accesses;
    uint32_t n_accesses;
    bool reads_halves, writes_halves; /* as dunlin_step_op */
    double flops_per_sample;
    double reduce_flops_per_sample; /* of them, those of the reduce part alone */
    double flops_fixed;
} dunlin_emit_op;
void dunlin__emit_run(dunlin_emit *emit, const dunlin_emit_op *op);
/* The same, but after all updates of weights: what must only be committed when the step is sure to
 * complete. */
void dunlin__emit_run_last(dunlin_emit *emit, const dunlin_emit_op *op);

#endif
