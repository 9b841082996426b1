/*
 * alloc.h - where a handle takes its memory from.
 *
 * Example: what a handle allocates is counted, and limited to 1 MiB.
 *
 * @code
 * dunlin_alloc_counter counter;
 * dunlin_alloc_counter_init(&counter, NULL);
 * counter.limit_bytes = 1 << 20;
 * const dunlin_alloc hooks = counter.hooks; // goes into the options of a handle
 * (void)hooks;
 * printf("at most %.0f bytes at a time\n", (double)counter.peak_bytes);
 * @endcode
 */
#ifndef DUNLIN_ALLOC_H
#define DUNLIN_ALLOC_H

#include <dunlin/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Allocation hooks of one handle; nothing in the library is global.
 *
 * `alloc` returns `bytes` bytes (never 0) at an address that is a multiple of `align` (a power of
 * two), or NULL. `free` is given the size of the block. A zeroed struct means the C library's
 * allocator. The struct is copied; `ctx` must outlive the handle. Hooks are called on the thread
 * that calls a function of the handle: where an app calls from several threads at once (it reads a
 * federated model while a round runs), the hooks must allow that too, as the C library's and a
 * dunlin_alloc_counter's do. This struct is frozen.
 */
typedef struct dunlin_alloc {
    void *ctx;
    void *(*alloc_fn)(void *ctx, size_t bytes, size_t align);
    void (*free_fn)(void *ctx, void *memory, size_t bytes);
} dunlin_alloc;

/** A pass-through that counts: bytes now, their high-water mark, and calls. Put `hooks` into a
 * handle's options. Several threads may allocate at once; the counts are exact when they are done.
 * Near the limit one of two threads that ask at once may be refused although its block alone would
 * fit. This struct is frozen. */
typedef struct dunlin_alloc_counter {
    dunlin_alloc hooks; /* give this to the handle; its ctx is this struct, which must not move */
    dunlin_alloc inner;
    uint64_t now_bytes;
    uint64_t peak_bytes;
    uint64_t n_allocs;
    uint64_t n_frees;
    uint64_t limit_bytes; /* 0: none; else an allocation that would pass it fails */
} dunlin_alloc_counter;

/** Starts counting over `inner` (NULL: the C library's allocator). */
DUNLIN_API void dunlin_alloc_counter_init(dunlin_alloc_counter *counter, const dunlin_alloc *inner);

#ifdef __cplusplus
}
#endif

#endif
