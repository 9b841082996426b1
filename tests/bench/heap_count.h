/*
 * heap_count.h - the bytes that a stretch of a program takes from malloc, libraries included.
 */
#ifndef DUNLIN_BENCH_HEAP_COUNT_H
#define DUNLIN_BENCH_HEAP_COUNT_H

#include <stddef.h>

/* From here on, until heap_count_end(); of one thread, and stretches are not within each other.
 * What one stretch takes and no later one frees stays counted. */
void heap_count_begin(void);
/* @return the most bytes at once since the first stretch began; 0 where a sanitizer has malloc. */
size_t heap_count_end(void);

#endif
