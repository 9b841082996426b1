/*
 * http_views.h - what people and monitors ask for: the page /, /v1/status, /metrics.
 *
 * The figures are told as http_peer.h says. The page itself holds none; it is given to whoever may
 * see the status and, where there is a status token, to everybody: it asks for the token and sends
 * it as /v1/status takes it, in the header Authorization.
 */
#ifndef DUNLIN_SERVER_HTTP_VIEWS_H
#define DUNLIN_SERVER_HTTP_VIEWS_H

#include "exchange.h"

/* Makes the page's Content-Security-Policy: its one script and its one style, by their hashes. */
DUNLIN_NODISCARD dunlin_status dunlin__http_views_open(dunlin__http *http, dunlin_error *error);

/* DUNLIN_WATCH_PAGE, _STATUS or _METRICS; 0: the request is for none of them. */
unsigned dunlin__http_view_of(const char *method, const char *path);
/* False: it is not for this client, refused. */
bool dunlin__http_view_begin(dunlin__exchange *now, struct MHD_Connection *connection);
/* Answers a request for a view. */
enum MHD_Result dunlin__http_view_send(dunlin__exchange *now, struct MHD_Connection *connection);

#endif
