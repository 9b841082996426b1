/*
 * batches.h - how a fit cuts the examples of an epoch into steps.
 */
#ifndef DUNLIN_STEP_BATCHES_H
#define DUNLIN_STEP_BATCHES_H

#include <dunlin/trainer.h>

typedef struct dunlin_batches {
    int64_t n_epoch; /* examples of an epoch that are trained on; at least 1 */
    int64_t batch;   /* of each step but the last */
    int64_t epochs;
    int64_t max_steps; /* 0: no limit */
    bool is_joining;
} dunlin_batches;

/* Reads and checks the options (NULL: the defaults) of a fit over n_examples by a trainer of
 * trainer_batch: ARGUMENT. */
DUNLIN_NODISCARD dunlin_status dunlin__batches_init(int64_t n_examples, int64_t trainer_batch,
                                                    const dunlin_fit_options *from,
                                                    dunlin_fit_options *out_options,
                                                    dunlin_batches *out, dunlin_error *error);

/* Examples of the step that begins at a position of the epoch. */
int64_t dunlin__batches_size(const dunlin_batches *batches, int64_t position);

/* Moves the cursor over the n examples of a step; false when the fit ends there. */
bool dunlin__batches_advance(const dunlin_batches *batches, dunlin_fit_cursor *cursor, int64_t n);

/* How many examples a call will see if nothing stops it; the most a number holds, if more. */
int64_t dunlin__batches_total(const dunlin_batches *batches, const dunlin_fit_cursor *cursor);

#endif
