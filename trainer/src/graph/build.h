/*
 * build.h - from a network to the training graph of one step, or to the graph of an evaluation.
 *
 * Order of a training graph: the input op; the nodes forward; the loss, and a check that it is
 * finite; the nodes backward, each parameter's update as soon as its gradient is complete and
 * nothing reads the old weights any more; running statistics last. With clipping by the global
 * norm, or if they are asked for last, the updates come after all nodes, before the statistics. So
 * everything that can fail comes before the first write to a weight.
 *
 * The tensors [0, n_persistent) are the same, in the same order, for both modes of a network with
 * the same options: so both graphs' plans agree on the addresses of all persistent tensors.
 */
#ifndef DUNLIN_GRAPH_BUILD_H
#define DUNLIN_GRAPH_BUILD_H

#include "bump.h"
#include "emitter.h"
#include "end.h"
#include "step.h"

#define DUNLIN_STEP_MAX_SLOTS 4

typedef struct dunlin_precision dunlin_precision; /* integer/precision.h */

/* The loss of an output, and its weight in the sum of all. */
typedef struct dunlin_step_loss {
    dunlin_loss loss;
    float weight, smoothing, margin;
} dunlin_step_loss;

typedef struct dunlin_step_build_options {
    dunlin_emit_mode mode;
    int64_t batch; /* the most samples of a step, which the room for rows of tables' gradients goes
                      by; 0: not known, all gradients are dense */
    const char *frozen_prefixes; /* comma-separated, of parameter names; NULL: none */
    /* As in the trainer's options; choice.h says what they mean. */
    const char *trained_prefixes;
    dunlin_trained trained;
    bool no_norm_decay;
    const dunlin_parameter_group *groups;
    int32_t n_groups;
    bool freeze_batch_norm;
    bool is_ghost;   /* batch norm takes its statistics of each slice alone */
    bool is_fused;   /* batch norm, clips and concatenations are done where values are read and
                        written */
    bool reads_sums; /* backward a residual sum is read as it was stored, never through its terms */
    bool has_momentum;
    dunlin_optimizer optimizer; /* Adam's state comes instead of the momentum */
    bool clips_norm;
    bool updates_last; /* no weight changes before all gradients are there */
    dunlin_loss loss;
    float label_smoothing;
    const dunlin_step_loss *losses; /* of each output; NULL: those two, of weight 1 */
    bool has_first_output_alone;    /* what leads to the other ones is not computed */
    int32_t n_class_weights;        /* 0: there are none */
    bool has_gradient_hook;
    int32_t n_gradient_slots;           /* 0 to DUNLIN_STEP_MAX_SLOTS */
    dunlin_storage storage;             /* what is kept in fewer bits; rounded.h */
    const dunlin_precision *precision;  /* NULL: float32 */
    const dunlin_int_kernels *integers; /* with a precision */
} dunlin_step_build_options;

/* The persistent tensors of one parameter of the network. */
typedef struct dunlin_step_param {
    uint32_t tensor;
    uint32_t
        low; /* the lower bytes of int8 weights that are kept in 16 bits; NONE: there are none */
    uint32_t momentum;                     /* or Adam's mean of the gradient; NONE: no buffer */
    uint32_t square;                       /* Adam's mean of its squares; NONE: no buffer */
    uint32_t slots[DUNLIN_STEP_MAX_SLOTS]; /* NONE: no such slot */
    uint32_t rows; /* DUNLIN_ROW_ of each row of a table whose gradient is kept by rows: what is
                      known of the optimiser's state, 0 whenever that comes from elsewhere; NONE */
    int64_t n_set; /* of a torn trainer: elements that have been set since, from the first on */
    bool is_trained;
    int32_t group; /* of the graph's; -1: none */
} dunlin_step_param;

/* A group as lists tell it. */
typedef struct dunlin_step_group {
    const char *name;
    float lr_factor, decay_factor;
} dunlin_step_group;

/* An output of the network, as the step looks at it. */
typedef struct dunlin_step_output {
    const char *name; /* in the pool */
    dunlin_step_loss loss;
    dunlin_end end;    /* that the loss includes */
    int32_t n_classes; /* or numbers, of a row */
    int64_t n_rows;    /* a sample: pixels, tokens, or 1; each has a label */
    bool is_image;     /* its rows are pixels, and the model has channels first */
    uint32_t labels;   /* tensor: n_rows int32 a sample, or n_rows x n_classes floats: targets */
    uint32_t logits;   /* tensor */
    uint32_t sums;     /* tensor: DUNLIN_N_LOSS_SUMS doubles */
} dunlin_step_output;

typedef struct dunlin_step_graph {
    dunlin_alloc alloc;
    dunlin_step_pool pool; /* names, accesses, parameters of kernels */
    dunlin_step_tensor *tensors;
    size_t n_tensors, tensors_capacity;
    dunlin_step_op *ops; /* in an order that is correct as it stands; then the pairs of n_swaps */
    size_t n_ops, ops_capacity;
    size_t n_swaps;            /* swap.h */
    dunlin_step_param *params; /* by the network's parameter index */
    size_t n_params;
    const dunlin_step_group *groups; /* in the pool; NULL: there are none */
    uint32_t n_persistent;
    int64_t batch; /* the most samples of a step, as far as it is known; else 0 */
    dunlin_storage storage;
    bool follows_batch; /* some tensor does: another batch takes another graph */
    bool reads_terms;   /* backward some sum is read through its terms: `reads_sums` makes
                           another graph */
    int64_t n_elements; /* of an example: of all inputs together */
    const dunlin_step_input *inputs; /* in the pool */
    uint32_t n_inputs;
    uint32_t input;              /* tensor: the first input, floats, as the network reads them */
    dunlin_step_output *outputs; /* in the pool; the members below are of the first */
    uint32_t n_outputs;
    uint32_t labels;   /* tensor: n_rows int32 a sample, or n_rows x n_classes floats: targets */
    uint32_t logits;   /* tensor; NONE: they are never whole */
    uint32_t loss;     /* tensor: DUNLIN_N_LOSS_SUMS doubles */
    int32_t n_classes; /* or outputs, of a row */
    int64_t n_rows;    /* of the output, a sample: pixels, tokens, or 1; each has a label */
    bool is_image;     /* the output: its rows are pixels, and the model has channels first */
    int32_t n_ghost_norms; /* batch norms with statistics of slices */
    const char *live_norm; /* the first batch norm that takes statistics of the examples; or NULL */
    const dunlin_precision *precision; /* NULL: float32 */
    uint32_t
        sites; /* tensor, persistent: exponents of a step in integers, or ranges of its products */
    size_t n_sites; /* 0 in float32; of exponents the first are the parameters' */
} dunlin_step_graph;

/*
 * Builds the graph; it does not refer to `net` afterwards. UNSUPPORTED if the output is not one row
 * of logits a sample, or there is no head to train; ARGUMENT if a prefix matches no parameter or a
 * group has none; OVERFLOW; MEMORY.
 */
DUNLIN_NODISCARD dunlin_status dunlin__step_build(const dunlin_net *net,
                                                  const dunlin_step_build_options *options,
                                                  const dunlin_alloc *alloc,
                                                  dunlin_step_graph **out_graph,
                                                  dunlin_error *error);
void dunlin__step_graph_destroy(dunlin_step_graph *graph);

/* Bytes of a tensor: per sample if it is batched, else in all. */
uint64_t dunlin__step_tensor_bytes(const dunlin_step_tensor *tensor);

#endif
