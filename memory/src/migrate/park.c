/*
 * park.c - where migrated tensors are staged until their allocations' live ranges begin.
 *
 * Invariant: nothing that runs before an allocation's live range begins writes on the staged bytes
 * that will be moved there: neither live ranges of the new plan that begin by then, nor other
 * migrated tensors, in their own allocations or staged too. Everything staged is staged from the
 * beginning, so staged tensors never share bytes; one leaves when its live range begins, and its
 * room is not used again.
 */
#include "switch.h"

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + DUNLIN_MEM_ALIGN - 1) / DUNLIN_MEM_ALIGN * DUNLIN_MEM_ALIGN;
}

/* Something else uses the allocation's bytes before its live range begins; `*out_is_shared`: or
 * when it begins, as where an output lies on its input. */
static bool is_in_use_before(const dunlin_switch_search *search, uint32_t place,
                             bool *out_is_shared)
{
    const dunlin_switch *entry = search->entry;
    const dunlin_plan_allocation *places = search->to->places;
    const dunlin_plan_allocation *own = &places[place];
    bool is_before = false;
    *out_is_shared = false;
    for (uint32_t i = 0; i < entry->n_by_offset; i++) {
        const dunlin_plan_allocation *other = &places[entry->by_offset[i]];
        if (other->offset_bytes >= own->offset_bytes + own->bytes) {
            break;
        }
        if (other->first_step < own->first_step &&
            dunlin__switch_overlap(own->offset_bytes, own->bytes, other->offset_bytes,
                                   other->bytes)) {
            is_before = true;
            *out_is_shared = *out_is_shared || other->last_step >= own->first_step;
        }
    }
    return is_before;
}

/* Allocation `p`'s own bytes cannot be used while what belongs to `place` is staged. */
static bool is_barred(const dunlin_switch_search *search, uint32_t p, uint32_t place)
{
    const dunlin_switch *entry = search->entry;
    const dunlin_plan_allocation *places = search->to->places;
    const bool begins = places[p].first_step <= places[place].first_step;
    const bool is_there =
        dunlin__switch_is_brought(entry, p) && entry->lies_at[p] == places[p].offset_bytes;
    return begins || is_there;
}

/* If nothing is in the way at `at` returns `at`, else the end of something that is. */
static uint64_t look_at(const dunlin_switch_search *search, uint32_t place, uint64_t at,
                        uint64_t bytes)
{
    const dunlin_switch *entry = search->entry;
    const dunlin_plan *to = search->to;
    uint64_t next = at;
    for (uint32_t i = 0; i < entry->n_by_offset; i++) {
        const uint32_t p = entry->by_offset[i];
        const dunlin_plan_allocation *other = &to->places[p];
        if (other->offset_bytes >= next + bytes) {
            break;
        }
        if (dunlin__switch_overlap(next, bytes, other->offset_bytes, other->bytes) &&
            is_barred(search, p, place)) {
            next = align_up(other->offset_bytes + other->bytes);
        }
    }
    for (uint32_t i = 0; i < entry->n_listed; i++) {
        const uint32_t p = entry->list[i];
        const uint64_t lies_at = entry->lies_at[p];
        if (p != place && lies_at != to->places[p].offset_bytes && lies_at != UINT64_MAX &&
            dunlin__switch_overlap(next, bytes, lies_at, to->places[p].bytes)) {
            next = align_up(lies_at + to->places[p].bytes);
        }
    }
    return next;
}

/* Where it lies already if nothing is in the way there, else the lowest free room. */
static bool find_room(dunlin_switch_search *search, uint32_t place)
{
    dunlin_switch *entry = search->entry;
    const uint64_t bytes = search->to->places[place].bytes;
    const uint64_t end = search->to->arena_bytes;
    const uint64_t here = dunlin__switch_left_at(search, place);
    if (here >= search->to->persistent_bytes && here <= end && bytes <= end - here &&
        look_at(search, place, here, bytes) == here) {
        entry->lies_at[place] = here;
        return true;
    }
    uint64_t at = align_up(search->to->persistent_bytes);
    while (at <= end && bytes <= end - at) {
        const uint64_t next = look_at(search, place, at, bytes);
        if (next == at) {
            entry->lies_at[place] = at;
            return true;
        }
        at = next;
    }
    return false;
}

/* The allocations in use, by offset: Shell's sort, which needs no memory. */
static void sort(dunlin_switch_search *search)
{
    dunlin_switch *entry = search->entry;
    const dunlin_plan_allocation *places = search->to->places;
    entry->n_by_offset = 0;
    for (uint32_t p = 0; p < search->to->n_places; p++) {
        if ((entry->marks[p] & DUNLIN_SWITCH_USED) != 0) {
            entry->by_offset[entry->n_by_offset++] = p;
        }
    }
    static const uint32_t intervals[] = {701, 301, 132, 57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof intervals / sizeof intervals[0]; g++) {
        const uint32_t gap = intervals[g];
        for (uint32_t i = gap; i < entry->n_by_offset; i++) {
            const uint32_t p = entry->by_offset[i];
            uint32_t j = i;
            for (; j >= gap &&
                   places[entry->by_offset[j - gap]].offset_bytes > places[p].offset_bytes;
                 j -= gap) {
                entry->by_offset[j] = entry->by_offset[j - gap];
            }
            entry->by_offset[j] = p;
        }
    }
}

/* Something staged lies on the allocation's own bytes. */
static bool is_lain_on(const dunlin_switch_search *search, uint32_t place)
{
    const dunlin_switch *entry = search->entry;
    const dunlin_plan_allocation *places = search->to->places;
    const dunlin_plan_allocation *own = &places[place];
    for (uint32_t i = 0; i < entry->n_listed; i++) {
        const uint32_t p = entry->list[i];
        const uint64_t lies_at = entry->lies_at[p];
        if (lies_at != UINT64_MAX && lies_at != places[p].offset_bytes &&
            dunlin__switch_overlap(own->offset_bytes, own->bytes, lies_at, places[p].bytes)) {
            return true;
        }
    }
    return false;
}

/* By recompute cost for each byte; what the plan recomputes in any case comes last. */
static bool goes_first(const dunlin_switch_search *search, uint32_t a, uint32_t b)
{
    const dunlin_switch *entry = search->entry;
    const dunlin_plan_allocation *places = search->to->places;
    const uint8_t first_a = entry->marks[a] & DUNLIN_SWITCH_FIRST;
    const uint8_t first_b = entry->marks[b] & DUNLIN_SWITCH_FIRST;
    if (first_a != first_b) {
        return first_a > first_b;
    }
    const double worth_a = (double)entry->worth[a] * (double)places[b].bytes;
    const double worth_b = (double)entry->worth[b] * (double)places[a].bytes;
    return worth_a != worth_b ? worth_a > worth_b : a < b;
}

/* Migrated allocations by their recompute cost: Shell's sort too. */
static void sort_by_worth(dunlin_switch_search *search)
{
    dunlin_switch *entry = search->entry;
    dunlin__switch_value(search);
    static const uint32_t intervals[] = {301, 132, 57, 23, 10, 4, 1};
    for (size_t g = 0; g < sizeof intervals / sizeof intervals[0]; g++) {
        const uint32_t gap = intervals[g];
        for (uint32_t i = gap; i < entry->n_listed; i++) {
            const uint32_t p = entry->list[i];
            uint32_t j = i;
            for (; j >= gap && goes_first(search, p, entry->list[j - gap]); j -= gap) {
                entry->list[j] = entry->list[j - gap];
            }
            entry->list[j] = p;
        }
    }
}

void dunlin__switch_stage(dunlin_switch_search *search)
{
    dunlin_switch *entry = search->entry;
    sort(search);
    sort_by_worth(search);
    for (uint32_t i = 0; i < entry->n_listed; i++) {
        entry->lies_at[entry->list[i]] = UINT64_MAX;
    }
    for (uint32_t i = 0; i < entry->n_listed; i++) {
        const uint32_t place = entry->list[i];
        bool is_shared = false;
        const bool waits = is_in_use_before(search, place, &is_shared);
        if (!is_shared && !waits && !is_lain_on(search, place)) {
            entry->lies_at[place] = search->to->places[place].offset_bytes;
        } else if (is_shared || !find_room(search, place)) {
            dunlin__switch_refuse(search, place);
        }
    }
}
