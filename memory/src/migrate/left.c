/*
 * left.c - what the old plan has left in memory, and which allocations of the new plan can use it.
 *
 * Invariant: only tensors with bytes per sample are looked at, in allocations that hold the whole
 * batch: these always hold a prefix of the batch's samples. What was alive for one slice alone is
 * lost.
 */
#include "switch.h"

/* An allocation that holds what all slices of its loop wrote: it is whole, or there is one slice.
 */
static bool holds_batch(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                        const dunlin_plan_loop *loop, uint32_t place, uint64_t n_batch)
{
    const dunlin_plan_allocation *at = &plan->places[place];
    return at->tensor != DUNLIN_MEM_NONE && graph->tensors[at->tensor].sample_bytes != 0 &&
           (at->is_whole || dunlin__switch_is_once(loop, n_batch));
}

/* Samples, from 0, that step `k` has written by the point if it runs on all slices. */
static uint64_t made_by(const dunlin_switch_from *from, uint32_t loop, uint32_t k)
{
    const uint64_t n = from->n_batch;
    const dunlin_plan_loop *at = &from->plan->loops[loop];
    if (loop != from->point.loop) {
        return loop < from->point.loop ? n : 0;
    }
    if (k >= from->point.step) {
        return from->point.first_sample;
    }
    const uint64_t end = from->point.first_sample + at->slice_samples;
    return dunlin__switch_is_once(at, n) || end > n ? n : end;
}

uint64_t dunlin__switch_made(const dunlin_switch_from *from, uint32_t k)
{
    uint32_t loop = 0;
    while (from->plan->loops[loop].first_step + from->plan->loops[loop].n_steps <= k) {
        loop++;
    }
    return made_by(from, loop, k);
}

/* Another allocation takes its bytes over sample by sample, and has begun to. */
static bool is_taken_over(const dunlin_switch_from *from, const dunlin_plan_allocation *place)
{
    const dunlin_plan *plan = from->plan;
    const dunlin_plan_loop *loop = &plan->loops[from->point.loop];
    if (from->point.first_sample == 0 || place->last_step < loop->first_step ||
        place->last_step >= loop->first_step + loop->n_steps) {
        return false;
    }
    for (uint32_t p = 0; p < plan->n_places; p++) {
        const dunlin_plan_allocation *heir = &plan->places[p];
        if (heir != place && heir->first_step == place->last_step &&
            dunlin__switch_overlap(place->offset_bytes, place->bytes, heir->offset_bytes,
                                   heir->bytes)) {
            return true;
        }
    }
    return false;
}

/* Samples, from 0, of what a written operand of step `k` holds at the point. */
static uint64_t covered_by(const dunlin_switch_from *from, uint32_t loop, uint32_t k,
                           uint32_t operand)
{
    const dunlin_plan_allocation *place = &from->plan->places[from->plan->operands[operand]];
    const uint64_t brought = from->entry != NULL ? from->entry->brought[operand] : 0;
    if (place->last_step < from->point.step ||
        (place->first_step > from->point.step && brought == 0) || is_taken_over(from, place)) {
        return 0;
    }
    const uint64_t made = made_by(from, loop, k);
    if (from->entry == NULL) {
        return made;
    }
    const uint64_t done = from->entry->done[loop];
    const bool is_joined = from->entry->runs_map[k] && brought >= done && made > brought;
    return is_joined ? made : brought;
}

/* Fills `covered`, and lists the old plan's steps by op. */
static void look_back(dunlin_switch_search *search)
{
    const dunlin_plan *plan = search->from->plan;
    dunlin_switch *entry = search->entry;
    for (uint32_t i = 0; i < entry->n_ops; i++) {
        entry->step_of_op[i] = DUNLIN_MEM_NONE;
    }
    for (uint32_t l = 0; plan != NULL && l < plan->n_loops; l++) {
        const dunlin_plan_loop *loop = &plan->loops[l];
        for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
            const dunlin_plan_step *step = &plan->steps[k];
            const dunlin_mem_variant *variant = dunlin__switch_variant(search->graph, step);
            entry->next_step[k] = entry->step_of_op[step->op];
            entry->step_of_op[step->op] = k;
            for (uint32_t a = 0; a < variant->n_accesses; a++) {
                const uint32_t operand = step->first_operand + a;
                const uint32_t place = plan->operands[operand];
                const bool is_kept =
                    place != DUNLIN_MEM_NONE && variant->accesses[a].mode == DUNLIN_MEM_WRITE &&
                    holds_batch(search->graph, plan, loop, place, search->from->n_batch);
                entry->covered[operand] = is_kept ? covered_by(search->from, l, k, operand) : 0;
            }
        }
    }
}

/* Where the old plan keeps what access `a` of `op` writes, with how many samples; NONE: nowhere. */
static uint32_t find_left(const dunlin_switch_search *search, uint32_t op, uint32_t a,
                          uint64_t *out_samples)
{
    const dunlin_plan *plan = search->from->plan;
    uint32_t best = DUNLIN_MEM_NONE;
    *out_samples = 0;
    for (uint32_t k = search->entry->step_of_op[op]; k != DUNLIN_MEM_NONE;
         k = search->entry->next_step[k]) {
        const uint32_t operand = plan->steps[k].first_operand + a;
        if (search->entry->covered[operand] > *out_samples) {
            best = plan->operands[operand];
            *out_samples = search->entry->covered[operand];
        }
    }
    return best;
}

static void match_operand(dunlin_switch_search *search, const dunlin_plan_step *step, uint32_t a)
{
    dunlin_switch *entry = search->entry;
    const uint32_t operand = step->first_operand + a;
    const uint32_t place = search->to->operands[operand];
    uint64_t n = 0;
    const uint32_t left = find_left(search, step->op, a, &n);
    entry->next_writer[operand] = entry->first_writer[place];
    entry->first_writer[place] = operand;
    entry->brought[operand] = n;
    if (left == DUNLIN_MEM_NONE) {
        return;
    }
    /* Two of its writers left their parts in two allocations: these cannot be migrated. */
    if (entry->source[place] != DUNLIN_MEM_NONE && entry->source[place] != left) {
        entry->marks[place] |= DUNLIN_SWITCH_REFUSED;
    }
    entry->source[place] = left;
}

void dunlin__switch_match(dunlin_switch_search *search)
{
    const dunlin_plan *to = search->to;
    dunlin_switch *entry = search->entry;
    look_back(search);
    for (uint32_t p = 0; p < to->n_places; p++) {
        entry->first_writer[p] = DUNLIN_MEM_NONE;
        entry->source[p] = DUNLIN_MEM_NONE;
        entry->marks[p] = 0;
    }
    for (uint32_t l = 0; l < to->n_loops; l++) {
        const dunlin_plan_loop *loop = &to->loops[l];
        for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
            const dunlin_plan_step *step = &to->steps[k];
            const dunlin_mem_variant *variant = dunlin__switch_variant(search->graph, step);
            for (uint32_t a = 0; a < variant->n_accesses; a++) {
                const uint32_t place = to->operands[step->first_operand + a];
                entry->brought[step->first_operand + a] = 0;
                entry->next_writer[step->first_operand + a] = DUNLIN_SWITCH_LOCAL;
                if (place != DUNLIN_MEM_NONE && variant->accesses[a].mode == DUNLIN_MEM_WRITE &&
                    holds_batch(search->graph, to, loop, place, search->from->n_batch)) {
                    match_operand(search, step, a);
                }
            }
        }
    }
}

uint64_t dunlin__switch_left_at(const dunlin_switch_search *search, uint32_t place)
{
    const dunlin_switch_from *from = search->from;
    const uint32_t source = search->entry->source[place];
    const dunlin_plan_allocation *at = &from->plan->places[source];
    for (uint32_t i = 0; from->entry != NULL && i < from->entry->n_late; i++) {
        const dunlin_switch_move *late = &from->entry->late[i];
        if (late->place == source && at->first_step > from->point.step) {
            return late->from_bytes;
        }
    }
    return at->offset_bytes;
}
