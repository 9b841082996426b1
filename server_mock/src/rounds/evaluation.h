/*
 * evaluation.h - evaluates the model of a round. Locked; the lock is given back meanwhile.
 */
#ifndef DUNLIN_SERVER_EVALUATION_H
#define DUNLIN_SERVER_EVALUATION_H

#include "state/context.h"

/* Evaluates the model of a file. A failure that will not go away by itself (NUMERIC, or one that
 * has come three times) is an outcome: it goes to `out_failure`, and the call is OK. */
DUNLIN_NODISCARD dunlin_status dunlin__server_evaluate(dunlin__server *server, uint64_t file,
                                                       double *out_accuracy, double *out_loss,
                                                       dunlin_error *out_failure,
                                                       dunlin_error *error);

#endif
