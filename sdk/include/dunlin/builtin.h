/*
 * builtin.h - our trainer as a learner, with a pool of trainers that many clients share.
 *
 * Example: a learner that trains `model` on what a client chooses from a store, within 4 MiB.
 *
 * @code
 * extern const dunlin_model *model;
 * extern dunlin_examples *examples;
 * void take_part(const dunlin_learner *learner); // with dunlin_client_create()
 *
 * dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * dunlin_trainer_pool *pool = NULL;
 * dunlin_examples_feed *feed = NULL;
 * dunlin_builtin *builtin = NULL;
 * dunlin_learner learner;
 * dunlin_source source;
 * dunlin_error error;
 * options.budget_bytes = 4 << 20;
 * if (dunlin_trainer_pool_create(model, &options, 1, &pool, &error) != DUNLIN_OK ||
 *     dunlin_examples_feed_create(examples, NULL, 784, DUNLIN_U8, &feed, &source, &error) !=
 *         DUNLIN_OK ||
 *     dunlin_builtin_create(pool, &source, NULL, &builtin, &learner, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 * } else {
 *     take_part(&learner);
 * }
 * dunlin_builtin_destroy(builtin);
 * dunlin_examples_feed_destroy(feed);
 * dunlin_trainer_pool_destroy(pool);
 * @endcode
 */
#ifndef DUNLIN_BUILTIN_H
#define DUNLIN_BUILTIN_H

#include <dunlin/app_model.h>
#include <dunlin/examples.h>
#include <dunlin/learner.h>
#include <dunlin/predictor.h>
#include <dunlin/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_trainer_pool dunlin_trainer_pool;
typedef struct dunlin_builtin dunlin_builtin;

/** As n_examples of a source: as many as the client chose from its store for the round. */
#define DUNLIN_SOURCE_CHOSEN (-1)

/**
 * A pool of at most n_trainers trainers over one model, made when they are first needed and kept.
 * May be used from several threads. `options->batch` 0 means: the task's batch, each with its own
 * plan; options->budget_bytes holds for each trainer. The model, and what the
 * options point to, must outlive the pool. A training task must have a rate above 0 (ARGUMENT), and
 * SCAFFOLD takes no options->groups (UNSUPPORTED).
 *
 * @return OK; ARGUMENT without a model or options, with n_trainers that are not 1 to 256, or with
 * a gradient hook of the app's own; VERSION if options set what the library does not know; MEMORY.
 * After a failure *out_pool is NULL.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_pool_create(
    const dunlin_model *model, const dunlin_trainer_options *options, int32_t n_trainers,
    dunlin_trainer_pool **out_pool, dunlin_error *out_error);
/** For when all learners over it are gone; else it goes with the last of them. NULL is fine. */
DUNLIN_API void dunlin_trainer_pool_destroy(dunlin_trainer_pool *pool);

/**
 * Changes the budget of each trainer of the pool from now on, also in the middle of a step, and of
 * those made later: for the system's memory and thermal callbacks; from any thread, also while
 * rounds run (dunlin_trainer_set_budget() says how it is obeyed). 0, or more than
 * options->budget_bytes: as at creation. All or none: BUDGET if one of the trainers cannot work in
 * so little, with the least in out_error->needed_bytes; then all keep what they had. A trainer made
 * later that cannot: its load ends with BUDGET. UNSUPPORTED without options->least_budget_bytes.
 *
 * @return OK; BUDGET, UNSUPPORTED as above; ARGUMENT without a pool. After a failure all trainers
 * have the budget that they had.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_pool_set_budget(dunlin_trainer_pool *pool,
                                                                         uint64_t budget_bytes,
                                                                         dunlin_error *out_error);

/** @return the highest peak_bytes of any trainer of the pool so far; 0 before the first. */
DUNLIN_API uint64_t dunlin_trainer_pool_peak_bytes(dunlin_trainer_pool *pool);
/** @return the bytes that the training steps of all learners over the pool have moved through
 * memory so far, as dunlin_trainer_operand_bytes() counts them; 0 without a pool. */
DUNLIN_API uint64_t dunlin_trainer_pool_moved_bytes(dunlin_trainer_pool *pool);

/**
 * A learner over a pool and a supply of examples. Holds a trainer only between load and unload;
 * LOCKED from load while all are in use. `source` is copied. Evaluation is over what the client
 * holds out of its store for that (dunlin_examples_rule), else over the same examples.
 *
 * @return OK; ARGUMENT without a pool, or with a source that has no read_fn or no example; MEMORY.
 * After a failure *out_builtin is NULL and *out_learner as it was.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_builtin_create(
    dunlin_trainer_pool *pool, const dunlin_source *source, const dunlin_alloc *hooks,
    dunlin_builtin **out_builtin, dunlin_learner *out_learner, dunlin_error *out_error);
/** For when the client with it is gone. NULL is fine. */
DUNLIN_API void dunlin_builtin_destroy(dunlin_builtin *builtin);

/**
 * From the next round on evaluates over a data set of its own, which nothing is trained on: in
 * rounds of kind EVALUATE (then at most the task's max_examples, from the first on) and around a
 * training. `evaluation` is copied; it must give the same examples whenever it is asked, so that
 * before and after can be compared with each other. NULL: as it was made. ARGUMENT without a
 * read_fn or examples; STATE while a round is loaded.
 *
 * @return OK; ARGUMENT, STATE as above. After a failure it evaluates as before.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_builtin_set_evaluation(
    dunlin_builtin *builtin, const dunlin_source *evaluation, dunlin_error *out_error);

/**
 * Predictions with the newest federated model (dunlin/app_model.h): a predictor over `network`,
 * which is the model that the pool was made of or another of the same parameters, with the
 * federated weights, the device's own tensors among them. Takes what a predictor takes
 * (dunlin/predictor.h): no trainer is needed, and none of the pool is used. Any thread, also while
 * a round runs. `options` may be NULL. Neither `model` nor `network` is needed afterwards.
 *
 * @return OK; MISMATCH if network and federated model have not the same tensors (the text names
 * one); IO of the storage; NUMERIC; and as dunlin_predictor_create(). After a failure
 * *out_predictor is NULL.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_app_model_create_predictor(const dunlin_app_model *model, const dunlin_model *network,
                                  const dunlin_predictor_options *options,
                                  dunlin_predictor **out_predictor, dunlin_error *out_error);

/**
 * The same into a predictor over `network` that there is, as when a newer model has come: nothing
 * is planned or allocated.
 *
 * @return OK; MISMATCH, as above, with the predictor as it was; IO, NUMERIC: its weights are then a
 * mixture, and it is to be filled again; STATE while another call works on the predictor; ARGUMENT.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_app_model_fill_predictor(const dunlin_app_model *model, const dunlin_model *network,
                                dunlin_predictor *predictor, dunlin_error *out_error);

/**
 * The newest federated model in a trainer over `network` that no round uses: to evaluate it, to go
 * on from it, or to write it as a QDQ model, for programs that predict in int8. A trainer of
 * integers (options.precision "niti") rounds each parameter to the nearest multiples of the scale
 * that its largest value needs, as every set of weights from outside; then
 * dunlin_trainer_evaluate() over some of the device's own examples finds the scales of values
 * without changing a weight, and dunlin_trainer_export_qdq() writes the file. The optimiser's state
 * stays: dunlin_trainer_reset_optimizer() begins anew.
 *
 * @return OK; MISMATCH as above, with the trainer as it was; IO, NUMERIC: its weights are then a
 * mixture, and it is to be filled again; STATE while a step runs; ARGUMENT.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_app_model_fill_trainer(const dunlin_app_model *model, const dunlin_model *network,
                              dunlin_trainer *trainer, dunlin_error *out_error);

/**
 * The newest federated model as an ONNX file, as dunlin_trainer_export_onnx() writes a trainer's:
 * whole or not at all. The weights are streamed from the storage.
 *
 * @return OK; MISMATCH as above; IO, SPACE, NUMERIC, LIMIT (2 GiB), MEMORY, ARGUMENT. A file that
 * was there stays as it was then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_app_model_export_onnx(const dunlin_app_model *model, const dunlin_model *network,
                             const char *path, dunlin_error *out_error);

typedef struct dunlin_examples_feed dunlin_examples_feed;

/** dunlin_examples_feed_create() without the source, which dunlin_examples_feed_fill_source()
 * gives.
 *
 * @return as that. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_examples_feed_open(
    dunlin_examples *examples, const char *client, size_t example_bytes, dunlin_dtype dtype,
    dunlin_examples_feed **out_feed, dunlin_error *out_error);

/** The feed's source into a struct of so many bytes: those that the app's header knows. */
DUNLIN_API void dunlin_examples_feed_fill_source(dunlin_examples_feed *feed,
                                                 dunlin_source *out_source, size_t source_bytes);

/**
 * A source of the examples that the client named `client` (NULL: "default") chose from the store
 * for its round: `example_bytes` each, of `dtype`; one of another size ends the round with DATA.
 * Reads one at a time, so it holds no more than that. *out_source may be changed (scale, mean)
 * before it goes to dunlin_builtin_create(); it is valid as long as the feed, for which the store
 * stays open. One feed a client.
 *
 * @return OK; ARGUMENT without a store or a place, or with example_bytes that are not 1 to
 * DUNLIN_EXAMPLE_MAX_BYTES; MEMORY. After a failure *out_feed is NULL and *out_source as it was.
 */
DUNLIN_NODISCARD static inline dunlin_status
dunlin_examples_feed_create(dunlin_examples *examples, const char *client, size_t example_bytes,
                            dunlin_dtype dtype, dunlin_examples_feed **out_feed,
                            dunlin_source *out_source, dunlin_error *out_error)
{
    const dunlin_status status =
        dunlin_examples_feed_open(examples, client, example_bytes, dtype, out_feed, out_error);
    if (status == DUNLIN_OK) {
        dunlin_examples_feed_fill_source(*out_feed, out_source, sizeof *out_source);
    }
    return status;
}
/** NULL is fine. */
DUNLIN_API void dunlin_examples_feed_destroy(dunlin_examples_feed *feed);

#ifdef __cplusplus
}
#endif

#endif
