/*
 * switch.c - what still runs of a plan that is resumed in mid-step.
 *
 * Invariant: a step that runs finds each of its inputs, of the version that the graph's order asks
 * for: written by a step that runs before it, or migrated and not overwritten since. What is
 * migrated lies in its new allocation from the beginning or, where anything else would write there
 * before that live range begins, it is staged in free room until then. Where there is no room, it
 * is recomputed instead. Allocations are refused until no conflict is left. A refusal is never
 * withdrawn, so the search ends; with all of them refused the plan runs as it was verified, except
 * for what is done.
 */
#include "switch.h"

#include <mem/support.h>

#include <inttypes.h>

/* --- what has to run --- */

/* Something that still runs reads the output of the step's map part, and it is not resident. */
static bool is_map_needed(const dunlin_switch_search *search, const dunlin_plan_step *step)
{
    const dunlin_mem_variant *variant = dunlin__switch_variant(search->graph, step);
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const uint32_t operand = step->first_operand + a;
        const uint32_t place = search->to->operands[operand];
        if (place != DUNLIN_MEM_NONE && variant->accesses[a].mode == DUNLIN_MEM_WRITE &&
            (variant->accesses[a].parts & DUNLIN_MEM_MAP) != 0 &&
            (search->entry->marks[place] & DUNLIN_SWITCH_NEEDED) != 0 &&
            search->entry->brought[operand] < search->from->n_batch) {
            return true;
        }
    }
    return false;
}

/* The samples up to which a step that runs has nothing left to do. */
static uint64_t done_before(const dunlin_switch_search *search, uint32_t k)
{
    const dunlin_plan_step *step = &search->to->steps[k];
    uint64_t done = UINT64_MAX;
    if (dunlin__switch_is_open(search, step)) {
        done = search->from->n_taken[step->op];
    }
    if (search->entry->runs_map[k] == 0) {
        return done;
    }
    const dunlin_mem_variant *variant = dunlin__switch_variant(search->graph, step);
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const uint32_t operand = step->first_operand + a;
        const uint32_t place = search->to->operands[operand];
        const bool is_written = place != DUNLIN_MEM_NONE &&
                                variant->accesses[a].mode == DUNLIN_MEM_WRITE &&
                                (search->entry->marks[place] & DUNLIN_SWITCH_READ) != 0;
        /* What is alive for one slice is made for its readers there, and they count. */
        if (is_written && search->entry->next_writer[operand] != DUNLIN_SWITCH_LOCAL &&
            search->entry->brought[operand] < done) {
            done = search->entry->brought[operand];
        }
    }
    return done;
}

static void need_inputs(dunlin_switch_search *search, const dunlin_plan_step *step, uint8_t parts)
{
    const dunlin_mem_variant *variant = dunlin__switch_variant(search->graph, step);
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const uint32_t place = search->to->operands[step->first_operand + a];
        const uint8_t mode = variant->accesses[a].mode;
        if (place != DUNLIN_MEM_NONE && (mode == DUNLIN_MEM_READ || mode == DUNLIN_MEM_UPDATE) &&
            (variant->accesses[a].parts & parts) != 0) {
            search->entry->marks[place] |= DUNLIN_SWITCH_NEEDED | DUNLIN_SWITCH_READ;
        }
    }
}

static void forget_refused(dunlin_switch_search *search)
{
    dunlin_switch *entry = search->entry;
    for (uint32_t p = 0; p < search->to->n_places; p++) {
        entry->marks[p] &= DUNLIN_SWITCH_REFUSED | DUNLIN_SWITCH_FIRST;
        for (uint32_t w = entry->first_writer[p];
             w != DUNLIN_MEM_NONE && (entry->marks[p] & DUNLIN_SWITCH_REFUSED) != 0;
             w = entry->next_writer[w]) {
            entry->brought[w] = 0;
        }
    }
}

/* From the last step to the first: whatever is read must be resident. */
static void find_steps(dunlin_switch_search *search)
{
    const dunlin_plan *to = search->to;
    forget_refused(search);
    for (uint32_t l = to->n_loops; l > 0; l--) {
        const dunlin_plan_loop *loop = &to->loops[l - 1];
        for (uint32_t k = loop->first_step + loop->n_steps; k > loop->first_step; k--) {
            const dunlin_plan_step *step = &to->steps[k - 1];
            search->entry->runs_map[k - 1] =
                (step->parts & DUNLIN_MEM_MAP) != 0 && is_map_needed(search, step);
            need_inputs(search, step, dunlin__switch_parts(search, k - 1));
        }
        uint64_t done = UINT64_MAX;
        for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
            const uint64_t own = done_before(search, k);
            done = own < done ? own : done;
        }
        search->entry->done[l - 1] = done;
    }
}

/* --- what is in the way --- */

static void list_brought(dunlin_switch_search *search)
{
    dunlin_switch *entry = search->entry;
    entry->n_listed = 0;
    for (uint32_t p = 0; p < search->to->n_places; p++) {
        if (dunlin__switch_is_brought(entry, p)) {
            entry->list[entry->n_listed++] = p;
            entry->marks[p] |= DUNLIN_SWITCH_USED;
        }
    }
}

static bool is_within(const dunlin_mem_graph *graph, uint32_t tensor, uint32_t outer)
{
    while (tensor != outer && tensor != DUNLIN_MEM_NONE) {
        tensor = graph->tensors[tensor].parent;
    }
    return tensor == outer;
}

/* The tensor that an operand is of: steps' operands follow each other. */
static uint32_t tensor_of(const dunlin_switch_search *search, uint32_t operand)
{
    const dunlin_plan_step *steps = search->to->steps;
    uint32_t low = 0;
    uint32_t high = search->to->n_steps - 1;
    while (low < high) {
        const uint32_t middle = low + (high - low + 1) / 2;
        if (steps[middle].first_operand <= operand) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return dunlin__switch_variant(search->graph, &steps[low])
        ->accesses[operand - steps[low].first_operand]
        .tensor;
}

/* What was migrated to `place` was written by step `first` or a later one, in part or in all of
 * `tensor`. */
static bool is_newer(const dunlin_switch_search *search, uint32_t first, uint32_t place,
                     uint32_t tensor)
{
    const dunlin_switch *entry = search->entry;
    if (first >= search->to->n_steps) {
        return false;
    }
    for (uint32_t w = entry->first_writer[place]; w != DUNLIN_MEM_NONE; w = entry->next_writer[w]) {
        if (entry->brought[w] == 0 || w < search->to->steps[first].first_operand) {
            continue;
        }
        const uint32_t written = tensor_of(search, w);
        if (is_within(search->graph, written, tensor) ||
            is_within(search->graph, tensor, written)) {
            return true;
        }
    }
    return false;
}

static void refuse_for_step(dunlin_switch_search *search, uint32_t k)
{
    const dunlin_plan_step *step = &search->to->steps[k];
    const uint8_t parts = dunlin__switch_parts(search, k);
    const dunlin_mem_variant *variant = dunlin__switch_variant(search->graph, step);
    for (uint32_t a = 0; a < variant->n_accesses && parts != 0; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        const uint32_t place = search->to->operands[step->first_operand + a];
        if (place == DUNLIN_MEM_NONE || (access->parts & parts) == 0) {
            continue;
        }
        const bool is_write = access->mode == DUNLIN_MEM_WRITE;
        if (is_write) {
            search->entry->marks[place] |= DUNLIN_SWITCH_USED;
        }
        if (dunlin__switch_is_brought(search->entry, place) &&
            is_newer(search, is_write ? k + 1 : k, place, access->tensor)) {
            dunlin__switch_refuse(search, place);
        }
    }
    if (parts != 0 && step->workspace != DUNLIN_MEM_NONE) {
        search->entry->marks[step->workspace] |= DUNLIN_SWITCH_USED;
    }
}

/* What nobody reads is not moved, and is not there for a further change of plans. */
static void forget_unread(dunlin_switch_search *search)
{
    dunlin_switch *entry = search->entry;
    for (uint32_t p = 0; p < search->to->n_places; p++) {
        for (uint32_t w = entry->first_writer[p];
             w != DUNLIN_MEM_NONE && !dunlin__switch_is_brought(entry, p);
             w = entry->next_writer[w]) {
            entry->brought[w] = 0;
        }
    }
}

void dunlin__switch_find(const dunlin_mem_graph *graph, const dunlin_switch_from *from,
                         const dunlin_plan *to, uint64_t limit_bytes, dunlin_switch *entry)
{
    dunlin_switch_search search = {.graph = graph, .from = from, .to = to, .entry = entry};
    dunlin__switch_match(&search);
    dunlin__switch_mark_first(&search);
    do {
        search.is_changed = false;
        find_steps(&search);
        list_brought(&search);
        for (uint32_t k = 0; k < to->n_steps; k++) {
            refuse_for_step(&search, k);
        }
        if (!search.is_changed) {
            dunlin__switch_stage(&search);
        }
        if (!search.is_changed) {
            dunlin__switch_order(&search, limit_bytes);
        }
    } while (search.is_changed);
    forget_unread(&search);
    dunlin__switch_price(&search);
}

/* --- room --- */

void dunlin__switch_measure(const dunlin_plan *plan, dunlin_switch_sizes *sizes)
{
    sizes->n_steps = plan->n_steps > sizes->n_steps ? plan->n_steps : sizes->n_steps;
    sizes->n_loops = plan->n_loops > sizes->n_loops ? plan->n_loops : sizes->n_loops;
    sizes->n_places = plan->n_places > sizes->n_places ? plan->n_places : sizes->n_places;
    sizes->n_operands = plan->n_operands > sizes->n_operands ? plan->n_operands : sizes->n_operands;
}

dunlin_status dunlin__switch_open(const dunlin_mem_graph *graph, const dunlin_switch_sizes *sizes,
                                  const dunlin_alloc *alloc, dunlin_switch *out_entry,
                                  dunlin_error *error)
{
    const dunlin_switch_sizes n = *sizes;
    dunlin_switch *entry = out_entry;
    *entry = (dunlin_switch){.alloc = *alloc, .sizes = n, .n_ops = graph->n_ops};
    entry->runs_map = dunlin__alloc_zeroed(alloc, n.n_steps, sizeof *entry->runs_map);
    entry->brought = dunlin__alloc_zeroed(alloc, n.n_operands, sizeof *entry->brought);
    entry->done = dunlin__alloc_zeroed(alloc, n.n_loops, sizeof *entry->done);
    entry->moves = dunlin__alloc_zeroed(alloc, n.n_places, 2 * sizeof *entry->moves);
    entry->marks = dunlin__alloc_zeroed(alloc, n.n_places, sizeof *entry->marks);
    entry->source = dunlin__alloc_zeroed(alloc, n.n_places, sizeof *entry->source);
    entry->list = dunlin__alloc_zeroed(alloc, n.n_places, sizeof *entry->list);
    entry->by_offset = dunlin__alloc_zeroed(alloc, n.n_places, sizeof *entry->by_offset);
    entry->lies_at = dunlin__alloc_zeroed(alloc, n.n_places, sizeof *entry->lies_at);
    entry->worth = dunlin__alloc_zeroed(alloc, n.n_places, sizeof *entry->worth);
    entry->first_writer = dunlin__alloc_zeroed(alloc, n.n_places, sizeof *entry->first_writer);
    entry->next_writer = dunlin__alloc_zeroed(alloc, n.n_operands, sizeof *entry->next_writer);
    entry->step_of_op = dunlin__alloc_zeroed(alloc, graph->n_ops, sizeof *entry->step_of_op);
    entry->next_step = dunlin__alloc_zeroed(alloc, n.n_steps, sizeof *entry->next_step);
    entry->covered = dunlin__alloc_zeroed(alloc, n.n_operands, sizeof *entry->covered);
    if (entry->runs_map == NULL || entry->brought == NULL || entry->done == NULL ||
        entry->moves == NULL || entry->by_offset == NULL || entry->lies_at == NULL ||
        entry->worth == NULL || entry->marks == NULL || entry->source == NULL ||
        entry->list == NULL || entry->first_writer == NULL || entry->next_writer == NULL ||
        entry->step_of_op == NULL || entry->next_step == NULL || entry->covered == NULL) {
        dunlin__switch_close(entry);
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                            "no memory for a way into plans of %" PRIu32 " steps", n.n_steps);
    }
    return DUNLIN_OK;
}

void dunlin__switch_close(dunlin_switch *entry)
{
    const dunlin_alloc *alloc = &entry->alloc;
    const dunlin_switch_sizes n = entry->sizes;
    dunlin__free_array(alloc, entry->covered, n.n_operands, sizeof *entry->covered);
    dunlin__free_array(alloc, entry->next_step, n.n_steps, sizeof *entry->next_step);
    dunlin__free_array(alloc, entry->step_of_op, entry->n_ops, sizeof *entry->step_of_op);
    dunlin__free_array(alloc, entry->next_writer, n.n_operands, sizeof *entry->next_writer);
    dunlin__free_array(alloc, entry->first_writer, n.n_places, sizeof *entry->first_writer);
    dunlin__free_array(alloc, entry->worth, n.n_places, sizeof *entry->worth);
    dunlin__free_array(alloc, entry->lies_at, n.n_places, sizeof *entry->lies_at);
    dunlin__free_array(alloc, entry->by_offset, n.n_places, sizeof *entry->by_offset);
    dunlin__free_array(alloc, entry->list, n.n_places, sizeof *entry->list);
    dunlin__free_array(alloc, entry->source, n.n_places, sizeof *entry->source);
    dunlin__free_array(alloc, entry->marks, n.n_places, sizeof *entry->marks);
    dunlin__free_array(alloc, entry->moves, n.n_places, 2 * sizeof *entry->moves);
    dunlin__free_array(alloc, entry->done, n.n_loops, sizeof *entry->done);
    dunlin__free_array(alloc, entry->brought, n.n_operands, sizeof *entry->brought);
    dunlin__free_array(alloc, entry->runs_map, n.n_steps, sizeof *entry->runs_map);
    *entry = (dunlin_switch){.n_ops = 0};
}
