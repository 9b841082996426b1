/*
 * kept.h - which files of models stay: those that can be fetched, the newest good one, every n-th,
 * the best; and the files that the best model has of its own. Under the server's lock.
 */
#ifndef DUNLIN_SERVER_KEPT_H
#define DUNLIN_SERVER_KEPT_H

#include "state/context.h"

/* Removes the files of models that nobody needs. */
void dunlin__kept_sweep(const dunlin__server *server);

/* After a start: what models/best.json says is the best, if it and the weights are whole and of
 * this run; else the best is kept anew. */
void dunlin__kept_load_best(dunlin__server *server);

/* Brings models/best.weights, best.onnx and, last, best.json up to the best model; nothing where
 * they are. The lock is given back while files are written. */
DUNLIN_NODISCARD dunlin_status dunlin__kept_save_best(dunlin__server *server, dunlin_error *error);

/* At the end of the run: model.onnx of the last model, model_best.onnx of the best. What cannot be
 * an ONNX file is told, and is no failure. The lock is given back meanwhile. */
DUNLIN_NODISCARD dunlin_status dunlin__kept_export(dunlin__server *server, dunlin_error *error);

#endif
