/*
 * storage.h - in how many bits a step stores what it keeps.
 *
 * Which values are rounded follows from the network alone, and everybody reads the rounded ones,
 * the forward pass of an evaluation too. So under one storage the weights are the same to the bit
 * for every budget, slice and number of threads (per instruction set). A predictor of a model
 * (dunlin/predictor.h) computes in float32.
 *
 * Example: how much less a step takes.
 *
 * @code
 * #include <dunlin/trainer_advanced.h>
 *
 * extern const dunlin_model *model;
 * dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
 * dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
 * options.storage = DUNLIN_STORAGE_BF16;
 * if (dunlin_trainer_estimate(model, &options, &report, NULL) == DUNLIN_OK) {
 *     printf("%.1f MiB\n", (double)report.planned_bytes / 1048576.0);
 * }
 * @endcode
 */
#ifndef DUNLIN_STORAGE_H
#define DUNLIN_STORAGE_H

#include <dunlin/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dunlin_storage {
    DUNLIN_STORAGE_EXACT = 0, /* float32 */
    /*
     * bfloat16, to nearest, ties to even: what convolutions and dense layers write, sums of two
     * values, and gradients that wait for the sums of batch norm; not the network's output.
     * A concatenation is read where its inputs are stored, each as it is. UNSUPPORTED with no_fuse,
     * policies NONE, VDNN and CAPUCHIN, ghost_statistics and `precision`.
     */
    DUNLIN_STORAGE_BF16 = 1,
    /*
     * The same in int8, but the gradients, which are bfloat16: a pixel's (a token's, an example's)
     * numbers have a scale, itself a bfloat16, for each 32 of their channels. A step rounds at
     * random, so that what is stored has the true value as its mean, by draws of (seed, step,
     * layer, place in the batch) that no budget changes; evaluations and predictions round to
     * nearest. Numbers beyond 3.4026e38 become infinite or none. UNSUPPORTED where BF16 is.
     */
    DUNLIN_STORAGE_INT8 = 2
} dunlin_storage;

/** @return "exact", "bf16" or "int8"; "unknown" for another number. */
DUNLIN_API const char *dunlin_storage_name(dunlin_storage storage);

#ifdef __cplusplus
}
#endif

#endif
