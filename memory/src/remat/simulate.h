/*
 * simulate.h - a simulation of the step, position by position.
 */
#ifndef DUNLIN_MEM_REMAT_SIMULATION_H
#define DUNLIN_MEM_REMAT_SIMULATION_H

#include "model.h"

typedef struct dunlin_simulation {
    dunlin_remat *remat;
    const uint8_t *intervals;
    uint64_t limit_bytes;
    uint64_t live_bytes;  /* of the roots; in a sliced region, of those that hold a slice */
    uint64_t whole_bytes; /* of those that hold the batch, in a sliced region and beyond */
    uint64_t dying_bytes; /* of them, gone when the region ends */
    uint64_t worst_bytes; /* at the current position */
    uint32_t position;    /* the current one */
    uint32_t phase;
    bool is_sliced; /* the phase runs in several slices, and there are others */
    uint32_t n_locals;
    bool does_log;
    uint64_t *sums;     /* by position: bytes at its worst moment, penalty included */
    uint64_t *is_asked; /* set of roots that recomputed ops ask about, or NULL */
    dunlin_remat_result
        so_far; /* cost and recomputed ops; the other members once the positions are added up */
} dunlin_simulation;

/* Runs the positions from a mark to the next and adds them up. */
void dunlin__simulation_run(dunlin_simulation *run, uint32_t mark);

/* Runs them up to a position in between. */
void dunlin__simulation_run_to(dunlin_simulation *run, uint32_t mark, uint32_t position);

/* Adds up positions whose bytes are known, so many bytes higher. */
void dunlin__simulation_add_up(const uint64_t *sums, uint64_t more_bytes, uint32_t first,
                               uint32_t end, uint64_t limit_bytes, dunlin_remat_result *result);

#endif
