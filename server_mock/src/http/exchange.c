/*
 * exchange.c - one request from its headers to its answer, as libmicrohttpd hands it over.
 *
 * Invariant: no request holds more than its call's limit in memory; chunks of updates go straight
 * to their files. Paths are taken as they are: nothing is percent-decoded, no query is accepted.
 */
#include "exchange.h"

#include "connections.h"
#include "http_faults.h"
#include "http_peer.h"
#include "http_reply.h"
#include "http_views.h"
#include "requests/calls.h"
#include "requests/objects.h"
#include "state/reply.h"

#include <mem/support.h>

#include <string.h>
#include <unistd.h>

/* A refused body up to here is read and dropped, so that the sender gets to see the answer. */
#define DRAIN_BYTES (16u * 1024u * 1024u)

/* ---- a request comes in ---- */

/* Called with the raw target, before anything else: the exchange begins here. */
void *dunlin__http_begin(void *cls, const char *uri, struct MHD_Connection *connection)
{
    dunlin__http *http = cls;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    dunlin__connection *one = info != NULL ? info->socket_context : NULL;
    dunlin__connection_begun(http->connections, one);
    dunlin__exchange *now = dunlin__alloc_zeroed(&http->server->alloc, 1, sizeof *now);
    if (now != NULL) {
        now->connection = one;
        now->http = http;
        now->server = http->server;
        now->upload.fd = -1;
        now->reply.fd = -1;
        size_t n = strlen(uri);
        now->is_path_long = n >= sizeof now->path;
        memcpy(now->path, uri, now->is_path_long ? sizeof now->path - 1 : n);
    }
    return now;
}

void dunlin__http_end(void *cls, struct MHD_Connection *connection, void **con_cls,
                      enum MHD_RequestTerminationCode code)
{
    dunlin__http *http = cls;
    dunlin__exchange *now = *con_cls;
    (void)connection;
    if (now == NULL) {
        return;
    }
    bool is_good = code == MHD_REQUEST_TERMINATED_COMPLETED_OK &&
                   now->asked < (unsigned)DUNLIN_N_CALLS && now->reply.http_code >= 200 &&
                   now->reply.http_code < 400;
    dunlin__connection_ended(http->connections, now->connection, is_good);
    dunlin__server_upload_abort(&now->upload);
    if (now->reply.fd >= 0) {
        (void)close(now->reply.fd);
    }
    dunlin__server_reply_end(&now->reply, &http->server->alloc);
    dunlin__free_array(&http->server->alloc, now->body, now->capacity, 1);
    dunlin__free_array(&http->server->alloc, now, 1, sizeof *now);
    *con_cls = NULL;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static void read_headers(dunlin__exchange *now, struct MHD_Connection *connection,
                         const char *method)
{
    dunlin__server_request *request = &now->request;
    request->method = method;
    request->path = now->path;
    request->authority = header(connection, "Host");
    request->device_id = header(connection, DUNLIN_HEADER_DEVICE);
    request->challenge = header(connection, DUNLIN_HEADER_CHALLENGE);
    request->counter = header(connection, DUNLIN_HEADER_COUNTER);
    request->signature = header(connection, DUNLIN_HEADER_SIGNATURE);
    request->idempotency_key = header(connection, DUNLIN_HEADER_IDEMPOTENCY);
    request->token = header(connection, DUNLIN_HEADER_TOKEN);
    request->content_range = header(connection, DUNLIN_HEADER_CONTENT_RANGE);
    request->range = header(connection, "Range");
    request->if_range = header(connection, "If-Range");
    if (now->server->options.has_mtls_places &&
        dunlin__http_certificate(connection, now->certificate_sha256)) {
        request->certificate_sha256 = now->certificate_sha256;
    }
}

static bool speaks_protocol(struct MHD_Connection *connection, dunlin__exchange *now)
{
    const char *version = header(connection, DUNLIN_HEADER_PROTOCOL);
    if (version != NULL && strcmp(version, DUNLIN_WIRE_VERSION_TEXT) == 0) {
        return true;
    }
    dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_VERSION,
                          "%s: %.20s is not spoken here, %s is", DUNLIN_HEADER_PROTOCOL,
                          version != NULL ? version : "(none)", DUNLIN_WIRE_VERSION_TEXT);
    return false;
}

static bool find_route(dunlin__exchange *now)
{
    dunlin_error error = {0};
    dunlin_status status = now->is_path_long ? DUNLIN_PROTOCOL
                                             : dunlin__route_parse(now->request.method, now->path,
                                                                   &now->request.route, &error);
    if (status == DUNLIN_OK) {
        now->asked = (unsigned)now->request.route.call;
        return true;
    }
    if (status == DUNLIN_UNSUPPORTED) {
        dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_UNIMPLEMENTED,
                              "this path does not take %.20s", now->request.method);
        now->reply.http_code = 405;
    } else {
        dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_NOT_FOUND,
                              "no call has the path %.64s",
                              now->is_path_long ? "(too long)" : now->path);
    }
    return false;
}

/* False: the announced body is beyond the call's limit. */
static bool has_fitting_length(struct MHD_Connection *connection, dunlin__exchange *now)
{
    const dunlin__call_info *info = dunlin__call_describe(now->request.route.call);
    const char *text = header(connection, "Content-Length");
    uint64_t n_bytes = 0;
    dunlin_error error = {0};
    now->limit = info->max_body_bytes;
    if (text != NULL && dunlin__header_u64("Content-Length", text, &n_bytes, &error) != DUNLIN_OK) {
        dunlin__server_refuse_error(&now->reply, &error);
        return false;
    }
    now->announced_bytes = n_bytes;
    if (n_bytes > now->limit) {
        dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_TOO_LARGE,
                              "the body has %s bytes; %s takes at most %zu", text, info->name,
                              now->limit);
        now->is_hopeless = n_bytes > DRAIN_BYTES;
        return false;
    }
    return true;
}

static void begin_request(dunlin__exchange *now, struct MHD_Connection *connection,
                          const char *method)
{
    now->is_begun = true;
    dunlin__connection_headed(now->http->connections, now->connection);
    atomic_fetch_add(&now->server->counters.n_requests, 1);
    dunlin__server_reply_clear(&now->reply);
    read_headers(now, connection, method);
    now->view = dunlin__http_view_of(method, now->path);
    now->asked = now->view != 0 ? now->view : (unsigned)DUNLIN_WATCH_OTHER;
    if (now->view != 0) {
        now->is_answered = !dunlin__http_view_begin(now, connection);
        now->view = now->is_answered ? 0 : now->view;
        return;
    }
    bool is_good = dunlin__http_peer(now, connection) && find_route(now) &&
                   speaks_protocol(connection, now) && has_fitting_length(connection, now) &&
                   !dunlin__http_fault_begin(now);
    if (is_good && now->request.route.call == DUNLIN_CALL_CHUNK_PUT) {
        is_good =
            dunlin__server_upload_begin(now->server, &now->request, &now->upload, &now->reply);
        now->is_upload = is_good;
    }
    now->is_answered = !is_good;
}

/* ---- its body ---- */

static void keep_body(dunlin__exchange *now, const char *bytes, size_t n_bytes)
{
    if (n_bytes > now->limit - now->n_body) {
        dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_TOO_LARGE,
                              "the body is longer than %zu bytes", now->limit);
        now->is_answered = true;
        return;
    }
    void *body = now->body;
    bool has_room =
        dunlin__grow_array(&now->server->alloc, &body, &now->capacity, now->n_body + n_bytes, 1);
    now->body = body;
    if (!has_room) {
        dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_UNAVAILABLE,
                              "no memory for a body of %zu bytes", now->n_body + n_bytes);
        now->is_answered = true;
        return;
    }
    memcpy(now->body + now->n_body, bytes, n_bytes);
    now->n_body += n_bytes;
}

static void take_body(dunlin__exchange *now, const char *bytes, size_t n_bytes)
{
    atomic_fetch_add(&now->server->counters.body_bytes_up, n_bytes);
    now->n_taken += n_bytes;
    dunlin__connection_moved(now->http->connections, now->connection, n_bytes);
    if (now->is_answered || now->view != 0 || n_bytes == 0) {
        return;
    }
    if (now->is_upload) {
        now->is_answered = !dunlin__server_upload_write(&now->upload, bytes, n_bytes, &now->reply);
    } else {
        keep_body(now, bytes, n_bytes);
    }
}

/* ---- its answer ---- */

static enum MHD_Result answer(dunlin__exchange *now, struct MHD_Connection *connection)
{
    if (now->view != 0) {
        return dunlin__http_view_send(now, connection);
    }
    dunlin__fault_turn turn = dunlin__http_fault_before(now, connection);
    if (turn != DUNLIN_TURN_GO) {
        return turn == DUNLIN_TURN_HELD ? MHD_YES : MHD_NO;
    }
    if (!now->is_answered) {
        now->request.body = now->body;
        now->request.n_body = now->n_body;
        if (now->is_upload) {
            dunlin__server_upload_end(&now->upload, &now->reply);
        } else {
            dunlin__server_handle(now->server, &now->request, &now->reply);
        }
        if (dunlin__http_fault_after(now)) {
            return MHD_NO;
        }
    }
    return dunlin__http_send(now, connection);
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are libmicrohttpd's */
enum MHD_Result dunlin__http_request(void *cls, struct MHD_Connection *connection, const char *url,
                                     const char *method, const char *version,
                                     const char *upload_data, size_t *upload_data_size,
                                     void **con_cls)
{
    (void)cls;
    (void)url;
    (void)version;
    dunlin__exchange *now = *con_cls;
    if (now == NULL) {
        return MHD_NO;
    }
    if (!now->is_begun) {
        begin_request(now, connection, method);
        return now->is_hopeless ? dunlin__http_send(now, connection) : MHD_YES;
    }
    if (*upload_data_size > 0) {
        bool is_over = false;
        size_t n_bytes = dunlin__http_fault_intake(now, connection, *upload_data_size, &is_over);
        take_body(now, upload_data, n_bytes);
        *upload_data_size -= n_bytes;
        return is_over ? MHD_NO : MHD_YES;
    }
    return answer(now, connection);
}
