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

#include <stdbool.h>
#include <stddef.h>

#define AHEAD_PARTS 10
#define AHEAD_LINES 8 /* asked for with a few rows of one vector */
#define LINE_BYTES 64
#define LINE_FLOATS (LINE_BYTES / (int64_t)sizeof(float))
#define AHEAD_LEAST 8  /* bytes */
#define AHEAD_SPREAD 4 /* of what lies there a row is at least so small a part */

/* Asks for a line: into the first cache, or only into the second. */
ALWAYS_INLINE void ahead_line(const char *at, bool is_near)
{
    if (is_near) {
        __builtin_prefetch(at, 0, 3);
    } else {
        __builtin_prefetch(at, 0, 2);
    }
}

/* AMD's cores up to Zen 4: their first cache of 32 KiB loses what comes too early. */
ALWAYS_INLINE bool is_older_amd(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amdfam17h") || __builtin_cpu_is("amdfam19h");
#else
    return false;
#endif
}

/*
 * Where a GEMM asks for what its next block takes: the second cache, where it is in nobody's way.
 * Zen 5 brings more of what is asked for into the first one, from which it falls into the second
 * (steps of MobileNetV2 take 6 % less).
 */
ALWAYS_INLINE bool ahead_is_near(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amd") && !is_older_amd();
#else
    return false;
#endif
}

/* Where a depthwise tile asks for the next ones (Zen 4, the second cache: steps of MobileNetV2 take
 * 6 to 9 % less). */
ALWAYS_INLINE bool ahead_is_near_for_tiles(void)
{
    return !is_older_amd();
}

/* Runs of memory, one after the other. */
typedef struct ahead_list {
    struct {
        const char *at, *end;
    } parts[AHEAD_PARTS];
    int32_t part, n_parts;
    int32_t step; /* bytes for a step of the GEMM's depth */
} ahead_list;

/*
 * Spreads the list over so many steps of depth: asked for all at once, memory would hold up what
 * the GEMM itself wants from the second cache.
 */
static inline void ahead_pace(ahead_list *ahead, int64_t steps)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < ahead->n_parts; i++) {
        bytes += ahead->parts[i].end - ahead->parts[i].at;
    }
    const int64_t step = steps > 0 ? bytes / steps + 1 : LINE_BYTES;
    ahead->step = step < AHEAD_LEAST ? AHEAD_LEAST : step > LINE_BYTES ? LINE_BYTES : (int32_t)step;
}

/* Rows of a tensor, if they lie together; of a concatenation with what lies between them, which is
 * less than what waiting for them costs. */
static inline void ahead_rows(ahead_list *ahead, const float *base, int64_t pitch, int64_t channels,
                              int64_t pixel, int64_t n_rows)
{
    if (base != NULL && pitch <= AHEAD_SPREAD * channels) {
        ahead->parts[ahead->n_parts].at = (const char *)(base + pixel * pitch);
        ahead->parts[ahead->n_parts++].end =
            (const char *)(base + (pixel + n_rows) * pitch - (pitch - channels));
    }
}

/* Takes bytes off the list; NULL: it is empty. The last ones may lie past a run's end. */
ALWAYS_INLINE const char *ahead_take(ahead_list *ahead, int64_t bytes)
{
    if (ahead == NULL || ahead->part == ahead->n_parts) {
        return NULL;
    }
    const char *at = ahead->parts[ahead->part].at;
    ahead->parts[ahead->part].at = at + bytes;
    if (ahead->parts[ahead->part].at >= ahead->parts[ahead->part].end) {
        ahead->part++;
    }
    return at;
}

/* Asks for the next lines. */
ALWAYS_INLINE void ahead_some(ahead_list *ahead)
{
    const char *at = ahead_take(ahead, (int64_t)AHEAD_LINES * LINE_BYTES);
    if (at == NULL) {
        return;
    }
    const bool is_near = ahead_is_near();
    UNROLL
    for (int i = 0; i < AHEAD_LINES; i++) {
        ahead_line(at + (ptrdiff_t)i * LINE_BYTES, is_near);
    }
}

#endif
