/*
 * deep.h - the tables of the depth-first search over a core: its blocks and sections, the frames of
 * the current path, and the undo log.
 */
#ifndef DUNLIN_MEM_PACK_DEEP_H
#define DUNLIN_MEM_PACK_DEEP_H

#include "core.h"

typedef enum { LOG_PLACED, LOG_OFFSET } log_kind;

typedef struct {
    uint64_t old;
    uint32_t index;
    uint32_t kind;
} log_row;

/* One placement to be chosen, for the open blocks within sections [first, end). */
typedef struct {
    uint32_t first, end;
    uint32_t placed;      /* block chosen now; NONE */
    bool is_only;         /* no open block meets the chosen one: another choice gains nothing */
    uint64_t from_offset; /* choices lie at or above (from_offset, from_rank) */
    uint32_t from_rank;
    uint32_t cursor; /* sections before it are solved */
    uint32_t log_mark;
} frame_row;

typedef struct dunlin_pack_deep {
    uint32_t n_max, n, n_sections;
    uint32_t n_words; /* of a row of `meets` */
    uint64_t capacity;
    dunlin_pack_block *blocks; /* by first section; offset_bytes is the lowest possible */
    uint32_t *index;           /* of the block in the core; the head of all of this type */
    uint32_t *ranks, *sorted;
    uint64_t *meets;    /* a row of bits a block */
    uint64_t *open;     /* bits: not placed yet */
    double *floors;     /* by section: lowest offset that comes; exact to 2^53 */
    uint64_t *totals;   /* by section: bytes to come */
    uint64_t *reserves; /* by section: bytes left out of the search */
    uint64_t *peaks;    /* by block: greatest total of its sections */
    uint32_t *joins;    /* by section: open blocks that are also alive in the next one */
    uint32_t *starts;   /* by section: first block that begins there or later */
    frame_row *frames;
    log_row *log;
    uint32_t n_log;
} dunlin_pack_deep;

/* Fills everything that does not change with the ranks; false: too many changes for the log. */
bool dunlin__pack_deep_prepare(dunlin_pack_deep *deep, const dunlin_pack_core *core,
                               const dunlin_deep_options *options);
/* Nothing is placed. */
void dunlin__pack_deep_reset(dunlin_pack_deep *deep);

#endif
