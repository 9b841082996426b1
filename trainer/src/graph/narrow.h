/*
 * narrow.h - ops that read or write tensors in bfloat16 or in int8 with scales: they run on some
 * samples at a time, for which these tensors lie as floats in the op's workspace. What a kernel can
 * take where it lies (reads_halves, writes_halves of dunlin_step_op) has no floats there.
 *
 * Cutting a slice changes no bit (kernels.h), so neither does it here.
 */
#ifndef DUNLIN_GRAPH_NARROW_H
#define DUNLIN_GRAPH_NARROW_H

#include "build.h"

/* What an op takes in its workspace beside the kernel's own, and what it packs and unpacks. */
typedef struct dunlin_narrow {
    uint32_t n;            /* its tensors of fewer bits; 0: the op runs as it is */
    int64_t n_samples;     /* at a time, at most */
    int64_t sample_floats; /* of these tensors, for one sample, each from a line of 64 bytes on */
    int64_t sample_halves; /* of them, those in bfloat16 */
    int64_t sample_placed; /* beside them, elements that the kernel takes where they lie */
    int64_t sample_loads, sample_stores; /* of int8 that is read, and that is written */
    int64_t sample_copied; /* of what is gathered (gather.h), all, besides those of its members */
    int64_t room_floats;   /* for a sample of one of them, behind all others */
} dunlin_narrow;

/* A tensor of fewer bits in an op under way. */
struct dunlin_narrow_place {
    const dunlin_step_tensor *tensor;
    unsigned char *bytes; /* in the arena, of the piece's first sample */
    float *floats;        /* NULL: the kernel takes the bytes */
    bool is_read, is_written;
    bool is_stored; /* who has stored the piece's floats says so; else they are afterwards */
};

/* The tensor is stored in fewer bits than it is computed in. */
bool dunlin__narrow_is(const dunlin_step_tensor *tensor);
/* It is int8 with scales. */
static inline bool dunlin__narrow_is_scaled(const dunlin_step_tensor *tensor)
{
    return tensor->scaled_channels > 0;
}

/* The operand is bfloat16 that the kernel takes where it lies; -1: none. */
bool dunlin__narrow_is_placed(const dunlin_kernel_call *call, int32_t operand);

/* Of an op of `graph`; ops that swap move bytes, and have none. */
dunlin_narrow dunlin__narrow_of(const dunlin_step_graph *graph, const dunlin_step_op *op);

/* Bytes of the floats: all of workspace that is not the kernel's. */
uint64_t dunlin__narrow_bytes(const dunlin_narrow *narrow);

/* Stores the floats of a call's samples in int8; `writes_back`: they become what will be read. */
void dunlin__narrow_store(const dunlin_kernel_call *call, dunlin_narrow_place *place,
                          bool writes_back);

/* Runs the op with `call`, whose workspace ends with the floats. */
dunlin_status dunlin__narrow_run(const dunlin_step_graph *graph, const dunlin_step_op *op,
                                 const dunlin_narrow *narrow, const dunlin_kernel_call *call);

#endif
