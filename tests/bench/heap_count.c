/*
 * heap_count.c - malloc and its like in front of the C library's, counted.
 *
 * Libraries' calls come here too, since a program's symbols go before theirs. What counts is what
 * the C library gives, not what was asked for.
 */
#include "heap_count.h"

#include <stdlib.h> /* first: it says which C library this is */

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <malloc.h>
#include <stdbool.h>

/* glibc's own, under the names that it keeps for this. */
extern void *__libc_malloc(size_t n_bytes);
extern void *__libc_calloc(size_t n, size_t n_bytes);
extern void *__libc_realloc(void *memory, size_t n_bytes);
extern void *__libc_memalign(size_t align, size_t n_bytes);
extern void __libc_free(void *memory);

static struct {
    bool is_on;
    long long now;
    long long most;
} heap;

static void *count(void *memory)
{
    if (heap.is_on && memory != NULL) {
        heap.now += (long long)malloc_usable_size(memory);
        heap.most = heap.now > heap.most ? heap.now : heap.most;
    }
    return memory;
}

static void uncount(void *memory)
{
    heap.now -= heap.is_on && memory != NULL ? (long long)malloc_usable_size(memory) : 0;
}

/* Seen by the libraries, too. */
#pragma GCC visibility push(default)

void *malloc(size_t n_bytes)
{
    return count(__libc_malloc(n_bytes));
}

void *calloc(size_t n, size_t n_bytes)
{
    return count(__libc_calloc(n, n_bytes));
}

void *realloc(void *memory, size_t n_bytes)
{
    uncount(memory);
    return count(__libc_realloc(memory, n_bytes));
}

void *aligned_alloc(size_t align, size_t n_bytes)
{
    return count(__libc_memalign(align, n_bytes));
}

void free(void *memory)
{
    uncount(memory);
    __libc_free(memory);
}

#pragma GCC visibility pop

void heap_count_begin(void)
{
    heap.is_on = true;
}

size_t heap_count_end(void)
{
    heap.is_on = false;
    return heap.most > 0 ? (size_t)heap.most : 0;
}

#else

void heap_count_begin(void)
{
}

size_t heap_count_end(void)
{
    return 0;
}

#endif
