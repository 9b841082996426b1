/*
 * op.h - one row per operator: its shapes, its ONNX form, and the kernels that it puts into a step,
 * forward and backward.
 *
 * An operator lives in one file, ops/NAME.c, which defines its row; ops/table.c lists the rows.
 */
#ifndef DUNLIN_OPS_OP_H
#define DUNLIN_OPS_OP_H

#include "../net/net.h"
#include "../step/step.h"

/*
 * The emitter: what an op row sees of the step under construction (step/emit.c). After a failure
 * (out of memory, too large) its calls return DUNLIN_STEP_NONE or do nothing, and the emission as a
 * whole fails.
 */
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

/* Backward: the finished gradient of a value: the sum of all contributions. Its own adds are
 * emitted when needed. */
uint32_t dunlin__emit_grad(dunlin_emit *emit, uint32_t value);
/* Backward: a new float gradient tensor that this node writes as its contribution to `value`. */
uint32_t dunlin__emit_grad_target(dunlin_emit *emit, uint32_t value);
/* Backward: an existing tensor is this node's contribution to `value`. */
void dunlin__emit_grad_alias(dunlin_emit *emit, uint32_t value, uint32_t tensor);

/* Remembers a tensor of the forward pass for the same node's backward (index 0 to 7); NONE if not
 * kept. */
void dunlin__emit_keep(dunlin_emit *emit, uint32_t index, uint32_t tensor);
uint32_t dunlin__emit_kept(const dunlin_emit *emit, uint32_t index);

typedef struct dunlin_emit_op {
    const dunlin_step_kernel *kernel;
    const char *suffix; /* "" or "/weight_grad" */
    const void *params; /* copied */
    size_t params_bytes;
    const dunlin_mem_access *accesses;
    uint32_t n_accesses;
    double flops_per_sample;
    double reduce_flops_per_sample; /* of them, those of the reduce part alone */
    double flops_fixed;
} dunlin_emit_op;
void dunlin__emit_run(dunlin_emit *emit, const dunlin_emit_op *op);
/* The same, but after all updates of weights: what must only be committed when the step is sure to
 * complete. */
void dunlin__emit_run_last(dunlin_emit *emit, const dunlin_emit_op *op);

/* --- ONNX: attributes of a node as the reader hands them to a row, and the writer's side (onnx/)
 * --- */

typedef struct dunlin_onnx_node dunlin_onnx_node;     /* a node being read */
typedef struct dunlin_onnx_writer dunlin_onnx_writer; /* a graph being written */

int64_t dunlin__onnx_opset(const dunlin_onnx_node *node);
/* The node's op type: "Relu"; for rows that read several. */
const char *dunlin__onnx_op_type(const dunlin_onnx_node *node);
/* Attributes; the defaults are used when the attribute is absent. ints: returns how many, at most
 * `max` are stored. */
int64_t dunlin__onnx_int(const dunlin_onnx_node *node, const char *name, int64_t fallback);
float dunlin__onnx_float(const dunlin_onnx_node *node, const char *name, float fallback);
const char *dunlin__onnx_text(const dunlin_onnx_node *node, const char *name, const char *fallback);
int32_t dunlin__onnx_ints(const dunlin_onnx_node *node, const char *name, int64_t *out,
                          int32_t max);
uint32_t dunlin__onnx_n_inputs(const dunlin_onnx_node *node);
uint32_t dunlin__onnx_n_outputs(const dunlin_onnx_node *node); /* of those with a name */
bool dunlin__onnx_has_input(const dunlin_onnx_node *node, uint32_t index);
/* Is input `index` a constant (initialiser or Constant)? Its first element as a number. */
bool dunlin__onnx_scalar_input(const dunlin_onnx_node *node, uint32_t index, double *out_value);
/* All elements of a constant integer input; returns how many there are, stores at most `max`; -1 if
 * not a constant. */
int32_t dunlin__onnx_ints_input(const dunlin_onnx_node *node, uint32_t index, int64_t *out,
                                int32_t max);
/* Input `index` as an activation value of the net / as a parameter; DUNLIN_NET_NONE if it is not
 * one. */
uint32_t dunlin__onnx_value_input(const dunlin_onnx_node *node, uint32_t index);
/*
 * The matrix at an input, of which a parameter has been made, is stored (in, out) if `is_turned`,
 * else (out, in). Rejected if another layer reads it the other way round.
 */
dunlin_status dunlin__onnx_turn_weight(dunlin_onnx_node *node, uint32_t index, bool is_turned);
/* The same for a dense layer: DENSE, or DENSE_TURNED if another layer reads it the other way
 * round. */
dunlin_op_kind dunlin__onnx_dense_kind(dunlin_onnx_node *node, uint32_t index, bool is_turned);
uint32_t dunlin__onnx_param_input(const dunlin_onnx_node *node, uint32_t index);
/* Says why this node cannot be trained; collected for dunlin_model_check(). Returns UNSUPPORTED. */
dunlin_status dunlin__onnx_reject(dunlin_onnx_node *node, const char *attribute, const char *format,
                                  ...) DUNLIN_PRINTF(3, 4);

/* Writer: one node with the net node's output name; then its attributes. Inputs are tensor names.
 */
void dunlin__onnx_begin_node(dunlin_onnx_writer *writer, const char *op_type,
                             const dunlin_net_node *node);
void dunlin__onnx_add_value(dunlin_onnx_writer *writer, uint32_t value);
/* The value if it is an input of the file that holds whole numbers, as they are; else false. */
bool dunlin__onnx_add_ids(dunlin_onnx_writer *writer, uint32_t value);
void dunlin__onnx_add_param(dunlin_onnx_writer *writer, uint32_t param);
void dunlin__onnx_add_scalar(dunlin_onnx_writer *writer, const char *suffix,
                             float value); /* a constant input */
void dunlin__onnx_add_ints(dunlin_onnx_writer *writer, const char *suffix, const int64_t *values,
                           int32_t n); /* a constant input of int64 */
/* What an operator of several ONNX nodes hands from one to the next: "<output><suffix>". */
void dunlin__onnx_add_part(dunlin_onnx_writer *writer, const char *suffix);
void dunlin__onnx_attr_int(dunlin_onnx_writer *writer, const char *name, int64_t value);
void dunlin__onnx_attr_float(dunlin_onnx_writer *writer, const char *name, float value);
void dunlin__onnx_attr_ints(dunlin_onnx_writer *writer, const char *name, const int64_t *values,
                            int32_t n);
void dunlin__onnx_end_node(dunlin_onnx_writer *writer);
/* Ends a node whose output is such a part. */
void dunlin__onnx_end_part(dunlin_onnx_writer *writer, const char *suffix);

/* --- the row --- */

typedef struct dunlin_op_row {
    dunlin_op_kind kind;
    const char *name; /* for reports: "conv" */
    const char *const
        *onnx_names; /* op types this row reads, NULL-terminated: {"Relu", "Clip", NULL} */

    /* In a fused step its output may be a part of a concatenation; may be clipped as it is stored.
     */
    bool stores_parts;
    bool stores_clipped;

    /* Sets the output value's shape and layout from the inputs'; checks parameters' shapes. MODEL
     * with a text. */
    dunlin_status (*infer_fn)(dunlin_net *net, dunlin_net_node *node, dunlin_error *error);

    /*
     * Fills `node` (kind, inputs, params and their layouts, attributes) from an ONNX node; or
     * rejects it. The reader has made the output value.
     */
    dunlin_status (*from_onnx_fn)(dunlin_onnx_node *onnx, dunlin_net *net, dunlin_net_node *node);
    void (*to_onnx_fn)(dunlin_onnx_writer *writer, const dunlin_net *net,
                       const dunlin_net_node *node);

    void (*forward_fn)(dunlin_emit *emit, const dunlin_net_node *node);
    /* Called in reverse order for nodes whose output has a gradient and that need one for an input
     * or a parameter. */
    void (*backward_fn)(dunlin_emit *emit, const dunlin_net_node *node);
} dunlin_op_row;

/* By kind; by ONNX op type (NULL if unknown). */
const dunlin_op_row *dunlin__op_row(dunlin_op_kind kind);
const dunlin_op_row *dunlin__op_row_for_onnx(const char *op_type);

#endif
