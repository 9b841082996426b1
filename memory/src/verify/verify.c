/*
 * verify.c - checks a plan's structure and addresses: how often each op runs, sizes, and that no
 * two allocations alive together overlap.
 *
 * Invariant: nothing here comes from the planner; every fact is derived anew from the graph and the
 * plan. verify_flow.c checks what the allocations hold.
 */
#include "verify.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

dunlin_status dunlin__verify_fail(const dunlin_verifier *verifier, uint32_t step, uint32_t tensor,
                                  const char *format, ...)
{
    char where[96] = "";
    char what[64] = "";
    char detail[128];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    const dunlin_mem_graph *graph = verifier->graph;
    if (step != DUNLIN_MEM_NONE) {
        uint32_t op = verifier->plan->steps[step].op;
        const char *name = op < dunlin__mem_n_all_ops(graph) ? graph->ops[op].name : NULL;
        (void)snprintf(where, sizeof where, "step %" PRIu32 " (%s): ", step,
                       name == NULL ? "unnamed" : name);
    }
    if (tensor != DUNLIN_MEM_NONE) {
        const char *name = tensor < graph->n_tensors ? graph->tensors[tensor].name : NULL;
        (void)snprintf(what, sizeof what, "tensor %s: ", name == NULL ? "(unnamed)" : name);
    }
    return dunlin__fail(verifier->error, DUNLIN_MISMATCH, "verify", 0, "%s%s%s", where, what,
                        detail);
}

bool dunlin__verify_is_within(const dunlin_mem_graph *graph, uint32_t tensor, uint32_t above)
{
    while (tensor != DUNLIN_MEM_NONE && tensor != above) {
        tensor = graph->tensors[tensor].parent;
    }
    return tensor == above;
}

static uint32_t outermost(const dunlin_mem_graph *graph, uint32_t tensor)
{
    while (graph->tensors[tensor].parent != DUNLIN_MEM_NONE) {
        tensor = graph->tensors[tensor].parent;
    }
    return tensor;
}

/* --- head, loops, allocations --- */

static dunlin_status check_head(const dunlin_verifier *verifier)
{
    const dunlin_plan *plan = verifier->plan;
    if (plan->batch == 0 || plan->n_loops == 0 || plan->n_steps == 0 || plan->loops == NULL ||
        plan->steps == NULL || (plan->n_operands > 0 && plan->operands == NULL) ||
        (plan->n_places > 0 && plan->places == NULL) || plan->n_steps == DUNLIN_MEM_NONE ||
        plan->n_places == DUNLIN_MEM_NONE) {
        return dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, DUNLIN_MEM_NONE,
                                   "the plan has no batch, no loops or no steps");
    }
    uint64_t sum = 0;
    if (!dunlin__add_u64(plan->persistent_bytes, plan->pool_bytes, &sum) ||
        sum != plan->arena_bytes || plan->pool_lower_bound_bytes > plan->pool_bytes) {
        return dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, DUNLIN_MEM_NONE,
                                   "an arena of %" PRIu64 " bytes is not %" PRIu64
                                   " persistent and %" PRIu64 " of the pool",
                                   plan->arena_bytes, plan->persistent_bytes, plan->pool_bytes);
    }
    uint32_t next = 0;
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        const dunlin_plan_loop *loop = &plan->loops[l];
        if (loop->first_step != next || loop->n_steps == 0 ||
            loop->n_steps > plan->n_steps - next || loop->slice_samples > plan->batch) {
            return dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, DUNLIN_MEM_NONE,
                                       "loop %" PRIu32 ": %" PRIu32 " steps from %" PRIu32
                                       ", slices of %" PRIu64 " samples: not in order",
                                       l, loop->n_steps, loop->first_step, loop->slice_samples);
        }
        next += loop->n_steps;
    }
    if (next != plan->n_steps) {
        return dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, DUNLIN_MEM_NONE,
                                   "the loops hold %" PRIu32 " of %" PRIu32 " steps", next,
                                   plan->n_steps);
    }
    return DUNLIN_OK;
}

static dunlin_status check_place(const dunlin_verifier *verifier, uint32_t index)
{
    const dunlin_mem_graph *graph = verifier->graph;
    const dunlin_plan *plan = verifier->plan;
    const dunlin_plan_allocation *place = &plan->places[index];
    uint32_t tensor = place->tensor;
    if (tensor != DUNLIN_MEM_NONE &&
        (tensor >= graph->n_tensors || graph->tensors[tensor].parent != DUNLIN_MEM_NONE)) {
        return dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, tensor,
                                   "place %" PRIu32 " is not of an outermost tensor", index);
    }
    if (place->first_step > place->last_step || place->last_step >= plan->n_steps) {
        return dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, tensor,
                                   "place %" PRIu32 " lives from step %" PRIu32 " to %" PRIu32
                                   " of %" PRIu32,
                                   index, place->first_step, place->last_step, plan->n_steps);
    }
    uint64_t end = 0;
    bool is_static = tensor != DUNLIN_MEM_NONE && dunlin__mem_is_static(&graph->tensors[tensor]);
    uint64_t low = is_static ? 0 : plan->persistent_bytes;
    uint64_t high = is_static ? plan->persistent_bytes : plan->arena_bytes;
    if (!dunlin__add_u64(place->offset_bytes, place->bytes, &end) || place->bytes == 0 ||
        place->offset_bytes < low || end > high) {
        return dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, tensor,
                                   "place %" PRIu32 ": %" PRIu64 " bytes at %" PRIu64
                                   " are outside of %" PRIu64 " to %" PRIu64,
                                   index, place->bytes, place->offset_bytes, low, high);
    }
    if (place->offset_bytes % DUNLIN_MEM_ALIGN != 0) {
        return dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, tensor,
                                   "place %" PRIu32 ": offset %" PRIu64 " is not a multiple of %d",
                                   index, place->offset_bytes, DUNLIN_MEM_ALIGN);
    }
    return DUNLIN_OK;
}

/* Every persistent tensor has exactly one allocation, for the whole plan. */
static dunlin_status check_persistent(const dunlin_verifier *verifier)
{
    const dunlin_plan *plan = verifier->plan;
    for (uint32_t t = 0; t < verifier->graph->n_tensors; t++) {
        const dunlin_mem_tensor *tensor = &verifier->graph->tensors[t];
        if (!dunlin__mem_is_static(tensor) || tensor->parent != DUNLIN_MEM_NONE) {
            continue;
        }
        uint32_t n = 0;
        for (uint32_t p = 0; p < plan->n_places; p++) {
            const dunlin_plan_allocation *place = &plan->places[p];
            if (place->tensor == t) {
                n += place->first_step == 0 && place->last_step == plan->n_steps - 1 &&
                             place->bytes >= tensor->fixed_bytes
                         ? 1
                         : 2;
            }
        }
        if (n != 1) {
            return dunlin__verify_fail(
                verifier, DUNLIN_MEM_NONE, t,
                "is persistent or pinned but has not one place for the whole plan");
        }
    }
    return DUNLIN_OK;
}

/* --- steps --- */

static bool has_room(uint64_t bytes, uint64_t n, uint64_t sample_bytes, uint64_t fixed_bytes)
{
    uint64_t needed = 0;
    return dunlin__mul_u64(n, sample_bytes, &needed) &&
           dunlin__add_u64(needed, fixed_bytes, &needed) && needed <= bytes;
}

static dunlin_status check_operand(const dunlin_verifier *verifier, uint32_t step_index,
                                   const dunlin_mem_access *access, uint32_t operand,
                                   uint64_t slice_samples)
{
    const dunlin_plan *plan = verifier->plan;
    const dunlin_plan_step *step = &plan->steps[step_index];
    bool does_run = (access->parts & step->parts) != 0;
    if (!does_run) {
        return operand == DUNLIN_MEM_NONE
                   ? DUNLIN_OK
                   : dunlin__verify_fail(verifier, step_index, access->tensor,
                                         "has a place, but the parts that run do not touch it");
    }
    if (operand >= plan->n_places) {
        return dunlin__verify_fail(verifier, step_index, access->tensor,
                                   "place %" PRIu32 " is not one of %" PRIu32, operand,
                                   plan->n_places);
    }
    const dunlin_plan_allocation *place = &plan->places[operand];
    uint32_t root = outermost(verifier->graph, access->tensor);
    if (place->tensor != root) {
        return dunlin__verify_fail(verifier, step_index, access->tensor,
                                   "its place %" PRIu32 " is of another tensor", operand);
    }
    if (step_index < place->first_step || step_index > place->last_step) {
        return dunlin__verify_fail(verifier, step_index, access->tensor,
                                   "its place %" PRIu32 " lives from step %" PRIu32 " to %" PRIu32,
                                   operand, place->first_step, place->last_step);
    }
    const dunlin_mem_tensor *tensor = &verifier->graph->tensors[root];
    uint64_t n = place->is_whole ? plan->batch : slice_samples;
    if (!has_room(place->bytes, n, tensor->sample_bytes, tensor->fixed_bytes)) {
        return dunlin__verify_fail(verifier, step_index, access->tensor,
                                   "%" PRIu64 " bytes do not hold %" PRIu64 " samples of it",
                                   place->bytes, n);
    }
    return DUNLIN_OK;
}

static dunlin_status check_workspace(const dunlin_verifier *verifier, uint32_t step_index,
                                     const dunlin_mem_variant *variant, uint64_t slice_samples)
{
    const dunlin_plan *plan = verifier->plan;
    uint32_t index = plan->steps[step_index].workspace;
    bool is_needed = !has_room(0, slice_samples, variant->workspace_sample_bytes,
                               variant->workspace_fixed_bytes);
    if (index == DUNLIN_MEM_NONE && !is_needed) {
        return DUNLIN_OK;
    }
    const dunlin_plan_allocation *place = index < plan->n_places ? &plan->places[index] : NULL;
    if (place == NULL || place->tensor != DUNLIN_MEM_NONE || step_index < place->first_step ||
        step_index > place->last_step ||
        !has_room(place->bytes, slice_samples, variant->workspace_sample_bytes,
                  variant->workspace_fixed_bytes)) {
        return dunlin__verify_fail(verifier, step_index, DUNLIN_MEM_NONE,
                                   "its workspace is missing, not alive or too small");
    }
    return DUNLIN_OK;
}

static dunlin_status check_step(const dunlin_verifier *verifier, const dunlin_plan_loop *loop,
                                uint32_t step_index)
{
    const dunlin_plan *plan = verifier->plan;
    const dunlin_plan_step *step = &plan->steps[step_index];
    const dunlin_mem_op *op =
        step->op < dunlin__mem_n_all_ops(verifier->graph) ? &verifier->graph->ops[step->op] : NULL;
    if (op == NULL || step->variant >= op->n_variants || step->parts == 0 ||
        (step->parts & ~op->parts) != 0) {
        return dunlin__verify_fail(verifier, step_index, DUNLIN_MEM_NONE,
                                   "op %" PRIu32 " has no variant %u or no parts %u", step->op,
                                   (unsigned)step->variant, (unsigned)step->parts);
    }
    bool is_fixed = op->parts == DUNLIN_MEM_FIXED;
    if (is_fixed ? loop->slice_samples != 0 && loop->slice_samples < plan->batch
                 : loop->slice_samples == 0) {
        return dunlin__verify_fail(verifier, step_index, DUNLIN_MEM_NONE,
                                   is_fixed ? "is fixed, but its loop runs once a slice"
                                            : "its loop has no slices");
    }
    if (dunlin__mem_swap_of(verifier->graph, step->op) != DUNLIN_MEM_SWAP_NO &&
        loop->slice_samples < plan->batch) {
        return dunlin__verify_fail(verifier, step_index, DUNLIN_MEM_NONE,
                                   "is swapped, but its loop runs in slices");
    }
    const dunlin_mem_variant *variant = &op->variants[step->variant];
    if (step->first_operand > plan->n_operands ||
        variant->n_accesses > plan->n_operands - step->first_operand) {
        return dunlin__verify_fail(verifier, step_index, DUNLIN_MEM_NONE,
                                   "operands from %" PRIu32 " are not among %" PRIu32,
                                   step->first_operand, plan->n_operands);
    }
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        DUNLIN_TRY(check_operand(verifier, step_index, &variant->accesses[a],
                                 plan->operands[step->first_operand + a], loop->slice_samples));
    }
    return check_workspace(verifier, step_index, variant, loop->slice_samples);
}

static dunlin_status check_steps(const dunlin_verifier *verifier)
{
    const dunlin_plan *plan = verifier->plan;
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        const dunlin_plan_loop *loop = &plan->loops[l];
        for (uint32_t k = 0; k < loop->n_steps; k++) {
            DUNLIN_TRY(check_step(verifier, loop, loop->first_step + k));
        }
    }
    return DUNLIN_OK;
}

/* Where something belongs to a slice as a whole, every loop cuts the batch in the same way. */
static dunlin_status check_slices(const dunlin_verifier *verifier)
{
    const dunlin_plan *plan = verifier->plan;
    uint64_t slice_samples = 0;
    for (uint32_t l = 0; l < plan->n_loops && dunlin__graph_is_per_slice(verifier->graph); l++) {
        const uint64_t own = plan->loops[l].slice_samples;
        if (own != 0 && slice_samples != 0 && own != slice_samples) {
            return dunlin__verify_fail(verifier, plan->loops[l].first_step, DUNLIN_MEM_NONE,
                                       "slices of %" PRIu64 " samples follow on slices of %" PRIu64
                                       ", and the step has statistics of slices",
                                       own, slice_samples);
        }
        slice_samples = own != 0 ? own : slice_samples;
    }
    return DUNLIN_OK;
}

/* --- how often each op runs --- */

typedef struct {
    uint32_t n_map;
    uint32_t n_once; /* reduce and fixed parts */
} run_count;

static dunlin_status check_op_count(const dunlin_verifier *verifier, uint32_t index,
                                    const run_count *count)
{
    const dunlin_mem_op *op = &verifier->graph->ops[index];
    const char *name = op->name == NULL ? "(unnamed)" : op->name;
    bool has_map = (op->parts & DUNLIN_MEM_MAP) != 0;
    bool has_once = (op->parts & ~DUNLIN_MEM_MAP) != 0;
    if (has_once && count->n_once != 1) {
        return dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, DUNLIN_MEM_NONE,
                                   "op %s: its %s part runs in %" PRIu32 " steps, not in one", name,
                                   op->parts == DUNLIN_MEM_FIXED ? "fixed" : "reduce",
                                   count->n_once);
    }
    if (has_map && (count->n_map == 0 || (count->n_map > 1 && !op->may_recompute))) {
        return dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, DUNLIN_MEM_NONE,
                                   "op %s: its map part runs in %" PRIu32 " steps%s", name,
                                   count->n_map,
                                   op->may_recompute ? "" : " and may not be recomputed");
    }
    return DUNLIN_OK;
}

static dunlin_status check_counts(const dunlin_verifier *verifier)
{
    const dunlin_mem_graph *graph = verifier->graph;
    const dunlin_plan *plan = verifier->plan;
    const uint32_t n_ops = dunlin__mem_n_all_ops(graph);
    run_count *counts = dunlin__alloc_zeroed(verifier->alloc, n_ops, sizeof *counts);
    if (counts == NULL) {
        return dunlin__fail(verifier->error, DUNLIN_MEMORY, "verify", 0,
                            "no memory to count the runs of %" PRIu32 " ops", graph->n_ops);
    }
    for (uint32_t k = 0; k < plan->n_steps; k++) {
        const dunlin_plan_step *step = &plan->steps[k];
        counts[step->op].n_map += (step->parts & DUNLIN_MEM_MAP) != 0;
        counts[step->op].n_once += (step->parts & ~DUNLIN_MEM_MAP) != 0;
    }
    dunlin_status status = DUNLIN_OK;
    uint32_t n_recompute_ops = 0;
    for (uint32_t i = 0; i < graph->n_ops && status == DUNLIN_OK; i++) {
        status = check_op_count(verifier, i, &counts[i]);
        n_recompute_ops += counts[i].n_map > 1 ? counts[i].n_map - 1 : 0;
    }
    dunlin__free_array(verifier->alloc, counts, n_ops, sizeof *counts);
    if (status == DUNLIN_OK && n_recompute_ops != plan->n_recompute_ops) {
        status = dunlin__verify_fail(verifier, DUNLIN_MEM_NONE, DUNLIN_MEM_NONE,
                                     "%" PRIu32 " steps are listed as recomputed, %" PRIu32 " are",
                                     plan->n_recompute_ops, n_recompute_ops);
    }
    return status;
}

/* --- overlap --- */

/* The op that runs at `step` may write `born` over `dying`: the pair is declared in place, the old
 * tensor is touched by nothing else there, and sample lies on sample. */
static bool is_in_place(const dunlin_verifier *verifier, uint32_t step_index, uint32_t dying,
                        uint32_t born)
{
    const dunlin_plan *plan = verifier->plan;
    const dunlin_plan_allocation *old = &plan->places[dying];
    const dunlin_plan_allocation *fresh = &plan->places[born];
    const dunlin_plan_step *step = &plan->steps[step_index];
    const dunlin_mem_variant *variant = &verifier->graph->ops[step->op].variants[step->variant];
    if (variant->in_place_write < 0 || old->last_step != step_index ||
        fresh->first_step != step_index || old->offset_bytes != fresh->offset_bytes ||
        old->bytes != fresh->bytes || old->is_whole != fresh->is_whole) {
        return false;
    }
    const uint32_t *operands = &plan->operands[step->first_operand];
    uint32_t n_touches = 0;
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        n_touches += operands[a] == dying;
    }
    const dunlin_mem_access *read = &variant->accesses[variant->in_place_read];
    const dunlin_mem_access *write = &variant->accesses[variant->in_place_write];
    const dunlin_mem_tensor *from = &verifier->graph->tensors[read->tensor];
    const dunlin_mem_tensor *to = &verifier->graph->tensors[write->tensor];
    return n_touches == 1 && operands[variant->in_place_read] == dying &&
           operands[variant->in_place_write] == born && from->parent == DUNLIN_MEM_NONE &&
           to->parent == DUNLIN_MEM_NONE && from->sample_bytes == to->sample_bytes &&
           from->fixed_bytes == to->fixed_bytes && from->is_per_slice == to->is_per_slice &&
           !dunlin__mem_is_static(from);
}

/* Two allocations that overlap. */
static dunlin_status check_pair(const dunlin_verifier *verifier, uint32_t step_index,
                                uint32_t older, uint32_t newer)
{
    const dunlin_plan_allocation *a = &verifier->plan->places[older];
    const dunlin_plan_allocation *b = &verifier->plan->places[newer];
    if (is_in_place(verifier, step_index, older, newer)) {
        return DUNLIN_OK;
    }
    uint32_t tensor = b->tensor != DUNLIN_MEM_NONE ? b->tensor : a->tensor;
    const char *other = a->tensor == DUNLIN_MEM_NONE || b->tensor == DUNLIN_MEM_NONE
                            ? "a workspace"
                            : verifier->graph->tensors[a->tensor].name;
    return dunlin__verify_fail(
        verifier, step_index, tensor, "places %" PRIu32 " and %" PRIu32 " (%s) overlap at %" PRIu64,
        older, newer, other == NULL ? "unnamed" : other,
        a->offset_bytes > b->offset_bytes ? a->offset_bytes : b->offset_bytes);
}

/* An allocation that is alive. */
typedef struct {
    uint64_t offset_bytes, end_bytes;
    uint32_t index, last_step;
} living;

static dunlin_status check_against(const dunlin_verifier *verifier, uint32_t step_index,
                                   const living *alive, uint32_t n_alive, const living *place)
{
    for (uint32_t i = 0; i < n_alive; i++) {
        if (alive[i].offset_bytes < place->end_bytes && place->offset_bytes < alive[i].end_bytes) {
            DUNLIN_TRY(check_pair(verifier, step_index, alive[i].index, place->index));
        }
    }
    return DUNLIN_OK;
}

/* Step by step: allocations that begin are compared with all that are alive. */
static dunlin_status sweep(const dunlin_verifier *verifier, uint32_t *first_at, uint32_t *next,
                           living *alive)
{
    const dunlin_plan *plan = verifier->plan;
    uint32_t n_alive = 0;
    for (uint32_t k = 0; k < plan->n_steps; k++) {
        first_at[k] = DUNLIN_MEM_NONE;
    }
    for (uint32_t p = plan->n_places; p > 0; p--) {
        next[p - 1] = first_at[plan->places[p - 1].first_step];
        first_at[plan->places[p - 1].first_step] = p - 1;
    }
    for (uint32_t k = 0; k < plan->n_steps; k++) {
        for (uint32_t p = first_at[k]; p != DUNLIN_MEM_NONE; p = next[p]) {
            const dunlin_plan_allocation *place = &plan->places[p];
            const living born = {.offset_bytes = place->offset_bytes,
                                 .end_bytes = place->offset_bytes + place->bytes,
                                 .index = p,
                                 .last_step = place->last_step};
            DUNLIN_TRY(check_against(verifier, k, alive, n_alive, &born));
            alive[n_alive++] = born;
        }
        uint32_t n_left = 0;
        for (uint32_t i = 0; i < n_alive; i++) {
            if (alive[i].last_step > k) {
                alive[n_left++] = alive[i];
            }
        }
        n_alive = n_left;
    }
    return DUNLIN_OK;
}

static dunlin_status check_overlaps(const dunlin_verifier *verifier)
{
    const dunlin_plan *plan = verifier->plan;
    const dunlin_alloc *alloc = verifier->alloc;
    if (plan->n_places == 0) {
        return DUNLIN_OK;
    }
    uint32_t *first_at = dunlin__alloc_array(alloc, plan->n_steps, sizeof *first_at);
    uint32_t *next = dunlin__alloc_array(alloc, plan->n_places, sizeof *next);
    living *alive = dunlin__alloc_array(alloc, plan->n_places, sizeof *alive);
    dunlin_status status =
        first_at == NULL || next == NULL || alive == NULL
            ? dunlin__fail(verifier->error, DUNLIN_MEMORY, "verify", 0,
                           "no memory to compare %" PRIu32 " places", plan->n_places)
            : sweep(verifier, first_at, next, alive);
    dunlin__free_array(alloc, alive, plan->n_places, sizeof *alive);
    dunlin__free_array(alloc, next, plan->n_places, sizeof *next);
    dunlin__free_array(alloc, first_at, plan->n_steps, sizeof *first_at);
    return status;
}

dunlin_status dunlin__plan_verify(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                                  const dunlin_alloc *alloc, dunlin_error *error)
{
    dunlin_alloc hooks = dunlin__alloc_or_default(alloc);
    dunlin_verifier verifier = {.graph = graph, .plan = plan, .alloc = &hooks, .error = error};
    DUNLIN_TRY(check_head(&verifier));
    for (uint32_t p = 0; p < plan->n_places; p++) {
        DUNLIN_TRY(check_place(&verifier, p));
    }
    DUNLIN_TRY(check_persistent(&verifier));
    DUNLIN_TRY(check_steps(&verifier));
    DUNLIN_TRY(check_slices(&verifier));
    DUNLIN_TRY(check_counts(&verifier));
    DUNLIN_TRY(check_overlaps(&verifier));
    return dunlin__verify_flow(&verifier);
}
