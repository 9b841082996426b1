/*
 * http_daemon.h - the server's sockets: HTTP/1.1 over TLS in front of dunlin__server_handle().
 */
#ifndef DUNLIN_SERVER_HTTP_DAEMON_H
#define DUNLIN_SERVER_HTTP_DAEMON_H

#include "state/context.h"

typedef struct dunlin__http dunlin__http;

/* Listens as the options say. `server` must stay until stop. IO names address and port; TLS a bad
 * --mtls file. */
DUNLIN_NODISCARD dunlin_status dunlin__http_start(dunlin__server *server, dunlin__http **out_http,
                                                  uint16_t *out_port, dunlin_error *error);
/* Reads or makes the certificate again, and serves new connections with it if it is another; open
 * ones keep theirs. To be called by one thread, at most every minute or so: an earlier
 * certificate's connections end with the next call. After an error of start (IO) nothing listens
 * any more. */
DUNLIN_NODISCARD dunlin_status dunlin__http_renew(dunlin__http *http, bool *out_is_new,
                                                  dunlin_error *error);
/* Ends all connections. NULL is fine. */
void dunlin__http_stop(dunlin__http *http);

#endif
