/*
 * narrow.h - ops that read or write tensors in bfloat16: they run on some samples at a time, for
 * which these tensors lie as floats in the op's workspace.
 *
 * Cutting a slice changes no bit (kernels.h), so neither does it here.
 */
#ifndef DUNLIN_GRAPH_NARROW_H
#define DUNLIN_GRAPH_NARROW_H

#include "build.h"

/* What an op takes in its workspace beside the kernel's own. */
typedef struct dunlin_narrow {
    uint32_t n;            /* its tensors in bfloat16; 0: the op runs as it is */
    int64_t n_samples;     /* at a time, at most */
    int64_t sample_floats; /* of these tensors, for one sample, each from a line of 64 bytes on */
} dunlin_narrow;

/* Of an op of `graph`; ops that swap move bytes, and have none. */
dunlin_narrow dunlin__narrow_of(const dunlin_step_graph *graph, const dunlin_step_op *op);

/* Bytes of the floats: all of workspace that is not the kernel's. */
uint64_t dunlin__narrow_bytes(const dunlin_narrow *narrow);

/* Runs the op with `call`, whose workspace ends with the floats. */
dunlin_status dunlin__narrow_run(const dunlin_step_graph *graph, const dunlin_step_op *op,
                                 const dunlin_narrow *narrow, const dunlin_kernel_call *call);

#endif
