/*
 * run_calls.c - the public calls that run plans, one at a time.
 */
#include "step/context/guard.h"
#include "train.h"

#include <mem/support.h>

dunlin_status dunlin_trainer_step(dunlin_trainer *trainer, const dunlin_source *source,
                                  const int64_t *indices, int64_t n, dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer,
                                 dunlin__train_step(trainer, source, indices, n, out_metrics));
}

dunlin_status dunlin_trainer_fit(dunlin_trainer *trainer, const dunlin_source *source,
                                 const dunlin_fit_options *options, dunlin_fit_cursor *cursor,
                                 dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer,
                                 dunlin__train_fit(trainer, source, options, cursor, out_metrics));
}

dunlin_status dunlin_trainer_evaluate(dunlin_trainer *trainer, const dunlin_source *source,
                                      int64_t first, int64_t n, dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer,
                                 dunlin__train_evaluate(trainer, source, first, n, out_metrics));
}

dunlin_status dunlin_trainer_predict(dunlin_trainer *trainer, const dunlin_source *source,
                                     int64_t first, int64_t n, float *out_logits)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    return dunlin__trainer_leave(trainer,
                                 dunlin__train_predict(trainer, source, first, n, out_logits));
}
