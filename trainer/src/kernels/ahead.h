/*
 * ahead.h - memory that is wanted soon, asked for a few lines at a time while something else is
 * computed: otherwise the processor waits for memory in one loop, and memory for the processor in
 * the next.
 *
 * No value depends on it.
 */
#ifndef DUNLIN_KERNELS_AHEAD_H
#define DUNLIN_KERNELS_AHEAD_H

#include "vec.h"

#include <stddef.h>

#define AHEAD_PARTS 6
#define AHEAD_LINES 8 /* asked for with a few rows of one vector */
#define LINE_BYTES 64

/* Runs of memory, one after the other. */
typedef struct ahead_list {
    struct {
        const char *at, *end;
    } parts[AHEAD_PARTS];
    int32_t part, n_parts;
} ahead_list;

/* Rows of a tensor, if they lie together. */
static inline void ahead_rows(ahead_list *ahead, const float *base, int64_t pitch, int64_t channels,
                              int64_t pixel, int64_t n_rows)
{
    if (base != NULL && pitch == channels) {
        ahead->parts[ahead->n_parts].at = (const char *)(base + pixel * pitch);
        ahead->parts[ahead->n_parts++].end = (const char *)(base + (pixel + n_rows) * pitch);
    }
}

/* Takes `lines` off the list; NULL: it is empty. The last ones may lie past a run's end. */
ALWAYS_INLINE const char *ahead_take(ahead_list *ahead, int64_t lines)
{
    if (ahead == NULL || ahead->part == ahead->n_parts) {
        return NULL;
    }
    const char *at = ahead->parts[ahead->part].at;
    ahead->parts[ahead->part].at = at + lines * LINE_BYTES;
    if (ahead->parts[ahead->part].at >= ahead->parts[ahead->part].end) {
        ahead->part++;
    }
    return at;
}

/* Asks for the next lines. */
ALWAYS_INLINE void ahead_some(ahead_list *ahead)
{
    const char *at = ahead_take(ahead, AHEAD_LINES);
    if (at == NULL) {
        return;
    }
    UNROLL
    for (int i = 0; i < AHEAD_LINES; i++) {
        __builtin_prefetch(at + (ptrdiff_t)i * LINE_BYTES, 0, 2);
    }
}

#endif
