/*
 * align.c - gives a plan the addresses of another one, where both keep the same tensors.
 *
 * Invariant: live ranges, sizes and in-place pairs stay as they are; addresses change only if
 * everything still fits. A plan with more memory has room for whatever a plan with less memory
 * keeps, at the same address, so migrating from one to the other moves almost nothing.
 */
#include "pack/greedy.h"

#include <mem/plan.h>
#include <mem/support.h>

#define N_ORDERS 4
#define MAX_DROPS 16         /* pins that are given up before all are */
#define SHORT_LIVE_RANGES 16 /* parts of the step */

/* Allocations that share bytes in place move together. */
typedef struct {
    dunlin_pack_block block; /* from the first live range to the last, all their bytes */
    uint64_t base_bytes;     /* as the plan has it, from the pool's beginning */
    uint64_t pin_bytes;      /* as another plan has it; UINT64_MAX: anywhere */
    uint64_t given_up_bytes; /* the same, while it is given up */
    uint32_t pin_plan;       /* which of them */
    uint32_t first_member;   /* places */
    uint32_t n_members;
} unit;

typedef struct {
    const dunlin_plan *plan;
    const dunlin_plan *const *others;
    uint32_t n_others;
    uint64_t room_bytes; /* of the pool */
    unit *units;
    uint32_t n_units;
    uint32_t *unit_of; /* by place; NONE: not in the pool */
    uint32_t *members; /* places, unit by unit */
    uint32_t *order;
    uint64_t *offsets; /* by unit: of the packing being made, and of the best */
    uint64_t *best;
    dunlin_pack_pile *pile;
} aligner;

static bool is_in_pool(const dunlin_plan *plan, const dunlin_plan_allocation *place)
{
    return place->bytes > 0 && place->offset_bytes >= plan->persistent_bytes;
}

static bool overlap(uint64_t a, uint64_t a_bytes, uint64_t b, uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* Two that share bytes and are both alive at the step where the one ends and the other begins. */
static bool is_in_place(const dunlin_plan_allocation *a, const dunlin_plan_allocation *b)
{
    return (a->last_step == b->first_step || b->last_step == a->first_step) &&
           overlap(a->offset_bytes, a->bytes, b->offset_bytes, b->bytes);
}

static void take_into(aligner *at, uint32_t u, uint32_t place)
{
    const dunlin_plan_allocation *p = &at->plan->places[place];
    const uint64_t offset = p->offset_bytes - at->plan->persistent_bytes;
    unit *to = &at->units[u];
    const uint64_t end = to->base_bytes + to->block.bytes;
    to->base_bytes = offset < to->base_bytes ? offset : to->base_bytes;
    const uint64_t new_end = offset + p->bytes > end ? offset + p->bytes : end;
    to->block.bytes =
        (new_end - to->base_bytes + DUNLIN_MEM_ALIGN - 1) & ~(uint64_t)(DUNLIN_MEM_ALIGN - 1);
    to->block.first_step =
        p->first_step < to->block.first_step ? p->first_step : to->block.first_step;
    to->block.last_step = p->last_step > to->block.last_step ? p->last_step : to->block.last_step;
    at->unit_of[place] = u;
}

/* All allocations that share bytes in place with one, and with those, and so on. */
static void find_units(aligner *at)
{
    const dunlin_plan *plan = at->plan;
    uint32_t n_listed = 0;
    for (uint32_t p = 0; p < plan->n_places; p++) {
        at->unit_of[p] = DUNLIN_MEM_NONE;
    }
    for (uint32_t p = 0; p < plan->n_places; p++) {
        const dunlin_plan_allocation *place = &plan->places[p];
        if (at->unit_of[p] != DUNLIN_MEM_NONE || !is_in_pool(plan, place)) {
            continue;
        }
        const uint32_t u = at->n_units++;
        at->units[u] = (unit){.block = {.first_step = place->first_step},
                              .base_bytes = place->offset_bytes - plan->persistent_bytes,
                              .pin_bytes = UINT64_MAX,
                              .given_up_bytes = UINT64_MAX,
                              .first_member = n_listed};
        take_into(at, u, p);
        at->members[n_listed++] = p;
        for (uint32_t i = at->units[u].first_member; i < n_listed; i++) {
            const dunlin_plan_allocation *from = &plan->places[at->members[i]];
            for (uint32_t q = 0; q < plan->n_places; q++) {
                if (at->unit_of[q] == DUNLIN_MEM_NONE && is_in_pool(plan, &plan->places[q]) &&
                    is_in_place(from, &plan->places[q])) {
                    take_into(at, u, q);
                    at->members[n_listed++] = q;
                }
            }
        }
        at->units[u].n_members = n_listed - at->units[u].first_member;
    }
}

/* A member of a unit that lies at `offset`. */
static dunlin_pack_block member_at(const aligner *at, const unit *u, uint32_t i, uint64_t offset)
{
    const dunlin_plan_allocation *place = &at->plan->places[at->members[u->first_member + i]];
    return (dunlin_pack_block){
        .first_step = place->first_step,
        .last_step = place->last_step,
        .bytes = (place->bytes + DUNLIN_MEM_ALIGN - 1) & ~(uint64_t)(DUNLIN_MEM_ALIGN - 1),
        .offset_bytes = offset + (place->offset_bytes - at->plan->persistent_bytes - u->base_bytes),
    };
}

/* The allocation where a tensor is first written, if that is in the pool. */
static const dunlin_plan_allocation *first_place(const dunlin_plan *plan, uint32_t tensor)
{
    const dunlin_plan_allocation *first = NULL;
    for (uint32_t p = 0; p < plan->n_places; p++) {
        const dunlin_plan_allocation *place = &plan->places[p];
        if (place->tensor == tensor && is_in_pool(plan, place) &&
            (first == NULL || place->first_step < first->first_step)) {
            first = place;
        }
    }
    return first;
}

/* The address of the same tensor in another plan; one with a short live range in either is not
 * pinned. */
static void find_pins(aligner *at, uint32_t other)
{
    const dunlin_plan *plan = at->plan;
    const dunlin_plan *of = at->others[other];
    const uint32_t least_live_range = plan->n_steps / SHORT_LIVE_RANGES;
    for (uint32_t p = 0; p < plan->n_places; p++) {
        const dunlin_plan_allocation *place = &plan->places[p];
        unit *u = at->unit_of[p] != DUNLIN_MEM_NONE ? &at->units[at->unit_of[p]] : NULL;
        if (u == NULL || u->pin_bytes != UINT64_MAX || place->tensor == DUNLIN_MEM_NONE ||
            place->last_step - place->first_step < least_live_range ||
            first_place(plan, place->tensor) != place) {
            continue;
        }
        const dunlin_plan_allocation *there = first_place(of, place->tensor);
        if (there == NULL || there->bytes != place->bytes ||
            there->last_step - there->first_step < least_live_range) {
            continue;
        }
        const uint64_t within = place->offset_bytes - plan->persistent_bytes - u->base_bytes;
        const uint64_t offset = there->offset_bytes - of->persistent_bytes;
        if (offset >= within && offset - within + u->block.bytes <= at->room_bytes) {
            u->pin_bytes = offset - within;
            u->pin_plan = other;
        }
    }
}

static uint64_t live_range_of(const unit *u)
{
    return (uint64_t)u->block.last_step - u->block.first_step + 1;
}

/* What comes earlier in an order. */
static bool goes_first(const unit *a, const unit *b, uint32_t method)
{
    const uint64_t keys[2][N_ORDERS] = {
        {a->block.bytes, b->base_bytes, live_range_of(a), live_range_of(a) * (a->block.bytes >> 6)},
        {b->block.bytes, a->base_bytes, live_range_of(b), live_range_of(b) * (b->block.bytes >> 6)},
    };
    if (keys[0][method] != keys[1][method]) {
        return keys[0][method] > keys[1][method];
    }
    return a->block.bytes != b->block.bytes ? a->block.bytes > b->block.bytes : a < b;
}

static void sort_units(aligner *at, uint32_t method)
{
    for (uint32_t i = 0; i < at->n_units; i++) {
        at->order[i] = i;
    }
    /* Shell's sort, gaps of Ciura (2001): all keys differ, so the order is the only one. */
    static const uint32_t intervals[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof intervals / sizeof intervals[0]; g++) {
        for (uint32_t i = intervals[g]; i < at->n_units; i++) {
            const uint32_t moved = at->order[i];
            uint32_t k = i;
            for (; k >= intervals[g] &&
                   goes_first(&at->units[moved], &at->units[at->order[k - intervals[g]]], method);
                 k -= intervals[g]) {
                at->order[k] = at->order[k - intervals[g]];
            }
            at->order[k] = moved;
        }
    }
}

/* Two pins that would lie on each other. */
static bool is_clash(const aligner *at, const unit *u, const unit *v)
{
    if (u->pin_bytes == UINT64_MAX || v->pin_bytes == UINT64_MAX ||
        u->block.first_step > v->block.last_step || v->block.first_step > u->block.last_step ||
        !overlap(u->pin_bytes, u->block.bytes, v->pin_bytes, v->block.bytes)) {
        return false;
    }
    for (uint32_t i = 0; i < u->n_members; i++) {
        const dunlin_pack_block a = member_at(at, u, i, u->pin_bytes);
        for (uint32_t k = 0; k < v->n_members; k++) {
            const dunlin_pack_block b = member_at(at, v, k, v->pin_bytes);
            if (a.first_step <= b.last_step && b.first_step <= a.last_step &&
                overlap(a.offset_bytes, a.bytes, b.offset_bytes, b.bytes)) {
                return true;
            }
        }
    }
    return false;
}

/* Of pins that would lie on each other, the earlier plan's or else the larger stays. Returns how
 * many do. */
static uint32_t settle_pins(aligner *at)
{
    uint32_t n = 0;
    sort_units(at, 0);
    for (uint32_t i = 0; i < at->n_units; i++) {
        unit *u = &at->units[at->order[i]];
        for (uint32_t k = 0; k < at->n_units && u->pin_bytes != UINT64_MAX; k++) {
            const unit *v = &at->units[at->order[k]];
            const bool yields = v->pin_plan < u->pin_plan || (v->pin_plan == u->pin_plan && k < i);
            if (yields && is_clash(at, u, v)) {
                u->pin_bytes = UINT64_MAX;
            }
        }
        n += u->pin_bytes != UINT64_MAX;
    }
    return n;
}

/* The height with everything pinned at its address and the rest placed in an order. What is pinned
 * takes room member by member, the rest for its whole live range. */
static uint64_t place_units(aligner *at, uint32_t method, dunlin_pack_fit fit)
{
    uint64_t height = 0;
    dunlin__pack_pile_clear(at->pile);
    sort_units(at, method);
    for (uint32_t u = 0; u < at->n_units; u++) {
        const unit *pinned = &at->units[u];
        for (uint32_t i = 0; i < pinned->n_members && pinned->pin_bytes != UINT64_MAX; i++) {
            const dunlin_pack_block block = member_at(at, pinned, i, pinned->pin_bytes);
            dunlin__pack_insert(at->pile, &block, block.offset_bytes);
            const uint64_t end = block.offset_bytes + block.bytes;
            height = end > height ? end : height;
        }
        at->offsets[u] = pinned->pin_bytes;
    }
    for (uint32_t i = 0; i < at->n_units; i++) {
        const uint32_t u = at->order[i];
        const unit *one = &at->units[u];
        if (one->pin_bytes == UINT64_MAX) {
            at->offsets[u] = dunlin__pack_find_gap(at->pile, &one->block, fit);
            dunlin__pack_insert(at->pile, &one->block, at->offsets[u]);
            const uint64_t end = at->offsets[u] + one->block.bytes;
            height = end > height ? end : height;
        }
    }
    return height;
}

/* The lowest of so many ways to place what is not pinned, and its offsets in `best`. */
static uint64_t place_best(aligner *at, uint32_t n_ways)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t way = 0; way < n_ways; way++) {
        const uint64_t height =
            place_units(at, way % N_ORDERS, way < N_ORDERS ? DUNLIN_FIRST_FIT : DUNLIN_BEST_FIT);
        if (height < lowest) {
            lowest = height;
            uint64_t *swapped = at->best;
            at->best = at->offsets;
            at->offsets = swapped;
        }
    }
    return lowest;
}

/* The unit at the top of the packing in `best`. */
static const unit *find_top(const aligner *at)
{
    uint32_t top = 0;
    for (uint32_t u = 1; u < at->n_units; u++) {
        if (at->best[u] + at->units[u].block.bytes > at->best[top] + at->units[top].block.bytes) {
            top = u;
        }
    }
    return &at->units[top];
}

static void give_up(unit *u)
{
    u->given_up_bytes = u->pin_bytes;
    u->pin_bytes = UINT64_MAX;
}

/* Restores pins that were given up, as far as they still fit; the largest first. */
static uint64_t regain(aligner *at, uint64_t height, uint32_t *n_pins)
{
    for (uint32_t i = 0; i < at->n_units; i++) {
        sort_units(at, 0);
        unit *u = &at->units[at->order[i]];
        if (u->given_up_bytes == UINT64_MAX) {
            continue;
        }
        u->pin_bytes = u->given_up_bytes;
        bool is_free = true;
        for (uint32_t v = 0; v < at->n_units; v++) {
            is_free = is_free && (&at->units[v] == u || !is_clash(at, u, &at->units[v]));
        }
        const uint64_t tried = is_free ? place_best(at, 2 * N_ORDERS) : UINT64_MAX;
        if (tried <= at->room_bytes) {
            height = tried;
            (*n_pins)++;
        } else {
            u->pin_bytes = UINT64_MAX;
        }
    }
    return height;
}

/* Of the pins alive beside the topmost unit, drops the one without which the packing is lowest;
 * false if there is none. */
static bool drop_pin(aligner *at)
{
    const dunlin_pack_block top = find_top(at)->block;
    uint64_t lowest = UINT64_MAX;
    unit *chosen = NULL;
    for (uint32_t u = 0; u < at->n_units; u++) {
        unit *tried = &at->units[u];
        const uint64_t pin = tried->pin_bytes;
        if (pin == UINT64_MAX || tried->block.first_step > top.last_step ||
            top.first_step > tried->block.last_step) {
            continue;
        }
        tried->pin_bytes = UINT64_MAX;
        const uint64_t height = place_best(at, 1);
        tried->pin_bytes = pin;
        if (chosen == NULL || height < lowest ||
            (height == lowest && tried->block.bytes < chosen->block.bytes)) {
            lowest = height;
            chosen = tried;
        }
    }
    if (chosen != NULL) {
        give_up(chosen);
    }
    return chosen != NULL;
}

/* The pins of all plans but the first are given up together. */
static uint32_t keep_first(aligner *at)
{
    uint32_t n = 0;
    for (uint32_t u = 0; u < at->n_units; u++) {
        if (at->units[u].pin_plan > 0) {
            give_up(&at->units[u]);
        }
        n += at->units[u].pin_bytes != UINT64_MAX;
    }
    return n;
}

static uint64_t align_all(aligner *at)
{
    find_units(at);
    for (uint32_t i = 0; i < at->n_others; i++) {
        find_pins(at, i);
    }
    uint32_t n_pins = settle_pins(at);
    uint64_t height = place_best(at, 2 * N_ORDERS);
    if (height > at->room_bytes && at->n_others > 1) {
        n_pins = keep_first(at);
        height = place_best(at, 2 * N_ORDERS);
    }
    for (uint32_t i = 0; i < MAX_DROPS && height > at->room_bytes && drop_pin(at); i++) {
        n_pins--;
        height = place_best(at, 2 * N_ORDERS);
    }
    if (height <= at->room_bytes) {
        (void)regain(at, height, &n_pins);
        height = place_best(at, 2 * N_ORDERS);
    }
    return n_pins > 0 && height <= at->room_bytes ? height : UINT64_MAX;
}

static void apply(const aligner *at, dunlin_plan *plan, uint64_t height)
{
    for (uint32_t p = 0; p < plan->n_places; p++) {
        if (at->unit_of[p] != DUNLIN_MEM_NONE) {
            const uint32_t u = at->unit_of[p];
            plan->places[p].offset_bytes += at->best[u] - at->units[u].base_bytes;
        }
    }
    plan->pool_bytes = height;
    plan->arena_bytes = plan->persistent_bytes + height;
    plan->packing = "at another plan's addresses";
}

dunlin_status dunlin__plan_align(const dunlin_mem_graph *graph, dunlin_plan *plan,
                                 const dunlin_plan *const *others, uint32_t n_others,
                                 uint64_t arena_bytes, dunlin_error *error)
{
    const dunlin_alloc *alloc = &plan->alloc;
    const uint32_t n = plan->n_places + 1;
    aligner at = {.plan = plan, .others = others, .n_others = n_others};
    at.room_bytes = arena_bytes > plan->persistent_bytes ? arena_bytes - plan->persistent_bytes : 0;
    dunlin_status status = dunlin__pack_pile_open(n, alloc, &at.pile, error);
    at.units = dunlin__alloc_array(alloc, n, sizeof *at.units);
    at.unit_of = dunlin__alloc_array(alloc, n, sizeof *at.unit_of);
    at.members = dunlin__alloc_array(alloc, n, sizeof *at.members);
    at.order = dunlin__alloc_array(alloc, n, sizeof *at.order);
    at.offsets = dunlin__alloc_array(alloc, n, sizeof *at.offsets);
    at.best = dunlin__alloc_array(alloc, n, sizeof *at.best);
    if (status == DUNLIN_OK && (at.units == NULL || at.unit_of == NULL || at.members == NULL ||
                                at.order == NULL || at.offsets == NULL || at.best == NULL)) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "plan", 0,
                              "no memory to compare the addresses of two plans");
    }
    if (status == DUNLIN_OK) {
        const uint64_t height = align_all(&at);
        if (height != UINT64_MAX) {
            apply(&at, plan, height);
            status = dunlin__plan_verify(graph, plan, alloc, error);
        }
    }
    dunlin__free_array(alloc, at.best, n, sizeof *at.best);
    dunlin__free_array(alloc, at.offsets, n, sizeof *at.offsets);
    dunlin__free_array(alloc, at.members, n, sizeof *at.members);
    dunlin__free_array(alloc, at.order, n, sizeof *at.order);
    dunlin__free_array(alloc, at.unit_of, n, sizeof *at.unit_of);
    dunlin__free_array(alloc, at.units, n, sizeof *at.units);
    dunlin__pack_pile_close(at.pile, alloc);
    return status;
}
