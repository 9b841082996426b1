/*
 * rounded.h - storage in bfloat16 and int8: which tensors of a step hold it, and how sums of batch
 * norm are taken of what such a tensor will hold.
 *
 * Rounded are, by the network alone: outputs of convolutions and dense layers and sums of two
 * values as they are stored, but for the network's output; in bfloat16 sums again where they are
 * read through their terms, which in int8 none is; and, always to bfloat16, gradients of which
 * batch norm's sums are taken, but for one that goes through a batch norm into the gradient of a
 * concatenation: that one is added to by every reader, and would be rounded each time. Nothing else
 * is. A kernel sees floats (narrow.h): whoever reads such a tensor gets the rounded values, the
 * forward pass too; and of a concatenation what its inputs hold (gather.h). So neither budgets nor
 * slices nor forms change a bit.
 */
#ifndef DUNLIN_GRAPH_ROUNDED_H
#define DUNLIN_GRAPH_ROUNDED_H

#include "build.h"
#include "fused.h"

/* After dunlin__emit_store(): the node's output is one of those that are rounded. */
void dunlin__emit_round_store(dunlin_emit *emit, uint32_t value, dunlin_store_ref *ref);

/* An operand holds bfloat16 by now: a kernel that takes it where it lies cannot read floats there.
 */
bool dunlin__emit_is_half(const dunlin_emit *emit, const dunlin_op_list *list, int32_t operand);

/* Sums that are taken when the tensor is rounded, after the kernel that writes it. */
typedef struct dunlin_late_sums {
    uint32_t n;
    dunlin_stat stats[DUNLIN_EPILOGUE_MAX_STATS];
} dunlin_late_sums;

/* Of the kernel alone, and what the sums are taken of. */
typedef struct dunlin_late_room {
    uint64_t bytes;
    int32_t channels;
    int64_t rows_per_sample;
} dunlin_late_room;

/* The workspace of a kernel and then of the sums; returns the fixed bytes. */
uint64_t dunlin__late_workspace(const dunlin_kernels *kernels, const dunlin_late_room *room,
                                uint64_t *sample_bytes);

/* Takes a sink's sums out of it, if its tensor is rounded and the kernel does not do it. */
dunlin_late_sums dunlin__epilogue_hold(const dunlin_epilogue_ref *ref, dunlin_epilogue *epilogue);
/* Rounds and stores what the sink holds, and takes the sums of that; without sums nothing. */
void dunlin__epilogue_finish(const dunlin_kernel_call *call, const dunlin_epilogue_ref *ref,
                             const dunlin_late_sums *late, int64_t rows_per_sample);
/* The same forward. */
void dunlin__store_finish(const dunlin_kernel_call *call, const dunlin_store_ref *ref,
                          int64_t rows_per_sample, int32_t channels);

#endif
