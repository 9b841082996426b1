/*
 * graph.h - the abstract step: what the planner sees of a training step. Sizes, accesses, costs; no
 * operator names.
 *
 * Along the batch every op has a MAP part (sample i of its outputs depends on sample i of its
 * inputs), a REDUCE part (adds over the samples into an accumulator), or both; or it is FIXED (once
 * a step, never recomputed). A tensor has bytes per sample, or fixed bytes. The order of `ops` is a
 * correct order of the plain step: one loop, one slice.
 *
 * Map parts may also pass on something about their slice as a whole, in a tensor of the slice. Then
 * what a step computes depends on the slices, and all of them must be the same in a plan.
 *
 * A tensor may be swapped: written out to a file of the caller and read back later. That is a pair
 * of ops after all others, which have no place in the order: a plan runs them anywhere, or not at
 * all.
 */
#ifndef DUNLIN_MEM_GRAPH_H
#define DUNLIN_MEM_GRAPH_H

#include <dunlin/alloc.h>
#include <dunlin/base.h>

#define DUNLIN_MEM_NONE UINT32_MAX

/* Every placed tensor starts at a multiple of this; sizes are rounded up to it. */
#define DUNLIN_MEM_ALIGN 64

typedef enum dunlin_mem_class {
    DUNLIN_MEM_WEIGHT = 0,  /* persistent: parameters */
    DUNLIN_MEM_STATISTIC,   /* persistent: running statistics */
    DUNLIN_MEM_OPTIMIZER,   /* persistent: optimiser state */
    DUNLIN_MEM_INPUT,       /* staged examples and labels */
    DUNLIN_MEM_ACTIVATION,  /* outputs of the forward pass */
    DUNLIN_MEM_SAVED,       /* kept only for the backward pass: pooling indices, batch statistics */
    DUNLIN_MEM_GRADIENT,    /* gradients of activations */
    DUNLIN_MEM_ACCUMULATOR, /* fixed tensors that reducers add into: weight gradients, loss, sums */
    DUNLIN_MEM_WORKSPACE,   /* of one op, while it runs */
    DUNLIN_MEM_N_CLASSES
} dunlin_mem_class;

/* "weights", "activations" ...; never NULL. */
const char *dunlin__mem_class_name(dunlin_mem_class mem_class);

/* In what a tensor is stored. */
typedef enum dunlin_mem_stored {
    DUNLIN_MEM_AS_COMPUTED = 0,
    DUNLIN_MEM_IN_BF16,
    DUNLIN_MEM_IN_INT8
} dunlin_mem_stored;

/* Exactly one of sample_bytes and fixed_bytes is not 0. */
typedef struct dunlin_mem_tensor {
    const char *name; /* borrowed, for dumps */
    uint64_t sample_bytes;
    uint64_t fixed_bytes;
    dunlin_mem_class mem_class;
    bool is_persistent; /* alive before and after the step; always fixed_bytes */
    /* fixed_bytes that belong to the current slice (statistics over its samples): written by map
     * parts, dropped and recomputed like what has bytes per sample, never kept for the batch */
    bool is_per_slice;
    /* fixed_bytes of the step that keep one address through the whole step, at the bottom of the
     * pool and the same in every plan: what a change of plans in mid-step need not move */
    bool is_pinned;
    /* fixed_bytes that were chosen for the current batch: the same step at another batch has others
     */
    bool follows_batch;
    uint32_t parent; /* DUNLIN_MEM_NONE, or the tensor this one is a part of (concat); of the same
                        kind */
    uint8_t stored;  /* dunlin_mem_stored, for drawings */
    uint64_t parent_offset; /* where the part's first byte lies in the parent (within each sample,
                               if batch-indexed) */
} dunlin_mem_tensor;

typedef enum dunlin_mem_mode {
    DUNLIN_MEM_READ = 0,   /* of a fixed, not persistent tensor: only once it is final */
    DUNLIN_MEM_WRITE,      /* overwrites; the first write begins the tensor's live range */
    DUNLIN_MEM_ACCUMULATE, /* a reducer adds every sample once, in order; starts from zero at the
                              first sample */
    DUNLIN_MEM_UPDATE /* reads the old and writes the new version: persistent tensors, by FIXED ops
                       */
} dunlin_mem_mode;

/* Has one allocation for the whole step at the bottom of the arena: persistent, or pinned. */
bool dunlin__mem_is_static(const dunlin_mem_tensor *tensor);

/* Of one slice: by sample, or once for the slice. Else fixed: of the whole batch. */
bool dunlin__mem_is_sliced(const dunlin_mem_tensor *tensor);

/* Parts of an op, as bits. */
enum { DUNLIN_MEM_MAP = 1, DUNLIN_MEM_REDUCE = 2, DUNLIN_MEM_FIXED = 4 };

/* One tensor touched by an op, and by which of its parts (bits). */
typedef struct dunlin_mem_access {
    uint32_t tensor;
    uint8_t mode;
    uint8_t parts;
} dunlin_mem_access;

/* One way to run an op. Variants never change a bit of the result. Workspace is fixed + per sample
 * of the slice; of a FIXED op, fixed alone, and so are its costs. */
typedef struct dunlin_mem_variant {
    const char *name;
    const dunlin_mem_access *accesses;
    uint32_t n_accesses;
    uint64_t workspace_fixed_bytes;
    uint64_t workspace_sample_bytes;
    uint64_t cost_fixed_ns;   /* per slice */
    uint64_t cost_sample_ns;  /* per sample */
    uint16_t reduce_permille; /* thousandths of both that the reduce part takes: a map part that
                                 runs again does without; at most 1000 */
    int32_t in_place_write;   /* access index whose tensor may lie on that of access in_place_read;
                                 -1: none */
    int32_t in_place_read;
} dunlin_mem_variant;

typedef struct dunlin_mem_op {
    const char *name;
    uint8_t parts;      /* MAP, REDUCE, MAP | REDUCE, or FIXED */
    bool may_recompute; /* its map part may run again */
    bool is_backward;   /* for dumps and policies: belongs to the backward pass or the update */
    const dunlin_mem_variant *variants; /* at least one */
    uint32_t n_variants;
} dunlin_mem_op;

typedef struct dunlin_mem_graph {
    const dunlin_mem_tensor *tensors;
    uint32_t n_tensors;
    const dunlin_mem_op *ops; /* n_ops, then the pairs of n_swaps */
    uint32_t n_ops;
    uint32_t n_swaps;
} dunlin_mem_graph;

/*
 * Op n_ops + 2 s writes a tensor out, and op n_ops + 2 s + 1 reads it back, as it was: the same
 * tensor, batched, no part of another, by one access of a map part (READ, and WRITE). Both may run
 * in loops of a single slice alone. The file is the caller's.
 */
typedef enum dunlin_mem_swap {
    DUNLIN_MEM_SWAP_NO = 0, /* an op of the step */
    DUNLIN_MEM_SWAP_OUT,
    DUNLIN_MEM_SWAP_IN
} dunlin_mem_swap;
dunlin_mem_swap dunlin__mem_swap_of(const dunlin_mem_graph *graph, uint32_t op);

/* Ops of the step and of all pairs. */
uint32_t dunlin__mem_n_all_ops(const dunlin_mem_graph *graph);

/* Some tensor belongs to a slice as a whole: the results depend on the slice size. */
bool dunlin__graph_is_per_slice(const dunlin_mem_graph *graph);

/*
 * Checks all the rules above plus: indices in range; every read of a tensor that is not persistent
 * comes after a write or an accumulate of it; a fixed tensor is read only after all its reducers;
 * no tensor is both written and accumulated; only FIXED ops UPDATE, and write fixed tensors; all
 * variants of an op change the same tensors; sizes and times cannot overflow at `batch` samples. A
 * tensor made of parts may be read once each part that is ever written has been. ARGUMENT or
 * OVERFLOW with a text that names the op and the tensor; MEMORY. `alloc` NULL: the default.
 */
DUNLIN_NODISCARD dunlin_status dunlin__graph_check(const dunlin_mem_graph *graph, uint64_t batch,
                                                   const dunlin_alloc *alloc, dunlin_error *error);

/*
 * True if the step can run slice by slice: no op with a map or reduce part waits, directly or
 * through FIXED ops, for a finished reduction of the same step (a barrier: batch norm's
 * statistics). `out_barrier_op` (may be NULL) is the first that does wait, else NONE. Needs a byte
 * an op and nine a tensor from the C library for the time of the call; false with NONE without
 * them. The graph has passed its check.
 */
bool dunlin__graph_is_sliceable(const dunlin_mem_graph *graph, uint32_t *out_barrier_op);

#endif
