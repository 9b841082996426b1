/*
 * arena.c - reserves, commits and gives back the block a step runs in.
 *
 * Invariant: the base never moves; of a range of our own, exactly the pages under
 * [0, committed_bytes) can be touched, and what lies above takes no memory.
 */
#include <mem/arena.h>
#include <mem/checked.h>
#include <mem/graph.h>
#include <mem/platform.h>
#include <mem/support.h>

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifndef HAS_ASAN
#define HAS_ASAN 0
#endif
#if HAS_ASAN
#include <sanitizer/asan_interface.h>
#endif

#define SUBSYSTEM "arena"
#define HUGE_BYTES ((uint64_t)2 << 20)

/* Cannot wrap: reserved sizes are checked when the arena is opened. */
static uint64_t rounded(uint64_t bytes, uint64_t align)
{
    return (bytes + align - 1) & ~(align - 1);
}

static void allow_touch(const dunlin_arena *arena, uint64_t offset_bytes, uint64_t bytes)
{
#if HAS_ASAN
    __asan_unpoison_memory_region(arena->base + offset_bytes, (size_t)bytes);
#else
    (void)arena;
    (void)offset_bytes;
    (void)bytes;
#endif
}

/* Pointers into an arena are subtracted from one another: on 32-bit machines half of the addresses.
 */
static dunlin_status check_addresses(const dunlin_arena *arena, dunlin_error *error)
{
    if (arena->reserved_bytes > (uint64_t)PTRDIFF_MAX) {
        return dunlin__fail(error, DUNLIN_MEMORY, SUBSYSTEM, 0,
                            "an arena of %" PRIu64
                            " bytes is larger than the address space: the limit is %" PRIu64
                            " bytes",
                            arena->reserved_bytes, (uint64_t)PTRDIFF_MAX);
    }
    return DUNLIN_OK;
}

/* --- our own range --- */

/* Maps more than asked for and cuts both ends off, so that the base lies on a huge page. */
static dunlin_status reserve(uint64_t reserved_bytes, unsigned char **out_base, dunlin_error *error)
{
    uint64_t mapped_bytes = reserved_bytes + HUGE_BYTES;
    void *memory = dunlin__sys_reserve(mapped_bytes);
    if (memory == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, SUBSYSTEM, errno,
                            "the system has no address range of %" PRIu64 " bytes", mapped_bytes);
    }
    unsigned char *first = memory;
    uint64_t head = rounded((uint64_t)(uintptr_t)first, HUGE_BYTES) - (uint64_t)(uintptr_t)first;
    uint64_t tail = HUGE_BYTES - head;
    if (head > 0) {
        dunlin__sys_release(first, head);
    }
    if (tail > 0) {
        dunlin__sys_release(first + head + reserved_bytes, tail);
    }
    *out_base = first + head;
    return DUNLIN_OK;
}

static dunlin_status grow(dunlin_arena *arena, uint64_t committed_bytes, dunlin_error *error)
{
    uint64_t page = dunlin__sys_page_bytes();
    uint64_t from = rounded(arena->committed_bytes, page);
    uint64_t to = rounded(committed_bytes, page);
    const int code = to > from ? dunlin__sys_commit(arena->base + from, to - from) : 0;
    if (code != 0) {
        return dunlin__fail(error, DUNLIN_MEMORY, SUBSYSTEM, code,
                            "no memory to grow from %" PRIu64 " to %" PRIu64 " bytes",
                            arena->committed_bytes, committed_bytes);
    }
    if (to >= HUGE_BYTES) {
        dunlin__sys_prefer_huge(arena->base, to);
    }
    arena->committed_bytes = committed_bytes;
    return DUNLIN_OK;
}

static dunlin_status shrink(dunlin_arena *arena, uint64_t committed_bytes, dunlin_error *error)
{
    uint64_t page = dunlin__sys_page_bytes();
    uint64_t from = rounded(committed_bytes, page);
    uint64_t to = rounded(arena->committed_bytes, page);
    allow_touch(arena, committed_bytes, arena->committed_bytes - committed_bytes);
    if (to > from) {
        const int code = dunlin__sys_give_back(arena->base + from, to - from);
        if (code != 0) {
            return dunlin__fail(error, DUNLIN_MEMORY, SUBSYSTEM, code,
                                "the system did not take back %" PRIu64 " bytes", to - from);
        }
    }
    arena->committed_bytes = committed_bytes;
    return DUNLIN_OK;
}

static dunlin_status open_range(uint64_t committed_bytes, dunlin_arena *arena, dunlin_error *error)
{
    DUNLIN_TRY(check_addresses(arena, error));
    const uint64_t bytes = rounded(arena->reserved_bytes, dunlin__sys_page_bytes());
    arena->reserved_bytes = bytes;
    DUNLIN_TRY(reserve(bytes, &arena->base, error));
    dunlin_status status = grow(arena, committed_bytes, error);
    if (status != DUNLIN_OK) {
        dunlin__sys_release(arena->base, bytes);
    }
    return status;
}

/* --- memory of the caller --- */

static dunlin_status open_slab(const dunlin_arena_source *source, dunlin_arena *arena,
                               dunlin_error *error)
{
    uint64_t at = (uint64_t)(uintptr_t)source->slab;
    uint64_t skipped = (DUNLIN_MEM_ALIGN - at % DUNLIN_MEM_ALIGN) % DUNLIN_MEM_ALIGN;
    uint64_t needed = 0;
    if (!dunlin__add_u64(arena->reserved_bytes, skipped, &needed) || needed > source->slab_bytes) {
        dunlin_status status = dunlin__fail(
            error, DUNLIN_BUDGET, SUBSYSTEM, 0,
            "a slab of %" PRIu64 " bytes is too small for %" PRIu64 " bytes at a multiple of %d",
            source->slab_bytes, arena->reserved_bytes, DUNLIN_MEM_ALIGN);
        if (error != NULL) {
            error->needed_bytes = needed;
        }
        return status;
    }
    DUNLIN_TRY(check_addresses(arena, error));
    arena->base = (unsigned char *)source->slab + skipped;
    arena->committed_bytes = arena->reserved_bytes;
    return DUNLIN_OK;
}

static dunlin_status open_hooks(dunlin_arena *arena, dunlin_error *error)
{
    DUNLIN_TRY(check_addresses(arena, error));
    arena->base = dunlin__alloc_array(&arena->alloc, (size_t)arena->reserved_bytes, 1);
    if (arena->base == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, SUBSYSTEM, 0,
                            "the allocator has no %" PRIu64 " bytes", arena->reserved_bytes);
    }
    arena->committed_bytes = arena->reserved_bytes;
    return DUNLIN_OK;
}

/* --- calls --- */

dunlin_status dunlin__arena_open(const dunlin_arena_source *source, uint64_t reserved_bytes,
                                 uint64_t committed_bytes, dunlin_arena *out_arena,
                                 dunlin_error *error)
{
    memset(out_arena, 0, sizeof *out_arena);
    if (reserved_bytes == 0 || committed_bytes > reserved_bytes) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "%" PRIu64 " bytes of a reserved %" PRIu64 " cannot be committed",
                            committed_bytes, reserved_bytes);
    }
    dunlin_arena arena = {.reserved_bytes = reserved_bytes};
    if (source != NULL) {
        arena.trim_fn = source->trim_fn;
        arena.trim_ctx = source->trim_ctx;
    }
    dunlin_status status = DUNLIN_OK;
    if (source != NULL && source->slab != NULL) {
        arena.kind = DUNLIN_ARENA_SLAB;
        status = open_slab(source, &arena, error);
    } else if (source != NULL && source->hooks.alloc_fn != NULL && source->hooks.free_fn != NULL) {
        arena.kind = DUNLIN_ARENA_HOOKS;
        arena.alloc = source->hooks;
        status = open_hooks(&arena, error);
    } else {
        arena.kind = DUNLIN_ARENA_RANGE;
        status = open_range(committed_bytes, &arena, error);
    }
    if (status == DUNLIN_OK) {
        *out_arena = arena;
    }
    return status;
}

void dunlin__arena_close(dunlin_arena *arena)
{
    if (arena->base != NULL) {
        allow_touch(arena, 0,
                    arena->kind == DUNLIN_ARENA_RANGE ? arena->committed_bytes
                                                      : arena->reserved_bytes);
        if (arena->kind == DUNLIN_ARENA_RANGE) {
            dunlin__sys_release(arena->base, arena->reserved_bytes);
        } else if (arena->kind == DUNLIN_ARENA_HOOKS) {
            dunlin__free_array(&arena->alloc, arena->base, (size_t)arena->reserved_bytes, 1);
        }
    }
    memset(arena, 0, sizeof *arena);
}

dunlin_status dunlin__arena_commit(dunlin_arena *arena, uint64_t committed_bytes,
                                   dunlin_error *error)
{
    if (committed_bytes > arena->reserved_bytes) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, SUBSYSTEM, 0,
                            "%" PRIu64 " bytes of a reserved %" PRIu64 " cannot be committed",
                            committed_bytes, arena->reserved_bytes);
    }
    if (committed_bytes == arena->committed_bytes) {
        return DUNLIN_OK;
    }
    if (arena->kind != DUNLIN_ARENA_RANGE && arena->trim_fn != NULL) {
        const uint64_t old_bytes = arena->committed_bytes;
        arena->committed_bytes = committed_bytes;
        if (committed_bytes < old_bytes) {
            allow_touch(arena, committed_bytes, old_bytes - committed_bytes);
            arena->trim_fn(arena->trim_ctx, arena->base + committed_bytes,
                           (size_t)(old_bytes - committed_bytes));
        }
        return DUNLIN_OK;
    }
    if (arena->kind != DUNLIN_ARENA_RANGE) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, SUBSYSTEM, 0,
                            "memory of the caller stays at %" PRIu64 " bytes, not %" PRIu64,
                            arena->committed_bytes, committed_bytes);
    }
    return committed_bytes > arena->committed_bytes ? grow(arena, committed_bytes, error)
                                                    : shrink(arena, committed_bytes, error);
}

void *dunlin__arena_at(dunlin_arena *arena, uint64_t offset_bytes, uint64_t bytes)
{
    assert(offset_bytes <= arena->committed_bytes &&
           bytes <= arena->committed_bytes - offset_bytes);
    if (offset_bytes + bytes > arena->high_water_bytes) {
        arena->high_water_bytes = offset_bytes + bytes;
    }
    return arena->base + offset_bytes;
}

void dunlin__arena_poison(dunlin_arena *arena, uint64_t offset_bytes, uint64_t bytes)
{
#ifndef NDEBUG
    assert(offset_bytes <= arena->committed_bytes &&
           bytes <= arena->committed_bytes - offset_bytes);
    allow_touch(arena, offset_bytes, bytes);
    memset(arena->base + offset_bytes, 0xFF, (size_t)bytes);
#if HAS_ASAN
    __asan_poison_memory_region(arena->base + offset_bytes, (size_t)bytes);
#endif
#else
    (void)arena;
    (void)offset_bytes;
    (void)bytes;
#endif
}

void dunlin__arena_unpoison(dunlin_arena *arena, uint64_t offset_bytes, uint64_t bytes)
{
#ifndef NDEBUG
    assert(offset_bytes <= arena->committed_bytes &&
           bytes <= arena->committed_bytes - offset_bytes);
    allow_touch(arena, offset_bytes, bytes);
#else
    (void)arena;
    (void)offset_bytes;
    (void)bytes;
#endif
}
