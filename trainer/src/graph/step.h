/*
 * step.h - the training graph: what one step computes, as kernels over tensors, in an order that is
 * correct as it stands. Made by autodiff.c through the op rows; lowered to the planner's abstract
 * graph by lower.c, run by exec.c.
 */
#ifndef DUNLIN_GRAPH_STEP_H
#define DUNLIN_GRAPH_STEP_H

#include "kernels/api/integer.h"
#include "kernels/api/kernels.h"
#include "net/net.h"
#include "shuffle.h"

#include <dunlin/alloc.h>
#include <dunlin/source.h>
#include <dunlin/trainer.h>
#include <mem/graph.h>

#define DUNLIN_STEP_NONE UINT32_MAX
#define DUNLIN_STEP_MAX_ACCESSES 144

typedef struct dunlin_step_gather dunlin_step_gather;

/* A tensor of the step. Per sample or fixed, in elements of dtype. */
typedef struct dunlin_step_tensor {
    const char *name;
    dunlin_dtype dtype;
    bool is_batched;
    bool is_per_slice; /* not batched: anew for each slice, a statistic of its samples */
    bool is_gathered;  /* it has no bytes: it is put together from other tensors, for each reader */
    int64_t n_elements; /* per sample, or in all */
    dunlin_mem_class mem_class;
    bool is_persistent;
    bool follows_batch; /* n_elements are those for the batch that the step was built for */
    bool is_part;       /* of `parent`, some of the channels of each of its rows */
    uint32_t parent;
    uint32_t drawn_as; /* int8 is rounded by draws keyed with this number; NONE: to the nearest */
    union {
        int64_t parent_offset;            /* in elements */
        const dunlin_step_gather *gather; /* of what is gathered, in the pool (gather.h) */
    };
    uint32_t n_mask_reads;   /* of its reads, those that only ask whether an element was clipped */
    int32_t scaled_channels; /* of a row: it is int8 with scales (scaled.h), whatever dtype says; 0:
                                it is as dtype says */
} dunlin_step_tensor;

typedef struct dunlin_step_op dunlin_step_op;
typedef struct dunlin_swap dunlin_swap; /* swap.h */
typedef struct dunlin_narrow_place dunlin_narrow_place;

/* Called before and after each op (on samples from `first` on) of a run, to measure times. */
typedef struct dunlin_step_watch {
    void (*op_fn)(void *ctx, const dunlin_step_op *op, int64_t first, int64_t n_samples,
                  bool is_done);
    void *ctx;
} dunlin_step_watch;

/* What a run tells its caller, and those of its ops that fail. */
typedef struct dunlin_step_trace {
    bool has_changed;        /* a weight, a state of the optimiser or a statistic was written */
    uint32_t largest_bits;   /* of the batch's largest input by size, as it was staged */
    int64_t largest_example; /* that has it; -1: none was read yet */
    bool ended_forward;      /* with a loss or a statistic of the batch that is not finite */
    bool looks;              /* at each output of the forward pass, and ends after it; look.h */
} dunlin_step_trace;

/* What is the same for all ops of one run of a step. */
typedef struct dunlin_step_run {
    const dunlin_kernels *kernels;
    const dunlin_int_kernels *integers; /* of the same set */
    dunlin_threads *threads;
    const dunlin_source *source;
    /* Example k of the batch is indices[k]; without indices: shuffle(first_index + k); without
     * either: first_index + k. */
    const int64_t *indices;
    const dunlin_shuffle *shuffle;
    int64_t first_index;
    float *logits; /* inference: where to copy the logits to, n_batch x classes; NULL: not wanted.
                      Labels are then not looked at. */
    uint32_t logits_of; /* which output's */
    int64_t n_batch;    /* samples of this run */
    /* By output: the sum of its rows' weights in the loss, which is the divisor of the mean (their
     * number, without weights); and how many of them have a weight above 0 and no label that is
     * ignored. */
    double weight_sums[DUNLIN_NET_MAX_OUTPUTS];
    int64_t n_counted[DUNLIN_NET_MAX_OUTPUTS];
    const float *class_weights; /* of the loss; NULL: 1 each */
    int64_t *confusion; /* evaluation: n_classes x n_classes, rows of a label by what was scored
                           highest, added to; NULL: not wanted */
    int64_t *ranks;     /* evaluation: n_ranks, rows by how many classes were scored above their
                           label, added to; NULL: not wanted */
    int32_t n_ranks;
    float *rank_room; /* for them: a sample's logits, where the loss does not have them */
    bool has_ignore_label;
    int32_t ignore_label;
    uint64_t seed;
    int64_t step; /* optimiser steps done before: with the seed it keys dropout */
    float lr, momentum, weight_decay;
    bool is_nesterov;
    double beta1, beta2, eps; /* Adam */
    float clip_value;         /* 0: none */
    float clip_norm;          /* looked at in graphs built for it */
    dunlin_gradient_fn gradient_fn;
    void *gradient_ctx;
    double *out_sums;               /* DUNLIN_N_LOSS_SUMS of each output; NULL: not wanted */
    int32_t grad_bits;              /* in integers: of the largest update, which is the rate */
    int32_t weight_growth;          /* in integers: int_update.c; 0: none */
    bool is_calibrating;            /* in integers: finds exponents, and changes no weight */
    const dunlin_step_watch *watch; /* NULL: nobody looks */
    dunlin_swap *swap;              /* of plans that swap; else NULL */
    dunlin_step_trace *trace;       /* NULL: nobody asks */
    dunlin_error *error;
} dunlin_step_run;

/* One op on one slice. */
typedef struct dunlin_kernel_call {
    void *const *operands; /* this slice's address of each access; NULL where the parts that run do
                              not touch it */
    uint32_t parts;        /* DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE, or DUNLIN_MEM_FIXED */
    int64_t first_sample;  /* of the slice, within the batch */
    int64_t n_samples;
    bool is_first; /* the slice starts at sample 0: accumulators start from zero */
    void *workspace;
    size_t workspace_bytes;
    const void *params;
    const dunlin_step_run *run;
    /* Of each operand that is stored in fewer bits: where (narrow.h); NULL: there are none. */
    dunlin_narrow_place *const *places;
} dunlin_kernel_call;

/* A status other than OK ends the step: a source's failure, or a value that is not finite where
 * statistics are taken or something lasting would be written. */
typedef dunlin_status (*dunlin_kernel_fn)(const dunlin_kernel_call *call);

/* What kind of op: the same for all of its uses in all networks. */
typedef struct dunlin_step_kernel {
    const char *name;
    dunlin_kernel_fn run_fn;
    uint8_t parts; /* as dunlin_mem_op */
    bool may_recompute;
    int8_t in_place_write; /* access indices, -1: none */
    int8_t in_place_read;
    /* NULL: no workspace */
    uint64_t (*workspace_fn)(const dunlin_kernels *kernels, const void *params, size_t n_threads,
                             uint64_t *out_sample_bytes);
} dunlin_step_kernel;

struct dunlin_step_op {
    const dunlin_step_kernel *kernel;
    const char *name; /* the node's, with the pass: "conv1", "conv1/weight_grad" */
    const void *params;
    const dunlin_mem_access *accesses; /* as the planner sees them */
    uint16_t n_accesses;
    uint16_t n_own; /* of them, the first: those of its kernel (dunlin__step_own()) */
    bool has_guard; /* the last access reads nothing: it is there for what it keeps in order */
    bool is_backward;
    bool reads_halves;       /* its kernel reads bfloat16 where it lies, if the op only reads it */
    bool writes_halves;      /* and writes it */
    double flops_per_sample; /* for the roofline cost; 0: bytes only */
    double reduce_flops_per_sample;
    double flops_fixed;
};

/* It reads something that is gathered, by accesses behind its kernel's own. */
static inline bool dunlin__step_gathers(const dunlin_step_op *op)
{
    return op->n_own + (op->has_guard ? 1 : 0) < op->n_accesses;
}

/* The n_own accesses of its kernel, in which stands what is gathered itself. */
static inline const dunlin_mem_access *dunlin__step_own(const dunlin_step_op *op)
{
    return dunlin__step_gathers(op) ? op->accesses + op->n_accesses : op->accesses;
}

/* An input of the network as it is staged: elements [first, first + n_elements) of an example. */
typedef struct dunlin_step_input {
    const char *name;
    int64_t first, n_elements;
    int64_t pixels;   /* they lie channels innermost */
    int32_t channels; /* 1 if it is no image */
    int32_t planes;   /* above 0: it is rows (H, W, C), and so many planes may be given for it */
} dunlin_step_input;

/* The most inputs that are staged each by itself; more lie in one tensor, and layers cut them out.
 */
#define DUNLIN_STEP_MAX_INPUTS 64

/* The example at a position of the run's batch. */
int64_t dunlin__run_example(const dunlin_step_run *run, int64_t position);

/* The source answered a read of `n` examples from `index` on with `status`: CALLBACK. */
dunlin_status dunlin__run_fail_source(const dunlin_step_run *run, dunlin_status status,
                                      int64_t index, int64_t n);

/*
 * Has a source with read_arrays_fn read n examples. `raw` has room for `room` examples of four
 * bytes an element; the array of an input begins at room * 4 * first. `answers`: a
 * place for those of each output; NULL: they are not wanted. What the source answered.
 */
dunlin_status dunlin__run_read_arrays(const dunlin_step_run *run, const dunlin_step_input *inputs,
                                      uint32_t n_inputs, const int64_t *indices, int64_t n,
                                      int64_t room, unsigned char *raw, void *const *answers);
/* The source gives targets for this output, and not labels. */
bool dunlin__source_has_targets(const dunlin_source *source, uint32_t output);

/* What the loss of an output is divided by; 1 where none of its rows counts, whose loss is 0. */
double dunlin__run_divisor(const dunlin_step_run *run, uint32_t output);

/* Of a label that counts (not DUNLIN_NO_LABEL), if ranks are wanted: how many classes come before
 * it, those with a higher score, and of the same those below it. */
void dunlin__run_count_rank(const dunlin_step_run *run, const float *scores, int32_t n_classes,
                            int32_t label);

bool dunlin__run_is_ignored(const dunlin_step_run *run, int32_t label);
/* DATA: it is none of the model's classes. */
DUNLIN_NODISCARD dunlin_status dunlin__run_check_label(const dunlin_step_run *run, int32_t label,
                                                       int64_t example, int32_t n_classes);

/* numeric.c: NUMERIC: "WHAT 'NAME' is not finite", with the step and the largest input of the
 * batch. */
DUNLIN_NODISCARD dunlin_status dunlin__run_not_finite(const dunlin_step_run *run, const char *what,
                                                      const char *name);
/* The same of something in the forward pass, where nothing lasting has been written yet. */
DUNLIN_NODISCARD dunlin_status dunlin__run_ends_forward(const dunlin_step_run *run,
                                                        const char *what, const char *name);
/* A run that looks: NUMERIC if what the op has written for these samples is not finite, or if it is
 * of the backward pass (then without a word in run->error). */
DUNLIN_NODISCARD dunlin_status dunlin__run_look(const dunlin_step_run *run,
                                                const dunlin_step_tensor *tensors,
                                                const dunlin_step_op *op, void *const *operands,
                                                int64_t n_samples);
/* A persistent tensor was written. */
void dunlin__run_note_change(const dunlin_step_run *run);

#endif
