/*
 * bump.c - a bump allocator over blocks from the hooks.
 *
 * Invariant: a block never moves, so what was taken stays where it is until the pool is freed.
 */
#include "bump.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <assert.h>
#include <string.h>

#define POOL_ALIGN ((size_t)16)
#define POOL_BLOCK_BYTES ((size_t)4096)

struct dunlin_step_pool_block {
    dunlin_step_pool_block *before;
    size_t used_bytes; /* of `bytes`, this head included */
    size_t bytes;
};

#define POOL_HEAD_BYTES                                                                            \
    ((sizeof(dunlin_step_pool_block) + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN)

void *dunlin__step_pool_take(dunlin_step_pool *pool, size_t bytes)
{
    size_t needed = 0;
    if (!dunlin__add_size(bytes, POOL_ALIGN - 1, &needed)) {
        return NULL;
    }
    needed = needed / POOL_ALIGN * POOL_ALIGN;
    dunlin_step_pool_block *block = pool->last;
    if (block == NULL || block->bytes - block->used_bytes < needed) {
        size_t block_bytes = 0;
        if (!dunlin__add_size(needed, POOL_HEAD_BYTES, &block_bytes)) {
            return NULL;
        }
        block_bytes = block_bytes < POOL_BLOCK_BYTES ? POOL_BLOCK_BYTES : block_bytes;
        block = dunlin__alloc_array(&pool->alloc, block_bytes, 1);
        if (block == NULL) {
            return NULL;
        }
        block->before = pool->last;
        block->used_bytes = POOL_HEAD_BYTES;
        block->bytes = block_bytes;
        pool->last = block;
    }
    unsigned char *memory = (unsigned char *)block + block->used_bytes;
    block->used_bytes += needed;
    assert(block->used_bytes <= block->bytes && (uintptr_t)memory % POOL_ALIGN == 0);
    return memory;
}

void *dunlin__step_pool_copy(dunlin_step_pool *pool, const void *from, size_t bytes)
{
    void *memory = dunlin__step_pool_take(pool, bytes);
    if (memory != NULL && bytes > 0) {
        memcpy(memory, from, bytes);
    }
    return memory;
}

const char *dunlin__step_pool_text(dunlin_step_pool *pool, const char *first, const char *second)
{
    const size_t n_first = strlen(first);
    const size_t n_second = strlen(second);
    char *text = dunlin__step_pool_take(pool, n_first + n_second + 1);
    if (text != NULL) {
        memcpy(text, first, n_first);
        memcpy(text + n_first, second, n_second);
        text[n_first + n_second] = '\0';
    }
    return text;
}

void dunlin__step_pool_free(dunlin_step_pool *pool)
{
    while (pool->last != NULL) {
        dunlin_step_pool_block *before = pool->last->before;
        dunlin__free_array(&pool->alloc, pool->last, pool->last->bytes, 1);
        pool->last = before;
    }
}
