/*
 * costs.h - what the operations of a training step cost on this device: measured once, kept in a
 * file, given to trainers by `dunlin_trainer_options.costs`.
 *
 * The fastest plan within a budget is the fastest by these costs. Without them a model of a device
 * with constants fixed for each instruction set is used (a roofline): the same plan everywhere.
 *
 * Example: measured once, then given to a trainer.
 *
 * @code
 * extern const dunlin_model *model;
 * dunlin_error error = {0};
 * dunlin_costs *costs = NULL;
 * dunlin_trainer *trainer = NULL;
 * dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * options.budget_bytes = 64 << 20;
 * if (dunlin_costs_measure(model, &options, &costs, &error) == DUNLIN_OK) {
 *     options.costs = costs;
 *     if (dunlin_trainer_create(model, &options, &trainer, &error) != DUNLIN_OK) {
 *         printf("%s\n", error.text);
 *     }
 * }
 * dunlin_trainer_destroy(trainer);
 * dunlin_costs_free(costs);
 * @endcode
 */
#ifndef DUNLIN_COSTS_H
#define DUNLIN_COSTS_H

#include <dunlin/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Measures: a trainer of its own, of this model and with these options, takes steps on random
 * examples at two small batches that fit `budget_bytes` (of a ready trainer nothing is touched).
 * `batch`, `micro_batch`, `policy`, `seed` and the callbacks do not matter; whatever changes the
 * step does: model, optimiser, loss, clipping, frozen parameters, slots, fusing, instruction set,
 * threads. What a source takes to read examples is not known here, nor what a gradient hook does.
 * Takes some seconds for a large network. The results differ a little from call to call.
 *
 * @return OK; as dunlin_trainer_create(), plus NUMERIC if the network's loss on random inputs is
 * not finite. *out_costs is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_costs_measure(const dunlin_model *model, const dunlin_trainer_options *options,
                     dunlin_costs **out_costs, dunlin_error *out_error);

/** As text, one line an operation, with a checksum; written beside `path` and renamed.
 *
 * @return OK; IO, SPACE, MEMORY, ARGUMENT: a file that was there stays as it was. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_costs_save(const dunlin_costs *costs,
                                                            const char *path,
                                                            dunlin_error *out_error);

/** Reads a file that dunlin_costs_save() wrote; an error names file and line.
 * `hooks` may be NULL.
 *
 * @return OK; IO, DATA, VERSION, DIGEST, LIMIT, MEMORY. *out_costs is NULL then. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_costs_load(const char *path,
                                                            const dunlin_alloc *hooks,
                                                            dunlin_costs **out_costs,
                                                            dunlin_error *out_error);

/** NULL is fine. */
DUNLIN_API void dunlin_costs_free(dunlin_costs *costs);

#ifdef __cplusplus
}
#endif

#endif
