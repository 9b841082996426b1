/*
 * test_arena.c - the arena over its three sources.
 */
#include <mem/arena.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* Pages of a range that are in memory. */
static size_t resident_pages(const dunlin_arena *arena, uint64_t from, uint64_t to)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t n = (size_t)(to - from) / page;
    unsigned char *map = calloc(n, 1);
    cr_assert_not_null(map);
    int result = mincore(arena->base + from, n * page, (void *)map);
#ifdef DUNLIN_EMULATED
    /* qemu answers for pages that may be read, and the arena's end may not. */
    if (result != 0) {
        cr_skip_test("the emulator does not tell which pages are in memory");
    }
#endif
    cr_assert_eq(result, 0);
    size_t n_resident = 0;
    for (size_t i = 0; i < n; i++) {
        n_resident += map[i] & 1;
    }
    free(map);
    return n_resident;
}

/* Whether something of the range is in memory. While the system joins pages into a large one it
 * says for a moment that none is, so it is asked again. */
static bool is_resident(const dunlin_arena *arena, uint64_t from, uint64_t to)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < 1000 && resident_pages(arena, from, to) == 0; i++) {
        (void)nanosleep(&moment, NULL);
    }
    return resident_pages(arena, from, to) > 0;
}

Test(arena, a_range_grows_and_shrinks_in_place)
{
    dunlin_arena arena;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__arena_open(NULL, 64 * MIB, 3 * MIB + 100, &arena, &error), DUNLIN_OK);
    cr_assert_eq(arena.kind, DUNLIN_ARENA_RANGE);
    cr_assert_eq((uintptr_t)arena.base % (2 * MIB), 0);
    cr_assert_geq(arena.reserved_bytes, 64 * MIB);
    cr_assert_eq(arena.committed_bytes, 3 * MIB + 100);
    unsigned char *base = arena.base;
    memset(dunlin__arena_at(&arena, 0, 3 * MIB + 100), 0x5A, 3 * MIB + 100);
    cr_assert_eq(arena.high_water_bytes, 3 * MIB + 100);

    cr_assert_eq(dunlin__arena_commit(&arena, 10 * MIB, &error), DUNLIN_OK);
    cr_assert_eq(arena.base, base);
    cr_assert_eq(base[3 * MIB + 99], 0x5A);
    memset(dunlin__arena_at(&arena, 9 * MIB, MIB), 1, MIB);
    cr_assert_eq(arena.high_water_bytes, 10 * MIB);
    cr_assert(is_resident(&arena, 9 * MIB, 10 * MIB));

    /* The tail is the system's again at once, and comes back empty. */
    cr_assert_eq(dunlin__arena_commit(&arena, MIB, &error), DUNLIN_OK);
    cr_assert_eq(arena.committed_bytes, MIB);
    cr_assert_eq(resident_pages(&arena, MIB, 10 * MIB), 0);
    cr_assert_eq(base[MIB - 1], 0x5A);
    cr_assert_eq(dunlin__arena_commit(&arena, 10 * MIB, &error), DUNLIN_OK);
    cr_assert_eq(base[9 * MIB], 0);
    cr_assert_eq(dunlin__arena_commit(&arena, 0, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__arena_commit(&arena, 65 * MIB, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(arena.committed_bytes, 0);
    dunlin__arena_close(&arena);
    cr_assert_null(arena.base);
    dunlin__arena_close(&arena);
}

#ifndef HAS_ASAN
Test(arena, above_the_committed_part_nothing_can_be_touched, .signal = 11)
{
    dunlin_arena arena;
    cr_assert_eq(dunlin__arena_open(NULL, 8 * MIB, 4096, &arena, NULL), DUNLIN_OK);
    arena.base[4095] = 1;
    arena.base[16 * 4096] = 1;
}
#endif

Test(arena, what_cannot_be_reserved)
{
    dunlin_arena arena;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__arena_open(NULL, 0, 0, &arena, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin__arena_open(NULL, 100, 101, &arena, &error), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin__arena_open(NULL, UINT64_MAX - 10, 0, &arena, &error), DUNLIN_MEMORY);
    cr_assert_eq(dunlin__arena_open(NULL, UINT64_C(1) << 62, 0, &arena, &error), DUNLIN_MEMORY);
    cr_assert_null(arena.base);
    cr_assert_gt(strlen(error.text), 0);
}

Test(arena, a_slab_is_used_as_it_is)
{
    static unsigned char slab[4096 + 64];
    unsigned char *crooked = slab + 64 - (uintptr_t)slab % 64 + 1;
    dunlin_arena arena;
    dunlin_error error = {0};
    dunlin_arena_source source = {.slab = crooked, .slab_bytes = 2000};
    cr_assert_eq(dunlin__arena_open(&source, 1937, 10, &arena, &error), DUNLIN_OK);
    cr_assert_eq(arena.kind, DUNLIN_ARENA_SLAB);
    cr_assert_eq(arena.base, crooked + 63);
    cr_assert_eq(arena.committed_bytes, 1937);
    cr_assert_eq(dunlin__arena_commit(&arena, 1937, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__arena_commit(&arena, 100, &error), DUNLIN_UNSUPPORTED);
    cr_assert_eq(dunlin__arena_at(&arena, 64, 64), crooked + 63 + 64);
    dunlin__arena_close(&arena);
    cr_assert_eq(dunlin__arena_open(&source, 1938, 10, &arena, &error), DUNLIN_BUDGET);
    cr_assert_eq(error.needed_bytes, 1938 + 63);
    cr_assert_not_null(strstr(error.text, "2000"));
    cr_assert_not_null(strstr(error.text, "1938"));
}

Test(arena, hooks_give_one_block)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_arena arena;
    dunlin_error error = {0};
    dunlin_arena_source source = {.hooks = counter.hooks};
    cr_assert_eq(dunlin__arena_open(&source, 5000, 100, &arena, &error), DUNLIN_OK);
    cr_assert_eq(arena.kind, DUNLIN_ARENA_HOOKS);
    cr_assert_eq(counter.n_allocs, 1);
    cr_assert_eq(counter.now_bytes, 5000);
    cr_assert_eq((uintptr_t)arena.base % 64, 0);
    cr_assert_eq(dunlin__arena_commit(&arena, 100, &error), DUNLIN_UNSUPPORTED);
    dunlin__arena_close(&arena);
    cr_assert_eq(counter.now_bytes, 0);
    counter.limit_bytes = 4999;
    cr_assert_eq(dunlin__arena_open(&source, 5000, 100, &arena, &error), DUNLIN_MEMORY);
}

static void expect_too_large(const dunlin_arena_source *source, uint64_t bytes)
{
    dunlin_arena arena;
    dunlin_error error = {0};
    char limit[32];
    (void)snprintf(limit, sizeof limit, "limit is %" PRIu64 " ", (uint64_t)PTRDIFF_MAX);
    cr_assert_eq(dunlin__arena_open(source, bytes, 0, &arena, &error), DUNLIN_MEMORY);
    cr_assert_not_null(strstr(error.text, limit), "%s", error.text);
}

/* The lower 32 bits of a number of bytes are a small arena; nobody may take them for the whole. */
Test(arena, what_the_address_space_does_not_hold_is_refused)
{
    static unsigned char slab[4096];
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    const dunlin_arena_source hooks = {.hooks = counter.hooks};
    const dunlin_arena_source of_caller = {.slab = slab, .slab_bytes = UINT64_MAX};
    const dunlin_arena_source *sources[] = {NULL, &hooks, &of_caller};
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++) {
        expect_too_large(sources[i], (uint64_t)PTRDIFF_MAX + 1);
        expect_too_large(sources[i], (UINT64_C(1) << 63) + 4096);
#if UINTPTR_MAX == UINT32_MAX
        expect_too_large(sources[i], (UINT64_C(1) << 32) + 4096);
#endif
    }
    cr_assert_eq(counter.n_allocs, 0);
}

Test(arena, dead_ranges_read_as_not_a_number)
{
    dunlin_arena arena;
    cr_assert_eq(dunlin__arena_open(NULL, MIB, 4096, &arena, NULL), DUNLIN_OK);
    memset(dunlin__arena_at(&arena, 0, 4096), 0, 4096);
    dunlin__arena_poison(&arena, 64, 128);
    dunlin__arena_poison(&arena, 128, 128); /* over what is dead already */
#ifndef NDEBUG
#ifdef HAS_ASAN
    cr_assert_not(__asan_address_is_poisoned(arena.base + 63));
    cr_assert(__asan_address_is_poisoned(arena.base + 64));
    cr_assert(__asan_address_is_poisoned(arena.base + 255));
    cr_assert_not(__asan_address_is_poisoned(arena.base + 256));
#endif
    dunlin__arena_unpoison(&arena, 64, 192);
    float value = 0.0f;
    for (size_t at = 0; at < 512; at += sizeof value) {
        memcpy(&value, arena.base + at, sizeof value);
        cr_assert_eq(isnan(value) != 0, at >= 64 && at < 256);
    }
#endif
    /* Shrinking and growing again leaves no poison. */
    dunlin__arena_poison(&arena, 2048, 2048);
    cr_assert_eq(dunlin__arena_commit(&arena, 0, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__arena_commit(&arena, 4096, NULL), DUNLIN_OK);
    memset(arena.base, 7, 4096);
    dunlin__arena_close(&arena);
}
