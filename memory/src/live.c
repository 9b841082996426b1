/*
 * live.c - live ranges of a schedule in which each tensor has one instance.
 *
 * Invariant: a block's life covers every step that touches a tensor it serves; what is fixed and
 * touched inside a loop of slices lives through the whole loop, because the next slice needs it
 * again. Rematerialisation cuts a life into several; each piece is then a life of its own here.
 */
#include "live.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <string.h>

dunlin_status dunlin__live_open(const dunlin_mem_graph *graph, uint32_t n_steps_max,
                                const dunlin_alloc *alloc, dunlin_live *out_live,
                                dunlin_error *error)
{
    uint32_t n = graph->n_tensors;
    dunlin_live live = {.n_tensors = n, .n_steps_max = n_steps_max, .alloc = *alloc};
    live.root = dunlin__alloc_array(alloc, n, sizeof *live.root);
    live.has_parts = dunlin__alloc_zeroed(alloc, n, sizeof *live.has_parts);
    live.lives = dunlin__alloc_array(alloc, n, sizeof *live.lives);
    live.workspace_block = dunlin__alloc_array(alloc, n_steps_max, sizeof *live.workspace_block);
    live.blocks = dunlin__alloc_array(alloc, (size_t)n + n_steps_max, sizeof *live.blocks);
    *out_live = live;
    if (live.root == NULL || live.has_parts == NULL || live.lives == NULL ||
        live.workspace_block == NULL || live.blocks == NULL) {
        dunlin__live_close(out_live);
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                            "no memory for the live ranges of %u tensors", (unsigned)n);
    }
    for (uint32_t t = 0; t < n; t++) {
        uint32_t root = t;
        while (graph->tensors[root].parent != DUNLIN_MEM_NONE) {
            root = graph->tensors[root].parent;
        }
        live.root[t] = root;
        if (graph->tensors[t].parent != DUNLIN_MEM_NONE) {
            live.has_parts[graph->tensors[t].parent] = 1;
        }
    }
    return DUNLIN_OK;
}

void dunlin__live_close(dunlin_live *live)
{
    size_t n = live->n_tensors;
    size_t n_steps = live->n_steps_max;
    dunlin__free_array(&live->alloc, live->blocks, n + n_steps, sizeof *live->blocks);
    dunlin__free_array(&live->alloc, live->workspace_block, n_steps, sizeof *live->workspace_block);
    dunlin__free_array(&live->alloc, live->lives, n, sizeof *live->lives);
    dunlin__free_array(&live->alloc, live->has_parts, n, sizeof *live->has_parts);
    dunlin__free_array(&live->alloc, live->root, n, sizeof *live->root);
    memset(live, 0, sizeof *live);
}

/* Cannot wrap: the graph's check has summed all sizes at the whole batch. */
static uint64_t rounded(uint64_t n, uint64_t sample_bytes, uint64_t fixed_bytes)
{
    uint64_t bytes = 0;
    (void)dunlin__align_u64(n * sample_bytes + fixed_bytes, DUNLIN_MEM_ALIGN, &bytes);
    return bytes;
}

uint64_t dunlin__workspace_bytes(const dunlin_mem_variant *variant, uint64_t slice_samples)
{
    return rounded(slice_samples, variant->workspace_sample_bytes, variant->workspace_fixed_bytes);
}

static void touch(dunlin_life *life, uint32_t first_step, uint32_t last_step)
{
    if (life->first_step == DUNLIN_MEM_NONE) {
        life->first_step = first_step;
        life->last_step = last_step;
    }
    life->first_step = first_step < life->first_step ? first_step : life->first_step;
    life->last_step = last_step > life->last_step ? last_step : life->last_step;
}

static void find_lives(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                       const dunlin_plan_loop *loop, bool has_more_slices, dunlin_live *live)
{
    uint32_t loop_last = loop->first_step + loop->n_steps - 1;
    for (uint32_t k = loop->first_step; k <= loop_last; k++) {
        const dunlin_schedule_step *step = &schedule->steps[k];
        const dunlin_mem_variant *variant = &graph->ops[step->op].variants[step->variant];
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            uint32_t root = live->root[variant->accesses[a].tensor];
            const dunlin_mem_tensor *tensor = &graph->tensors[root];
            dunlin_life *life = &live->lives[root];
            if (tensor->is_persistent || (variant->accesses[a].parts & step->parts) == 0) {
                continue;
            }
            if (has_more_slices && tensor->fixed_bytes != 0) {
                touch(life, loop->first_step, loop_last);
            } else {
                touch(life, k, k);
            }
            life->bytes = rounded(loop->slice_samples, tensor->sample_bytes, tensor->fixed_bytes);
        }
    }
}

/* The tensor whose place the step's output may take over, or NONE. */
static uint32_t find_heir_of(const dunlin_mem_graph *graph, const dunlin_live *live,
                             const dunlin_schedule_step *step, uint32_t step_index,
                             uint32_t *out_written)
{
    const dunlin_mem_variant *variant = &graph->ops[step->op].variants[step->variant];
    if (variant->in_place_write < 0) {
        return DUNLIN_MEM_NONE;
    }
    const dunlin_mem_access *write = &variant->accesses[variant->in_place_write];
    const dunlin_mem_access *read = &variant->accesses[variant->in_place_read];
    const dunlin_life *old = &live->lives[read->tensor];
    const dunlin_life *fresh = &live->lives[write->tensor];
    if ((write->parts & step->parts) == 0 || (read->parts & step->parts) == 0 ||
        write->tensor == read->tensor || graph->tensors[read->tensor].is_persistent ||
        graph->tensors[read->tensor].parent != DUNLIN_MEM_NONE ||
        graph->tensors[write->tensor].parent != DUNLIN_MEM_NONE ||
        live->has_parts[read->tensor] != 0 || live->has_parts[write->tensor] != 0 ||
        old->last_step != step_index || fresh->first_step != step_index ||
        old->first_step == step_index ||
        graph->tensors[read->tensor].sample_bytes != graph->tensors[write->tensor].sample_bytes ||
        graph->tensors[read->tensor].fixed_bytes != graph->tensors[write->tensor].fixed_bytes) {
        return DUNLIN_MEM_NONE;
    }
    uint32_t n_touches = 0; /* of the dying tensor: another access would still want to see it */
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        n_touches += variant->accesses[a].tensor == read->tensor;
    }
    *out_written = write->tensor;
    return n_touches == 1 ? read->tensor : DUNLIN_MEM_NONE;
}

static uint32_t add_block(dunlin_live *live, uint32_t first_step, uint32_t last_step,
                          uint64_t bytes)
{
    live->blocks[live->n_blocks] =
        (dunlin_pack_block){.first_step = first_step, .last_step = last_step, .bytes = bytes};
    return live->n_blocks++;
}

/* Blocks in the order of their first steps, so that an heir finds its forerunner's block made. */
static void add_step_blocks(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                            uint32_t step_index, uint64_t slice_samples, bool may_share,
                            dunlin_live *live)
{
    const dunlin_schedule_step *step = &schedule->steps[step_index];
    const dunlin_mem_variant *variant = &graph->ops[step->op].variants[step->variant];
    uint32_t written = DUNLIN_MEM_NONE;
    uint32_t old =
        may_share ? find_heir_of(graph, live, step, step_index, &written) : DUNLIN_MEM_NONE;
    if (old != DUNLIN_MEM_NONE && live->lives[old].block != DUNLIN_MEM_NONE) {
        dunlin_life *heir = &live->lives[written];
        heir->block = live->lives[old].block;
        live->blocks[heir->block].last_step = heir->last_step;
    }
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        dunlin_life *life = &live->lives[live->root[variant->accesses[a].tensor]];
        if ((variant->accesses[a].parts & step->parts) != 0 &&
            life->first_step != DUNLIN_MEM_NONE && life->block == DUNLIN_MEM_NONE) {
            life->block = add_block(live, life->first_step, life->last_step, life->bytes);
        }
    }
    uint64_t workspace = dunlin__workspace_bytes(variant, slice_samples);
    live->workspace_block[step_index] =
        workspace == 0 ? DUNLIN_MEM_NONE : add_block(live, step_index, step_index, workspace);
}

void dunlin__live_find(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                       bool may_share, dunlin_live *live)
{
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        live->lives[t] = (dunlin_life){.first_step = DUNLIN_MEM_NONE, .block = DUNLIN_MEM_NONE};
    }
    live->n_blocks = 0;
    for (uint32_t l = 0; l < schedule->n_loops; l++) {
        const dunlin_plan_loop *loop = &schedule->loops[l];
        find_lives(graph, schedule, loop, dunlin__loop_n_slices(loop, schedule->batch) > 1, live);
    }
    for (uint32_t l = 0; l < schedule->n_loops; l++) {
        const dunlin_plan_loop *loop = &schedule->loops[l];
        for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
            add_step_blocks(graph, schedule, k, loop->slice_samples, may_share, live);
        }
    }
}
