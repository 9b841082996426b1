/*
 * transport.h - the built-in transport, and which addresses may be talked to.
 */
#ifndef DUNLIN_SDK_TRANSPORT_H
#define DUNLIN_SDK_TRANSPORT_H

#include <dunlin/transport.h>

/* libcurl over one multi handle. TLS when the CA file cannot be read. */
dunlin_status dunlin__transport_curl_create(const dunlin_runtime_options *options,
                                            const dunlin_alloc *alloc,
                                            dunlin_transport **out_transport, dunlin_error *error);

/* https, or http to a loopback address when that is allowed; no user, no query, no fragment.
 * ARGUMENT with a text. */
dunlin_status dunlin__url_check(const char *url, bool allow_plain_loopback, dunlin_error *error);

#endif
