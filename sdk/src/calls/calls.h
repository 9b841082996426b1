/*
 * calls.h - the envelope of every call of the protocol.
 */
#ifndef DUNLIN_SDK_CALLS_H
#define DUNLIN_SDK_CALLS_H

#include "context/client_context.h"

/*
 * Signs and sends a POST with the journal's idempotency key; a 503 is tried again, a stale
 * challenge signed anew. The reply's body goes to `out_reply` (capacity DUNLIN_WIRE_BODY_BYTES).
 */
dunlin_status dunlin__call_post(dunlin_client *client, const dunlin__route *route,
                                const uint8_t *body, size_t n_bytes, uint8_t *out_reply,
                                size_t *out_reply_bytes, dunlin__fault *out_fault);

/* A reply that is not 2xx: the server's typed status into our status, detail and fault. */
dunlin_status dunlin__call_refused(dunlin_client *client, const dunlin_http_reply *reply,
                                   dunlin__status *out_status, dunlin__fault *out_fault);

#endif
