/*
 * transport.h - moves one HTTP exchange: bodies from memory or a file, with an offset; replies to
 * memory or a file. libcurl's is built in; an app may put its own in its place (URLSession,
 * Cronet) through dunlin_runtime_options.transport.
 *
 * A transport is shared by all clients of a runtime and may be used from several threads at once;
 * each call blocks its own thread until the exchange has ended. It knows HTTP and TLS, nothing of
 * the protocol above. What it must do itself, since nobody above can: verify the server's
 * certificate and pins, follow no redirect, ask for no content encoding, write nothing beyond the
 * limit.
 *
 * Example: a runtime over a transport of the app's own.
 *
 * @code
 * dunlin_status perform(dunlin_transport *transport, const dunlin_http_request *request,
 *                       dunlin_http_reply *out_reply, dunlin_error *error);
 * void get_stats(dunlin_transport *transport, dunlin_runtime_stats *out_stats);
 * void destroy(dunlin_transport *transport);
 *
 * static struct {
 *     dunlin_transport base; // the head: what is given to the calls
 *     void *session;
 * } mine;
 * static dunlin_transport_ops ops = DUNLIN_TRANSPORT_OPS_INIT;
 * dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
 * dunlin_runtime *runtime = NULL;
 * dunlin_error error;
 * ops.perform_fn = perform;
 * ops.get_stats_fn = get_stats;
 * ops.destroy_fn = destroy;
 * mine.base.ops = &ops;
 * options.store_folder = "federation";
 * options.transport = &mine.base;
 * if (dunlin_runtime_create(&options, &runtime, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text); // and the transport is still the app's
 * }
 * dunlin_runtime_destroy(runtime);
 * @endcode
 */
#ifndef DUNLIN_TRANSPORT_H
#define DUNLIN_TRANSPORT_H

#include <dunlin/client.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DUNLIN_HTTP_MAX_HEADERS 12

/** One exchange. The library makes it and sets struct_size; a transport reads what it knows. */
typedef struct dunlin_http_request {
    size_t struct_size;
    const char *method; /* GET, HEAD, POST, PUT */
    const char *url;
    const char *headers[DUNLIN_HTTP_MAX_HEADERS]; /* "Name: value" */
    int32_t n_headers;

    /* The body: from memory, or body_bytes of a file from body_offset on when body_fd >= 0. A body
     * from a file is sent at most once: if the connection breaks, CLOSED. */
    const void *body;
    uint64_t body_bytes;
    int body_fd;
    uint64_t body_offset;

    /* Where a 2xx body goes: memory, or a file from reply_offset on when reply_fd >= 0. Bytes go
     * there as they come, so that a cut leaves what has come. Longer than the limit: LIMIT. */
    void *reply;
    uint64_t reply_limit_bytes;
    int reply_fd;
    uint64_t reply_offset;

    int64_t timeout_ms; /* for the whole exchange; 0: only the limit on standing still */
    /* To be asked about every 50 ms, on the calling thread; true ends the exchange with STOPPED.
     * May be NULL. */
    bool (*should_stop_fn)(void *ctx);
    void *stop_ctx;
} dunlin_http_request;

/* Starts a request with nothing in it: no body, no place for a reply. */
#define DUNLIN_HTTP_REQUEST_INIT DUNLIN_SIZED_INIT_2(dunlin_http_request, body_fd, -1, reply_fd, -1)

/** What came of it. The library makes it and sets struct_size; a transport sets what it knows,
 * member by member. */
typedef struct dunlin_http_reply {
    size_t struct_size;
    int32_t status;
    uint64_t body_bytes;     /* written to reply or reply_fd */
    uint64_t sent_bytes;     /* body bytes that went out */
    uint64_t received_bytes; /* body bytes that came in, kept or not */
    /* Of the headers, by dunlin_http_reply_header(): */
    int64_t retry_after_ms; /* Retry-After, -1: none */
    int64_t upload_offset;  /* Upload-Offset, -1: none */
    int64_t range_first;    /* Content-Range, -1: none */
    int64_t range_total;
    bool is_server;           /* has Dunlin-Protocol: no login page, no proxy's word */
    bool is_encoded;          /* has a Content-Encoding other than identity */
    uint8_t error_body[2048]; /* of a reply that is not 2xx, cut */
    uint64_t error_bytes;
} dunlin_http_reply;
/* dunlin_http_reply_begin() does the rest. */
#define DUNLIN_HTTP_REPLY_INIT DUNLIN_SIZED_INIT(dunlin_http_reply)

typedef struct dunlin_transport dunlin_transport;

/** The calls of a transport; all three are needed. struct_size says which of them the app knows. */
typedef struct dunlin_transport_ops {
    size_t struct_size;
    /**
     * Performs the exchange; *out_reply is filled whatever comes of it (counts!), begun by
     * dunlin_http_reply_begin().
     *
     * OK whenever a reply arrived whole, whatever its status. UNREACHABLE, TIMEOUT, CLOSED (the
     * connection ended before the reply did), TLS, LIMIT, PROTOCOL (a redirect, a content encoding,
     * not HTTP), STOPPED, IO or SPACE (the file), MEMORY; each with one line of text.
     */
    dunlin_status (*perform_fn)(dunlin_transport *transport, const dunlin_http_request *request,
                                dunlin_http_reply *out_reply, dunlin_error *error);
    /** What dunlin_runtime_get_stats() tells, member by member; may leave zeros. */
    void (*get_stats_fn)(dunlin_transport *transport, dunlin_runtime_stats *out_stats);
    /** The runtime is gone. */
    void (*destroy_fn)(dunlin_transport *transport);
} dunlin_transport_ops;
#define DUNLIN_TRANSPORT_OPS_INIT DUNLIN_SIZED_INIT(dunlin_transport_ops)

/** The head of an app's own struct. Frozen: it never gets another member. */
struct dunlin_transport {
    const dunlin_transport_ops *ops;
};

/** Empties a reply: no bytes, no headers. Of one without a struct_size (the library sets it, or
 * DUNLIN_HTTP_REPLY_INIT) nothing is written. */
DUNLIN_API void dunlin_http_reply_begin(dunlin_http_reply *reply);

/** Takes in one header line, "Name: value", with or without its line end, of `length` bytes; those
 * that mean nothing here are passed over. */
DUNLIN_API void dunlin_http_reply_header(dunlin_http_reply *reply, const char *line, size_t length);

#ifdef __cplusplus
}
#endif

#endif
