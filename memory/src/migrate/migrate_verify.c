/*
 * migrate_verify.c - simulates what is left of a plan, byte range by byte range.
 *
 * For each operand that is written it holds up to which sample the written values are still there.
 * A write invalidates everything else on its bytes. A read asks for every earlier write of its
 * allocation, for all current samples, and for none that comes later in the plan. It shares no
 * decision with switch.c: it takes the entry as it is and simulates it.
 */
#include "switch.h"

#include <mem/support.h>

#include <inttypes.h>

typedef struct simulation {
    const dunlin_mem_graph *graph;
    const dunlin_switch_from *from;
    const dunlin_plan *to;
    const dunlin_switch *entry;
    const dunlin_alloc *alloc;
    dunlin_error *error;
    uint64_t *valid;       /* by operand: samples from `base` on that are there */
    uint64_t *base;        /* by operand: 0, or the first sample of the slice it was written in */
    uint32_t *place_first; /* by place: its written operands as a list */
    uint32_t *next;
    uint32_t *step_of; /* by operand */
    uint64_t *taken;   /* by op */
    uint8_t *is_lost;  /* by late move: something has written on it */
    uint32_t next_late;
} simulation;

static bool is_within(const dunlin_mem_graph *graph, uint32_t tensor, uint32_t outer)
{
    for (; tensor != DUNLIN_MEM_NONE; tensor = graph->tensors[tensor].parent) {
        if (tensor == outer) {
            return true;
        }
    }
    return false;
}

static const dunlin_mem_access *access_of(const simulation *on, uint32_t operand)
{
    const dunlin_plan_step *step = &on->to->steps[on->step_of[operand]];
    return &dunlin__switch_variant(on->graph, step)->accesses[operand - step->first_operand];
}

static dunlin_status fail(const simulation *on, uint32_t k, uint32_t tensor, const char *what,
                          uint64_t sample)
{
    return dunlin__fail(on->error, DUNLIN_MISMATCH, "switch", 0,
                        "step %" PRIu32 " (%s) reads %s: %s of sample %" PRIu64, k,
                        on->graph->ops[on->to->steps[k].op].name, on->graph->tensors[tensor].name,
                        what, sample);
}

static uint64_t sample_bytes(const simulation *on, uint32_t place)
{
    const uint32_t tensor = on->to->places[place].tensor;
    return tensor == DUNLIN_MEM_NONE ? 0 : on->graph->tensors[tensor].sample_bytes;
}

/* What follows the last sample written stays valid where sample lies on sample. */
static void keep_behind(simulation *on, uint32_t operand, uint64_t end)
{
    const uint64_t last = on->base[operand] + on->valid[operand];
    on->valid[operand] = last > end ? last - end : 0;
    on->base[operand] = end;
}

/* What is staged on these bytes is gone. */
static void write_over_late(simulation *on, uint64_t offset, uint64_t bytes)
{
    for (uint32_t i = on->next_late; i < on->entry->n_late; i++) {
        const dunlin_switch_move *late = &on->entry->late[i];
        if (dunlin__switch_overlap(offset, bytes, late->from_bytes, late->bytes)) {
            on->is_lost[i] = 1;
        }
    }
}

/* Everything else on the allocation's bytes is gone: up to sample `end` where it is in place. */
static void write_over(simulation *on, uint32_t place, uint64_t end)
{
    const dunlin_plan_allocation *at = &on->to->places[place];
    write_over_late(on, at->offset_bytes, at->bytes);
    for (uint32_t p = 0; p < on->to->n_places; p++) {
        const dunlin_plan_allocation *other = &on->to->places[p];
        if (p == place || !dunlin__switch_overlap(at->offset_bytes, at->bytes, other->offset_bytes,
                                                  other->bytes)) {
            continue;
        }
        const bool is_in_place = at->offset_bytes == other->offset_bytes &&
                                 at->is_whole == other->is_whole && sample_bytes(on, p) != 0 &&
                                 sample_bytes(on, p) == sample_bytes(on, place);
        for (uint32_t w = on->place_first[p]; w != DUNLIN_MEM_NONE; w = on->next[w]) {
            if (is_in_place) {
                keep_behind(on, w, end);
            } else {
                on->valid[w] = 0;
            }
        }
    }
}

static dunlin_status read(const simulation *on, uint32_t k, uint32_t place, uint32_t tensor,
                          uint64_t first, uint64_t end)
{
    for (uint32_t w = on->place_first[place]; w != DUNLIN_MEM_NONE; w = on->next[w]) {
        const uint32_t written = access_of(on, w)->tensor;
        if (!is_within(on->graph, written, tensor) && !is_within(on->graph, tensor, written)) {
            continue;
        }
        const bool is_there = on->base[w] <= first && on->base[w] + on->valid[w] >= end;
        const bool is_any = on->valid[w] > 0 && on->base[w] + on->valid[w] > first;
        if (on->step_of[w] < k && !is_there) {
            return fail(on, k, tensor, "nothing is there", first);
        }
        if (on->step_of[w] >= k && is_any) {
            return fail(on, k, tensor, "what is there is too new", first);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status run(simulation *on, uint32_t k, uint64_t slice, uint64_t first, uint64_t end,
                         uint8_t parts)
{
    const dunlin_plan_step *step = &on->to->steps[k];
    const dunlin_mem_variant *variant = dunlin__switch_variant(on->graph, step);
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        const uint32_t place = on->to->operands[step->first_operand + a];
        if (place != DUNLIN_MEM_NONE && access->mode == DUNLIN_MEM_READ &&
            (access->parts & parts) != 0) {
            DUNLIN_TRY(read(on, k, place, access->tensor, first, end));
        }
    }
    if (step->workspace != DUNLIN_MEM_NONE) {
        write_over(on, step->workspace, end);
    }
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        const uint32_t operand = step->first_operand + a;
        const uint32_t place = on->to->operands[operand];
        if (place == DUNLIN_MEM_NONE || access->mode != DUNLIN_MEM_WRITE ||
            (access->parts & parts) == 0) {
            continue;
        }
        write_over(on, place, end);
        const bool goes_on = on->to->places[place].is_whole &&
                             on->base[operand] + on->valid[operand] >= first &&
                             on->base[operand] <= first;
        const bool is_same_slice = on->base[operand] <= first &&
                                   on->base[operand] + on->valid[operand] >= first &&
                                   on->base[operand] >= slice;
        if (!goes_on && !is_same_slice) {
            on->base[operand] = first;
            on->valid[operand] = 0;
        }
        if (on->base[operand] + on->valid[operand] < end) {
            on->valid[operand] = end - on->base[operand];
        }
    }
    if ((parts & ~DUNLIN_MEM_MAP) != 0) {
        on->taken[step->op] = parts == DUNLIN_MEM_FIXED ? 1 : end;
    }
    return DUNLIN_OK;
}

/* Puts what was migrated to the allocation there. */
static void put(simulation *on, uint32_t place)
{
    for (uint32_t w = on->place_first[place]; w != DUNLIN_MEM_NONE; w = on->next[w]) {
        on->base[w] = 0;
        on->valid[w] = on->entry->brought[w];
    }
}

static void bring_late(simulation *on, uint32_t k)
{
    while (on->next_late < on->entry->n_late) {
        const uint32_t i = on->next_late;
        const uint32_t place = on->entry->late[i].place;
        if (on->to->places[place].first_step > k) {
            return;
        }
        on->next_late++;
        write_over(on, place, on->from->n_batch);
        if (!on->is_lost[i]) {
            put(on, place);
        }
    }
}

static dunlin_status run_step(simulation *on, uint32_t k, uint64_t first, uint64_t end)
{
    const dunlin_plan_step *step = &on->to->steps[k];
    const uint64_t taken = on->taken[step->op];
    if (step->parts == DUNLIN_MEM_FIXED) {
        return taken == 0 ? run(on, k, first, first, end, DUNLIN_MEM_FIXED) : DUNLIN_OK;
    }
    uint64_t open = end;
    if ((step->parts & DUNLIN_MEM_REDUCE) != 0) {
        if (taken < first) {
            return fail(on, k, 0, "a sum lacks what comes before", first);
        }
        open = taken < end ? taken : end;
    }
    if (on->entry->runs_map[k] != 0 && open > first) {
        DUNLIN_TRY(run(on, k, first, first, open, DUNLIN_MEM_MAP));
    }
    return open < end ? run(on, k, first, open, end, step->parts) : DUNLIN_OK;
}

static dunlin_status run_all(simulation *on)
{
    const uint64_t n = on->from->n_batch;
    for (uint32_t l = 0; l < on->to->n_loops; l++) {
        const dunlin_plan_loop *loop = &on->to->loops[l];
        const uint64_t length = dunlin__switch_is_once(loop, n) ? n : loop->slice_samples;
        for (uint64_t first = 0; first < n; first += length) {
            const uint64_t end = first + length < n ? first + length : n;
            for (uint32_t k = 0; k < loop->n_steps && end > on->entry->done[l]; k++) {
                bring_late(on, loop->first_step + k);
                DUNLIN_TRY(run_step(on, loop->first_step + k, first, end));
            }
        }
    }
    for (uint32_t i = 0; i < on->graph->n_ops; i++) {
        const uint8_t parts = on->graph->ops[i].parts;
        const bool is_through = parts == DUNLIN_MEM_FIXED          ? on->taken[i] == 1
                                : (parts & DUNLIN_MEM_REDUCE) != 0 ? on->taken[i] == n
                                                                   : true;
        if (!is_through) {
            return dunlin__fail(on->error, DUNLIN_MISMATCH, "switch", 0,
                                "op %s has taken %" PRIu64 " of %" PRIu64 " samples at the end",
                                on->graph->ops[i].name, on->taken[i], n);
        }
    }
    return DUNLIN_OK;
}

/* A move reads nothing that an earlier one wrote over. */
static dunlin_status check_moves(const simulation *on)
{
    const dunlin_switch_move *moves = on->entry->moves;
    for (uint32_t i = 0; i < on->entry->n_moves; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (moves[j].place != moves[i].place &&
                dunlin__switch_overlap(moves[j].to_bytes, moves[j].bytes, moves[i].from_bytes,
                                       moves[i].bytes)) {
                return dunlin__fail(on->error, DUNLIN_MISMATCH, "switch", 0,
                                    "move %" PRIu32 " writes on what move %" PRIu32 " reads", j, i);
            }
        }
    }
    return DUNLIN_OK;
}

/* What the moves leave: in the new allocations, or staged. */
static dunlin_status bring(simulation *on)
{
    for (uint32_t k = 0; k < on->to->n_steps; k++) {
        const dunlin_plan_step *step = &on->to->steps[k];
        const dunlin_mem_variant *variant = dunlin__switch_variant(on->graph, step);
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            const uint32_t operand = step->first_operand + a;
            const uint32_t place = on->to->operands[operand];
            on->step_of[operand] = k;
            if (place != DUNLIN_MEM_NONE && variant->accesses[a].mode == DUNLIN_MEM_WRITE &&
                (variant->accesses[a].parts & DUNLIN_MEM_FIXED) == 0) {
                on->next[operand] = on->place_first[place];
                on->place_first[place] = operand;
            }
        }
    }
    for (uint32_t i = 0; i < on->graph->n_ops; i++) {
        on->taken[i] = on->from->n_taken[i];
    }
    DUNLIN_TRY(check_moves(on));
    /* Each as its last move leaves it, in that order: a later one overwrites an earlier one. */
    const dunlin_switch *entry = on->entry;
    for (uint32_t i = 0; i < entry->n_moves; i++) {
        const dunlin_switch_move *move = &entry->moves[i];
        write_over_late(on, move->to_bytes, move->bytes);
        if (move->to_bytes == on->to->places[move->place].offset_bytes) {
            write_over(on, move->place, on->from->n_batch);
            put(on, move->place);
        }
        for (uint32_t l = 0; l < entry->n_late; l++) {
            if (entry->late[l].place == move->place &&
                entry->late[l].from_bytes == move->to_bytes) {
                on->is_lost[l] = 0;
            }
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__switch_verify(const dunlin_mem_graph *graph, const dunlin_switch_from *from,
                                    const dunlin_plan *to, const dunlin_switch *entry,
                                    const dunlin_alloc *alloc, dunlin_error *error)
{
    const dunlin_alloc hooks = dunlin__alloc_or_default(alloc);
    const uint32_t n = to->n_operands;
    simulation on = {
        .graph = graph, .from = from, .to = to, .entry = entry, .alloc = &hooks, .error = error};
    on.valid = dunlin__alloc_zeroed(&hooks, n, sizeof *on.valid);
    on.base = dunlin__alloc_zeroed(&hooks, n, sizeof *on.base);
    on.next = dunlin__alloc_zeroed(&hooks, n, sizeof *on.next);
    on.step_of = dunlin__alloc_zeroed(&hooks, n, sizeof *on.step_of);
    on.place_first = dunlin__alloc_zeroed(&hooks, to->n_places, sizeof *on.place_first);
    on.taken = dunlin__alloc_zeroed(&hooks, graph->n_ops, sizeof *on.taken);
    on.is_lost = dunlin__alloc_zeroed(&hooks, to->n_places, sizeof *on.is_lost);
    dunlin_status status = DUNLIN_OK;
    if (on.valid == NULL || on.base == NULL || on.next == NULL || on.step_of == NULL ||
        on.place_first == NULL || on.taken == NULL || on.is_lost == NULL) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "switch", 0,
                              "no memory to follow %" PRIu32 " operands", n);
    } else {
        for (uint32_t p = 0; p < to->n_places; p++) {
            on.place_first[p] = DUNLIN_MEM_NONE;
        }
        for (uint32_t i = 0; i < entry->n_late; i++) {
            on.is_lost[i] = 1;
        }
        status = bring(&on);
        status = status == DUNLIN_OK ? run_all(&on) : status;
    }
    dunlin__free_array(&hooks, on.is_lost, to->n_places, sizeof *on.is_lost);
    dunlin__free_array(&hooks, on.taken, graph->n_ops, sizeof *on.taken);
    dunlin__free_array(&hooks, on.place_first, to->n_places, sizeof *on.place_first);
    dunlin__free_array(&hooks, on.step_of, n, sizeof *on.step_of);
    dunlin__free_array(&hooks, on.next, n, sizeof *on.next);
    dunlin__free_array(&hooks, on.base, n, sizeof *on.base);
    dunlin__free_array(&hooks, on.valid, n, sizeof *on.valid);
    return status;
}
