/*
 * redo_paper.c - the model of redo.h, and the simulation of a choice of recomputed ops.
 *
 * Invariant: the bytes are those that schedule/live_ranges.c finds for the schedule of the choice.
 */
#include "redo.h"

#include <mem/support.h>

#include <string.h>

void dunlin__recompute_close(dunlin_recompute_model *model)
{
    const dunlin_alloc *alloc = &model->alloc;
    const size_t n = model->n_tensors;
    dunlin__free_array(alloc, model->begin, n, sizeof *model->begin);
    dunlin__free_array(alloc, model->after, n, sizeof *model->after);
    dunlin__free_array(alloc, model->before, n, sizeof *model->before);
    dunlin__free_array(alloc, model->shared_at, n, sizeof *model->shared_at);
    dunlin__free_array(alloc, model->last, n, sizeof *model->last);
    dunlin__free_array(alloc, model->first, n, sizeof *model->first);
    dunlin__free_array(alloc, model->maker, n, sizeof *model->maker);
    dunlin__free_array(alloc, model->bytes, n, sizeof *model->bytes);
    dunlin__free_array(alloc, model->touches, model->n_touches_max, sizeof *model->touches);
    model->touches = NULL;
    model->bytes = NULL;
    model->maker = model->first = model->last = model->shared_at = NULL;
    model->before = model->after = model->begin = NULL;
}

static dunlin_status allocate(const dunlin_mem_graph *graph, dunlin_recompute_model *model,
                              dunlin_error *error)
{
    const dunlin_alloc *alloc = &model->alloc;
    const size_t n = model->n_tensors;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        for (uint32_t v = 0; v < graph->ops[i].n_variants; v++) {
            model->n_touches_max += graph->ops[i].variants[v].n_accesses;
        }
    }
    model->touches = dunlin__alloc_array(alloc, model->n_touches_max, sizeof *model->touches);
    model->bytes = dunlin__alloc_array(alloc, n, sizeof *model->bytes);
    model->maker = dunlin__alloc_array(alloc, n, sizeof *model->maker);
    model->first = dunlin__alloc_array(alloc, n, sizeof *model->first);
    model->last = dunlin__alloc_array(alloc, n, sizeof *model->last);
    model->shared_at = dunlin__alloc_array(alloc, n, sizeof *model->shared_at);
    model->before = dunlin__alloc_array(alloc, n, sizeof *model->before);
    model->after = dunlin__alloc_array(alloc, n, sizeof *model->after);
    model->begin = dunlin__alloc_array(alloc, n, sizeof *model->begin);
    if (model->touches == NULL || model->bytes == NULL || model->maker == NULL ||
        model->first == NULL || model->last == NULL || model->shared_at == NULL ||
        model->before == NULL || model->after == NULL || model->begin == NULL) {
        dunlin__recompute_close(model);
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                            "no memory to plan the rematerialisation of %zu tensors", n);
    }
    return DUNLIN_OK;
}

/* --- building --- */

static dunlin_recompute_touch *touch_of(dunlin_recompute_model *model, dunlin_recompute_op *op,
                                        uint32_t root)
{
    for (uint32_t t = op->first_touch; t < op->first_touch + op->n_touches; t++) {
        if (model->touches[t].root == root) {
            return &model->touches[t];
        }
    }
    dunlin_recompute_touch *touch = &model->touches[op->first_touch + op->n_touches++];
    *touch = (dunlin_recompute_touch){.root = root};
    return touch;
}

static bool is_alone(const dunlin_mem_graph *graph, const dunlin_live *live, uint32_t tensor)
{
    return !dunlin__mem_is_static(&graph->tensors[tensor]) &&
           graph->tensors[tensor].parent == DUNLIN_MEM_NONE && live->has_parts[tensor] == 0;
}

/* An output that may lie on an input whose live range ends there, by the rules of
 * schedule/live_ranges.c. */
static void set_in_place(const dunlin_mem_graph *graph, const dunlin_live *live,
                         const dunlin_mem_variant *variant, dunlin_recompute_op *op)
{
    op->written = op->read = DUNLIN_MEM_NONE;
    if (variant->in_place_write < 0) {
        return;
    }
    const dunlin_mem_access *to = &variant->accesses[variant->in_place_write];
    const dunlin_mem_access *from = &variant->accesses[variant->in_place_read];
    const dunlin_mem_tensor *fresh = &graph->tensors[to->tensor];
    const dunlin_mem_tensor *old = &graph->tensors[from->tensor];
    uint32_t n_touches = 0;
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        n_touches += variant->accesses[a].tensor == from->tensor;
    }
    if (to->tensor != from->tensor && n_touches == 1 && is_alone(graph, live, to->tensor) &&
        is_alone(graph, live, from->tensor) && fresh->sample_bytes == old->sample_bytes &&
        fresh->fixed_bytes == old->fixed_bytes && fresh->is_per_slice == old->is_per_slice) {
        op->written = to->tensor;
        op->read = from->tensor;
        op->shares_in_recompute = (to->parts & from->parts & DUNLIN_MEM_MAP) != 0;
    }
}

static void add_op(const dunlin_mem_graph *graph, const dunlin_live *live,
                   const dunlin_mem_variant *variant, uint32_t index, dunlin_recompute_model *model)
{
    dunlin_recompute_op *op = &model->ops[index];
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        const uint32_t root = live->root[access->tensor];
        if (dunlin__mem_is_static(&graph->tensors[root])) {
            continue;
        }
        dunlin_recompute_touch *touch = touch_of(model, op, root);
        const bool is_map = (access->parts & DUNLIN_MEM_MAP) != 0;
        touch->is_map |= is_map;
        touch->is_map_read |= is_map && access->mode == DUNLIN_MEM_READ;
        touch->begins |= access->mode == DUNLIN_MEM_WRITE && live->first_writer[root] == index &&
                         dunlin__mem_is_sliced(&graph->tensors[root]);
    }
    set_in_place(graph, live, variant, op);
    op->group = (dunlin_recompute_ops){{0}};
    dunlin__recompute_add(&op->group, index);
    op->last_of_group = index;
}

/* Makers of one tensor's parts run again together. */
static void join_groups(dunlin_recompute_model *model, uint32_t a, uint32_t b)
{
    dunlin_recompute_ops joined;
    for (size_t w = 0; w < DUNLIN_RECOMPUTE_WORDS; w++) {
        joined.word[w] = model->ops[a].group.word[w] | model->ops[b].group.word[w];
    }
    uint32_t last = 0;
    for (uint32_t i = 0; i < model->n_ops; i++) {
        last = dunlin__recompute_has(&joined, i) ? i : last;
    }
    for (uint32_t i = 0; i < model->n_ops; i++) {
        if (dunlin__recompute_has(&joined, i)) {
            model->ops[i].group = joined;
            model->ops[i].last_of_group = last;
        }
    }
}

/* What may run again, and until when, as in the model of retention intervals. */
static void set_deadlines(const dunlin_remat *remat, dunlin_recompute_model *model)
{
    for (uint32_t p = 0; p < remat->n_steps; p++) {
        const dunlin_remat_step *step = &remat->steps[p];
        dunlin_recompute_op *op = &model->ops[step->op];
        op->cost_ns = step->cost_ns;
        op->deadline = remat->graph->ops[step->op].may_recompute ? DUNLIN_MEM_NONE : 0;
        bool writes = false;
        for (uint32_t t = step->first_touch; t < step->first_touch + step->n_touches; t++) {
            const dunlin_remat_root *root = &remat->roots[remat->touches[t].root];
            if (!remat->touches[t].is_written) {
                continue;
            }
            writes = true;
            const uint32_t until = root->may_drop ? root->deadline : 0;
            op->deadline = until < op->deadline ? until : op->deadline;
            model->maker[root->tensor] = step->op;
            join_groups(model, step->op, remat->steps[remat->makers[root->first_maker]].op);
        }
        op->deadline = writes ? op->deadline : 0;
    }
    for (uint32_t i = 0; i < model->n_ops; i++) {
        for (uint32_t j = 0; j < model->n_ops; j++) {
            if (dunlin__recompute_has(&model->ops[i].group, j) &&
                model->ops[j].deadline < model->ops[i].deadline) {
                model->ops[i].deadline = model->ops[j].deadline;
            }
        }
    }
}

dunlin_status dunlin__recompute_open(const dunlin_remat *remat, const dunlin_live *live,
                                     uint64_t batch, const uint8_t *variants,
                                     dunlin_recompute_model *out_model, dunlin_error *error)
{
    const dunlin_mem_graph *graph = remat->graph;
    memset(out_model, 0, sizeof *out_model);
    out_model->alloc = remat->alloc;
    out_model->n_ops = graph->n_ops;
    out_model->n_tensors = graph->n_tensors;
    DUNLIN_TRY(allocate(graph, out_model, error));
    if (out_model->touches == NULL) {
        return DUNLIN_MEMORY; /* allocate() has said so */
    }
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        out_model->bytes[t] = dunlin__tensor_bytes(&graph->tensors[t], batch);
        out_model->maker[t] = DUNLIN_MEM_NONE;
    }
    uint32_t n_touches = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const dunlin_mem_variant *variant = &graph->ops[i].variants[variants[i]];
        out_model->ops[i].first_touch = n_touches;
        out_model->ops[i].workspace_bytes = dunlin__workspace_bytes(variant, batch);
        add_op(graph, live, variant, i, out_model);
        n_touches += out_model->ops[i].n_touches;
    }
    set_deadlines(remat, out_model);
    return DUNLIN_OK;
}

/* --- the simulation --- */

/* An instance ends: its bytes, from its first step to its last, but for what lies on them. */
static void end_live_range(dunlin_recompute_model *model, uint32_t root)
{
    const uint32_t first = model->first[root];
    const uint32_t last = model->last[root];
    if (first == DUNLIN_MEM_NONE) {
        return;
    }
    model->sums[first] += model->bytes[root]; /* differences, for now; they may wrap */
    model->sums[last + 1] -= model->bytes[root];
    if (model->shared_at[root] == last && first != last) {
        model->sums[last] -= model->bytes[root];
        model->sums[last + 1] += model->bytes[root];
    }
}

static void run_op(dunlin_recompute_model *model, uint32_t index, uint32_t stage)
{
    const dunlin_recompute_op *op = &model->ops[index];
    const uint32_t k = model->n_steps++;
    const bool is_recompute = index != stage;
    model->op_of[k] = (uint8_t)index;
    model->stage_of[k] = (uint8_t)stage;
    for (uint32_t t = op->first_touch; t < op->first_touch + op->n_touches; t++) {
        const dunlin_recompute_touch *touch = &model->touches[t];
        const uint32_t root = touch->root;
        if (is_recompute && !touch->is_map) {
            continue;
        }
        if (touch->begins || model->first[root] == DUNLIN_MEM_NONE) {
            end_live_range(model, root);
            model->first[root] = k;
        }
        model->last[root] = k;
    }
    model->sums[k] += op->workspace_bytes;
    model->sums[k + 1] -= op->workspace_bytes;
    if (op->written != DUNLIN_MEM_NONE && (!is_recompute || op->shares_in_recompute) &&
        model->first[op->written] == k) {
        model->shared_at[op->read] = k;
    }
}

dunlin_recompute_result dunlin__recompute_run(dunlin_recompute_model *model,
                                              const dunlin_recompute_choice *choice,
                                              uint64_t limit_bytes)
{
    dunlin_recompute_result result = {.cost_ns = 0};
    const uint32_t n_ops = model->n_ops;
    memset(model->first, 0xFF, model->n_tensors * sizeof *model->first);
    memset(model->shared_at, 0xFF, model->n_tensors * sizeof *model->shared_at);
    memset(model->sums, 0, sizeof model->sums);
    model->n_steps = 0;
    model->n_runs++;
    for (uint32_t stage = 0; stage < n_ops; stage++) {
        for (uint32_t w = 0; w < DUNLIN_RECOMPUTE_WORDS; w++) {
            for (uint64_t left = choice->before[stage].word[w]; left != 0; left &= left - 1) {
                const uint32_t op = 64 * w + (uint32_t)__builtin_ctzll(left);
                if (model->n_steps + n_ops - stage >= DUNLIN_RECOMPUTE_STEPS) {
                    return (dunlin_recompute_result){UINT64_MAX, UINT64_MAX, UINT64_MAX, 0};
                }
                run_op(model, op, stage);
                result.cost_ns += model->ops[op].cost_ns;
            }
        }
        run_op(model, stage, stage);
    }
    for (uint32_t t = 0; t < model->n_tensors; t++) {
        end_live_range(model, t);
    }
    uint64_t now = 0;
    uint64_t worst = 0; /* of the stage */
    for (uint32_t k = 0; k < model->n_steps; k++) {
        now += model->sums[k];
        model->sums[k] = now;
        worst = now > worst ? now : worst;
        if (now > result.peak_bytes) {
            result.peak_bytes = now;
            result.peak_step = k;
        }
        if (model->op_of[k] == model->stage_of[k]) {
            result.excess_bytes += worst > limit_bytes ? worst - limit_bytes : 0;
            worst = 0;
        }
    }
    return result;
}
