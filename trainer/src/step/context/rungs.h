/*
 * rungs.h - fallback plans as a trainer holds them, and their lock.
 */
#ifndef DUNLIN_STEP_FALLBACKS_H
#define DUNLIN_STEP_FALLBACKS_H

#include "context.h"

#include <dunlin/trainer_advanced.h>

#include <pthread.h>

#define DUNLIN_LADDER_MAX_FALLBACKS 10
#define DUNLIN_LADDER_MAX_CHANGES 256

/* Plans for one size of arena. */
typedef struct dunlin_fallback {
    dunlin_plan *train;
    dunlin_plan *infer;
    uint64_t arena_bytes; /* holds both */
    /* The same bytes, for a step that has begun with other slices than `train` would take: in the
     * slices of the highest rung, or, if that runs whole, cut into regions. NULL: it cannot be
     * done, or need not. */
    dunlin_plan *alike;
} dunlin_fallback;

/* A change that waits for its step. */
typedef struct dunlin_ladder_wish {
    int64_t step;
    double percent;
    uint64_t budget_bytes;
} dunlin_ladder_wish;

/*
 * Whoever holds `lock` may read and change what is below it. While a call runs (is_running) the
 * plans and the arena are its thread's; else whoever holds the lock may change them.
 */
struct dunlin_ladder {
    dunlin_fallback
        fallbacks[DUNLIN_LADDER_MAX_FALLBACKS]; /* [0]: for the budget at creation; descending */
    uint32_t n_fallbacks;
    bool is_kept;               /* found in options.cache_dir */
    uint64_t least_arena_bytes; /* below it no plan is sure to be found */
    dunlin_switch entries[3];   /* the current one and two to compare */
    uint32_t entry;             /* the current one */
    dunlin_exec_control control;
    atomic_bool is_asked;
    uint64_t elapsed_ns; /* of the step in progress, by the graph's costs */
    uint64_t step_ns;    /* of all of it */
    int64_t n_batch;
    double given_back_ms; /* when the last change had given back what it gives back */
    double change_ms;     /* when the last change of the step in progress was done; 0: none */

    pthread_mutex_t lock;
    pthread_cond_t resumed;
    bool is_running;
    bool is_paused;
    bool gives_back;
    uint32_t fallback;     /* that steps begin with */
    uint64_t top_bytes;    /* budget at creation; 0: none */
    uint64_t budget_bytes; /* in force */
    uint64_t asked_bytes;  /* not obeyed yet, or budget_bytes */
    uint64_t table_bytes;  /* of the trainer, all plans included */
    dunlin_ladder_wish wishes[DUNLIN_LADDER_MAX_CHANGES];
    uint32_t n_wishes;
    dunlin_budget_change changes[DUNLIN_LADDER_MAX_CHANGES];
    int64_t n_changes;
};

void dunlin__ladder_free(struct dunlin_trainer *trainer);
/* Ends the changes that were looked at. */
void dunlin__ladder_close_entries(dunlin_ladder *ladder);
void dunlin__fallback_free(dunlin_fallback *fallback);

void dunlin__ladder_lock(dunlin_ladder *ladder);
void dunlin__ladder_unlock(dunlin_ladder *ladder);
/* Under the lock: the step looks at the fallback plans before its next op if there is anything to
 * do. */
void dunlin__ladder_tell(dunlin_ladder *ladder);

#endif
