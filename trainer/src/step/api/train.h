/*
 * train.h - steps, fits, evaluations, predictions.
 */
#ifndef DUNLIN_STEP_TRAIN_H
#define DUNLIN_STEP_TRAIN_H

#include "step/context/context.h"

#include <dunlin/pixels.h>

/* The public calls of these names, within enter and leave; an evaluation adds to what `counts`
 * points to, unless that is NULL. */
DUNLIN_NODISCARD dunlin_status dunlin__train_step(dunlin_trainer *trainer,
                                                  const dunlin_source *source,
                                                  const int64_t *indices, int64_t n,
                                                  dunlin_metrics *out_metrics);
DUNLIN_NODISCARD dunlin_status dunlin__train_fit(dunlin_trainer *trainer,
                                                 const dunlin_source *source,
                                                 const dunlin_fit_options *options,
                                                 dunlin_fit_cursor *cursor,
                                                 dunlin_metrics *out_metrics);
DUNLIN_NODISCARD dunlin_status dunlin__train_evaluate(dunlin_trainer *trainer,
                                                      const dunlin_source *source, int64_t first,
                                                      int64_t n, const dunlin_answer_counts *counts,
                                                      float *rank_room,
                                                      dunlin_metrics *out_metrics);
DUNLIN_NODISCARD dunlin_status dunlin__train_predict(dunlin_trainer *trainer,
                                                     const dunlin_source *source, int32_t output,
                                                     int64_t first, int64_t n, float *out_logits);

#endif
