/*
 * switch.h - what the files that implement mem/switch.h share.
 */
#ifndef DUNLIN_SRC_SWITCH_H
#define DUNLIN_SRC_SWITCH_H

#include <mem/switch.h>

/* A move reads and writes memory that is not in a cache. */
#define DUNLIN_SWITCH_BYTES_PER_NS 4

/* Of an allocation of the new plan. */
enum {
    DUNLIN_SWITCH_NEEDED = 1,  /* a step that runs reads it later */
    DUNLIN_SWITCH_READ = 2,    /* any step that runs reads it */
    DUNLIN_SWITCH_REFUSED = 4, /* nothing is migrated to it */
    DUNLIN_SWITCH_USED = 8,    /* a step that runs writes to it, or something is migrated to it */
    DUNLIN_SWITCH_FIRST = 16   /* not only recomputed values are written to it */
};

/* next_writer of an operand that is not written, or to an allocation that holds one slice. */
#define DUNLIN_SWITCH_LOCAL (DUNLIN_MEM_NONE - 1)

/* One search. */
typedef struct dunlin_switch_search {
    const dunlin_mem_graph *graph;
    const dunlin_switch_from *from;
    const dunlin_plan *to;
    dunlin_switch *entry;
    bool is_changed; /* an allocation was refused: look again */
} dunlin_switch_search;

static inline const dunlin_mem_variant *dunlin__switch_variant(const dunlin_mem_graph *graph,
                                                               const dunlin_plan_step *step)
{
    return &graph->ops[step->op].variants[step->variant];
}

static inline bool dunlin__switch_overlap(uint64_t a, uint64_t a_bytes, uint64_t b,
                                          uint64_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

/* The loop runs once for a step of so many samples. */
static inline bool dunlin__switch_is_once(const dunlin_plan_loop *loop, uint64_t n_batch)
{
    return loop->slice_samples == 0 || loop->slice_samples >= n_batch;
}

/* The part that runs once, over each sample or in all, has not finished. */
bool dunlin__switch_is_open(const dunlin_switch_search *search, const dunlin_plan_step *step);

/* What step `k` of the new plan would run of its op's parts; 0: nothing. */
uint8_t dunlin__switch_parts(const dunlin_switch_search *search, uint32_t k);

/* Nothing is migrated to the allocation, and what runs must be determined again. */
void dunlin__switch_refuse(dunlin_switch_search *search, uint32_t place);

/* Something that is read is migrated to the allocation. */
static inline bool dunlin__switch_is_brought(const dunlin_switch *entry, uint32_t place)
{
    return entry->source[place] != DUNLIN_MEM_NONE &&
           (entry->marks[place] & DUNLIN_SWITCH_READ) != 0 &&
           (entry->marks[place] & DUNLIN_SWITCH_REFUSED) == 0;
}

/* worth.c: fills `worth`, and the marks FIRST. */
void dunlin__switch_value(dunlin_switch_search *search);
void dunlin__switch_mark_first(dunlin_switch_search *search);

/* park.c: where migrated tensors are staged until their live ranges begin; refuses allocations
 * (is_changed) for which there is no room. */
void dunlin__switch_stage(dunlin_switch_search *search);

/* Samples, from 0, that are migrated to the allocation, in bytes. */
uint64_t dunlin__switch_brought_bytes(const dunlin_switch_search *search, uint32_t place);

/* left.c: what the old plan left in memory, matched with the new one's allocations: fills source,
 * brought and the lists of writers. */
void dunlin__switch_match(dunlin_switch_search *search);

/* Where the old plan's allocation that is migrated to `place` lies at the point. */
uint64_t dunlin__switch_left_at(const dunlin_switch_search *search, uint32_t place);

/* Samples, from 0, that step `k` of the old plan has run on by the point, if it runs at all. */
uint64_t dunlin__switch_made(const dunlin_switch_from *from, uint32_t k);

/* migrate_moves.c: puts the moves in order; refuses an allocation (is_changed) where there is no
 * order. */
void dunlin__switch_order(dunlin_switch_search *search, uint64_t limit_bytes);

/* migrate_cost.c: left_ns, recompute_ns, reach_ns. */
void dunlin__switch_price(dunlin_switch_search *search);

#endif
