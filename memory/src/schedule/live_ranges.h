/*
 * live_ranges.h - from a schedule to blocks: the live range of each tensor and workspace, and which
 * of them share one allocation.
 */
#ifndef DUNLIN_MEM_LIVE_H
#define DUNLIN_MEM_LIVE_H

#include "pack/portfolio.h"
#include "schedule.h"

/* One instance of an outermost tensor, from its first write to the last touch before it is
 * recomputed. */
typedef struct dunlin_live_range {
    uint32_t tensor;
    uint32_t first_step;
    uint32_t last_step;
    uint32_t block;
    uint32_t loop;  /* it begins there */
    bool is_whole;  /* batched, and touched in more loops than one: it holds the whole batch */
    uint64_t bytes; /* rounded up to DUNLIN_MEM_ALIGN */
} dunlin_live_range;

/*
 * What a schedule keeps alive. One block may serve several live ranges one after another, where an
 * op writes over the input whose live range ends with it. The arrays of a schedule grow with the
 * longest one seen.
 */
typedef struct dunlin_live {
    uint32_t *root; /* the outermost parent of each tensor: itself if it is no part */
    uint8_t *has_parts;
    uint32_t *first_writer; /* by root: the op that begins a new live range of it, or NONE */
    uint32_t *now;          /* by root: its live range at the current step, or NONE */
    uint32_t n_tensors;
    dunlin_live_range *live_ranges;
    uint32_t n_live_ranges;
    dunlin_pack_block *blocks;
    uint32_t n_blocks;
    uint32_t *first_operand;       /* by step, into operand_live_ranges */
    uint32_t *operand_live_ranges; /* by access: NONE for what is persistent or not touched */
    uint32_t *workspace_block;     /* by step; NONE: it needs none */
    uint32_t n_steps_max, n_operands_max, n_live_ranges_max; /* sizes of the arrays */
    dunlin_alloc alloc;
} dunlin_live;

DUNLIN_NODISCARD dunlin_status dunlin__live_open(const dunlin_mem_graph *graph,
                                                 const dunlin_alloc *alloc, dunlin_live *out_live,
                                                 dunlin_error *error);
void dunlin__live_close(dunlin_live *live);

/* Bytes of a variant's workspace for a slice, rounded up. */
uint64_t dunlin__workspace_bytes(const dunlin_mem_variant *variant, uint64_t slice_samples);

/* Bytes of a tensor for a slice, rounded up. Cannot wrap: the graph's check has summed all sizes at
 * the whole batch. */
uint64_t dunlin__tensor_bytes(const dunlin_mem_tensor *tensor, uint64_t slice_samples);

/* Fills `lives`, `blocks` and what leads to them for a schedule. `may_share`: in-place pairs share
 * a block. MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__live_find(const dunlin_mem_graph *graph,
                                                 const dunlin_schedule *schedule, bool may_share,
                                                 dunlin_live *live, dunlin_error *error);

#endif
