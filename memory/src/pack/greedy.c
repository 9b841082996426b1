/*
 * greedy.c - one block after another into the lowest or the tightest gap.
 *
 * Invariant: the placed blocks are sorted by offset, so one walk upward sees all gaps. They lie in
 * chunks: a new block moves only entries of one chunk, a chunk whose live ranges all miss the block
 * is skipped, and one loop without branches finds which live ranges of a chunk meet it.
 */
#include "greedy.h"

#include <mem/support.h>

#include <assert.h>
#include <string.h>

#define CHUNK 64
#define GROUP 8 /* flags looked at together */

typedef struct {
    uint64_t offsets[CHUNK], ends[CHUNK];
    uint32_t first_steps[CHUNK], last_steps[CHUNK];
    uint32_t n;
    uint32_t first_step, last_step; /* of all its live ranges */
} chunk_row;

struct dunlin_pack_pile {
    uint32_t n_max; /* chunks */
    uint32_t n_chunks;
    chunk_row *chunks;
    uint32_t *sequence; /* chunks from the lowest offset up */
};

dunlin_status dunlin__pack_pile_open(uint32_t n_max, const dunlin_alloc *alloc,
                                     dunlin_pack_pile **out_pile, dunlin_error *error)
{
    *out_pile = NULL;
    dunlin_pack_pile *pile = dunlin__alloc_zeroed(alloc, 1, sizeof *pile);
    if (pile != NULL) {
        pile->n_max = n_max / (CHUNK / 2) + 1; /* a full one is cut in halves */
        pile->chunks = dunlin__alloc_array(alloc, pile->n_max, sizeof *pile->chunks);
        pile->sequence = dunlin__alloc_array(alloc, pile->n_max, sizeof *pile->sequence);
    }
    if (pile == NULL || pile->chunks == NULL || pile->sequence == NULL) {
        dunlin__pack_pile_close(pile, alloc);
        return dunlin__fail(error, DUNLIN_MEMORY, "plan", 0, "no memory to pack %u blocks",
                            (unsigned)n_max);
    }
    *out_pile = pile;
    return DUNLIN_OK;
}

void dunlin__pack_pile_close(dunlin_pack_pile *pile, const dunlin_alloc *alloc)
{
    if (pile != NULL) {
        dunlin__free_array(alloc, pile->sequence, pile->n_max, sizeof *pile->sequence);
        dunlin__free_array(alloc, pile->chunks, pile->n_max, sizeof *pile->chunks);
        dunlin__free_array(alloc, pile, 1, sizeof *pile);
    }
}

void dunlin__pack_pile_clear(dunlin_pack_pile *pile)
{
    pile->n_chunks = 0;
}

/* Bits of the live ranges in a chunk that meet the block's. */
static uint64_t find_alive(const chunk_row *chunk, const dunlin_pack_block *block)
{
    uint8_t flags[CHUNK];
    uint64_t bits = 0;
    for (uint32_t i = 0; i < CHUNK; i++) {
        flags[i] = (chunk->first_steps[i] <= block->last_step) &
                   (chunk->last_steps[i] >= block->first_step);
    }
    for (uint32_t i = 0; i < CHUNK; i += GROUP) {
        uint64_t group = 0;
        memcpy(&group, &flags[i], GROUP);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        group = __builtin_bswap64(group);
#endif
        /* Eight flags of a byte each become the eight bits of the topmost byte. */
        bits |= (group * UINT64_C(0x0102040810204080)) >> 56 << i;
    }
    return chunk->n == CHUNK ? bits : bits & ((UINT64_C(1) << chunk->n) - 1);
}

uint64_t dunlin__pack_find_gap(const dunlin_pack_pile *pile, const dunlin_pack_block *block,
                               dunlin_pack_fit fit)
{
    uint64_t top = 0; /* end of the blocks seen that are alive with it */
    uint64_t best = UINT64_MAX;
    uint64_t best_room = UINT64_MAX;
    for (uint32_t c = 0; c < pile->n_chunks; c++) {
        const chunk_row *chunk = &pile->chunks[pile->sequence[c]];
        if (chunk->first_step > block->last_step || chunk->last_step < block->first_step) {
            continue;
        }
        for (uint64_t bits = find_alive(chunk, block); bits != 0; bits &= bits - 1) {
            const uint32_t i = (uint32_t)__builtin_ctzll(bits);
            const uint64_t offset = chunk->offsets[i];
            if (offset > top && offset - top >= block->bytes && offset - top < best_room) {
                if (fit == DUNLIN_FIRST_FIT) {
                    return top;
                }
                best = top;
                best_room = offset - top;
            }
            top = chunk->ends[i] > top ? chunk->ends[i] : top;
        }
    }
    return best != UINT64_MAX ? best : top;
}

static void find_span(chunk_row *chunk)
{
    chunk->first_step = UINT32_MAX;
    chunk->last_step = 0;
    for (uint32_t i = 0; i < chunk->n; i++) {
        const uint32_t first = chunk->first_steps[i];
        const uint32_t last = chunk->last_steps[i];
        chunk->first_step = first < chunk->first_step ? first : chunk->first_step;
        chunk->last_step = last > chunk->last_step ? last : chunk->last_step;
    }
}

/* Moves the upper half of the c-th chunk to a new one right above it. */
static void halve(dunlin_pack_pile *pile, uint32_t c)
{
    chunk_row *low = &pile->chunks[pile->sequence[c]];
    chunk_row *high = &pile->chunks[pile->n_chunks];
    const uint32_t half = CHUNK / 2;
    memcpy(high->offsets, &low->offsets[half], half * sizeof *low->offsets);
    memcpy(high->ends, &low->ends[half], half * sizeof *low->ends);
    memcpy(high->first_steps, &low->first_steps[half], half * sizeof *low->first_steps);
    memcpy(high->last_steps, &low->last_steps[half], half * sizeof *low->last_steps);
    memset(&high->first_steps[half], 0, half * sizeof *low->first_steps);
    memset(&high->last_steps[half], 0, half * sizeof *low->last_steps);
    low->n = half;
    high->n = half;
    find_span(low);
    find_span(high);
    memmove(&pile->sequence[c + 2], &pile->sequence[c + 1],
            (pile->n_chunks - c - 1) * sizeof *pile->sequence);
    pile->sequence[c + 1] = pile->n_chunks++;
}

/* The chunk an offset belongs to; the topmost of those that may. */
static uint32_t find_chunk(const dunlin_pack_pile *pile, uint64_t offset)
{
    uint32_t low = 0;
    uint32_t high = pile->n_chunks;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (pile->chunks[pile->sequence[middle]].offsets[0] <= offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

void dunlin__pack_insert(dunlin_pack_pile *pile, const dunlin_pack_block *block, uint64_t offset)
{
    if (pile->n_chunks == 0) {
        memset(&pile->chunks[0], 0, sizeof pile->chunks[0]);
        pile->chunks[0].first_step = UINT32_MAX;
        pile->sequence[0] = 0;
        pile->n_chunks = 1;
    }
    uint32_t c = find_chunk(pile, offset);
    if (pile->chunks[pile->sequence[c]].n == CHUNK) {
        halve(pile, c);
        c += pile->chunks[pile->sequence[c + 1]].offsets[0] <= offset;
    }
    chunk_row *chunk = &pile->chunks[pile->sequence[c]];
    uint32_t at = chunk->n;
    for (; at > 0 && chunk->offsets[at - 1] > offset; at--) {
        chunk->offsets[at] = chunk->offsets[at - 1];
        chunk->ends[at] = chunk->ends[at - 1];
        chunk->first_steps[at] = chunk->first_steps[at - 1];
        chunk->last_steps[at] = chunk->last_steps[at - 1];
    }
    assert(at == 0 || chunk->offsets[at - 1] <= offset);
    assert(at == chunk->n || offset <= chunk->offsets[at + 1]);
    chunk->offsets[at] = offset;
    chunk->ends[at] = offset + block->bytes;
    chunk->first_steps[at] = block->first_step;
    chunk->last_steps[at] = block->last_step;
    chunk->n++;
    chunk->first_step =
        block->first_step < chunk->first_step ? block->first_step : chunk->first_step;
    chunk->last_step = block->last_step > chunk->last_step ? block->last_step : chunk->last_step;
}

uint64_t dunlin__pack_place_all(const dunlin_pack_job *job, dunlin_pack_fit fit,
                                uint64_t limit_bytes, uint64_t *n_moves)
{
    uint64_t height = 0;
    dunlin__pack_pile_clear(job->pile);
    for (uint32_t i = 0; i < job->n_blocks; i++) {
        const dunlin_pack_block *block = &job->blocks[job->order[i]];
        uint64_t offset = dunlin__pack_find_gap(job->pile, block, fit);
        uint64_t end = offset + block->bytes;
        height = end > height ? end : height;
        if (height >= limit_bytes) {
            *n_moves += i + 1;
            return UINT64_MAX;
        }
        job->offsets[job->order[i]] = offset;
        dunlin__pack_insert(job->pile, block, offset);
    }
    *n_moves += job->n_blocks;
    return height;
}
