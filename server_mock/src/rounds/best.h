/*
 * best.h - which model is the best so far, and whether that ends the run.
 *
 * Models are judged by the test set; without one by what devices said of a base on their own
 * examples, in a round that only evaluates or before their training. The higher accuracy wins, then
 * the lower loss, then the earlier round. A model that was taken back is never the best. All calls
 * are made under the server's lock.
 */
#ifndef DUNLIN_SERVER_BEST_H
#define DUNLIN_SERVER_BEST_H

#include "state/context.h"

/* True if the best model is kept: the task wants it, and there is something to judge by. */
bool dunlin__best_is_kept(const dunlin__server *server);

/* The best of all closed rounds; with `has_files` of those whose weights are still there. Round 0:
 * there is none. */
dunlin__best_model dunlin__best_find(const dunlin__server *server, bool has_files);

/* True if a round's model is evaluated before the next round opens. */
bool dunlin__best_is_awaited(const dunlin__server_task *task);

/* Whether the run is over, by the rows of the closed rounds and the task; tells it once. */
void dunlin__best_settle(dunlin__server *server);

/* "rounds", "target_accuracy", "patience"; NULL while the run goes on. */
const char *dunlin__stop_name(dunlin__stop_reason reason);

#endif
