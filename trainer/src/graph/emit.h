/*
 * emit.h - the state of the emitter API of emitter.h, shared by emit.c and autodiff.c; and the
 * step's own ops: input, loss, update.
 */
#ifndef DUNLIN_GRAPH_EMIT_H
#define DUNLIN_GRAPH_EMIT_H

#include "build.h"
#include "end.h"
#include "fused.h"

#include <math.h>

#define DUNLIN_EMIT_MAX_SAVED 8

/* A gradient that the current node contributes to `target`: a value of the network, or one of its
 * parameters. */
typedef struct dunlin_emit_contribution {
    uint32_t target;
    uint32_t tensor;
    bool is_param;
} dunlin_emit_contribution;

/* A parameter's gradient so far, and where it belongs. */
typedef struct dunlin_emit_param {
    bool is_trained;
    bool is_fixed;        /* a frozen prefix matches its name, or the file says so */
    bool is_by_rows;      /* a table of which tokens pick rows, in one place */
    int64_t n_slots;      /* rows that its gradient has room for; 0: the gradient is dense */
    bool is_part_by_rows; /* the same of a table that is a head's weight too: the tokens' part is
                             kept by rows, and added to the head's */
    int64_t n_part_slots; /* rows that the part has room for; 0: it is dense */
    uint32_t gradient;    /* tensor, or NONE */
    uint32_t
        waiting; /* complete gradient of an update that waits for the norm or the end, or NONE */
    size_t first_node;             /* in forward order, that reads it */
    float lr_factor, decay_factor; /* of the step's rate and decay */
} dunlin_emit_param;

/* Sums of a tensor that batch norm asks for, about a running mean. */
typedef struct dunlin_emit_stat {
    uint32_t sums;        /* tensor; NONE: not taken yet */
    uint32_t about;       /* tensor; NONE: no batch norm asks for them */
    int64_t about_offset; /* the channel of `about` that belongs to this tensor's first */
} dunlin_emit_stat;

/*
 * The gradient of a value so far: g * factor + raw * slope + offset, as kernels.h says it. `coef`
 * holds coef_width slopes, then as many offsets, of which this value's begin at coef_offset.
 */
typedef struct dunlin_emit_gradient {
    uint32_t tensor; /* NONE: none yet */
    int64_t pitch;
    uint32_t factor; /* tensor, or NONE */
    uint32_t coef;   /* tensor, or NONE */
    int64_t coef_offset, coef_width;
    uint32_t raw; /* tensor; with coef */
    int64_t raw_pitch;
    bool is_owned;     /* nothing else reads the tensor: it may be added to where it lies */
    bool is_closed;    /* masked, and the sums of the batch norms after it are taken */
    bool is_delivered; /* of a view: it went straight into the gradient of the raw tensor */
} dunlin_emit_gradient;

typedef struct dunlin_emit_value {
    bool needs_grad;
    uint32_t n_edges;     /* inputs that read it, + 1 for the network's output */
    uint32_t n_open;      /* of them, those whose backward is still to come */
    uint32_t tensor;      /* where it lies; of a view: NONE */
    int64_t pitch;        /* of its rows */
    uint32_t copy;        /* compact copy of a view, or of what lies with a pitch; NONE */
    uint32_t norm;        /* the batch norm whose view it is (a node), or NONE: it is stored */
    float low, high;      /* it is clipped to this as it is stored, or when the view is read */
    bool is_masked_later; /* what alone reads it keeps its bounds, and is masked in its place */
    bool has_signs;       /* the global average that alone reads it keeps a bit an element */
    dunlin_view_fn fn;    /* of a view, if that is no clip */
    uint32_t stored_as;   /* the activation's output that stands in its place, or NONE */
    uint32_t part_of;     /* the concatenation in whose tensor it is stored (a node), or NONE */
    uint32_t behind[2]; /* batch norms of the sum that it is, whose gradient is this one; or NONE */
    uint32_t terms[2];  /* of the sum that it is: backward it is read as their views; or NONE */
    bool is_kept;       /* the weights' gradient of a convolution reads it */
    bool is_materialised; /* somebody reads it who cannot read a sum through its terms */
    dunlin_emit_stat stat;
    dunlin_emit_gradient gradient;
} dunlin_emit_value;

typedef struct dunlin_emit_saved {
    uint32_t tensors[DUNLIN_EMIT_MAX_SAVED];
} dunlin_emit_saved;

/* A batch norm that is never applied in memory: what its view and its gradient need. */
typedef struct dunlin_emit_norm {
    uint32_t value; /* that it normalises */
    uint32_t raw;   /* the tensor that holds it */
    int64_t raw_pitch;
    uint32_t affine; /* tensor: scales, then shifts */
    uint32_t mean;   /* tensor that the backward sums are taken about */
    uint32_t sums;   /* tensor; NONE: not taken yet */
    bool wants_sums; /* its backward needs them */
    bool is_ghost;   /* they are of each slice alone */
} dunlin_emit_norm;

/* One input of a concatenation, beyond those that it shares with the one it goes on from. */
typedef struct dunlin_emit_leaf {
    uint32_t value;
    uint32_t tensor; /* part of the concatenation */
    int64_t offset;  /* its first channel */
    int64_t width;
    bool is_copied;        /* it is stored elsewhere, or read elsewhere first */
    dunlin_emit_stat stat; /* of the copy */
} dunlin_emit_leaf;

/*
 * A concatenation in place. One that begins with all inputs of an earlier one goes on from it: both
 * are the first channels of one tensor.
 */
typedef struct dunlin_emit_chain {
    uint32_t base;                 /* node, or NONE */
    uint32_t next;                 /* the node that goes on from this one, or NONE */
    uint32_t first_leaf, n_leaves; /* its own */
    uint32_t n_parts;              /* with the base's */
    bool is_gathered;              /* gather.h */
    int64_t width;                 /* channels, with the base's */
} dunlin_emit_chain;

struct dunlin_emit {
    const dunlin_net *net; /* without what the loss takes from its end */
    dunlin_end end;        /* of the first output */
    const dunlin_step_build_options *options;
    dunlin_step_graph *graph;
    dunlin_emit_value *values; /* net->n_values */
    dunlin_emit_param *params; /* net->n_params */
    dunlin_emit_saved *kept;   /* net->n_nodes */
    dunlin_emit_norm *norms;   /* net->n_nodes */
    dunlin_emit_chain *chains; /* net->n_nodes */
    dunlin_emit_leaf *leaves;
    size_t n_leaves, leaves_capacity;
    uint32_t class_layer; /* the dense layer that the loss computes itself (a node), or NONE */
    size_t node_index;
    const char *node_name;
    bool is_backward;
    dunlin_emit_contribution pending[DUNLIN_NET_MAX_INPUTS + 4];
    size_t n_pending;
    dunlin_step_op *last_ops; /* go to the end of the graph */
    size_t n_last_ops, last_ops_capacity;
    uint32_t squares;                 /* tensor: sum of the gradients' squares so far, or NONE */
    struct dunlin_products *products; /* integer/products.h; NULL: all is in float32 */
    dunlin_status status;             /* the first failure */
    dunlin_error *error;
};

/* The node's products are in integers: it reads and writes whole tensors of floats. */
static inline bool dunlin__emit_is_product(const dunlin_emit *emit, const dunlin_net_node *node)
{
    return emit->products != NULL &&
           (node->kind == DUNLIN_OP_CONV || node->kind == DUNLIN_OP_DENSE);
}

/* Records the first failure; always returns `status`. */
dunlin_status dunlin__emit_fail(dunlin_emit *emit, dunlin_status status, const char *text);

/* --- fuse.c: who is folded into whom; decided before anything is emitted --- */

/* A clip or another function is between what is stored, or normalised, and the value. */
static inline bool dunlin__fuse_is_active(const dunlin_emit_value *value)
{
    return value->low > -HUGE_VALF || value->high < HUGE_VALF || value->fn != DUNLIN_VIEW_CLIP;
}

/* Fills values, chains and leaves. */
void dunlin__fuse_plan(dunlin_emit *emit);
/* The node is a concatenation in place. */
bool dunlin__fuse_is_chained(const dunlin_emit *emit, size_t node_index);
/* The node's values as far as gradients go to them: a concatenation's are its base and its leaves.
 */
uint32_t dunlin__fuse_n_inputs(const dunlin_emit *emit, size_t node_index);
uint32_t dunlin__fuse_input(const dunlin_emit *emit, size_t node_index, uint32_t index);
/* The node is an activation that its input's producer or reader does: it emits nothing itself. */
bool dunlin__fuse_is_folded(const dunlin_emit *emit, size_t node_index);
/* Makes the output of a folded node. */
void dunlin__fuse_forward(dunlin_emit *emit, size_t node_index);

/* --- view.c: forward --- */

/* Channels, and rows a sample, of a value. */
int64_t dunlin__emit_channels(const dunlin_emit *emit, uint32_t value);
int64_t dunlin__emit_rows(const dunlin_emit *emit, uint32_t value);
/* A compact copy in floats of a value, made where it is first asked for. */
uint32_t dunlin__emit_copy(dunlin_emit *emit, uint32_t value);
/* A part of `parent` of so many channels from `offset` on; rows as the parent's. */
uint32_t dunlin__emit_part(dunlin_emit *emit, const char *name, const char *suffix, uint32_t parent,
                           int64_t rows, int64_t offset, int64_t width);

/*
 * A new tensor of batch norm's sums over so many channels, and its access: accumulated over the
 * batch, or written for each slice alone. `stat` gets the operand. The parts that take the sums:
 * dunlin__emit_sums_parts().
 */
uint32_t dunlin__emit_sums(dunlin_emit *emit, const char *suffix, int64_t channels, bool is_ghost,
                           dunlin_op_list *list, dunlin_stat_ref *stat);
uint8_t dunlin__emit_sums_parts(bool is_ghost);

/* --- gradients.c: backward --- */

void dunlin__emit_reset_grads(dunlin_emit *emit);
/* Sums the pending contributions of the node that has just been emitted into their targets. */
void dunlin__emit_settle(dunlin_emit *emit);
bool dunlin__emit_has_grad(const dunlin_emit *emit, uint32_t value);
/* Adds a gradient to that of a value. */
void dunlin__emit_contribute(dunlin_emit *emit, uint32_t value,
                             const dunlin_emit_gradient *gradient);
/* Nothing more comes: masks it and takes the sums, unless the last contribution did. */
void dunlin__emit_close_grad(dunlin_emit *emit, uint32_t value);
/* Spells a gradient out in a compact tensor of its own. */
void dunlin__emit_materialise_grad(dunlin_emit *emit, uint32_t value);
/* a + b, both compact. */
uint32_t dunlin__emit_sum(dunlin_emit *emit, uint32_t a, uint32_t b);
/* The gradient of a folded node's output is that of its input. */
void dunlin__emit_pass_grad(dunlin_emit *emit, uint32_t from, uint32_t to);

/* Appends the ops of dunlin__emit_run_last(). */
void dunlin__emit_flush_last(dunlin_emit *emit);

/* A tensor named `first` + `second`. */
uint32_t dunlin__emit_named_tensor(dunlin_emit *emit, const char *first, const char *second,
                                   const dunlin_step_tensor *like);

/* --- rows.c: tables whose gradient is kept by rows --- */

/* Decides which, before anything is emitted. */
void dunlin__rows_plan(dunlin_emit *emit);
/* Elements of a parameter's gradient. */
int64_t dunlin__rows_elements(const dunlin_emit *emit, uint32_t param);

/* input.c: the op that fills the inputs' tensors and the outputs' labels from the source. */
void dunlin__emit_input(dunlin_emit *emit);
/* It fills a tensor for each of the network's inputs, so nodes that cut them out emit nothing. */
bool dunlin__emit_stages_parts(const dunlin_emit *emit);
/* When all ops are there: the input op may not run again once a persistent tensor has changed. */
void dunlin__emit_guard_input(dunlin_emit *emit);
/* Staged examples are read in blocks of so many bytes, of one example at least. */
#define DUNLIN_INPUT_BLOCK_BYTES 16384

/* loss.c: the losses of `graph->outputs`; in training also their checks and the gradients of the
 * outputs, NONE where nothing that is trained leads to one or its weight is 0. */
void dunlin__emit_loss(dunlin_emit *emit, uint32_t *out_gradients);

/* dense_loss.c: the same of the class layer's input, whose output is never whole: the gradients of
 * that input and of the layer's parameters are pending. `sums`: a tensor. */
void dunlin__emit_dense_loss(dunlin_emit *emit, uint32_t sums);

/* update.c: the gradient hook and the update of one parameter whose gradient is complete; with
 * clipping by the global norm the hook and its part of the norm, and the update waits. */
void dunlin__emit_update(dunlin_emit *emit, uint32_t param);
/* The updates that wait: after the last dunlin__emit_update(). */
void dunlin__emit_waiting_updates(dunlin_emit *emit);

#endif
