/**
 * @file
 *
 * Changing a trainer's budget while it trains, pausing, and the cost of each change.
 * dunlin/trainer_advanced.h includes it.
 *
 * Example: what an app does when the system asks for memory, on any thread. `trainer` was made with
 * options.least_budget_bytes.
 *
 * @code
 * extern dunlin_trainer *trainer;
 * dunlin_error error = {0};
 * if (dunlin_trainer_set_budget(trainer, 48 << 20, &error) == DUNLIN_BUDGET) {
 *     printf("not below %.0f bytes\n", (double)error.needed_bytes);
 * }
 * @endcode
 */
#ifndef DUNLIN_BUDGET_H
#define DUNLIN_BUDGET_H

#include <dunlin/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_trainer dunlin_trainer; /* trainer.h */

/**
 * Changes the budget from now on, from any thread. In the middle of a step it is obeyed before the
 * next operation on a slice: what the plan for the new budget can use is moved together, the rest
 * goes back to the system, and the step goes on under that plan; the weights do not change by a
 * bit. A larger budget is used again in the same way. BUDGET, at once and with the least that works
 * in out_error->needed_bytes, if it is too low: the old one then stands. UNSUPPORTED without
 * options.least_budget_bytes. More than the budget at creation is taken as that. `out_error` may
 * be NULL; dunlin_trainer_last_error() is not touched.
 *
 * @return OK: it is obeyed, or will be before the next operation; BUDGET, UNSUPPORTED as above.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_budget(dunlin_trainer *trainer,
                                                                    uint64_t budget_bytes,
                                                                    dunlin_error *out_error);
/**
 * Holds training, evaluation and prediction before their next operation, until
 * dunlin_trainer_resume(). From any thread. With `gives_back` everything goes back to the system
 * but weights, statistics, the optimiser's state and the sums of a step in progress (what a
 * checkpoint holds, if there is no such step); the step then recomputes what it needs.
 *
 * @return OK; UNSUPPORTED with gives_back and without options.least_budget_bytes.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_pause(dunlin_trainer *trainer,
                                                               bool gives_back);
/** Nothing happens if it is not paused. */
DUNLIN_API void dunlin_trainer_resume(dunlin_trainer *trainer);

/** How a change of the budget was obeyed. */
typedef enum dunlin_budget_way {
    DUNLIN_WAY_BETWEEN = 0, /* no step was in progress */
    DUNLIN_WAY_STAYED = 1,  /* the step's plan fits the new budget, and is the fastest way on */
    DUNLIN_WAY_MOVED = 2,   /* another plan: what it can use was moved, the rest recomputed */
    DUNLIN_WAY_REMADE = 3   /* another plan: nothing could be moved to it */
} dunlin_budget_way;

/** One change of the budget. Predicted times are by the costs that were planned with. */
typedef struct dunlin_budget_change {
    size_t struct_size;
    int64_t step;        /* in progress, or next */
    double percent;      /* of the step's predicted time that had passed */
    uint64_t from_bytes; /* budgets; 0: none */
    uint64_t to_bytes;
    dunlin_budget_way way;
    uint64_t moved_bytes;
    uint64_t arena_bytes; /* after the change */
    double recompute_ms;  /* predicted: recomputation because of the change */
    double reach_ms;      /* predicted: what a step takes to come as far under the new plan */
    double took_ms; /* measured, on the step's thread: to find the way, to move, to give back */
    double rest_ms; /* measured: from there to the end of the step, or to the next change */
    double left_ms; /* predicted: the same */
    double given_back_ms; /* measured: of took_ms, until the arena had its new size */
} dunlin_budget_change;
#define DUNLIN_BUDGET_CHANGE_INIT DUNLIN_SIZED_INIT(dunlin_budget_change)
/** @return how many changes there were since creation. */
DUNLIN_API int64_t dunlin_trainer_n_budget_changes(const dunlin_trainer *trainer);
/** @return OK with one of the last 256 changes (from 0); ARGUMENT for an index that is none of
 * them, or without a struct that begins with its size. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_budget_change(
    const dunlin_trainer *trainer, int64_t index, dunlin_budget_change *out_change);

#ifdef __cplusplus
}
#endif

#endif
