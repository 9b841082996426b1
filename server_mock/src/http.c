/*
 * http.c - libmicrohttpd in front of the calls: TLS by GnuTLS, epoll, a pool of threads.
 *
 * Invariant: no request holds more than its call's limit in memory; chunks of updates go straight
 * to their files. Paths are taken as they are: nothing is percent-decoded, no query is accepted.
 */
#include "http.h"

#include <mem/support.h>

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <microhttpd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CONNECTION_LIMIT 4096u
#define RESERVED_FILES 128u /* of the process, for all that is not a connection */
#define IDLE_SECONDS 120u
#define CONNECTION_BYTES (64u * 1024u)
/* A refused body up to here is read and dropped, so that the sender gets to see the answer. */
#define DRAIN_BYTES (16u * 1024u * 1024u)
#define STATUS_PATH "/v1/status"

struct dunlin__http {
    dunlin__server *server;
    struct MHD_Daemon *daemon;
    char *trust; /* the CA of clients, PEM */
    size_t trust_bytes;
};

/* One request from its first header to its answer. */
typedef struct exchange {
    dunlin__server *server;
    char path[DUNLIN_WIRE_PATH_BYTES];
    bool is_path_long;
    bool is_begun;
    bool is_answered; /* the reply stands; what is still to come is ignored */
    bool is_hopeless; /* a body too large to be read just to be thrown away */
    bool is_status;
    bool is_upload;
    uint8_t *body;
    size_t n_body;
    size_t capacity;
    size_t limit;
    dunlin__server_request request;
    dunlin__server_upload upload;
    dunlin__server_reply reply;
} exchange;

/* ---- a request comes in ---- */

/* Called with the raw target, before anything else: the exchange begins here. */
static void *begin_exchange(void *cls, const char *uri, struct MHD_Connection *connection)
{
    dunlin__http *http = cls;
    (void)connection;
    exchange *now = dunlin__alloc_zeroed(&http->server->alloc, 1, sizeof *now);
    if (now != NULL) {
        now->server = http->server;
        now->upload.fd = -1;
        now->reply.fd = -1;
        size_t n = strlen(uri);
        now->is_path_long = n >= sizeof now->path;
        memcpy(now->path, uri, now->is_path_long ? sizeof now->path - 1 : n);
    }
    return now;
}

static size_t keep_escapes(void *cls, struct MHD_Connection *connection, char *text)
{
    (void)cls;
    (void)connection;
    return strlen(text);
}

static void end_exchange(void *cls, struct MHD_Connection *connection, void **con_cls,
                         enum MHD_RequestTerminationCode code)
{
    dunlin__http *http = cls;
    exchange *now = *con_cls;
    (void)connection;
    (void)code;
    if (now == NULL) {
        return;
    }
    dunlin__server_upload_abort(&now->upload);
    if (now->reply.fd >= 0) {
        (void)close(now->reply.fd);
    }
    dunlin__free_array(&http->server->alloc, now->body, now->capacity, 1);
    dunlin__free_array(&http->server->alloc, now, 1, sizeof *now);
    *con_cls = NULL;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static void read_headers(exchange *now, struct MHD_Connection *connection, const char *method)
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
}

static bool speaks_protocol(struct MHD_Connection *connection, exchange *now)
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

static bool find_route(exchange *now)
{
    dunlin_error error = {0};
    dunlin_status status = now->is_path_long ? DUNLIN_PROTOCOL
                                             : dunlin__route_parse(now->request.method, now->path,
                                                                   &now->request.route, &error);
    if (status == DUNLIN_OK) {
        return true;
    }
    if (status == DUNLIN_UNSUPPORTED) {
        dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_UNIMPLEMENTED,
                              "this path does not take %.20s", now->request.method);
        now->reply.http_code = 405;
    } else {
        dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_NOT_FOUND,
                              "there is no such path");
    }
    return false;
}

/* False: the announced body is beyond the call's limit. */
static bool has_fitting_length(struct MHD_Connection *connection, exchange *now)
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
    if (n_bytes > now->limit) {
        dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_TOO_LARGE,
                              "the body has %s bytes; %s takes at most %zu", text, info->name,
                              now->limit);
        now->is_hopeless = n_bytes > DRAIN_BYTES;
        return false;
    }
    return true;
}

static void begin_request(exchange *now, struct MHD_Connection *connection, const char *method)
{
    now->is_begun = true;
    atomic_fetch_add(&now->server->counters.n_requests, 1);
    dunlin__server_reply_clear(&now->reply);
    read_headers(now, connection, method);
    now->is_status = strcmp(method, "GET") == 0 && strcmp(now->path, STATUS_PATH) == 0;
    if (now->is_status) {
        return;
    }
    bool is_good =
        find_route(now) && speaks_protocol(connection, now) && has_fitting_length(connection, now);
    if (is_good && now->request.route.call == DUNLIN_CALL_CHUNK_PUT) {
        is_good =
            dunlin__server_upload_begin(now->server, &now->request, &now->upload, &now->reply);
        now->is_upload = is_good;
    }
    now->is_answered = !is_good;
}

/* ---- its body ---- */

static void keep_body(exchange *now, const char *bytes, size_t n_bytes)
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
        dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_UNAVAILABLE, "out of memory");
        now->is_answered = true;
        return;
    }
    memcpy(now->body + now->n_body, bytes, n_bytes);
    now->n_body += n_bytes;
}

static void take_body(exchange *now, const char *bytes, size_t n_bytes)
{
    atomic_fetch_add(&now->server->counters.body_bytes_up, n_bytes);
    if (now->is_answered || now->is_status) {
        return;
    }
    if (now->is_upload) {
        now->is_answered = !dunlin__server_upload_write(&now->upload, bytes, n_bytes, &now->reply);
    } else {
        keep_body(now, bytes, n_bytes);
    }
}

/* ---- its answer ---- */

static void add_header(struct MHD_Response *response, const char *name, const char *value)
{
    (void)MHD_add_response_header(response, name, value);
}

static void add_headers(const dunlin__server_reply *reply, struct MHD_Response *response)
{
    add_header(response, DUNLIN_HEADER_PROTOCOL, DUNLIN_WIRE_VERSION_TEXT);
    add_header(response, DUNLIN_HEADER_CONTENT_TYPE,
               reply->is_object ? DUNLIN_WIRE_CONTENT_TYPE_CHUNK : DUNLIN_WIRE_CONTENT_TYPE);
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
        char text[24];
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)reply->upload_offset);
        add_header(response, DUNLIN_HEADER_UPLOAD_OFFSET, text);
    }
}

static enum MHD_Result send_reply(exchange *now, struct MHD_Connection *connection)
{
    dunlin__server_reply *reply = &now->reply;
    struct MHD_Response *response = NULL;
    uint64_t n_bytes = reply->n_body;
    if (reply->fd >= 0) {
        n_bytes = reply->n_fd_bytes;
        response =
            MHD_create_response_from_fd_at_offset64(reply->n_fd_bytes, reply->fd, reply->fd_offset);
        reply->fd = response != NULL ? -1 : reply->fd; /* the response closes it */
    } else {
        response =
            MHD_create_response_from_buffer(reply->n_body, reply->body, MHD_RESPMEM_MUST_COPY);
    }
    if (response == NULL) {
        return MHD_NO;
    }
    add_headers(reply, response);
    if (reply->http_code >= 500) {
        atomic_fetch_add(&now->server->counters.n_failed, 1);
    } else if (reply->http_code >= 400) {
        atomic_fetch_add(&now->server->counters.n_refused, 1);
    }
    atomic_fetch_add(&now->server->counters.body_bytes_down, n_bytes);
    enum MHD_Result result = MHD_queue_response(connection, reply->http_code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result send_status(exchange *now, struct MHD_Connection *connection)
{
    char *text = dunlin__server_status_text(now->server);
    if (text == NULL) {
        return MHD_NO;
    }
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        free(text);
        return MHD_NO;
    }
    add_header(response, DUNLIN_HEADER_CONTENT_TYPE, "application/json");
    add_header(response, "Cache-Control", "no-store");
    enum MHD_Result result = MHD_queue_response(connection, 200, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer(exchange *now, struct MHD_Connection *connection)
{
    if (now->is_status) {
        return send_status(now, connection);
    }
    if (!now->is_answered) {
        now->request.body = now->body;
        now->request.n_body = now->n_body;
        if (now->is_upload) {
            dunlin__server_upload_end(&now->upload, &now->reply);
        } else {
            dunlin__server_handle(now->server, &now->request, &now->reply);
        }
    }
    return send_reply(now, connection);
}

/* NOLINTNEXTLINE(readability-function-size): the parameters are libmicrohttpd's */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload_data,
                                  size_t *upload_data_size, void **con_cls)
{
    (void)cls;
    (void)url;
    (void)version;
    exchange *now = *con_cls;
    if (now == NULL) {
        return MHD_NO;
    }
    if (!now->is_begun) {
        begin_request(now, connection, method);
        return now->is_hopeless ? send_reply(now, connection) : MHD_YES;
    }
    if (*upload_data_size > 0) {
        take_body(now, upload_data, *upload_data_size);
        *upload_data_size = 0;
        return MHD_YES;
    }
    return answer(now, connection);
}

/* ---- connections ---- */

/* With --mtls the handshake itself fails without a certificate that verifies. */
static void on_connection(void *cls, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    dunlin__http *http = cls;
    (void)socket_context;
    if (code != MHD_CONNECTION_NOTIFY_STARTED) {
        return;
    }
    atomic_fetch_add(&http->server->counters.n_connections, 1);
    if (http->trust == NULL) {
        return;
    }
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info != NULL && info->tls_session != NULL) {
        gnutls_session_t session = info->tls_session;
        gnutls_certificate_server_set_request(session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_cert(session, NULL, 0);
    }
}

static void on_log(void *cls, const char *format, va_list args) DUNLIN_PRINTF(2, 0);

static void on_log(void *cls, const char *format, va_list args)
{
    dunlin__http *http = cls;
    char text[256];
    (void)vsnprintf(text, sizeof text, format, args);
    text[strcspn(text, "\r\n")] = 0;
    dunlin__log(&http->server->log, DUNLIN_LOG_DEBUG, "http", "%s", text);
}

static unsigned connection_limit(void)
{
    struct rlimit files = {0};
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) {
        return 256;
    }
    if (files.rlim_cur < files.rlim_max && files.rlim_cur < CONNECTION_LIMIT + RESERVED_FILES) {
        files.rlim_cur = files.rlim_max < CONNECTION_LIMIT + RESERVED_FILES
                             ? files.rlim_max
                             : CONNECTION_LIMIT + RESERVED_FILES;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur <= 2 * RESERVED_FILES) {
        return RESERVED_FILES;
    }
    uint64_t room = (uint64_t)files.rlim_cur - RESERVED_FILES;
    return room < CONNECTION_LIMIT ? (unsigned)room : CONNECTION_LIMIT;
}

static dunlin_status make_address(const dunlin__server_options *options,
                                  struct sockaddr_storage *out_address, bool *out_is_ipv6,
                                  dunlin_error *error)
{
    memset(out_address, 0, sizeof *out_address);
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)out_address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)out_address;
    *out_is_ipv6 = inet_pton(AF_INET6, options->host, &v6->sin6_addr) == 1;
    if (*out_is_ipv6) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(options->port);
        return DUNLIN_OK;
    }
    if (inet_pton(AF_INET, options->host, &v4->sin_addr) != 1) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "http", 0,
                            "--listen %.60s: not a numeric IPv4 or IPv6 address", options->host);
    }
    v4->sin_family = AF_INET;
    v4->sin_port = htons(options->port);
    return DUNLIN_OK;
}

static dunlin_status read_trust(dunlin__http *http, dunlin_error *error)
{
    const char *path = http->server->options.mtls_ca;
    if (path == NULL) {
        return DUNLIN_OK;
    }
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DUNLIN_TRY(
        dunlin__server_file_read(&http->server->alloc, path, 1024 * 1024, &bytes, &n_bytes, error));
    http->trust = (char *)bytes;
    http->trust_bytes = n_bytes + 1;
    if (strstr(http->trust, "-----BEGIN CERTIFICATE-----") == NULL) {
        return dunlin__fail(error, DUNLIN_TLS, "http", 0, "--mtls %.120s: no PEM certificate in it",
                            path);
    }
    return DUNLIN_OK;
}

static dunlin_status start_daemon(dunlin__http *http, dunlin_error *error)
{
    const dunlin__server_options *options = &http->server->options;
    struct sockaddr_storage address;
    bool is_ipv6 = false;
    DUNLIN_TRY(make_address(options, &address, &is_ipv6, error));
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TLS | MHD_USE_ERROR_LOG |
                     (is_ipv6 ? (unsigned)MHD_USE_IPv6 : 0);
    unsigned n_threads = options->n_threads > 2 ? (unsigned)options->n_threads : 2;
    struct MHD_OptionItem trust[] = {
        {http->trust != NULL ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0, http->trust},
        {MHD_OPTION_END, 0, NULL}};
    errno = 0;
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_log, http,
        MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_HTTPS_MEM_KEY, http->server->certs.key,
        MHD_OPTION_HTTPS_MEM_CERT, http->server->certs.certificate, MHD_OPTION_HTTPS_PRIORITIES,
        "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2", MHD_OPTION_ARRAY, trust,
        MHD_OPTION_THREAD_POOL_SIZE, n_threads, MHD_OPTION_CONNECTION_LIMIT, connection_limit(),
        MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_URI_LOG_CALLBACK, begin_exchange, http,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_NOTIFY_COMPLETED, end_exchange,
        http, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_END);
    if (http->daemon == NULL) {
        return dunlin__server_fail_os(error, "listening on", options->host,
                                      errno != 0 ? errno : EADDRNOTAVAIL);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__http_start(dunlin__server *server, dunlin__http **out_http,
                                 uint16_t *out_port, dunlin_error *error)
{
    dunlin__http *http = dunlin__alloc_zeroed(&server->alloc, 1, sizeof *http);
    if (http == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "http", 0, "%zu bytes", sizeof *http);
    }
    http->server = server;
    dunlin_status status = read_trust(http, error);
    if (status == DUNLIN_OK) {
        status = start_daemon(http, error);
    }
    if (status != DUNLIN_OK) {
        dunlin__http_stop(http);
        return status;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
    *out_port = info != NULL ? info->port : 0;
    *out_http = http;
    return DUNLIN_OK;
}

void dunlin__http_stop(dunlin__http *http)
{
    if (http == NULL) {
        return;
    }
    if (http->daemon != NULL) {
        MHD_stop_daemon(http->daemon);
    }
    dunlin_alloc alloc = http->server->alloc;
    dunlin__free_array(&alloc, http->trust, http->trust_bytes, 1);
    dunlin__free_array(&alloc, http, 1, sizeof *http);
}
