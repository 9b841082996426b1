/*
 * run_calls.c - the public calls that run plans, one at a time.
 */
#include "step/context/guard.h"
#include "train.h"

#include <dunlin/several.h>
#include <mem/sized.h>
#include <mem/support.h>

/* The app's source as ours; its error goes to the trainer. */
static dunlin_status take(const dunlin_trainer *trainer, const dunlin_source *from,
                          dunlin_source *out)
{
    *out = (dunlin_source)DUNLIN_SOURCE_INIT;
    return DUNLIN_STRUCT_TAKE(dunlin_source, from, out, trainer->error);
}

dunlin_status dunlin_trainer_step(dunlin_trainer *trainer, const dunlin_source *source,
                                  const int64_t *indices, int64_t n, dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    dunlin_source taken;
    dunlin_status status = take(trainer, source, &taken);
    if (status == DUNLIN_OK) {
        status = dunlin__train_step(trainer, &taken, indices, n, out_metrics);
    }
    return dunlin__trainer_leave(trainer, status);
}

dunlin_status dunlin_trainer_fit(dunlin_trainer *trainer, const dunlin_source *source,
                                 const dunlin_fit_options *options, dunlin_fit_cursor *cursor,
                                 dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    dunlin_source taken;
    dunlin_status status = take(trainer, source, &taken);
    if (status == DUNLIN_OK) {
        status = dunlin__train_fit(trainer, &taken, options, cursor, out_metrics);
    }
    return dunlin__trainer_leave(trainer, status);
}

dunlin_status dunlin_trainer_evaluate(dunlin_trainer *trainer, const dunlin_source *source,
                                      int64_t first, int64_t n, dunlin_metrics *out_metrics)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    dunlin_source taken;
    dunlin_status status = take(trainer, source, &taken);
    if (status == DUNLIN_OK) {
        status = dunlin__train_evaluate(trainer, &taken, first, n, NULL, NULL, out_metrics);
    }
    return dunlin__trainer_leave(trainer, status);
}

dunlin_status dunlin_trainer_predict(dunlin_trainer *trainer, const dunlin_source *source,
                                     int64_t first, int64_t n, float *out_logits)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    dunlin_source taken;
    dunlin_status status = take(trainer, source, &taken);
    if (status == DUNLIN_OK) {
        status = dunlin__train_predict(trainer, &taken, 0, first, n, out_logits);
    }
    return dunlin__trainer_leave(trainer, status);
}

// NOLINTNEXTLINE(readability-function-size): dunlin_trainer_predict() with the output besides
dunlin_status dunlin_trainer_predict_output(dunlin_trainer *trainer, const dunlin_source *source,
                                            int32_t output, int64_t first, int64_t n,
                                            float *out_values)
{
    DUNLIN_TRY(dunlin__trainer_enter(trainer));
    dunlin_source taken;
    dunlin_status status = take(trainer, source, &taken);
    if (status == DUNLIN_OK) {
        status = dunlin__train_predict(trainer, &taken, output, first, n, out_values);
    }
    return dunlin__trainer_leave(trainer, status);
}
