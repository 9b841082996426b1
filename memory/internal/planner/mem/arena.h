/*
 * arena.h - the one block of memory a step runs in: a reserved virtual range, the caller's slab, or
 * the caller's hooks.
 *
 * A range of our own is reserved once (mmap, no swap reserved) and committed as it is needed, on
 * huge pages where the system has them, so that shrinking gives tail pages back and no pointer ever
 * moves.
 */
#ifndef DUNLIN_MEM_ARENA_H
#define DUNLIN_MEM_ARENA_H

#include <dunlin/alloc.h>

typedef enum dunlin_arena_kind {
    DUNLIN_ARENA_RANGE = 0, /* our own mapping */
    DUNLIN_ARENA_SLAB,      /* memory of the caller, never freed by us */
    DUNLIN_ARENA_HOOKS      /* one block from the caller's allocator */
} dunlin_arena_kind;

typedef struct dunlin_arena {
    dunlin_arena_kind kind;
    unsigned char *base; /* aligned to 64 bytes at least */
    uint64_t reserved_bytes;
    uint64_t committed_bytes; /* may be touched: [0, committed_bytes) */
    uint64_t
        high_water_bytes; /* highest end of a range handed to dunlin__arena_at since creation */
    dunlin_alloc alloc;   /* HOOKS */
    void (*trim_fn)(void *ctx, void *memory, size_t bytes); /* SLAB, HOOKS; may be NULL */
    void *trim_ctx;
} dunlin_arena;

/* What to make an arena from: a slab if `slab` is set, else `hooks` if their functions are set,
 * else our own range. */
typedef struct dunlin_arena_source {
    void *slab;
    uint64_t slab_bytes;
    dunlin_alloc hooks;
    /* Called with the bytes of a slab or of hooks that hold nothing any more, until they are
     * written again; NULL: such an arena keeps its size. */
    void (*trim_fn)(void *ctx, void *memory, size_t bytes);
    void *trim_ctx;
} dunlin_arena_source;

/*
 * Reserves `reserved_bytes` and commits `committed_bytes` of them (HOOKS and SLAB: commits all).
 * MEMORY, or BUDGET when the slab is too small (naming both sizes).
 */
DUNLIN_NODISCARD dunlin_status dunlin__arena_open(const dunlin_arena_source *source,
                                                  uint64_t reserved_bytes, uint64_t committed_bytes,
                                                  dunlin_arena *out_arena, dunlin_error *error);
void dunlin__arena_close(dunlin_arena *arena);

/* Grows or shrinks the committed part. Shrinking gives whole pages of the tail back to the system
 * at once, or tells trim_fn of the tail; without that memory of the caller is UNSUPPORTED. */
DUNLIN_NODISCARD dunlin_status dunlin__arena_commit(dunlin_arena *arena, uint64_t committed_bytes,
                                                    dunlin_error *error);

/* The address of [offset, offset + bytes), noted for the high-water mark; the range must be
 * committed (asserted). */
void *dunlin__arena_at(dunlin_arena *arena, uint64_t offset_bytes, uint64_t bytes);

/*
 * Debug builds (NDEBUG not defined): fills a dead range with a pattern that reads as a NaN, and
 * under AddressSanitizer forbids touching it until it is unpoisoned. Release builds: nothing.
 */
void dunlin__arena_poison(dunlin_arena *arena, uint64_t offset_bytes, uint64_t bytes);
void dunlin__arena_unpoison(dunlin_arena *arena, uint64_t offset_bytes, uint64_t bytes);

#endif
