/*
 * fold.h - what the files that fold, rewrite and join nodes share.
 */
#ifndef DUNLIN_CONVERT_FOLD_H
#define DUNLIN_CONVERT_FOLD_H

#include "onnx/node/import.h"

/*
 * Nodes that leave no trace in the network. Returns true if the op type is one of those; it may
 * then have been rejected.
 */
bool dunlin__onnx_fold(dunlin_onnx_node *node);

typedef struct dunlin_onnx_fold {
    const char *op_type;
    bool (*fold_fn)(dunlin_onnx_node *node);
} dunlin_onnx_fold;
/* Asks the entry for the node's type; false if there is none, or it declines. */
bool dunlin__onnx_fold_by(dunlin_onnx_node *node, const dunlin_onnx_fold *entries, size_t n);
bool dunlin__onnx_fold_shapes(dunlin_onnx_node *node); /* shapes.c */
/* A list that is computed from something unknown is unknown too: true, and no issue of its own. */
bool dunlin__onnx_fold_unknown(dunlin_onnx_node *node);
/* shapes_stored.c: stored integers that are all alike (ConstantOfShape), and a part of a row of
 * stored integers. */
bool dunlin__onnx_fold_fill(dunlin_onnx_node *node);
bool dunlin__onnx_fold_stored_slice(dunlin_onnx_node *node);
bool dunlin__onnx_fold_words(dunlin_onnx_node *node);      /* rewrite.c */
bool dunlin__onnx_fold_arithmetic(dunlin_onnx_node *node); /* arithmetic.c */
/* norms.c. Rejects what reads a part of a norm and is not the next of its nodes. */
bool dunlin__onnx_fold_norms(dunlin_onnx_node *node);
/* chances.c. Rejects what reads a random draw and is not the next node of stochastic depth. */
bool dunlin__onnx_fold_chances(dunlin_onnx_node *node);
bool dunlin__onnx_fold_pad(dunlin_onnx_node *node);     /* pads.c */
bool dunlin__onnx_fold_several(dunlin_onnx_node *node); /* several.c */
bool dunlin__onnx_fold_pools(dunlin_onnx_node *node);   /* pools.c */
bool dunlin__onnx_fold_slice(dunlin_onnx_node *node);   /* slices.c */
bool dunlin__onnx_fold_resize(dunlin_onnx_node *node);  /* resizes.c */
bool dunlin__onnx_fold_einsum(dunlin_onnx_node *node);  /* einsum.c: products of two activations */
/* stored_rows.c: a stored tensor repeated for each sample (Expand, Tile). */
bool dunlin__onnx_fold_stored_rows(dunlin_onnx_node *node);
/* shared.c: rows of a table, taken in an order that the file stores: the same for each sample. The
 * node is done, or was rejected. */
void dunlin__onnx_look_up_stored(dunlin_onnx_node *node);
/* stored_values.c: what is computed from a stored tensor before it meets an activation. */
bool dunlin__onnx_fold_stored_values(dunlin_onnx_node *node);
bool dunlin__onnx_fold_turned(dunlin_onnx_node *node); /* turned.c */
/* choices.c: a choice (If) whose condition is known. */
bool dunlin__onnx_fold_if(dunlin_onnx_node *node);
/* The node is of a branch that is not taken, or of a choice that is not known. */
bool dunlin__onnx_is_skipped(dunlin_onnx_node *node);

/* weight_parts.c: layers that read some rows of a stored matrix. */
bool dunlin__onnx_fold_weight_parts(dunlin_onnx_node *node);
/* constants.c: what is computed from constants alone. masks.c: a choice by a constant mask. */
bool dunlin__onnx_fold_constants(dunlin_onnx_node *node);
bool dunlin__onnx_fold_mask(dunlin_onnx_node *node);
/* comparisons.c: masks that are made of an input, and choices by them; a cast of an activation to
 * BOOL. */
bool dunlin__onnx_fold_comparison(dunlin_onnx_node *node);
bool dunlin__onnx_make_mask(dunlin_onnx_node *node);
/*
 * Of a stored operand that is added, if it is a mask: it holds minus infinity, or hides with
 * -10,000 and less and adds 0 elsewhere. With the lowest float in place of minus infinity, and
 * never trained. NONE: it is none, or after a failure.
 */
uint32_t dunlin__onnx_finite_param(dunlin_onnx_node *node, uint32_t index);

/*
 * upgrade.c. Attributes of older opsets become the inputs that they are from opset 13 on; false
 * when out of memory. And the softmax of before, which is over all from its axis on.
 */
DUNLIN_NODISCARD bool dunlin__onnx_upgrade(dunlin_onnx_file *file);
bool dunlin__onnx_fold_old_softmax(dunlin_onnx_node *node);

/*
 * Of a Reshape of `input`: its new shape without the batch; false if the batch is not kept or it
 * does not come out.
 */
bool dunlin__onnx_new_shape(const dunlin_onnx_node *node, const dunlin_net_value *input,
                            dunlin_shape *out_shape);

/* The output is another name for what the input stands for. */
void dunlin__onnx_alias(dunlin_onnx_node *node, const dunlin_onnx_binding *input);
void dunlin__onnx_bind_vector(dunlin_onnx_node *node, const dunlin_onnx_vector *vector);
void dunlin__onnx_bind_ints(dunlin_onnx_node *node, const int64_t *items, int64_t n);
void dunlin__onnx_bind_number(dunlin_onnx_node *node, double number);
/* One number, not a weight. */
bool dunlin__onnx_number_input(const dunlin_onnx_node *node, uint32_t index, double *out_number);

/*
 * Appends a node with `made`'s kind, inputs, parameters and attributes and infers it. Its value and
 * its name are the ONNX node's with `suffix` ("" for the node's own output). NONE after the node
 * was rejected or the import has failed.
 */
uint32_t dunlin__onnx_make(dunlin_onnx_node *node, const dunlin_net_node *made, const char *suffix);
/* The same for output `index`, which is bound to the value; false after a rejection or failure. */
bool dunlin__onnx_make_output(dunlin_onnx_node *node, const dunlin_net_node *made, uint32_t index);
/*
 * Infers the last node of the network. Inputs of three dimensions that its row wants as images, or
 * as plain values, are rearranged before it. False: the ONNX node was rejected, or the import has
 * failed.
 */
bool dunlin__onnx_infer(dunlin_onnx_node *node, uint32_t index);
/* Makes the node whose output is the ONNX node's own; an attribute not looked at rejects it. */
void dunlin__onnx_finish(dunlin_onnx_node *node, const dunlin_net_node *made);
/* Rejects the node for an attribute that no one has looked at. */
void dunlin__onnx_check_attributes(dunlin_onnx_node *node);
/* The ONNX node's output is this value. */
void dunlin__onnx_bind_value(dunlin_onnx_node *node, uint32_t value);

/*
 * Joins the nodes that an operator was written out in: layer norm, GELU, attention, dense with its
 * bias. To be called on an inferred net; it must be inferred again.
 */
DUNLIN_NODISCARD dunlin_status dunlin__onnx_join(dunlin_net *net, dunlin_error *error);

typedef dunlin_status (*dunlin_onnx_fill_fn)(dunlin_onnx_node *onnx, dunlin_net *net,
                                             dunlin_net_node *node);
/* Operators that are written in other terms than their row's: NULL if there is no such reading. */
dunlin_onnx_fill_fn dunlin__onnx_rewrite(const dunlin_onnx_node *node);

#endif
