/*
 * model.c - the model of rematerialisation: the body of a step as positions, roots and retention
 * intervals.
 *
 * Invariant: a retention interval exists only where all of a tensor has been written, where
 * something lies between its two touches, and where its makers may still run again.
 */
#include "model.h"

#include <mem/support.h>

#include <string.h>

#define MARK_POSITIONS 4 /* at least, from mark to mark, */
#define MARK_SHARE 128   /* and one part in so many of the step */

/* --- arrays --- */

typedef struct {
    void **array;
    size_t n;
    size_t bytes;
} slot;

#define N_SLOTS 26

static void list_slots(dunlin_remat *remat, slot *out)
{
    size_t n_roots = (size_t)remat->n_roots + 1; /* an empty array cannot be told from none */
    size_t n_steps = (size_t)remat->n_steps + 1;
    size_t n_touches = (size_t)remat->n_touches_max + 1;
    size_t n_words = (size_t)remat->n_words + 1;
    size_t n_marks = (size_t)remat->n_marks_max + 1;
    const slot slots[N_SLOTS] = {
        {(void **)&remat->steps, n_steps, sizeof *remat->steps},
        {(void **)&remat->roots, n_roots, sizeof *remat->roots},
        {(void **)&remat->touches, n_touches, sizeof *remat->touches},
        {(void **)&remat->intervals, n_touches, sizeof *remat->intervals},
        {(void **)&remat->makers, n_touches, sizeof *remat->makers},
        {(void **)&remat->is_here, n_words, sizeof *remat->is_here},
        {(void **)&remat->is_whole, n_words, sizeof *remat->is_whole},
        {(void **)&remat->is_local, n_words, sizeof *remat->is_local},
        {(void **)&remat->locals, n_roots, sizeof *remat->locals},
        {(void **)&remat->phases, (size_t)remat->n_phases + 1, sizeof *remat->phases},
        {(void **)&remat->is_wanted, n_roots, sizeof *remat->is_wanted},
        {(void **)&remat->n_pending, n_roots, sizeof *remat->n_pending},
        {(void **)&remat->touch_now, n_roots, sizeof *remat->touch_now},
        {(void **)&remat->wanted, n_roots, sizeof *remat->wanted},
        {(void **)&remat->is_in_closure, n_steps, sizeof *remat->is_in_closure},
        {(void **)&remat->closure, n_steps, sizeof *remat->closure},
        {(void **)&remat->sums, n_steps, sizeof *remat->sums},
        {(void **)&remat->fixed_sums, 2 * (size_t)remat->graph->n_ops + 4,
         sizeof *remat->fixed_sums},
        {(void **)&remat->recompute, (size_t)remat->n_recompute_max + 1, sizeof *remat->recompute},
        {(void **)&remat->base_intervals, n_touches, sizeof *remat->base_intervals},
        {(void **)&remat->try_sums, n_steps, sizeof *remat->try_sums},
        {(void **)&remat->marks, n_marks, sizeof *remat->marks},
        {(void **)&remat->mark_is_here, n_marks * n_words, sizeof *remat->mark_is_here},
        {(void **)&remat->is_other, n_words, sizeof *remat->is_other},
        {(void **)&remat->is_involved, n_marks * n_words, sizeof *remat->is_involved},
        {(void **)&remat->is_asked, n_marks * n_words, sizeof *remat->is_asked},
    };
    memcpy(out, slots, sizeof slots);
}

void dunlin__remat_close(dunlin_remat *remat)
{
    slot slots[N_SLOTS];
    if (remat->graph == NULL) {
        return;
    }
    list_slots(remat, slots);
    for (size_t i = N_SLOTS; i > 0; i--) {
        dunlin__free_array(&remat->alloc, *slots[i - 1].array, slots[i - 1].n, slots[i - 1].bytes);
    }
    memset(remat, 0, sizeof *remat);
}

/* --- building --- */

typedef struct {
    dunlin_remat *remat;
    const dunlin_live *live;
    uint32_t *root_of;   /* by tensor: into roots, or NONE */
    uint32_t *update_at; /* by tensor: the first op that updates it or a part of it, or NONE */
    uint32_t *n_writes;  /* by tensor */
    uint32_t position;   /* the current one */
} builder;

static bool is_body(const dunlin_mem_op *op)
{
    return op->parts != DUNLIN_MEM_FIXED;
}

static uint32_t phase_of(const dunlin_remat *remat, uint32_t op)
{
    return remat->regions == NULL ? 0 : remat->regions->group_of[op] / 2;
}

/* The first op of the body that an update comes before; NONE: it comes last. */
static uint32_t update_of(const dunlin_remat *remat, uint32_t op)
{
    const dunlin_regions *regions = remat->regions;
    if (regions == NULL) {
        return op;
    }
    const uint32_t region = regions->group_of[op] / 2;
    return region < remat->n_phases ? regions->order[regions->first[2 * region + 1]]
                                    : DUNLIN_MEM_NONE;
}

static void number_roots(builder *build)
{
    dunlin_remat *remat = build->remat;
    const dunlin_mem_graph *graph = remat->graph;
    uint32_t n = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        build->root_of[t] = DUNLIN_MEM_NONE;
        build->update_at[t] = DUNLIN_MEM_NONE;
        if (graph->tensors[t].parent == DUNLIN_MEM_NONE &&
            dunlin__mem_is_sliced(&graph->tensors[t])) {
            remat->roots[n] = (dunlin_remat_root){.tensor = t,
                                                  .sample_bytes = graph->tensors[t].sample_bytes,
                                                  .slice_bytes = graph->tensors[t].fixed_bytes,
                                                  .may_drop = true,
                                                  .swap_out = DUNLIN_MEM_NONE,
                                                  .swap_interval = DUNLIN_MEM_NONE};
            build->root_of[t] = n++;
        }
    }
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        build->root_of[t] = build->root_of[build->live->root[t]];
    }
    for (uint32_t i = graph->n_ops; i < dunlin__mem_n_all_ops(graph); i += 2) {
        const uint32_t root = build->root_of[graph->ops[i].variants[0].accesses[0].tensor];
        remat->roots[root].swap_out = remat->regions == NULL ? i : DUNLIN_MEM_NONE;
    }
    for (uint32_t i = graph->n_ops; i > 0; i--) {
        const dunlin_mem_variant *variant = &graph->ops[i - 1].variants[0];
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            const dunlin_mem_access *access = &variant->accesses[a];
            if (access->mode == DUNLIN_MEM_UPDATE) {
                build->update_at[build->live->root[access->tensor]] = update_of(remat, i - 1);
            }
            build->n_writes[access->tensor] += access->mode == DUNLIN_MEM_WRITE;
        }
    }
}

static dunlin_remat_touch *touch_of(dunlin_remat *remat, dunlin_remat_step *step, uint32_t root)
{
    const uint32_t position = (uint32_t)(step - remat->steps);
    for (uint32_t i = 0; i < step->n_touches; i++) {
        if (remat->touches[step->first_touch + i].root == root) {
            return &remat->touches[step->first_touch + i];
        }
    }
    dunlin_remat_touch *touch = &remat->touches[step->first_touch + step->n_touches++];
    *touch = (dunlin_remat_touch){.root = root,
                                  .position = position,
                                  .interval = DUNLIN_MEM_NONE,
                                  .next = DUNLIN_MEM_NONE,
                                  .prev = DUNLIN_MEM_NONE};
    return touch;
}

/* Roots that may be retained until a position after their own last touch. */
static void add_virtual_touches(builder *build)
{
    dunlin_remat *remat = build->remat;
    const uint32_t position = build->position;
    dunlin_remat_step *step = &remat->steps[position];
    for (uint32_t r = 0; remat->n_phases > 1 && r < remat->n_roots; r++) {
        for (int i = 0; i < DUNLIN_MAX_EXTENSIONS; i++) {
            if (remat->roots[r].extends_to[i] == position) {
                touch_of(remat, step, r)->is_virtual = true;
            }
        }
    }
}

static void list_touches(builder *build)
{
    dunlin_remat *remat = build->remat;
    uint32_t position = 0;
    for (uint32_t i = 0; i < remat->graph->n_ops; i++) {
        const dunlin_mem_op *op = &remat->graph->ops[i];
        if (!is_body(op)) {
            continue;
        }
        dunlin_remat_step *step = &remat->steps[position++];
        *step = (dunlin_remat_step){
            .op = i, .phase = phase_of(remat, i), .first_touch = remat->n_touches};
        dunlin_remat_phase *phase = &remat->phases[step->phase];
        phase->first = phase->end == 0 ? position - 1 : phase->first;
        phase->end = position;
        for (uint32_t a = 0; a < op->variants[0].n_accesses; a++) {
            const dunlin_mem_access *access = &op->variants[0].accesses[a];
            uint32_t root = build->root_of[access->tensor];
            if (root == DUNLIN_MEM_NONE) {
                continue;
            }
            dunlin_remat_touch *touch = touch_of(remat, step, root);
            bool is_map = (access->parts & DUNLIN_MEM_MAP) != 0;
            touch->is_read |= access->mode == DUNLIN_MEM_READ;
            touch->is_map_read |= access->mode == DUNLIN_MEM_READ && is_map;
            touch->is_written |= access->mode == DUNLIN_MEM_WRITE;
            /* One maker writes it whole, or each writes parts of its own. */
            remat->roots[root].may_drop &=
                access->mode == DUNLIN_MEM_READ ||
                (is_map && op->may_recompute && build->n_writes[access->tensor] == 1);
        }
        build->position = position - 1;
        add_virtual_touches(build);
        remat->n_touches += step->n_touches;
    }
}

/* Two counting passes: how many makers each root has, then who they are. */
static void list_makers(builder *build)
{
    dunlin_remat *remat = build->remat;
    for (uint32_t i = 0; i < remat->n_touches; i++) {
        remat->roots[remat->touches[i].root].n_makers += remat->touches[i].is_written;
    }
    for (uint32_t r = 0; r < remat->n_roots; r++) {
        remat->roots[r].first_maker = remat->n_makers;
        remat->n_makers += remat->roots[r].n_makers;
        remat->roots[r].n_makers = 0;
    }
    for (uint32_t p = 0; p < remat->n_steps; p++) {
        const dunlin_remat_step *step = &remat->steps[p];
        for (uint32_t i = 0; i < step->n_touches; i++) {
            const dunlin_remat_touch *touch = &remat->touches[step->first_touch + i];
            dunlin_remat_root *root = &remat->roots[touch->root];
            if (touch->is_written) {
                remat->makers[root->first_maker + root->n_makers++] = p;
            }
        }
    }
}

/* A part of a part may share bytes with another that is written on its own. */
static bool has_plain_parts(const builder *build, const dunlin_mem_variant *variant, uint32_t root)
{
    const dunlin_mem_tensor *tensors = build->remat->graph->tensors;
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        uint32_t tensor = variant->accesses[a].tensor;
        if (build->root_of[tensor] == root && variant->accesses[a].mode == DUNLIN_MEM_WRITE &&
            tensors[tensor].parent != build->remat->roots[root].tensor) {
            return false;
        }
    }
    return true;
}

/* May a maker of the root run again, and until when? */
static void look_at_maker(const builder *build, uint32_t root_index, uint32_t position)
{
    dunlin_remat *remat = build->remat;
    dunlin_remat_root *root = &remat->roots[root_index];
    const dunlin_remat_step *step = &remat->steps[position];
    const dunlin_mem_variant *variant = &remat->graph->ops[step->op].variants[0];
    for (uint32_t i = 0; i < step->n_touches; i++) {
        const dunlin_remat_touch *touch = &remat->touches[step->first_touch + i];
        /* What it writes beside the root is recomputed as a whole. */
        if (touch->is_written && touch->root != root_index &&
            remat->roots[touch->root].n_makers > 1) {
            root->may_drop = false;
        }
    }
    if (root->n_makers > 1 && !has_plain_parts(build, variant, root_index)) {
        root->may_drop = false;
    }
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        uint32_t updated = build->update_at[build->live->root[access->tensor]];
        if (access->mode == DUNLIN_MEM_READ && (access->parts & DUNLIN_MEM_MAP) != 0 &&
            updated < root->deadline) {
            root->deadline = updated;
        }
    }
}

static void note_extension(dunlin_remat *remat, uint32_t root, uint32_t position)
{
    for (int i = 0; i < DUNLIN_MAX_EXTENSIONS; i++) {
        if (remat->roots[root].extends_to[i] == position) {
            remat->roots[root].extension[i] = remat->n_intervals;
        }
    }
}

/* During an interval from the forward to the backward pass a tensor may be swapped out. */
static void note_swap(dunlin_remat *remat, uint32_t interval)
{
    const dunlin_interval *at = &remat->intervals[interval];
    dunlin_remat_root *root = &remat->roots[at->root];
    if (root->swap_out != DUNLIN_MEM_NONE &&
        !remat->graph->ops[remat->steps[at->from].op].is_backward &&
        remat->graph->ops[remat->steps[at->to].op].is_backward) {
        root->swap_interval = interval;
    }
}

static void list_intervals(builder *build)
{
    dunlin_remat *remat = build->remat;
    uint32_t *last_touch = remat->n_pending; /* touch before, by root */
    uint32_t *last_position = remat->wanted;
    for (uint32_t r = 0; r < remat->n_roots; r++) {
        dunlin_remat_root *root = &remat->roots[r];
        last_touch[r] = DUNLIN_MEM_NONE;
        remat->touch_now[r] = DUNLIN_MEM_NONE;
        root->deadline = DUNLIN_MEM_NONE;
        root->may_drop &= root->n_makers > 0;
        for (uint32_t m = 0; m < root->n_makers; m++) {
            look_at_maker(build, r, remat->makers[root->first_maker + m]);
        }
    }
    for (uint32_t p = 0; p < remat->n_steps; p++) {
        const dunlin_remat_step *step = &remat->steps[p];
        for (uint32_t i = step->first_touch; i < step->first_touch + step->n_touches; i++) {
            uint32_t r = remat->touches[i].root;
            const dunlin_remat_root *root = &remat->roots[r];
            bool is_whole =
                last_touch[r] != DUNLIN_MEM_NONE && root->n_makers > 0 &&
                last_position[r] >= remat->makers[root->first_maker + root->n_makers - 1];
            const bool is_virtual = remat->touches[i].is_virtual;
            if (is_virtual || (is_whole && root->may_drop && step->op < root->deadline &&
                               (p > last_position[r] + 1 ||
                                remat->steps[last_position[r]].phase != step->phase))) {
                note_extension(remat, r, p);
                remat->touches[last_touch[r]].interval = remat->n_intervals;
                remat->intervals[remat->n_intervals++] =
                    (dunlin_interval){.root = r,
                                      .from = last_position[r],
                                      .to = p,
                                      .to_touch = i,
                                      .is_extension = is_virtual};
                note_swap(remat, remat->n_intervals - 1);
            }
            if (last_touch[r] != DUNLIN_MEM_NONE) {
                remat->touches[last_touch[r]].is_last = false;
                remat->touches[last_touch[r]].next = i;
            }
            remat->touches[i].is_last = true;
            remat->touches[i].prev = last_touch[r];
            remat->touch_now[r] = i;
            last_touch[r] = i;
            last_position[r] = p;
            remat->roots[r].last_position = p;
        }
    }
}

/* Positions from mark to mark of a step that is not cut. */
static uint32_t mark_every(const dunlin_remat *remat)
{
    return MARK_POSITIONS + remat->n_steps / MARK_SHARE;
}

static void list_marks(dunlin_remat *remat)
{
    for (uint32_t p = 0; p < remat->n_steps; p++) {
        const bool is_mark =
            p == 0 || (remat->n_phases > 1 ? remat->steps[p].phase != remat->steps[p - 1].phase
                                           : p % mark_every(remat) == 0);
        if (is_mark) {
            remat->marks[remat->n_marks++].first = p;
        }
        remat->steps[p].mark = remat->n_marks - 1;
    }
    remat->marks[remat->n_marks].first = remat->n_steps;
}

static dunlin_status allocate(dunlin_remat *remat, dunlin_error *error)
{
    const dunlin_mem_graph *graph = remat->graph;
    remat->n_phases = remat->regions == NULL ? 1 : remat->regions->n_groups / 2;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        if (is_body(&graph->ops[i])) {
            remat->n_steps++;
            remat->n_touches_max += graph->ops[i].variants[0].n_accesses;
        }
    }
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        remat->n_roots += graph->tensors[t].parent == DUNLIN_MEM_NONE &&
                          dunlin__mem_is_sliced(&graph->tensors[t]);
    }
    remat->n_touches_max += remat->n_phases > 1 ? DUNLIN_MAX_EXTENSIONS * remat->n_roots : 0;
    remat->n_recompute_max = (remat->n_phases > 1 ? 8 : 3) * remat->n_steps + 2 * graph->n_swaps;
    remat->n_words = (remat->n_roots + 63) / 64;
    remat->n_marks_max =
        remat->n_phases > 1 ? remat->n_phases : remat->n_steps / mark_every(remat) + 1;
    slot slots[N_SLOTS];
    list_slots(remat, slots);
    for (size_t i = 0; i < N_SLOTS; i++) {
        *slots[i].array = dunlin__alloc_zeroed(&remat->alloc, slots[i].n, slots[i].bytes);
        if (*slots[i].array == NULL) {
            return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                                "no memory to plan the rematerialisation of %u tensors",
                                (unsigned)remat->n_roots);
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__remat_open(const dunlin_mem_graph *graph, const dunlin_live *live,
                                 const dunlin_regions *regions, const dunlin_alloc *alloc,
                                 dunlin_remat *out_remat, dunlin_error *error)
{
    *out_remat = (dunlin_remat){.graph = graph, .regions = regions, .alloc = *alloc};
    size_t n = graph->n_tensors;
    builder build = {.remat = out_remat, .live = live};
    dunlin_status status = allocate(out_remat, error);
    build.root_of = dunlin__alloc_array(alloc, n, sizeof *build.root_of);
    build.update_at = dunlin__alloc_array(alloc, n, sizeof *build.update_at);
    build.n_writes = dunlin__alloc_zeroed(alloc, n, sizeof *build.n_writes);
    if (status == DUNLIN_OK) {
        if (build.root_of == NULL || build.update_at == NULL || build.n_writes == NULL) {
            status = dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                                  "no memory to plan the rematerialisation of %zu tensors", n);
        } else {
            number_roots(&build);
            dunlin__remat_extend(out_remat, build.root_of);
            list_touches(&build);
            list_makers(&build);
            list_intervals(&build);
            list_marks(out_remat);
        }
    }
    dunlin__free_array(alloc, build.n_writes, n, sizeof *build.n_writes);
    dunlin__free_array(alloc, build.update_at, n, sizeof *build.update_at);
    dunlin__free_array(alloc, build.root_of, n, sizeof *build.root_of);
    if (status != DUNLIN_OK) {
        dunlin__remat_close(out_remat);
    }
    return status;
}

void dunlin__remat_add_penalty(dunlin_remat *remat, uint32_t position, uint64_t bytes)
{
    remat->steps[position].penalty_bytes += bytes;
    remat->has_base = false;
}

void dunlin__remat_forget_penalties(dunlin_remat *remat)
{
    for (uint32_t p = 0; p < remat->n_steps; p++) {
        remat->steps[p].penalty_bytes = 0;
    }
    remat->has_base = false;
}
