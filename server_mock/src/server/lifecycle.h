/*
 * lifecycle.h - a server opened on its state, started, closed.
 */
#ifndef DUNLIN_SERVER_LIFECYCLE_H
#define DUNLIN_SERVER_LIFECYCLE_H

#include "state/context.h"

/* Opens or makes the state and takes up where it was left. `options` and `task` are copied, the
 * task's tensors are taken over. Fields for tests (now_ms_fn) are set before. */
DUNLIN_NODISCARD dunlin_status dunlin__server_open(dunlin__server *server,
                                                   const dunlin_server_options *options,
                                                   dunlin__server_task *task, const dunlin_log *log,
                                                   dunlin_error *error);
/* What the options say of the certificate. */
dunlin__server_certs_wish dunlin__server_wish(const dunlin_server_options *options);
/* Reads the file of tokens again; what was there stays if it is wrong. */
DUNLIN_NODISCARD dunlin_status dunlin__server_read_tokens(dunlin__server *server,
                                                          dunlin_error *error);
/* Starts the thread that closes rounds. */
DUNLIN_NODISCARD dunlin_status dunlin__server_start(dunlin__server *server, dunlin_error *error);
/* Stops the thread, closes the state. */
void dunlin__server_close(dunlin__server *server);

#endif
