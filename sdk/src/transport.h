/*
 * transport.h - moves one HTTP exchange: bodies from memory or a file, with an offset; replies to
 * memory or a file.
 *
 * A transport is shared by all clients of a runtime and may be used from several threads at once;
 * each call blocks its own thread until the exchange has ended. It knows HTTP and TLS, nothing of
 * the protocol above.
 */
#ifndef DUNLIN_SDK_TRANSPORT_H
#define DUNLIN_SDK_TRANSPORT_H

#include <dunlin/client.h>

#define DUNLIN_HTTP_MAX_HEADERS 12

typedef struct dunlin_http_request {
    const char *method; /* GET, HEAD, POST, PUT */
    const char *url;
    const char *headers[DUNLIN_HTTP_MAX_HEADERS]; /* "Name: value" */
    int32_t n_headers;

    /* The body: from memory, or body_bytes of a file from body_offset on when body_fd >= 0. */
    const void *body;
    uint64_t body_bytes;
    int body_fd;
    uint64_t body_offset;

    /* Where a 2xx body goes: memory, or a file from reply_offset on when reply_fd >= 0. Longer than
     * the limit: LIMIT. */
    void *reply;
    uint64_t reply_limit_bytes;
    int reply_fd;
    uint64_t reply_offset;

    int64_t timeout_ms; /* for the whole exchange; 0: only the limit on standing still */
    /* Asked about every 50 ms on the calling thread; true ends the exchange with STOPPED. May be
     * NULL. */
    bool (*should_stop_fn)(void *ctx);
    void *stop_ctx;
} dunlin_http_request;

/* Starts a request with nothing in it: no body, no place for a reply. */
#define DUNLIN_HTTP_REQUEST_INIT                                                                   \
    {                                                                                              \
        .body_fd = -1, .reply_fd = -1                                                              \
    }

typedef struct dunlin_http_reply {
    int32_t status;
    uint64_t body_bytes;     /* written to reply or reply_fd; of an error's body: to error_body */
    uint64_t sent_bytes;     /* body bytes that went out */
    uint64_t received_bytes; /* body bytes that came in, kept or not */
    int64_t retry_after_ms;  /* Retry-After, -1: none */
    int64_t upload_offset;   /* Upload-Offset, -1: none */
    int64_t range_first;     /* Content-Range of a reply, -1: none */
    int64_t range_total;
    uint8_t error_body[2048]; /* of a reply that is not 2xx, cut */
    uint64_t error_bytes;
} dunlin_http_reply;

typedef struct dunlin_transport dunlin_transport;

typedef struct dunlin_transport_ops {
    /*
     * OK whenever a reply arrived whole, whatever its status. UNREACHABLE, TIMEOUT, CLOSED, TLS,
     * LIMIT, PROTOCOL (a redirect, a content encoding, not HTTP), STOPPED, IO or SPACE (the file).
     */
    dunlin_status (*perform_fn)(dunlin_transport *transport, const dunlin_http_request *request,
                                dunlin_http_reply *out_reply, dunlin_error *error);
    void (*get_stats_fn)(dunlin_transport *transport, dunlin_runtime_stats *out_stats);
    void (*destroy_fn)(dunlin_transport *transport);
} dunlin_transport_ops;

struct dunlin_transport {
    const dunlin_transport_ops *ops;
};

/* libcurl over one multi handle. TLS when the CA file cannot be read. */
dunlin_status dunlin__transport_curl_create(const dunlin_runtime_options *options,
                                            const dunlin_alloc *alloc,
                                            dunlin_transport **out_transport, dunlin_error *error);

/* https, or http to a loopback address when that is allowed; no user, no query, no fragment.
 * ARGUMENT with a text. */
dunlin_status dunlin__url_check(const char *url, bool allow_plain_loopback, dunlin_error *error);

#endif
