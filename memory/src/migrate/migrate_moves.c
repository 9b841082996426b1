/*
 * migrate_moves.c - the order in which migrated tensors are moved.
 *
 * Invariant: a move never writes on bytes that a later one still has to read. Where the moves wait
 * for each other in a circle, one of them goes by way of free room; where there is none, its tensor
 * is recomputed instead.
 */
#include "switch.h"

#include <string.h>

/* What a phone moves in 40 ms: the end of the arena is to be back in 50. */
#define MOST_TAIL_BYTES (40000000ULL * DUNLIN_SWITCH_BYTES_PER_NS)

uint64_t dunlin__switch_brought_bytes(const dunlin_switch_search *search, uint32_t place)
{
    const dunlin_switch *entry = search->entry;
    const dunlin_plan_allocation *at = &search->to->places[place];
    uint64_t samples = 0;
    for (uint32_t w = entry->first_writer[place]; w != DUNLIN_MEM_NONE; w = entry->next_writer[w]) {
        samples = entry->brought[w] > samples ? entry->brought[w] : samples;
    }
    return samples * search->graph->tensors[at->tensor].sample_bytes;
}

/* From its first address to its own: sorted by the step at which its live range begins there. */
static void add_late(dunlin_switch_search *search, const dunlin_switch_move *move)
{
    dunlin_switch *entry = search->entry;
    const dunlin_plan_allocation *places = search->to->places;
    const uint64_t own = places[move->place].offset_bytes;
    if (move->to_bytes == own) {
        return;
    }
    uint32_t i = 0;
    entry->late--;
    for (; i < entry->n_late &&
           places[entry->late[i + 1].place].first_step < places[move->place].first_step;
         i++) {
        entry->late[i] = entry->late[i + 1];
    }
    entry->n_late++;
    entry->late[i] = *move;
    entry->late[i].from_bytes = move->to_bytes;
    entry->late[i].to_bytes = own;
    entry->moved_bytes += move->bytes;
}

static void list_moves(dunlin_switch_search *search)
{
    dunlin_switch *entry = search->entry;
    entry->n_moves = 0;
    entry->moved_bytes = 0;
    entry->late = entry->moves + 2 * (size_t)entry->sizes.n_places;
    entry->n_late = 0;
    for (uint32_t i = 0; i < entry->n_listed; i++) {
        const uint32_t place = entry->list[i];
        const dunlin_switch_move move = {
            .from_bytes = dunlin__switch_left_at(search, place),
            .to_bytes = entry->lies_at[place],
            .bytes = dunlin__switch_brought_bytes(search, place),
            .place = place,
        };
        if (move.bytes > 0) {
            entry->moves[entry->n_moves++] = move;
            entry->moved_bytes += move.from_bytes != move.to_bytes ? move.bytes : 0;
            add_late(search, &move);
        }
    }
}

/* Nothing that still has to be read lies where move `i` writes. */
static bool is_free(const dunlin_switch *entry, uint32_t first, uint32_t i)
{
    const dunlin_switch_move *move = &entry->moves[i];
    for (uint32_t j = first; j < entry->n_moves; j++) {
        const dunlin_switch_move *other = &entry->moves[j];
        if (j != i &&
            dunlin__switch_overlap(move->to_bytes, move->bytes, other->from_bytes, other->bytes)) {
            return false;
        }
    }
    return true;
}

/* True if nothing moves from or to these bytes, and sets `*out_next` to the end of what does. */
static bool is_room(const dunlin_switch *entry, uint32_t first, uint64_t at, uint64_t bytes,
                    uint64_t *out_next)
{
    for (uint32_t j = 0; j < entry->n_moves; j++) {
        const dunlin_switch_move *move = &entry->moves[j];
        if (dunlin__switch_overlap(at, bytes, move->to_bytes, move->bytes)) {
            *out_next = move->to_bytes + move->bytes;
            return false;
        }
        if (j >= first && dunlin__switch_overlap(at, bytes, move->from_bytes, move->bytes)) {
            *out_next = move->from_bytes + move->bytes;
            return false;
        }
    }
    return true;
}

/* Sends move `i` by way of free room; false if there is none. */
static bool detour(dunlin_switch_search *search, uint32_t first, uint32_t i, uint64_t limit_bytes)
{
    dunlin_switch *entry = search->entry;
    uint64_t at = search->to->persistent_bytes;
    const uint64_t bytes = entry->moves[i].bytes;
    const bool has_slot = entry->n_moves + entry->n_late < 2 * entry->sizes.n_places;
    while (has_slot && at <= limit_bytes && bytes <= limit_bytes - at) {
        uint64_t next = 0;
        if (is_room(entry, first, at, bytes, &next)) {
            entry->moves[entry->n_moves++] = entry->moves[first];
            if (i == first) {
                i = entry->n_moves - 1;
            }
            entry->moves[first] = entry->moves[i];
            entry->moves[first].to_bytes = at;
            entry->moves[i].from_bytes = at;
            entry->moved_bytes += bytes;
            return true;
        }
        at = (next + DUNLIN_MEM_ALIGN - 1) / DUNLIN_MEM_ALIGN * DUNLIN_MEM_ALIGN;
    }
    return false;
}

/* Of the moves from `first` on that are free to go the one from the highest address, or n_moves: so
 * the end of the arena is soon given back. `*out_least`: the one of the fewest bytes. */
static uint32_t choose_free(const dunlin_switch *entry, uint32_t first, uint32_t *out_least)
{
    uint32_t chosen = entry->n_moves;
    *out_least = first;
    for (uint32_t i = first; i < entry->n_moves; i++) {
        const bool is_higher = chosen == entry->n_moves ||
                               entry->moves[i].from_bytes > entry->moves[chosen].from_bytes;
        if (is_higher && is_free(entry, first, i)) {
            chosen = i;
        }
        *out_least = entry->moves[i].bytes < entry->moves[*out_least].bytes ? i : *out_least;
    }
    return chosen;
}

/* How many moves until nothing lies above `end_bytes`. */
static uint32_t count_tail(const dunlin_switch *entry, uint64_t end_bytes)
{
    uint32_t n = entry->n_moves;
    while (n > 0 && entry->moves[n - 1].from_bytes + entry->moves[n - 1].bytes <= end_bytes &&
           entry->moves[n - 1].to_bytes + entry->moves[n - 1].bytes <= end_bytes) {
        n--;
    }
    return n;
}

static bool is_from_tail(const dunlin_switch_search *search, const dunlin_switch_move *move)
{
    return move->from_bytes + move->bytes > search->to->arena_bytes;
}

/* Where the moves out of the arena's end would take too long, what is recomputed anyway is not
 * moved: the system waits for these bytes. */
static void leave_tail(dunlin_switch_search *search)
{
    const dunlin_switch *entry = search->entry;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < entry->n_moves; i++) {
        bytes += is_from_tail(search, &entry->moves[i]) ? entry->moves[i].bytes : 0;
    }
    for (uint32_t i = 0; i < entry->n_moves && bytes > MOST_TAIL_BYTES; i++) {
        const dunlin_switch_move *move = &entry->moves[i];
        const bool is_recomputed = (entry->marks[move->place] & DUNLIN_SWITCH_FIRST) == 0;
        if (is_from_tail(search, move) && is_recomputed) {
            bytes -= move->bytes;
            dunlin__switch_refuse(search, move->place);
        }
    }
}

void dunlin__switch_order(dunlin_switch_search *search, uint64_t limit_bytes)
{
    dunlin_switch *entry = search->entry;
    list_moves(search);
    for (uint32_t first = 0; first < entry->n_moves; first++) {
        uint32_t least = first;
        const uint32_t chosen = choose_free(entry, first, &least);
        if (chosen < entry->n_moves) {
            const dunlin_switch_move move = entry->moves[chosen];
            entry->moves[chosen] = entry->moves[first];
            entry->moves[first] = move;
        } else if (!detour(search, first, least, limit_bytes)) {
            dunlin__switch_refuse(search, entry->moves[least].place);
            return;
        }
    }
    leave_tail(search);
    entry->n_tail_moves = count_tail(entry, search->to->arena_bytes);
}

void dunlin__switch_move(const dunlin_switch *entry, uint32_t first, uint32_t end,
                         unsigned char *base)
{
    for (uint32_t i = first; i < end; i++) {
        const dunlin_switch_move *move = &entry->moves[i];
        if (move->from_bytes != move->to_bytes) {
            memmove(base + move->to_bytes, base + move->from_bytes, (size_t)move->bytes);
        }
    }
}

uint32_t dunlin__switch_move_late(const dunlin_switch *entry, const dunlin_plan *to, uint32_t next,
                                  uint32_t step, unsigned char *base)
{
    while (next < entry->n_late && to->places[entry->late[next].place].first_step <= step) {
        const dunlin_switch_move *move = &entry->late[next++];
        memmove(base + move->to_bytes, base + move->from_bytes, (size_t)move->bytes);
    }
    return next;
}
