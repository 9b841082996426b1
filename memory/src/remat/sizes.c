/*
 * sizes.c - bytes and costs of the model of rematerialisation, for given slices.
 *
 * Invariant: with several slices, fixed tensors are alive through the loop in which they are
 * touched.
 */
#include "model.h"

#include <mem/support.h>

#include <string.h>

static bool is_body(const dunlin_mem_op *op)
{
    return op->parts != DUNLIN_MEM_FIXED;
}

/* Bytes of fixed tensors alive at each op. With several slices they are alive through all of the
 * body. */
static void sum_fixed(dunlin_remat *remat, const dunlin_live *live, bool has_more_slices)
{
    const dunlin_mem_graph *graph = remat->graph;
    uint64_t *sums = remat->fixed_sums;
    uint64_t throughout = 0;
    memset(sums, 0, ((size_t)graph->n_ops + 1) * sizeof *sums);
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        live->now[t] = DUNLIN_MEM_NONE; /* first op that touches it */
    }
    /* Backward for the ends of the live ranges, then forward for their beginnings. */
    for (uint32_t i = graph->n_ops; i > 0; i--) {
        const dunlin_mem_variant *variant = &graph->ops[i - 1].variants[0];
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            uint32_t root = live->root[variant->accesses[a].tensor];
            const dunlin_mem_tensor *tensor = &graph->tensors[root];
            bool counts = !dunlin__mem_is_sliced(tensor) && !dunlin__mem_is_static(tensor);
            if (counts && live->now[root] == DUNLIN_MEM_NONE &&
                (is_body(&graph->ops[i - 1]) || !has_more_slices)) {
                live->now[root] = i - 1;
                sums[i] -= dunlin__tensor_bytes(tensor, 0);
                throughout += dunlin__tensor_bytes(tensor, 0);
            }
        }
    }
    if (has_more_slices) {
        for (uint32_t i = 0; i < graph->n_ops; i++) {
            sums[i] = throughout;
        }
        return;
    }
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const dunlin_mem_variant *variant = &graph->ops[i].variants[0];
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            uint32_t root = live->root[variant->accesses[a].tensor];
            if (live->now[root] != DUNLIN_MEM_NONE) {
                sums[i] += dunlin__tensor_bytes(&graph->tensors[root], 0);
                live->now[root] = DUNLIN_MEM_NONE;
            }
        }
        sums[i] += i > 0 ? sums[i - 1] : 0;
    }
}

/* Bytes of fixed tensors alive in each group of a step that is cut into regions. */
static void sum_fixed_by_group(dunlin_remat *remat, const dunlin_live *live)
{
    const dunlin_mem_graph *graph = remat->graph;
    const dunlin_regions *regions = remat->regions;
    uint64_t *sums = remat->fixed_sums;
    memset(sums, 0, ((size_t)regions->n_groups + 1) * sizeof *sums);
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        live->now[t] = DUNLIN_MEM_NONE;
    }
    /* Forward for the first groups of the live ranges, then backward for the last. */
    for (uint32_t n = 0; n < 2 * regions->n_ops; n++) {
        const bool is_forward = n < regions->n_ops;
        const uint32_t op = regions->order[is_forward ? n : 2 * regions->n_ops - 1 - n];
        const uint32_t group = regions->group_of[op];
        const dunlin_mem_variant *variant = &graph->ops[op].variants[0];
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            const uint32_t root = live->root[variant->accesses[a].tensor];
            const dunlin_mem_tensor *tensor = &graph->tensors[root];
            const bool is_new = is_forward == (live->now[root] == DUNLIN_MEM_NONE);
            if (dunlin__mem_is_sliced(tensor) || dunlin__mem_is_static(tensor) || !is_new) {
                continue;
            }
            live->now[root] = is_forward ? group : DUNLIN_MEM_NONE;
            sums[is_forward ? group : group + 1] +=
                (is_forward ? 1 : UINT64_MAX) * dunlin__tensor_bytes(tensor, 0);
        }
    }
    for (uint32_t g = 1; g < regions->n_groups; g++) {
        sums[g] += sums[g - 1];
    }
}

static void set_in_place(dunlin_remat *remat, const dunlin_live *live,
                         const dunlin_mem_variant *variant, dunlin_remat_step *step)
{
    step->in_place_written = DUNLIN_MEM_NONE;
    step->in_place_read = DUNLIN_MEM_NONE;
    if (variant->in_place_write < 0) {
        return;
    }
    uint32_t written = variant->accesses[variant->in_place_write].tensor;
    uint32_t read = variant->accesses[variant->in_place_read].tensor;
    for (uint32_t i = step->first_touch; i < step->first_touch + step->n_touches; i++) {
        uint32_t tensor = remat->roots[remat->touches[i].root].tensor;
        if (live->has_parts[tensor] == 0 && tensor == written) {
            step->in_place_written = remat->touches[i].root;
        } else if (live->has_parts[tensor] == 0 && tensor == read) {
            step->in_place_read = remat->touches[i].root;
        }
    }
    if (step->in_place_written == DUNLIN_MEM_NONE || step->in_place_read == DUNLIN_MEM_NONE ||
        remat->roots[step->in_place_written].sample_bytes !=
            remat->roots[step->in_place_read].sample_bytes ||
        remat->roots[step->in_place_written].slice_bytes !=
            remat->roots[step->in_place_read].slice_bytes) {
        step->in_place_written = DUNLIN_MEM_NONE;
        step->in_place_read = DUNLIN_MEM_NONE;
    }
}

/* Bytes that FIXED ops between a position and the next need beside the roots. */
static uint64_t after_bytes(const dunlin_remat *remat, uint32_t position, const uint8_t *variants)
{
    const dunlin_mem_graph *graph = remat->graph;
    const uint32_t end =
        position + 1 < remat->n_steps ? remat->steps[position + 1].op : graph->n_ops;
    uint64_t most = 0;
    for (uint32_t i = remat->steps[position].op + 1; i < end; i++) {
        const dunlin_mem_variant *variant = &graph->ops[i].variants[variants[i]];
        const uint64_t bytes = remat->fixed_sums[i] + dunlin__workspace_bytes(variant, 0);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The same after the last position of a region. */
static uint64_t after_region_bytes(const dunlin_remat *remat, uint32_t phase,
                                   const uint8_t *variants)
{
    const dunlin_regions *regions = remat->regions;
    const uint32_t group = 2 * phase + 2;
    uint64_t most = 0;
    for (uint32_t i = regions->first[group]; i < regions->first[group + 1]; i++) {
        const uint32_t op = regions->order[i];
        const dunlin_mem_variant *variant = &remat->graph->ops[op].variants[variants[op]];
        const uint64_t bytes = remat->fixed_sums[group] + dunlin__workspace_bytes(variant, 0);
        most = bytes > most ? bytes : most;
    }
    return most;
}

static void set_step(dunlin_remat *remat, const dunlin_live *live, uint32_t position,
                     const uint8_t *variants)
{
    dunlin_remat_step *step = &remat->steps[position];
    const dunlin_remat_phase *phase = &remat->phases[step->phase];
    const dunlin_mem_variant *variant = &remat->graph->ops[step->op].variants[variants[step->op]];
    step->workspace_fixed_bytes = variant->workspace_fixed_bytes;
    step->workspace_sample_bytes = variant->workspace_sample_bytes;
    step->slice_ns = dunlin__without_reduce_ns(variant, variant->cost_fixed_ns);
    step->batch_ns = dunlin__without_reduce_ns(variant, remat->batch * variant->cost_sample_ns);
    step->cost_ns = phase->n_slices * step->slice_ns + step->batch_ns;
    step->penalty_bytes = 0;
    step->after_bytes = 0;
    if (remat->regions != NULL) {
        step->fixed_bytes = remat->fixed_sums[2 * step->phase + 1];
        step->after_bytes =
            position + 1 == phase->end ? after_region_bytes(remat, step->phase, variants) : 0;
    } else {
        step->fixed_bytes = remat->fixed_sums[step->op];
        step->after_bytes = phase->n_slices > 1 ? 0 : after_bytes(remat, position, variants);
    }
    set_in_place(remat, live, variant, step);
}

static void set_phase(dunlin_remat *remat, uint32_t phase, uint64_t slice_samples)
{
    const dunlin_plan_loop loop = {.slice_samples = slice_samples};
    remat->phases[phase].slice_samples =
        slice_samples < remat->batch ? slice_samples : remat->batch;
    remat->phases[phase].n_slices = dunlin__loop_n_slices(&loop, remat->batch);
}

void dunlin__remat_set_slice(dunlin_remat *remat, const dunlin_live *live, uint64_t batch,
                             uint64_t slice_samples, const uint8_t *variants)
{
    remat->batch = batch;
    remat->has_base = false;
    set_phase(remat, 0, slice_samples);
    sum_fixed(remat, live, remat->phases[0].n_slices > 1);
    for (uint32_t r = 0; r < remat->n_roots; r++) {
        remat->roots[r].bytes = dunlin__remat_local_bytes(remat, 0, r);
    }
    for (uint32_t p = 0; p < remat->n_steps; p++) {
        set_step(remat, live, p, variants);
    }
}

void dunlin__remat_set_slices(dunlin_remat *remat, const dunlin_live *live, uint64_t batch,
                              const uint64_t *slices, const uint8_t *variants)
{
    remat->batch = batch;
    remat->has_base = false;
    sum_fixed_by_group(remat, live);
    for (uint32_t f = 0; f < remat->n_phases; f++) {
        set_phase(remat, f, slices[f]);
    }
    for (uint32_t r = 0; r < remat->n_roots; r++) {
        remat->roots[r].bytes =
            dunlin__tensor_bytes(&remat->graph->tensors[remat->roots[r].tensor], batch);
    }
    for (uint32_t p = 0; p < remat->n_steps; p++) {
        set_step(remat, live, p, variants);
    }
}

void dunlin__remat_keep_all(const dunlin_remat *remat, uint8_t *intervals)
{
    for (uint32_t g = 0; g < remat->n_intervals; g++) {
        intervals[g] =
            remat->intervals[g].is_extension ? DUNLIN_INTERVAL_EAGER : DUNLIN_INTERVAL_RETAIN;
    }
}

uint8_t dunlin__remat_lower(const dunlin_remat *remat, uint8_t state)
{
    return state == DUNLIN_INTERVAL_LAZY && remat->n_phases == 1 ? DUNLIN_INTERVAL_EAGER
                                                                 : (uint8_t)(state + 1);
}

/* In a sliced region what holds the batch is resident from beginning to end. */
uint64_t dunlin__remat_floor(const dunlin_remat *remat)
{
    uint64_t floor = 0;
    for (uint32_t p = 0; p < remat->n_steps; p++) {
        const dunlin_remat_step *step = &remat->steps[p];
        uint64_t bytes =
            step->fixed_bytes + dunlin__remat_workspace_bytes(remat, step->phase, step);
        for (uint32_t t = step->first_touch; t < step->first_touch + step->n_touches; t++) {
            bytes += dunlin__remat_local_bytes(remat, step->phase, remat->touches[t].root);
        }
        bytes -= step->in_place_read == DUNLIN_MEM_NONE
                     ? 0
                     : dunlin__remat_local_bytes(remat, step->phase, step->in_place_read);
        floor = bytes > floor ? bytes : floor;
    }
    return floor;
}
