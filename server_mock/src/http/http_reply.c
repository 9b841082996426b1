/*
 * http_reply.c - converts a reply to libmicrohttpd's, and corrupts it where a fault says so.
 *
 * Invariant: a reply's file is closed once, by the response or by the exchange.
 */
#include "http_reply.h"

#include "base/files.h"
#include "connections.h"
#include "exchange.h"
#include "faults/faults.h"
#include "faults/hold.h"
#include "http_faults.h"
#include "http_file.h"
#include "http_tell.h"
#include "state/reply.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SLOW_TURN_MS 20
#define BLOCK_BYTES 16384

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    (void)MHD_add_response_header(response, name, value);
}

static void add_number(struct MHD_Response *response, const char *name, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    add_header(response, name, text);
}

static void add_headers(const dunlin__server_reply *reply, struct MHD_Response *response)
{
    const char *type = reply->is_object ? DUNLIN_WIRE_CONTENT_TYPE_CHUNK : DUNLIN_WIRE_CONTENT_TYPE;
    add_header(response, DUNLIN_HEADER_CONTENT_TYPE,
               reply->content_type != NULL ? reply->content_type : type);
    if (reply->content_type == NULL) { /* else it is another's word, not this server's */
        add_header(response, DUNLIN_HEADER_PROTOCOL, DUNLIN_WIRE_VERSION_TEXT);
    }
    if (reply->is_object) {
        add_header(response, "ETag", reply->etag);
        add_header(response, "Accept-Ranges", "bytes");
        add_header(response, "Cache-Control", "public, max-age=31536000, immutable");
    } else {
        add_header(response, "Cache-Control", "no-store");
    }
    if (reply->content_range[0] != 0) {
        add_header(response, DUNLIN_HEADER_CONTENT_RANGE, reply->content_range);
    }
    if (reply->has_upload_offset) {
        add_number(response, DUNLIN_HEADER_UPLOAD_OFFSET, reply->upload_offset);
    }
    if (reply->location != NULL) {
        add_header(response, "Location", reply->location);
    }
    if (reply->retry_after_ms >= 0) {
        add_number(response, "Retry-After", ((uint64_t)reply->retry_after_ms + 999) / 1000);
    }
}

/* ---- a body with a fault in it ---- */

typedef struct faulty_body {
    dunlin__exchange *now; /* outlives the response */
    struct MHD_Connection *connection;
    dunlin_alloc alloc;
    uint8_t *bytes; /* or a part of a file: */
    size_t n_bytes;
    int fd;
    uint64_t fd_offset;
    uint64_t end;  /* of what is real; zeros follow */
    uint64_t cut;  /* the connection is dropped here; UINT64_MAX: nowhere */
    uint64_t flip; /* the byte that is not what it should be; UINT64_MAX: none */
    uint64_t rate; /* bytes a second; 0: no limit */
    int64_t begun_ms;
} faulty_body;

/* How much may go out from `place` on. */
static size_t allowance(const faulty_body *body, uint64_t place, size_t most)
{
    uint64_t room = most < BLOCK_BYTES ? most : BLOCK_BYTES;
    if (body->rate > 0) {
        int64_t passed_ms = dunlin__http_uptime_ms() - body->begun_ms + SLOW_TURN_MS;
        uint64_t due = body->rate * (uint64_t)passed_ms / 1000 + 1;
        uint64_t left = due > place ? due - place : 0;
        room = left < room ? left : room;
    }
    return (size_t)(body->cut - place < room ? body->cut - place : room);
}

static ssize_t read_body(void *cls, uint64_t place, char *out, size_t most)
{
    faulty_body *body = cls;
    if (place >= body->cut) {
        return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t n = allowance(body, place, most);
    if (n == 0) {
        (void)dunlin__hold(body->now->http->faults->holds, body->connection, SLOW_TURN_MS, false);
        return 0;
    }
    uint64_t left = place < body->end ? body->end - place : 0;
    size_t n_real = n < left ? n : (size_t)left;
    memset(out, 0, n);
    if (body->fd >= 0) {
        dunlin_error ignored;
        if (n_real > 0 && dunlin__server_read_at(body->fd, "a reply", body->fd_offset + place, out,
                                                 n_real, &ignored) != DUNLIN_OK) {
            return MHD_CONTENT_READER_END_WITH_ERROR;
        }
    } else if (n_real > 0) {
        memcpy(out, body->bytes + place, n_real);
    }
    if (body->flip >= place && body->flip < place + n) {
        out[body->flip - place] ^= 1;
    }
    atomic_fetch_add(&body->now->server->counters.body_bytes_down, n);
    return (ssize_t)n;
}

static void free_body(void *cls)
{
    faulty_body *body = cls;
    dunlin_alloc alloc = body->alloc;
    if (body->fd >= 0) {
        (void)close(body->fd);
    }
    dunlin__free_array(&alloc, body->bytes, body->n_bytes, 1);
    dunlin__free_array(&alloc, body, 1, sizeof *body);
}

static bool is_in_body(dunlin__fault_kind kind)
{
    return kind == DUNLIN_FAULT_DROP_REPLY || kind == DUNLIN_FAULT_SLOW ||
           kind == DUNLIN_FAULT_WRONG_DIGEST || kind == DUNLIN_FAULT_OVERSIZED;
}

/* Takes over the reply's bytes or file. NULL when there is no memory. */
static struct MHD_Response *faulty_response(dunlin__exchange *now,
                                            struct MHD_Connection *connection)
{
    dunlin__server_reply *reply = &now->reply;
    const dunlin_alloc *alloc = &now->server->alloc;
    faulty_body *body = dunlin__alloc_zeroed(alloc, 1, sizeof *body);
    if (body == NULL) {
        return NULL;
    }
    *body = (faulty_body){.now = now,
                          .connection = connection,
                          .alloc = *alloc,
                          .n_bytes = reply->n_body,
                          .fd = reply->fd,
                          .fd_offset = reply->fd_offset,
                          .end = reply->fd >= 0 ? reply->n_fd_bytes : reply->n_body,
                          .cut = UINT64_MAX,
                          .flip = UINT64_MAX,
                          .begun_ms = dunlin__http_uptime_ms()};
    reply->fd = -1;
    uint64_t total = body->end;
    uint64_t byte = dunlin__fault_byte(&now->fault, body->end);
    if (now->fault.kind == DUNLIN_FAULT_DROP_REPLY) {
        body->cut = byte;
    } else if (now->fault.kind == DUNLIN_FAULT_WRONG_DIGEST) {
        body->flip = body->end > 0 ? byte % body->end : UINT64_MAX;
    } else if (now->fault.kind == DUNLIN_FAULT_SLOW) {
        body->rate = (uint64_t)now->fault.amount;
    } else if ((uint64_t)now->fault.amount > total) {
        total = (uint64_t)now->fault.amount;
    }
    struct MHD_Response *response = NULL;
    body->bytes = dunlin__alloc_array(alloc, body->n_bytes, 1);
    if (body->n_bytes == 0 || body->bytes != NULL) {
        if (body->n_bytes > 0) {
            memcpy(body->bytes, dunlin__server_reply_body(reply), body->n_bytes);
        }
        response =
            MHD_create_response_from_callback(total, BLOCK_BYTES, read_body, body, free_body);
    }
    if (response == NULL) {
        free_body(body);
    }
    return response;
}

/* ---- sending ---- */

static uint8_t *body_of(dunlin__server_reply *reply)
{
    return reply->long_body != NULL ? reply->long_body : reply->body;
}

static struct MHD_Response *plain_response(dunlin__exchange *now)
{
    dunlin__server_reply *reply = &now->reply;
    struct MHD_Response *response = NULL;
    uint64_t n_bytes = reply->n_body;
    if (reply->fd >= 0) {
        n_bytes = reply->n_fd_bytes;
        response = dunlin__http_file_response(&now->server->alloc, reply->fd, reply->fd_offset,
                                              reply->n_fd_bytes);
        reply->fd = response != NULL ? -1 : reply->fd; /* the response closes it */
    } else {
        /* It copies what it is given, whatever its type says. */
        response =
            MHD_create_response_from_buffer(reply->n_body, body_of(reply), MHD_RESPMEM_MUST_COPY);
    }
    if (response != NULL && strcmp(now->request.method, "HEAD") != 0) {
        atomic_fetch_add(&now->server->counters.body_bytes_down, n_bytes);
    }
    return response;
}

enum MHD_Result dunlin__http_send(dunlin__exchange *now, struct MHD_Connection *connection)
{
    const dunlin__server_reply *reply = &now->reply;
    struct MHD_Response *response =
        is_in_body(now->fault.kind) ? faulty_response(now, connection) : plain_response(now);
    if (response == NULL) {
        return MHD_NO;
    }
    add_headers(reply, response);
    if (now->fault.kind == DUNLIN_FAULT_ENCODING) {
        add_header(response, "Content-Encoding", "gzip");
    }
    if (reply->http_code >= 500) {
        atomic_fetch_add(&now->server->counters.n_failed, 1);
    } else if (reply->http_code >= 400) {
        atomic_fetch_add(&now->server->counters.n_refused, 1);
    }
    dunlin__connection_answered(now->http->connections, now->connection,
                                reply->n_fd_bytes > reply->n_body ? reply->n_fd_bytes
                                                                  : reply->n_body);
    dunlin__http_tell(now);
    enum MHD_Result result = MHD_queue_response(connection, reply->http_code, response);
    MHD_destroy_response(response);
    dunlin__http_fault_answered(now->http);
    return result;
}
