/*
 * join_masks.h - what a constant mask does to the scores of attention.
 */
#ifndef DUNLIN_CONVERT_JOIN_MASKS_H
#define DUNLIN_CONVERT_JOIN_MASKS_H

#include "join.h"

typedef struct dunlin_join_sizes {
    int64_t heads, n_queries, n_keys, width;
} dunlin_join_sizes;

/* A constant that is added to the scores, with ones and zeros by which they were multiplied before:
 * a choice (masks.c). */
typedef struct dunlin_join_mask {
    uint32_t param;
    uint32_t let; /* DUNLIN_NET_NONE: none */
    bool is_hiding_ahead;
    bool is_hiding_only; /* it hides what lies ahead and adds nothing else */
} dunlin_join_mask;

/* Looks at its values. False: it is none that is only added, it hides all of a row, or it cannot be
 * read. */
bool dunlin__join_mask(const dunlin_joiner *j, dunlin_join_mask *mask, const dunlin_join_sizes *s);

/* Scores are multiplied by `let`, then `mask` is added: a choice by a mask that is made, of the
 * scores and a number that hides whatever is added to it. */
bool dunlin__join_is_choice(const dunlin_joiner *j, uint32_t mask, uint32_t let);

/* A mask that is made and that nothing but its scores reads, as it was before it was repeated for
 * each head and joined with a stored mask of what lies ahead. */
typedef struct dunlin_join_source_of_mask {
    uint32_t source; /* value */
    bool is_ahead;   /* what lies ahead was hidden too */
} dunlin_join_source_of_mask;

/* False: it is as it should be, or none of this; nothing is changed. */
bool dunlin__join_mask_source(const dunlin_joiner *j, uint32_t mask, const dunlin_join_sizes *s,
                              dunlin_join_source_of_mask *out);
/* The mask is made of that source alone, in its shape. */
void dunlin__join_read_mask(const dunlin_joiner *j, uint32_t mask, uint32_t source);

#endif
