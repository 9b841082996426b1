/*
 * live_ranges.c - live ranges of a schedule. A recomputed tensor has one live range for each time
 * it is computed.
 *
 * Invariant: a live range begins where the first op that writes the tensor runs, and ends with the
 * last touch before that op runs again; what is fixed, or holds the whole batch, and is touched
 * inside a loop of slices is alive through the whole loop, because the next slice needs it again.
 */
#include "live_ranges.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <string.h>

static void find_roots(const dunlin_mem_graph *graph, dunlin_live *live)
{
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        uint32_t root = t;
        while (graph->tensors[root].parent != DUNLIN_MEM_NONE) {
            root = graph->tensors[root].parent;
        }
        live->root[t] = root;
        live->first_writer[t] = DUNLIN_MEM_NONE;
        if (graph->tensors[t].parent != DUNLIN_MEM_NONE) {
            live->has_parts[graph->tensors[t].parent] = 1;
        }
    }
    for (uint32_t i = graph->n_ops; i > 0; i--) {
        const dunlin_mem_variant *variant = &graph->ops[i - 1].variants[0];
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            if (variant->accesses[a].mode == DUNLIN_MEM_WRITE) {
                live->first_writer[live->root[variant->accesses[a].tensor]] = i - 1;
            }
        }
    }
}

dunlin_status dunlin__live_open(const dunlin_mem_graph *graph, const dunlin_alloc *alloc,
                                dunlin_live *out_live, dunlin_error *error)
{
    uint32_t n = graph->n_tensors;
    dunlin_live live = {.n_tensors = n, .alloc = *alloc};
    live.root = dunlin__alloc_array(alloc, n, sizeof *live.root);
    live.has_parts = dunlin__alloc_zeroed(alloc, n, sizeof *live.has_parts);
    live.first_writer = dunlin__alloc_array(alloc, n, sizeof *live.first_writer);
    live.now = dunlin__alloc_array(alloc, n, sizeof *live.now);
    *out_live = live;
    if (live.root == NULL || live.has_parts == NULL || live.first_writer == NULL ||
        live.now == NULL) {
        dunlin__live_close(out_live);
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                            "no memory for the live ranges of %u tensors", (unsigned)n);
    }
    find_roots(graph, out_live);
    return DUNLIN_OK;
}

static void free_schedule_arrays(dunlin_live *live)
{
    const dunlin_alloc *alloc = &live->alloc;
    size_t n_steps = live->n_steps_max;
    dunlin__free_array(alloc, live->blocks, live->n_live_ranges_max, sizeof *live->blocks);
    dunlin__free_array(alloc, live->live_ranges, live->n_live_ranges_max,
                       sizeof *live->live_ranges);
    dunlin__free_array(alloc, live->operand_live_ranges, live->n_operands_max,
                       sizeof *live->operand_live_ranges);
    dunlin__free_array(alloc, live->workspace_block, n_steps, sizeof *live->workspace_block);
    dunlin__free_array(alloc, live->first_operand, n_steps, sizeof *live->first_operand);
    live->blocks = NULL;
    live->live_ranges = NULL;
    live->operand_live_ranges = NULL;
    live->workspace_block = NULL;
    live->first_operand = NULL;
    live->n_steps_max = live->n_operands_max = live->n_live_ranges_max = 0;
}

void dunlin__live_close(dunlin_live *live)
{
    size_t n = live->n_tensors;
    free_schedule_arrays(live);
    dunlin__free_array(&live->alloc, live->now, n, sizeof *live->now);
    dunlin__free_array(&live->alloc, live->first_writer, n, sizeof *live->first_writer);
    dunlin__free_array(&live->alloc, live->has_parts, n, sizeof *live->has_parts);
    dunlin__free_array(&live->alloc, live->root, n, sizeof *live->root);
    memset(live, 0, sizeof *live);
}

static const dunlin_mem_variant *variant_of(const dunlin_mem_graph *graph,
                                            const dunlin_schedule_step *step)
{
    return &graph->ops[step->op].variants[step->variant];
}

/* Room for a schedule: each access of a WRITE or ACCUMULATE may begin a live range, each step has
 * one workspace. */
static dunlin_status reserve(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                             dunlin_live *live, dunlin_error *error)
{
    uint32_t n_operands = 0;
    uint32_t n_live_ranges = schedule->n_steps;
    for (uint32_t k = 0; k < schedule->n_steps; k++) {
        const dunlin_mem_variant *variant = variant_of(graph, &schedule->steps[k]);
        n_operands += variant->n_accesses;
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            n_live_ranges += variant->accesses[a].mode != DUNLIN_MEM_READ;
        }
    }
    if (live->first_operand != NULL && schedule->n_steps <= live->n_steps_max &&
        n_operands <= live->n_operands_max && n_live_ranges <= live->n_live_ranges_max) {
        return DUNLIN_OK;
    }
    const dunlin_alloc *alloc = &live->alloc;
    free_schedule_arrays(live);
    live->n_steps_max = schedule->n_steps;
    live->n_operands_max = n_operands;
    live->n_live_ranges_max = n_live_ranges;
    live->first_operand =
        dunlin__alloc_array(alloc, schedule->n_steps, sizeof *live->first_operand);
    live->workspace_block =
        dunlin__alloc_array(alloc, schedule->n_steps, sizeof *live->workspace_block);
    live->operand_live_ranges =
        dunlin__alloc_array(alloc, n_operands, sizeof *live->operand_live_ranges);
    live->live_ranges = dunlin__alloc_array(alloc, n_live_ranges, sizeof *live->live_ranges);
    live->blocks = dunlin__alloc_array(alloc, n_live_ranges, sizeof *live->blocks);
    if (live->first_operand == NULL || live->workspace_block == NULL ||
        live->operand_live_ranges == NULL || live->live_ranges == NULL || live->blocks == NULL) {
        free_schedule_arrays(live);
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                            "no memory for the live ranges of %u steps",
                            (unsigned)schedule->n_steps);
    }
    return DUNLIN_OK;
}

uint64_t dunlin__tensor_bytes(const dunlin_mem_tensor *tensor, uint64_t slice_samples)
{
    uint64_t bytes = 0;
    (void)dunlin__align_u64(slice_samples * tensor->sample_bytes + tensor->fixed_bytes,
                            DUNLIN_MEM_ALIGN, &bytes);
    return bytes;
}

uint64_t dunlin__workspace_bytes(const dunlin_mem_variant *variant, uint64_t slice_samples)
{
    uint64_t bytes = 0;
    (void)dunlin__align_u64(slice_samples * variant->workspace_sample_bytes +
                                variant->workspace_fixed_bytes,
                            DUNLIN_MEM_ALIGN, &bytes);
    return bytes;
}

/* --- live ranges --- */

/* The live range that an access touches; begun if the tensor has none, or is recomputed here. */
static uint32_t live_range_of(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                              uint32_t loop_index, uint32_t step_index,
                              const dunlin_mem_access *access, dunlin_live *live)
{
    const dunlin_schedule_step *step = &schedule->steps[step_index];
    uint32_t root = live->root[access->tensor];
    uint32_t now = live->now[root];
    const bool is_first_writer = live->first_writer[root] == step->op ||
                                 dunlin__mem_swap_of(graph, step->op) == DUNLIN_MEM_SWAP_IN;
    bool is_recomputed =
        access->mode == DUNLIN_MEM_WRITE && is_first_writer &&
        dunlin__mem_is_sliced(&graph->tensors[root]) &&
        (now == DUNLIN_MEM_NONE || live->live_ranges[now].first_step != step_index);
    if (now == DUNLIN_MEM_NONE || is_recomputed) {
        now = live->n_live_ranges++;
        live->now[root] = now;
        live->live_ranges[now] = (dunlin_live_range){
            .tensor = root,
            .first_step = step_index,
            .last_step = step_index,
            .block = DUNLIN_MEM_NONE,
            .loop = loop_index,
            .bytes = dunlin__tensor_bytes(&graph->tensors[root],
                                          schedule->loops[loop_index].slice_samples)};
    }
    return now;
}

static bool has_more_slices(const dunlin_schedule *schedule, uint32_t loop)
{
    return dunlin__loop_n_slices(&schedule->loops[loop], schedule->batch) > 1;
}

/* A batched tensor of an earlier loop: from its first slice there to the last one here. */
static void make_whole(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                       dunlin_live_range *live_range)
{
    const uint32_t loop_first = schedule->loops[live_range->loop].first_step;
    live_range->is_whole = true;
    live_range->bytes = dunlin__tensor_bytes(&graph->tensors[live_range->tensor], schedule->batch);
    if (has_more_slices(schedule, live_range->loop)) {
        live_range->first_step = loop_first;
    }
}

static void touch(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                  uint32_t loop_index, uint32_t step_index, dunlin_live_range *live_range)
{
    const dunlin_plan_loop *loop = &schedule->loops[loop_index];
    const bool is_fixed = !dunlin__mem_is_sliced(&graph->tensors[live_range->tensor]);
    const bool is_sliced = has_more_slices(schedule, loop_index);
    if (!is_fixed && !live_range->is_whole && live_range->loop != loop_index) {
        make_whole(graph, schedule, live_range);
    }
    live_range->last_step = step_index;
    if (is_sliced && (is_fixed || live_range->is_whole)) {
        live_range->last_step = loop->first_step + loop->n_steps - 1;
    }
    if (is_sliced && is_fixed && loop->first_step < live_range->first_step) {
        live_range->first_step = loop->first_step;
    }
}

static void find_live_ranges(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                             uint32_t loop_index, uint32_t *n_operands, dunlin_live *live)
{
    const dunlin_plan_loop *loop = &schedule->loops[loop_index];
    for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
        const dunlin_schedule_step *step = &schedule->steps[k];
        const dunlin_mem_variant *variant = variant_of(graph, step);
        live->first_operand[k] = *n_operands;
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            const dunlin_mem_access *access = &variant->accesses[a];
            const dunlin_mem_tensor *tensor = &graph->tensors[live->root[access->tensor]];
            uint32_t *operand = &live->operand_live_ranges[(*n_operands)++];
            *operand = DUNLIN_MEM_NONE;
            if (!dunlin__mem_is_static(tensor) && (access->parts & step->parts) != 0) {
                *operand = live_range_of(graph, schedule, loop_index, k, access, live);
                touch(graph, schedule, loop_index, k, &live->live_ranges[*operand]);
            }
        }
    }
}

/* --- blocks --- */

static bool is_alone(const dunlin_mem_graph *graph, const dunlin_live *live, uint32_t tensor)
{
    return !dunlin__mem_is_static(&graph->tensors[tensor]) &&
           graph->tensors[tensor].parent == DUNLIN_MEM_NONE && live->has_parts[tensor] == 0;
}

/* The live range whose allocation the step's output may take over, or NONE. */
static uint32_t find_heir_of(const dunlin_mem_graph *graph, const dunlin_live *live,
                             const dunlin_schedule_step *step, uint32_t step_index,
                             uint32_t *out_heir)
{
    const dunlin_mem_variant *variant = variant_of(graph, step);
    if (variant->in_place_write < 0) {
        return DUNLIN_MEM_NONE;
    }
    const uint32_t *operands = &live->operand_live_ranges[live->first_operand[step_index]];
    uint32_t fresh = operands[variant->in_place_write];
    uint32_t old = operands[variant->in_place_read];
    if (fresh == DUNLIN_MEM_NONE || old == DUNLIN_MEM_NONE || fresh == old) {
        return DUNLIN_MEM_NONE;
    }
    uint32_t written = variant->accesses[variant->in_place_write].tensor;
    uint32_t read = variant->accesses[variant->in_place_read].tensor;
    if (!is_alone(graph, live, read) || !is_alone(graph, live, written) ||
        live->live_ranges[old].last_step != step_index ||
        live->live_ranges[fresh].first_step != step_index ||
        live->live_ranges[old].first_step == step_index ||
        live->live_ranges[old].is_whole != live->live_ranges[fresh].is_whole ||
        graph->tensors[read].sample_bytes != graph->tensors[written].sample_bytes ||
        graph->tensors[read].fixed_bytes != graph->tensors[written].fixed_bytes ||
        graph->tensors[read].is_per_slice != graph->tensors[written].is_per_slice) {
        return DUNLIN_MEM_NONE;
    }
    uint32_t n_touches = 0; /* of the tensor that ends here: another access would still read it */
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        n_touches += variant->accesses[a].tensor == read;
    }
    *out_heir = fresh;
    return n_touches == 1 ? old : DUNLIN_MEM_NONE;
}

static uint32_t add_block(dunlin_live *live, uint32_t first_step, uint32_t last_step,
                          uint64_t bytes)
{
    live->blocks[live->n_blocks] =
        (dunlin_pack_block){.first_step = first_step, .last_step = last_step, .bytes = bytes};
    return live->n_blocks++;
}

/* Blocks in the order of their first steps, so that an output finds the block that it takes over.
 */
static void add_step_blocks(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                            uint32_t step_index, uint64_t slice_samples, bool may_share,
                            dunlin_live *live)
{
    const dunlin_schedule_step *step = &schedule->steps[step_index];
    const dunlin_mem_variant *variant = variant_of(graph, step);
    uint32_t heir = DUNLIN_MEM_NONE;
    uint32_t old = may_share ? find_heir_of(graph, live, step, step_index, &heir) : DUNLIN_MEM_NONE;
    if (old != DUNLIN_MEM_NONE && live->live_ranges[old].block != DUNLIN_MEM_NONE) {
        live->live_ranges[heir].block = live->live_ranges[old].block;
        live->blocks[live->live_ranges[heir].block].last_step = live->live_ranges[heir].last_step;
    }
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        uint32_t index = live->operand_live_ranges[live->first_operand[step_index] + a];
        if (index != DUNLIN_MEM_NONE && live->live_ranges[index].block == DUNLIN_MEM_NONE) {
            dunlin_live_range *live_range = &live->live_ranges[index];
            live_range->block =
                add_block(live, live_range->first_step, live_range->last_step, live_range->bytes);
        }
    }
    uint64_t workspace = dunlin__workspace_bytes(variant, slice_samples);
    live->workspace_block[step_index] =
        workspace == 0 ? DUNLIN_MEM_NONE : add_block(live, step_index, step_index, workspace);
}

dunlin_status dunlin__live_find(const dunlin_mem_graph *graph, const dunlin_schedule *schedule,
                                bool may_share, dunlin_live *live, dunlin_error *error)
{
    DUNLIN_TRY(reserve(graph, schedule, live, error));
    if (live->first_operand == NULL) {
        return DUNLIN_MEMORY; /* reserve() has said so */
    }
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        live->now[t] = DUNLIN_MEM_NONE;
    }
    live->n_live_ranges = 0;
    live->n_blocks = 0;
    uint32_t n_operands = 0;
    for (uint32_t l = 0; l < schedule->n_loops; l++) {
        find_live_ranges(graph, schedule, l, &n_operands, live);
    }
    for (uint32_t l = 0; l < schedule->n_loops; l++) {
        const dunlin_plan_loop *loop = &schedule->loops[l];
        for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
            add_step_blocks(graph, schedule, k, loop->slice_samples, may_share, live);
        }
    }
    return DUNLIN_OK;
}
