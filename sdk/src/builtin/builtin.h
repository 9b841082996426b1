/*
 * builtin.h - the internal parts of our trainer as a learner.
 */
#ifndef DUNLIN_SDK_BUILTIN_H
#define DUNLIN_SDK_BUILTIN_H

#include "builtin_pool.h"

#include <dunlin/pipeline.h>
#include <mem/support.h>

#include <stdatomic.h>

struct dunlin_builtin {
    dunlin_alloc alloc;
    dunlin_trainer_pool *pool;
    dunlin_source source;
    dunlin__pool_slot *slot; /* NULL when not loaded */
    dunlin_fit_cursor cursor;
    int32_t epochs;
    dunlin_remainder remainder;
    dunlin_pipeline *pipeline; /* of this load, if its images are changed at random; else NULL */
    dunlin_source trained;     /* what fit reads: the source, or the pipeline over it */
    int64_t max_steps;         /* 0: no limit */
    uint64_t seed;
    uint64_t round;    /* the task's, as the seed */
    int64_t n_counted; /* examples of fit so far, over all epochs, whose label counts */
    double weight_sum; /* theirs */
    double loss_sum;
    double right_sum;
    int64_t n_steps;
    bool has_failed; /* the training of this load, other than by a stop */
    struct {
        int64_t n_seen;
        int64_t n_counted;
        double weight_sum;
        double loss_sum;
        double right_sum;
    } evaluation; /* the current one */
    dunlin_weights_tensor
        *tensors;           /* what save hands out: base's, LOCAL ones too; names are base's */
    int64_t *first_weights; /* where each begins in the trainer's flat order */
    int32_t n_tensors;
    int32_t tensors_capacity;
    int64_t n_available;          /* the source's examples; a task may ask for fewer */
    dunlin_source own_evaluation; /* the app's data set to evaluate on; read_fn NULL: none */
    dunlin_source evaluated;      /* what evaluate reads in this round, from evaluated_first on */
    int64_t evaluated_first;
    bool is_chosen; /* the client chooses them anew for each task */
    atomic_bool is_stopped;
    dunlin_error error;
};

/* --- builtin_plan.c --- */

/* What the task's trainer has to be: ARGUMENT without a rate, LIMIT, UNSUPPORTED. */
DUNLIN_NODISCARD dunlin_status dunlin__builtin_take_plan(dunlin_builtin *builtin,
                                                         const dunlin_task *task,
                                                         dunlin__pool_slot *out_wanted);
/* Once the slot has its trainer: sets rate, schedule, and the source to train on. */
DUNLIN_NODISCARD dunlin_status dunlin__builtin_begin_plan(dunlin_builtin *builtin,
                                                          const dunlin_task *task);

/* Steps that the task orders, of this round on this device. */
int64_t dunlin__builtin_round_steps(const dunlin_builtin *builtin);

/* --- builtin_weights.c --- */

/* Every tensor of base into the trainer; every parameter of the model must be in base, once. */
DUNLIN_NODISCARD dunlin_status dunlin__builtin_load_weights(dunlin_builtin *builtin,
                                                            const dunlin_weights_reader *base);
/* The correction gets into the hook's buffer by way of the weights, in the trainer's own layout. */
DUNLIN_NODISCARD dunlin_status
dunlin__builtin_load_correction(dunlin_builtin *builtin, const dunlin_weights_reader *base,
                                const dunlin_weights_reader *correction);
/* The learner's save: a reader over the trainer's weights. */
dunlin_status dunlin__builtin_save(void *self, dunlin_weights_reader *out);
void dunlin__builtin_free_tensors(dunlin_builtin *builtin);
/* A status of the trainer's with its own detail, since its text names the thing. */
dunlin_status dunlin__builtin_pass_error(dunlin_builtin *builtin, dunlin_status status);

#endif
