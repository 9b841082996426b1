/*
 * trainer_experimental.h - what experiments with the trainer use and an app has no need of. Calls
 * of this header may change between minor versions.
 *
 * Of the options these belong here: `policy` (policy.h; published ones with baselines.h),
 * `micro_batch`, `no_fuse`, `ghost_statistics`, `swap_dir` with its two rates, `baselines`.
 *
 * Example: what a naive executor would need for the batch that AUTO trains in 64 MiB.
 *
 * @code
 * dunlin_error error = {0};
 * dunlin_model *model = NULL;
 * dunlin_trainer_report naive = DUNLIN_TRAINER_REPORT_INIT;
 * dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * options.policy = DUNLIN_POLICY_NONE;
 * options.batch = 64;
 * if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) == DUNLIN_OK &&
 *     dunlin_trainer_estimate(model, &options, &naive, &error) == DUNLIN_OK) {
 *     printf("%.1f MiB\n", (double)naive.planned_bytes / 1048576.0);
 * }
 * dunlin_model_destroy(model);
 * @endcode
 */
#ifndef DUNLIN_TRAINER_EXPERIMENTAL_H
#define DUNLIN_TRAINER_EXPERIMENTAL_H

#include <dunlin/trainer_advanced.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * dunlin_trainer_set_budget() once `percent` (0 to 100) of the predicted time of step `step` (as
 * dunlin_trainer_n_steps() counts) has passed: for experiments that can be repeated. On the
 * trainer's thread.
 *
 * @return OK; LIMIT when 256 of them wait; ARGUMENT; UNSUPPORTED without
 * options.least_budget_bytes; STATE.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_set_budget_at(dunlin_trainer *trainer,
                                                                       int64_t step, double percent,
                                                                       uint64_t budget_bytes);

/**
 * Measures what a swap file in a folder (NULL: as options.swap_dir) takes and gives, in 10^6
 * bytes/s: 32 MiB, as a step would write and read them.
 *
 * @return OK; what dunlin_trainer_create() says of swap_dir.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_swap_measure(const char *folder,
                                                              double *out_write_mb_per_s,
                                                              double *out_read_mb_per_s,
                                                              dunlin_error *out_error);

/** A piece of text, of any length. */
typedef void (*dunlin_text_fn)(void *ctx, const char *text);
/** The plan as text lines. */
DUNLIN_API void dunlin_trainer_dump_plan(const dunlin_trainer *trainer, dunlin_text_fn text_fn,
                                         void *ctx);

#ifdef __cplusplus
}
#endif

#endif
