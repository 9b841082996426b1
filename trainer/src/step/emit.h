/*
 * emit.h - the state behind the emitter API of ops/op.h, shared by emit.c and autodiff.c; and the
 * step's own ops: input, loss, update.
 */
#ifndef DUNLIN_STEP_EMIT_H
#define DUNLIN_STEP_EMIT_H

#include "build.h"

#define DUNLIN_EMIT_MAX_KEPT 8

/* A gradient that the node at hand contributes to `target`: a value of the network, or one of its
 * parameters. */
typedef struct dunlin_emit_contribution {
    uint32_t target;
    uint32_t tensor;
    bool is_param;
} dunlin_emit_contribution;

/* A parameter's gradient so far, and where it belongs. */
typedef struct dunlin_emit_param {
    bool is_trained;
    bool is_fixed;     /* a frozen prefix matches its name */
    uint32_t gradient; /* tensor, or NONE */
    uint32_t waiting;  /* complete gradient of an update that waits for the norm, or NONE */
    size_t first_node; /* in forward order, that reads it */
} dunlin_emit_param;

typedef struct dunlin_emit_value {
    uint32_t tensor;
    uint32_t gradient;
    bool needs_grad;
} dunlin_emit_value;

typedef struct dunlin_emit_kept {
    uint32_t tensors[DUNLIN_EMIT_MAX_KEPT];
} dunlin_emit_kept;

struct dunlin_emit {
    const dunlin_net *net;
    const dunlin_step_build_options *options;
    dunlin_step_graph *graph;
    dunlin_emit_value *values; /* net->n_values */
    dunlin_emit_param *params; /* net->n_params */
    dunlin_emit_kept *kept;    /* net->n_nodes */
    size_t node_index;
    const char *node_name;
    bool is_backward;
    dunlin_emit_contribution pending[DUNLIN_NET_MAX_INPUTS + 4];
    size_t n_pending;
    dunlin_step_op *last_ops; /* go to the end of the graph */
    size_t n_last_ops, last_ops_capacity;
    uint32_t squares;     /* tensor: sum of the gradients' squares so far, or NONE */
    dunlin_status status; /* the first failure */
    dunlin_error *error;
};

/* Records the first failure; always returns `status`. */
dunlin_status dunlin__emit_fail(dunlin_emit *emit, dunlin_status status, const char *text);

/* Sums the pending contributions of the node that has just been emitted into their targets. */
void dunlin__emit_settle(dunlin_emit *emit);

/* Appends the ops of dunlin__emit_run_last(). */
void dunlin__emit_flush_last(dunlin_emit *emit);

/* A tensor named `first` + `second`. */
uint32_t dunlin__emit_named_tensor(dunlin_emit *emit, const char *first, const char *second,
                                   const dunlin_step_tensor *like);

/* input.c: the op that fills `graph->input` and `graph->labels` from the source. */
void dunlin__emit_input(dunlin_emit *emit);
/* Staged examples are read in blocks of so many bytes, of one example at least. */
#define DUNLIN_INPUT_BLOCK_BYTES 16384

/* loss.c: the loss of `graph->logits`; in training also its check and, if anything is trained, the
 * gradient of the logits (else NONE). */
uint32_t dunlin__emit_loss(dunlin_emit *emit);

/* update.c: the gradient hook and the update of one parameter whose gradient is complete; with
 * clipping by the global norm the hook and its part of the norm, and the update waits. */
void dunlin__emit_update(dunlin_emit *emit, uint32_t param);
/* The updates that wait: after the last dunlin__emit_update(). */
void dunlin__emit_waiting_updates(dunlin_emit *emit);

#endif
