/*
 * live.h - from a schedule to blocks: how long each tensor and workspace lives, and which share
 * one place.
 */
#ifndef DUNLIN_MEM_LIVE_H
#define DUNLIN_MEM_LIVE_H

#include "pack.h"
#include "schedule.h"

/* Life of an outermost tensor in steps; first_step NONE: it does not live in the pool. */
typedef struct dunlin_life {
    uint32_t first_step;
    uint32_t last_step;
    uint32_t block;
    uint64_t bytes; /* rounded up to DUNLIN_MEM_ALIGN */
} dunlin_life;

/*
 * What a schedule keeps alive. One block may serve several tensors in turn, where an op writes on
 * the place of the input that dies with it. Room: `lives` one a tensor, `workspace_block` one a
 * step, `blocks` tensors + steps.
 */
typedef struct dunlin_live {
    uint32_t *root; /* the outermost parent of each tensor: itself if it is no part */
    uint8_t *has_parts;
    dunlin_life *lives;
    uint32_t *workspace_block; /* NONE: the step needs none */
    dunlin_pack_block *blocks;
    uint32_t n_blocks;
    uint32_t n_tensors; /* sizes of the arrays */
    uint32_t n_steps_max;
    dunlin_alloc alloc;
} dunlin_live;

DUNLIN_NODISCARD dunlin_status dunlin__live_open(const dunlin_mem_graph *graph,
                                                 uint32_t n_steps_max, const dunlin_alloc *alloc,
                                                 dunlin_live *out_live, dunlin_error *error);
void dunlin__live_close(dunlin_live *live);

/* Bytes of a variant's workspace for a slice, rounded up. */
uint64_t dunlin__workspace_bytes(const dunlin_mem_variant *variant, uint64_t slice_samples);

/* Fills `lives` and `blocks` for a schedule. `may_share`: in-place pairs share a block. */
void dunlin__live_find(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                       bool may_share, dunlin_live *live);

#endif
