/*
 * bump.h - many small objects with the lifetime of one graph, in few blocks.
 */
#ifndef DUNLIN_GRAPH_BUMP_H
#define DUNLIN_GRAPH_BUMP_H

#include <dunlin/alloc.h>

typedef struct dunlin_step_pool_block dunlin_step_pool_block;

/* Zeroed memory with `alloc` set is an empty pool. */
typedef struct dunlin_step_pool {
    dunlin_alloc alloc;
    dunlin_step_pool_block *last;
} dunlin_step_pool;

/* `bytes` bytes aligned to 16, not zeroed; NULL when out of memory. */
void *dunlin__step_pool_take(dunlin_step_pool *pool, size_t bytes);
void *dunlin__step_pool_copy(dunlin_step_pool *pool, const void *from, size_t bytes);

/* The text first + second, ended by a zero. */
const char *dunlin__step_pool_text(dunlin_step_pool *pool, const char *first, const char *second);

void dunlin__step_pool_free(dunlin_step_pool *pool);

#endif
