/*
 * moves.h - moves on a choice of retention intervals, shared by the search for the cheapest and the
 * search for the lowest.
 */
#ifndef DUNLIN_MEM_REMAT_MOVES_H
#define DUNLIN_MEM_REMAT_MOVES_H

#include "model.h"

typedef enum dunlin_greedy_order {
    DUNLIN_ORDER_SIZE_PER_COST = 0, /* bytes freed for each nanosecond spent */
    DUNLIN_ORDER_NEXT_USE,          /* bytes times time until the next use, for each nanosecond */
    DUNLIN_ORDER_CHEAPEST,
    DUNLIN_ORDER_LARGEST,
    DUNLIN_N_ORDERS
} dunlin_greedy_order;

/* How one greedy run goes. */
typedef struct dunlin_greedy {
    dunlin_greedy_order order;
    bool takes_worst; /* relieves the highest position first, else the first that is over */
    uint32_t n_tries; /* highest-scored candidates that are simulated at a time; at most 8 */
    bool is_noisy;    /* scores are shaken: large-neighbourhood repairs */
} dunlin_greedy;

typedef struct dunlin_searcher {
    dunlin_remat *remat;
    const dunlin_remat_limits *limits;
    uint64_t random;   /* state; not 0 */
    uint64_t work_end; /* of remat->n_work */
} dunlin_searcher;

uint64_t dunlin__moves_random(dunlin_searcher *search);
bool dunlin__moves_spent(const dunlin_searcher *search);
dunlin_remat_result dunlin__moves_run(const dunlin_searcher *search, const uint8_t *intervals);
dunlin_remat_result dunlin__moves_try(const dunlin_searcher *search, const uint8_t *intervals,
                                      const dunlin_remat_bar *bar);

/* Candidates simulated at a time: simulating a large step takes long, and one candidate is
 * informative enough. */
uint32_t dunlin__moves_tries(const dunlin_searcher *search);

/* A noisy style, any order and way. */
dunlin_greedy dunlin__moves_any_style(dunlin_searcher *search);

/* Drops intervals until the limit is kept. False: nothing helps any more, or the work is spent. */
bool dunlin__moves_greedy(dunlin_searcher *search, const dunlin_greedy *style, uint8_t *intervals,
                          dunlin_remat_result *out_result);

/* Retains again what can be retained, from a random interval on, until nothing changes. `now` is of
 * `gaps`, which fit. */
void dunlin__moves_polish(dunlin_searcher *search, uint8_t *intervals, dunlin_remat_result *now);

/* Puts a part of what was dropped back, and drops a few others. */
void dunlin__moves_shake(dunlin_searcher *search, uint8_t *intervals);

/*
 * Changes intervals one by one, any of them to any state, wherever that brings the step closer to
 * the limit. False: no single change helps any more, or the work is spent.
 */
bool dunlin__moves_descend(dunlin_searcher *search, uint8_t *intervals, dunlin_remat_result *now);

#endif
