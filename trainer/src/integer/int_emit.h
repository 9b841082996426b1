/*
 * int_emit.h - what a row of integer operators sees of a step under construction, and the state
 * behind it: where values and errors lie and at which sites their exponents are.
 *
 * Sites are numbered alike in training and inference: the parameters', the values', the errors'
 * (one for each input of a node, and one for what is added up there), and the last one, that of the
 * loss.
 */
#ifndef DUNLIN_INTEGER_INT_EMIT_H
#define DUNLIN_INTEGER_INT_EMIT_H

#include "graph/emit.h"
#include "kernels/api/integer.h"
#include "precision.h"
#include "site.h"

#define DUNLIN_INTEGER_MAX_ACCESSES 72

/* A tensor of int8, and the site of its exponent. */
typedef struct dunlin_integer_ref {
    uint32_t tensor; /* DUNLIN_STEP_NONE: none yet */
    uint32_t site;
} dunlin_integer_ref;

/* What becomes of a value's activation and mask: int_fold.c. */
typedef struct dunlin_integer_fold {
    uint32_t n_readers;   /* the loss is one */
    uint32_t stored_as;   /* the clipped value in whose place it lies; DUNLIN_STEP_NONE: none */
    float high;           /* it lies within [0, high]; 0: it is not clipped */
    bool is_masked_later; /* by the error of what was made of it */
    bool is_masked;       /* its error is, by its reader */
} dunlin_integer_fold;

typedef struct dunlin_integer {
    dunlin_emit *emit;
    const dunlin_precision *precision;
    dunlin_integer_fold *folds; /* net->n_values */
    dunlin_integer_ref *values; /* net->n_values */
    dunlin_integer_ref *errors; /* net->n_values: of what came so far */
    dunlin_integer_link *links; /* in the order in which they are computed */
    size_t n_links, links_capacity;
    uint32_t counts;  /* tensor; DUNLIN_STEP_NONE: nothing is counted */
    bool *is_updated; /* net->n_params */
} dunlin_integer;

/* Sites of a network's step; the first that is no parameter's; the loss's. */
size_t dunlin__integer_n_sites(const dunlin_net *net);
uint32_t dunlin__integer_first_site(const dunlin_net *net);
uint32_t dunlin__integer_loss_site(const dunlin_net *net);
uint32_t dunlin__integer_value_site(const dunlin_net *net, uint32_t value);
/* Of the error that the current node hands to its input `index`. */
uint32_t dunlin__integer_error_site(const dunlin_integer *integer, uint32_t index);

/* The parameters of an integer kernel begin with this. */
typedef struct dunlin_integer_op {
    dunlin_integer_link link; /* of what it writes */
    int32_t sites_operand;
    int32_t counts_operand; /* -1: it does not count */
} dunlin_integer_op;

/* An op under construction. */
typedef struct dunlin_integer_draft {
    const dunlin_step_kernel *kernel;   /* a map */
    const dunlin_step_kernel *counting; /* the same, with the reduce part that counts; NULL: it
                                           rounds nothing */
    const char *suffix;
    void *params; /* beginning with a dunlin_integer_op */
    size_t params_bytes;
    dunlin_mem_access accesses[DUNLIN_INTEGER_MAX_ACCESSES];
    uint32_t n;
    double flops_per_sample;
} dunlin_integer_draft;

void dunlin__integer_read(dunlin_integer_draft *draft, uint32_t tensor);
void dunlin__integer_write(dunlin_integer_draft *draft, uint32_t tensor);
/* Adds the table of sites and the counts to what it reads and writes, and emits it; a counting op
 * gets its link into the list. */
void dunlin__integer_emit(dunlin_integer *integer, dunlin_integer_draft *draft);
/* Adds a link. */
void dunlin__integer_add_link(dunlin_integer *integer, const dunlin_integer_link *link);

/* The output of a kernel on a slice: the sites opened by its parameters. */
dunlin_site_output dunlin__integer_open(const dunlin_kernel_call *call);

/* A new tensor for the node's output, at a site of its own; it becomes the value's. */
dunlin_integer_ref dunlin__integer_output(dunlin_integer *integer, uint32_t value);
/* The same of a node that clips as it stores: named as the value that it stores. */
dunlin_integer_ref dunlin__integer_clipped_output(dunlin_integer *integer, uint32_t value);
/* A new tensor for an error of the value, at no site. */
uint32_t dunlin__integer_error_tensor(dunlin_integer *integer, uint32_t value);
/* A new tensor for the error of the current node's input, at a site of its own. */
dunlin_integer_ref dunlin__integer_error(dunlin_integer *integer, uint32_t index);
/* The current node's error for its input `index`: this tensor. Adds it to what came before. */
void dunlin__integer_contribute(dunlin_integer *integer, uint32_t index, dunlin_integer_ref error);
/* The current node's input needs an error. */
bool dunlin__integer_needs_error(const dunlin_integer *integer, const dunlin_net_node *node,
                                 uint32_t index);

/* --- int_fold.c --- */

void dunlin__integer_plan_folds(dunlin_integer *integer);
/* The value that is stored in place of this one, as a rule itself. */
uint32_t dunlin__integer_stored_as(const dunlin_integer *integer, uint32_t value);
/* What clips as it stores the value: the upper bound; 0: it does not clip. */
float dunlin__integer_clips_to(const dunlin_integer *integer, uint32_t value);
/* The current node, a linear one, is to mask the error of its input as it stores it. */
bool dunlin__integer_masks_error(dunlin_integer *integer, uint32_t value);

/* --- pointwise.c --- */

/* The upper bound in units of the site, which is clipped to [0, bound]: 1 at least, 128 where there
 * is none. */
int32_t dunlin__integer_bound(const dunlin_integer_site *sites, uint32_t site, float high);
/* The range that sums are clipped to as they are stored at their site; high 0: none, unchanged. */
void dunlin__integer_clip_range(const dunlin_site_output *output, float high, int32_t *out_low,
                                int32_t *out_high);
/* Masks the error of a clipped value, if nobody else does. */
void dunlin__integer_emit_mask(dunlin_integer *integer, uint32_t value);

/* --- ends.c: the step's input and its loss --- */

/* Rounds the input's floats. */
void dunlin__integer_emit_input(dunlin_integer *integer);
/* The loss of the logits; in training its check, and the error of the logits. */
void dunlin__integer_emit_loss(dunlin_integer *integer);

/* --- int_update.c --- */

/*
 * The accumulator of a parameter's gradient, to which each sample adds `terms` products of two
 * int8: in the precision's sums, or in its wide ones where those cannot hold a batch; `is_narrow`:
 * the kernel has no wide ones, OVERFLOW then.
 */
uint32_t dunlin__integer_gradient(dunlin_integer *integer, uint32_t param, int64_t terms,
                                  bool is_narrow);
/* The update of a parameter whose gradient is complete. */
void dunlin__integer_emit_update(dunlin_integer *integer, uint32_t param);
/* The exponents of the next batch, and those of weights that grow; the last ops of a step. */
void dunlin__integer_emit_adapt(dunlin_integer *integer);

#endif
