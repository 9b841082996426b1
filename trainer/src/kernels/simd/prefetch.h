/*
 * prefetch.h - software prefetch: memory that is needed soon is requested a few lines at a time
 * while something else is computed; otherwise the processor waits for memory in one loop, and
 * memory is idle in the next.
 *
 * No value depends on it.
 */
#ifndef DUNLIN_KERNELS_PREFETCH_H
#define DUNLIN_KERNELS_PREFETCH_H

#include "vec.h"

#include <stdbool.h>
#include <stddef.h>

#define PREFETCH_PARTS 10
#define PREFETCH_LINES 8 /* asked for with a few rows of one vector */
#define LINE_BYTES 64
#define LINE_FLOATS (LINE_BYTES / (int64_t)sizeof(float))
#define PREFETCH_LEAST 8  /* bytes */
#define PREFETCH_SPREAD 4 /* of what lies there a row is at least so small a part */

/* Asks for a line: into the first cache, or only into the second. */
ALWAYS_INLINE void prefetch_line(const char *at, bool is_near)
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
#if defined(__x86_64__) || defined(__i386__)
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
ALWAYS_INLINE bool prefetch_is_near(void)
{
#if defined(__x86_64__) || defined(__i386__)
    return __builtin_cpu_is("amd") && !is_older_amd();
#else
    return false;
#endif
}

/* Where a depthwise tile asks for the next ones (Zen 4, the second cache: steps of MobileNetV2 take
 * 6 to 9 % less). */
ALWAYS_INLINE bool prefetch_is_near_for_tiles(void)
{
    return !is_older_amd();
}

/*
 * Memory, part after part: a run, or some columns of rows that lie apart, asked for a line of each
 * row down the rows, then the next one.
 */
typedef struct prefetch_part {
    const char *at, *end;
    int64_t pitch;   /* of the rows; 0: a run */
    int64_t n_lines; /* of a row, with the current one */
    const char *first;
} prefetch_part;

typedef struct prefetch_list {
    prefetch_part parts[PREFETCH_PARTS];
    int32_t part, n_parts;
    int32_t step;  /* bytes for a step of the GEMM's depth, of a run */
    bool is_apart; /* of rows that are added only channels from `channel` on: the others are
                      somebody else's */
    int64_t channel;
} prefetch_list;

/*
 * Spreads the list over so many steps of depth: asked for all at once, memory would hold up what
 * the GEMM itself wants from the second cache.
 */
static inline void prefetch_pace(prefetch_list *prefetch, int64_t steps)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < prefetch->n_parts; i++) {
        const prefetch_part *part = &prefetch->parts[i];
        if (part->pitch == 0) {
            bytes += part->end - part->at;
        } else {
            steps -= (part->end - part->at) / part->pitch * part->n_lines;
        }
    }
    const int64_t step = steps > 0 ? bytes / steps + 1 : LINE_BYTES;
    prefetch->step = step < PREFETCH_LEAST ? PREFETCH_LEAST
                     : step > LINE_BYTES   ? LINE_BYTES
                                           : (int32_t)step;
}

/* Rows of a tensor, if they lie together; of a concatenation with what lies between them, which is
 * less than what waiting for them costs. */
static inline void prefetch_stored(prefetch_list *prefetch, const float *base, bool is_half,
                                   int64_t pitch, int64_t channels, int64_t pixel, int64_t n_rows)
{
    if (base == NULL || (!prefetch->is_apart && pitch > PREFETCH_SPREAD * channels)) {
        return;
    }
    prefetch_part *part = &prefetch->parts[prefetch->n_parts++];
    const int64_t bytes = is_half ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
    const char *first = (const char *)base + pixel * pitch * bytes;
    *part = (prefetch_part){.at = first};
    if (prefetch->is_apart) {
        part->pitch = pitch * bytes;
        part->at = first + prefetch->channel * bytes;
        part->end = part->at + n_rows * part->pitch;
        part->n_lines = (channels * bytes + LINE_BYTES - 1) / LINE_BYTES;
        part->first = part->at;
    } else {
        part->end = first + (n_rows * pitch - (pitch - channels)) * bytes;
    }
}

static inline void prefetch_rows(prefetch_list *prefetch, const float *base, int64_t pitch,
                                 int64_t channels, int64_t pixel, int64_t n_rows)
{
    prefetch_stored(prefetch, base, false, pitch, channels, pixel, n_rows);
}

/* Takes what so many steps of `step` bytes ask for off the list, and says how far apart they are;
 * NULL: it is empty. The last ones may lie past a part's end. */
ALWAYS_INLINE const char *prefetch_take(prefetch_list *prefetch, int64_t steps, int64_t step,
                                        int64_t *out_step)
{
    if (prefetch == NULL || prefetch->part == prefetch->n_parts) {
        *out_step = 0;
        return NULL;
    }
    prefetch_part *part = &prefetch->parts[prefetch->part];
    const char *at = part->at;
    *out_step = part->pitch == 0 ? step : part->pitch;
    part->at = at + steps * *out_step;
    if (part->at < part->end) {
        return at;
    }
    if (part->n_lines > 1) {
        part->n_lines--;
        part->first += LINE_BYTES;
        part->end += LINE_BYTES;
        part->at = part->first;
    } else {
        prefetch->part++;
    }
    return at;
}

/* Asks for the next lines. */
ALWAYS_INLINE void prefetch_some(prefetch_list *prefetch)
{
    int64_t step = 0;
    const char *at = prefetch_take(prefetch, PREFETCH_LINES, LINE_BYTES, &step);
    if (at == NULL) {
        return;
    }
    const bool is_near = prefetch_is_near();
    UNROLL
    for (int i = 0; i < PREFETCH_LINES; i++) {
        prefetch_line(at + i * step, is_near);
    }
}

#endif
