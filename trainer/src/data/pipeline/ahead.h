/*
 * ahead.h - examples prepared in advance by a thread, in a ring of bounded size.
 *
 * Two threads: the one that trains (all calls here) and the one that makes (make_fn). Examples are
 * known by (step, index); an example that is not ready when it is asked for is made by the caller
 * itself.
 */
#ifndef DUNLIN_DATA_AHEAD_H
#define DUNLIN_DATA_AHEAD_H

#include <dunlin/alloc.h>

typedef struct dunlin_ahead dunlin_ahead;

/* Makes one example; on failure `out_text` (DUNLIN_ERROR_TEXT_BYTES) says why. */
typedef dunlin_status (*dunlin_ahead_make_fn)(void *ctx, int64_t step, int64_t index, void *out_x,
                                              int32_t *out_y, char *out_text);

typedef struct dunlin_ahead_options {
    dunlin_ahead_make_fn make_fn;
    void *ctx;
    size_t example_bytes;
    uint64_t bytes; /* for everything: examples, their table, the list of what is to come */
} dunlin_ahead_options;

typedef struct dunlin_ahead_counts {
    uint64_t bytes;
    int64_t n_slots;
    int64_t n_ready, n_waited, n_unlisted;
} dunlin_ahead_counts;

/* ARGUMENT if no example fits; MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__ahead_create(const dunlin_ahead_options *options,
                                                    const dunlin_alloc *alloc,
                                                    dunlin_ahead **out_ahead, dunlin_error *error);
/* NULL is fine. */
void dunlin__ahead_destroy(dunlin_ahead *ahead);

/* A step begins: what was made for steps before it, or for any but the next, is worth nothing. */
void dunlin__ahead_begin(dunlin_ahead *ahead, int64_t step);
/* The step will ask for these; the order is that in which they are made. */
void dunlin__ahead_hint(dunlin_ahead *ahead, int64_t step, const int64_t *indices, int64_t n);

/*
 * Copies an example out, waiting if it is being made. Not there (and not listed any more):
 * *out_is_there is false, and the status OK. A failure of make_fn comes out here once, with its
 * text.
 */
DUNLIN_NODISCARD dunlin_status dunlin__ahead_take(dunlin_ahead *ahead, int64_t step, int64_t index,
                                                  void *out_x, int32_t *out_y, bool *out_is_there,
                                                  char *out_text);

void dunlin__ahead_count(dunlin_ahead *ahead, dunlin_ahead_counts *out_counts);

#endif
