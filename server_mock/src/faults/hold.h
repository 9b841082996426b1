/*
 * hold.h - connections that are kept waiting, without a thread each.
 *
 * One thread wakes them when their time has come. libmicrohttpd wants every suspended connection
 * resumed before it is stopped: end_all does that, and nothing is held afterwards.
 */
#ifndef DUNLIN_SERVER_HOLD_H
#define DUNLIN_SERVER_HOLD_H

#include <dunlin/alloc.h>

struct MHD_Connection;
typedef struct dunlin__holds dunlin__holds;

DUNLIN_NODISCARD dunlin_status dunlin__holds_start(const dunlin_alloc *alloc,
                                                   dunlin__holds **out_holds, dunlin_error *error);
/* Suspends the connection for so long, or until another request has been answered if that is
 * sooner and `is_until_answer`. False: it goes on at once (the server ends, or no memory). */
bool dunlin__hold(dunlin__holds *holds, struct MHD_Connection *connection, int64_t ms,
                  bool is_until_answer);
/* A request has been answered. */
void dunlin__holds_answered(dunlin__holds *holds);
/* Lets all go, for good. NULL is fine. */
void dunlin__holds_end_all(dunlin__holds *holds);
/* After end_all, when the daemon is gone. NULL is fine. */
void dunlin__holds_free(dunlin__holds *holds);

#endif
