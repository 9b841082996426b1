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

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dunlin_storage {
    DUNLIN_STORAGE_EXACT = 0, /* float32 */
    /*
     * bfloat16, to nearest, ties to even: what convolutions and dense layers write, sums of two
     * values, and gradients that wait for the sums of batch norm; not the network's output.
     * UNSUPPORTED with concatenations, a batch norm that shares what it reads (pre-activation),
     * no_fuse, policies NONE, VDNN and CAPUCHIN, ghost_statistics and `precision`.
     */
    DUNLIN_STORAGE_BF16 = 1,
    DUNLIN_STORAGE_INT8 = 2 /* UNSUPPORTED: not there yet */
} dunlin_storage;

#ifdef __cplusplus
}
#endif

#endif
