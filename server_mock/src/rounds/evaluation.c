/*
 * evaluation.c - evaluates the model of a round.
 */
#include "evaluation.h"

#include "base/files.h"
#include "model/evaluate.h"
#include "state/context.h"

#include <mem/support.h>

#define EVALUATION_TRIES 3u

dunlin_status dunlin__server_evaluate(dunlin__server *server, uint64_t file, double *out_accuracy,
                                      double *out_loss, dunlin_error *out_failure,
                                      dunlin_error *error)
{
    dunlin__server_path path;
    DUNLIN_TRY(dunlin__server_weights_path(server, file, &path, error));
    (void)pthread_mutex_unlock(&server->lock);
    dunlin_status status =
        dunlin__evaluator_run(server->evaluator, path.text, out_accuracy, out_loss, error);
    (void)pthread_mutex_lock(&server->lock);
    server->tries.n = server->tries.file == file ? server->tries.n : 0;
    server->tries.file = file;
    if (status == DUNLIN_OK || server->is_stopping) {
        return status;
    }
    server->tries.n++;
    if (status != DUNLIN_NUMERIC && server->tries.n < EVALUATION_TRIES) {
        return status;
    }
    *out_failure = *error;
    dunlin__error_clear(error);
    return DUNLIN_OK;
}
