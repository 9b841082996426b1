/*
 * node.h - a node of an ONNX graph as an operator's row sees it: its attributes and inputs as the
 * reader hands them to the row, and the writer's side.
 */
#ifndef DUNLIN_ONNX_NODE_H
#define DUNLIN_ONNX_NODE_H

#include "net/net.h"

/* Called for each thing that stands in the way of training. */
typedef void (*dunlin_onnx_issue_fn)(void *ctx, const dunlin_model_issue *issue);

typedef struct dunlin_onnx_node dunlin_onnx_node;     /* a node being read */
typedef struct dunlin_onnx_writer dunlin_onnx_writer; /* a graph being written */

/* The exponents of a network in integers, of each parameter and each value; NO_EXPONENT: the value
 * is not rounded. */
#define DUNLIN_ONNX_NO_EXPONENT INT32_MIN
typedef struct dunlin_onnx_scales {
    const int32_t *params;
    const int32_t *values;
} dunlin_onnx_scales;

/* The opset in whose terms the node is written: 13 for older files too, whose nodes are upgraded.
 */
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
 * The matrix at an input, of which a parameter has been made, is stored (in, out) if
 * `is_stored_transposed`, else (out, in). Rejected if another layer reads it transposed.
 */
dunlin_status dunlin__onnx_transpose_weight(dunlin_onnx_node *node, uint32_t index,
                                            bool is_stored_transposed);
/* The same for a dense layer: DENSE, or DENSE_TRANSPOSED if another layer reads it transposed. */
dunlin_op_kind dunlin__onnx_dense_kind(dunlin_onnx_node *node, uint32_t index,
                                       bool is_stored_transposed);
uint32_t dunlin__onnx_param_input(const dunlin_onnx_node *node, uint32_t index);
/* Says why this node cannot be trained; collected for dunlin_model_check(). Returns UNSUPPORTED. */
dunlin_status dunlin__onnx_reject(dunlin_onnx_node *node, const char *attribute, const char *format,
                                  ...) DUNLIN_PRINTF(3, 4);

/* Writer: one node with the net node's output name; then its attributes. Inputs are tensor names.
 */
void dunlin__onnx_begin_node(dunlin_onnx_writer *writer, const char *op_type,
                             const dunlin_net_node *node);
void dunlin__onnx_add_value(dunlin_onnx_writer *writer, uint32_t value);
/* An input of the file, whatever it holds: its first dimension is the number of samples. */
void dunlin__onnx_add_samples(dunlin_onnx_writer *writer);
/* The value if it is an input of the file that holds whole numbers, as they are; else false. */
bool dunlin__onnx_add_ids(dunlin_onnx_writer *writer, uint32_t value);
void dunlin__onnx_add_param(dunlin_onnx_writer *writer, uint32_t param);
void dunlin__onnx_add_scalar(dunlin_onnx_writer *writer, const char *suffix,
                             float value); /* a constant input */
void dunlin__onnx_add_ints(dunlin_onnx_writer *writer, const char *suffix, const int64_t *values,
                           int32_t n); /* a constant input of int64 */
/* The same of n numbers that `value_fn` gives by their place, so that they need no array. */
typedef int64_t (*dunlin_onnx_int_fn)(const void *ctx, int32_t index);
void dunlin__onnx_add_made_ints(dunlin_onnx_writer *writer, const char *suffix,
                                dunlin_onnx_int_fn value_fn, const void *ctx, int32_t n);
/* One such number, of rank 0. */
void dunlin__onnx_add_whole(dunlin_onnx_writer *writer, const char *suffix, int64_t value);
void dunlin__onnx_add_floats(dunlin_onnx_writer *writer, const char *suffix, const float *values,
                             int32_t n); /* a constant input of float32 */
/* What an operator of several ONNX nodes hands from one to the next: "<output><suffix>". */
void dunlin__onnx_add_part(dunlin_onnx_writer *writer, const char *suffix);
/* The same of a node before. */
void dunlin__onnx_add_part_of(dunlin_onnx_writer *writer, const dunlin_net_node *node,
                              const char *suffix);
void dunlin__onnx_attr_int(dunlin_onnx_writer *writer, const char *name, int64_t value);
void dunlin__onnx_attr_float(dunlin_onnx_writer *writer, const char *name, float value);
void dunlin__onnx_attr_ints(dunlin_onnx_writer *writer, const char *name, const int64_t *values,
                            int32_t n);
void dunlin__onnx_attr_text(dunlin_onnx_writer *writer, const char *name, const char *value);
void dunlin__onnx_end_node(dunlin_onnx_writer *writer);
/* Ends a node whose output is such a part. */
void dunlin__onnx_end_part(dunlin_onnx_writer *writer, const char *suffix);

#endif
