/*
 * weights.h - one number that tells equal weights from others.
 */
#ifndef SAMPLES_COMMON_WEIGHTS_H
#define SAMPLES_COMMON_WEIGHTS_H

#include <dunlin/trainer.h>

/* FNV-1a over all weights: equal runs are found by comparing one number. */
dunlin_status weights_hash(const dunlin_trainer *trainer, uint64_t *out_hash);

#endif
