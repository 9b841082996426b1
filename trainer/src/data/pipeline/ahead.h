/*
 * ahead.h - examples prepared in advance by threads, in a ring of bounded size.
 *
 * One thread trains (all calls here), the others make (make_fn, each with its number). Examples are
 * known by (step, index); an example that is not there when it is asked for is made by the caller
 * itself. So is one that a thread failed to make: the caller then meets the failure itself.
 */
#ifndef DUNLIN_DATA_AHEAD_H
#define DUNLIN_DATA_AHEAD_H

#include <dunlin/alloc.h>

typedef struct dunlin_ahead dunlin_ahead;

/* Makes one example on thread `thread`, 0 to n_threads - 1. */
typedef dunlin_status (*dunlin_ahead_make_fn)(void *ctx, int32_t thread, int64_t step,
                                              int64_t index, void *out_x, int32_t *out_y);

typedef struct dunlin_ahead_options {
    dunlin_ahead_make_fn make_fn;
    void *ctx;
    size_t example_bytes;
    uint64_t bytes;     /* for everything: examples, their table, the list of what is to come */
    int64_t n_examples; /* at most so many; 0: as many as fit */
    int32_t n_threads;  /* 1 or more */
} dunlin_ahead_options;

typedef struct dunlin_ahead_counts {
    uint64_t bytes;
    int64_t n_slots;
    int64_t n_ready, n_waited, n_unlisted;
    uint64_t waited_ns; /* of the caller, for what was being made */
} dunlin_ahead_counts;

/* ARGUMENT if no example fits; MEMORY (also: the system gives no thread). */
DUNLIN_NODISCARD dunlin_status dunlin__ahead_create(const dunlin_ahead_options *options,
                                                    const dunlin_alloc *alloc,
                                                    dunlin_ahead **out_ahead, dunlin_error *error);
/* NULL is fine. */
void dunlin__ahead_destroy(dunlin_ahead *ahead);

/* A step begins: what was made for steps before it, or for any but the next, is worth nothing. */
void dunlin__ahead_begin(dunlin_ahead *ahead, int64_t step);
/* The step will ask for these; the order is that in which they are made. */
void dunlin__ahead_hint(dunlin_ahead *ahead, int64_t step, const int64_t *indices, int64_t n);

/* Copies an example out, waiting if it is being made. Returns whether it was there. */
bool dunlin__ahead_take(dunlin_ahead *ahead, int64_t step, int64_t index, void *out_x,
                        int32_t *out_y);

void dunlin__ahead_count(dunlin_ahead *ahead, dunlin_ahead_counts *out_counts);

#endif
