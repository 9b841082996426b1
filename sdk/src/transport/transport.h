/*
 * transport.h - the built-in transport.
 */
#ifndef DUNLIN_SDK_TRANSPORT_H
#define DUNLIN_SDK_TRANSPORT_H

#include <dunlin/transport.h>

/* libcurl over one multi handle. TLS when the CA file cannot be read. */
dunlin_status dunlin__transport_curl_create(const dunlin_runtime_options *options,
                                            const dunlin_alloc *alloc,
                                            dunlin_transport **out_transport, dunlin_error *error);

#endif
