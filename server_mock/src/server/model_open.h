/*
 * model_open.h - the model of a server's task, and what judges it.
 */
#ifndef DUNLIN_SERVER_MODEL_OPEN_H
#define DUNLIN_SERVER_MODEL_OPEN_H

#include "state/context.h"

/* Opens the evaluator with the model and the test set, fills in the layout, and refuses what does
 * not go with them: DATA, UNSUPPORTED, MODEL, LIMIT, MEMORY, and as the files have it. The server
 * has its options, task, log and alloc; nothing else is looked at. */
DUNLIN_NODISCARD dunlin_status dunlin__model_open(dunlin__server *server, dunlin_error *error);

#endif
