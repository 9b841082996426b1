/*
 * url.h - which URLs the client may use, and the name of a server.
 */
#ifndef DUNLIN_SDK_URL_H
#define DUNLIN_SDK_URL_H

#include <dunlin/base.h>
#include <wire/protocol.h>

/* https, or http to a loopback address when that is allowed; no user, no query, no fragment.
 * ARGUMENT with a text. */
dunlin_status dunlin__url_check(const char *url, bool allow_plain_loopback, dunlin_error *error);

/* A server: its URL without a slash at the end, and host and port as the Host header has them and
 * requests are signed over, in lower case, the scheme's own port left out. */
typedef struct dunlin__origin {
    char authority[DUNLIN_WIRE_AUTHORITY_CHARS + 1];
    char url[DUNLIN_WIRE_AUTHORITY_CHARS + 9];
} dunlin__origin;

/* The same checks, and that there is no path. */
dunlin_status dunlin__url_origin(const char *url, bool allow_plain_loopback,
                                 dunlin__origin *out_origin, dunlin_error *error);

#endif
