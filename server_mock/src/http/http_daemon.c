/*
 * http_daemon.c - starts and stops libmicrohttpd: TLS by GnuTLS, epoll, a pool of threads.
 *
 * Invariant: with --mtls no request is read before the client's certificate has been verified.
 */
#include "http_daemon.h"

#include "base/certs.h"
#include "base/files.h"
#include "connections.h"
#include "exchange.h"
#include "faults/hold.h"
#include "http_faults.h"
#include "http_peer.h"
#include "http_views.h"
#include "server/lifecycle.h"
#include "state/context.h"
#include "task/options.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define CONNECTION_LIMIT 4096u
#define RESERVED_FILES 128u /* of the process, for all that is not a connection */
#define IDLE_SECONDS 120u
#define HANDSHAKE_MS 10000 /* and the headers of a request */
#define REQUEST_MS 30000   /* a request, or its reply, and beside it ... */
#define LEAST_RATE 1024u   /* ... its body at so many bytes a second */
#define CONNECTION_BYTES (64u * 1024u)

static size_t keep_escapes(void *cls, struct MHD_Connection *connection, char *text)
{
    (void)cls;
    (void)connection;
    return strlen(text);
}

static void watch(const dunlin__http *http, struct MHD_Connection *connection,
                  void **socket_context)
{
    uint8_t peer[16];
    const bool is_counted = dunlin__http_address(http, connection, peer);
    /* Read at once: with libmicrohttpd 1.0 the next question about a connection writes over it. */
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != NULL) {
        *socket_context =
            dunlin__connections_add(http->connections, info->connect_fd, is_counted ? peer : NULL);
    }
}

/* With --mtls the handshake itself fails without a certificate that verifies. */
static void on_connection(void *cls, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
    dunlin__http *http = cls;
    if (code != MHD_CONNECTION_NOTIFY_STARTED) {
        atomic_fetch_sub(&http->server->watch.n_open, 1);
        dunlin__connections_remove(http->connections, *socket_context);
        *socket_context = NULL;
        return;
    }
    watch(http, connection, socket_context);
    atomic_fetch_add(&http->server->counters.n_connections, 1);
    atomic_fetch_add(&http->server->watch.n_open, 1);
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

static dunlin_status make_address(const dunlin_server_options *options,
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

/* `socket` -1: a new one on the options' address; else one that listens already. */
static dunlin_status start_daemon(dunlin__http *http, int socket, dunlin_error *error)
{
    const dunlin_server_options *options = &http->server->options;
    struct sockaddr_storage address;
    bool is_ipv6 = false;
    DUNLIN_TRY(make_address(options, &address, &is_ipv6, error));
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TLS | MHD_USE_ERROR_LOG | MHD_USE_ITC |
                     (is_ipv6 ? (unsigned)MHD_USE_IPv6 : 0) |
                     (http->faults != NULL ? (unsigned)MHD_ALLOW_SUSPEND_RESUME : 0);
    unsigned n_threads = options->n_threads > 2 ? (unsigned)options->n_threads : 2;
    const unsigned limit = connection_limit();
    struct MHD_OptionItem more[4] = {{MHD_OPTION_END, 0, NULL}};
    size_t n_more = 0;
    if (http->trust != NULL) {
        more[n_more++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0, http->trust};
    }
    if (socket >= 0) { /* with an address beside it libmicrohttpd 1.0 does not start */
        more[n_more++] = (struct MHD_OptionItem){MHD_OPTION_LISTEN_SOCKET, socket, NULL};
    } else {
        more[n_more++] = (struct MHD_OptionItem){MHD_OPTION_SOCK_ADDR, 0, &address};
    }
    more[n_more] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    errno = 0;
    http->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, dunlin__http_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_log, http,
        MHD_OPTION_HTTPS_MEM_KEY, http->server->certs.key, MHD_OPTION_HTTPS_MEM_CERT,
        http->server->certs.certificate, MHD_OPTION_HTTPS_PRIORITIES,
        "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2", MHD_OPTION_ARRAY, more,
        MHD_OPTION_THREAD_POOL_SIZE, n_threads, MHD_OPTION_CONNECTION_LIMIT, limit,
        MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_URI_LOG_CALLBACK, dunlin__http_begin, http,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_NOTIFY_COMPLETED,
        dunlin__http_end, http, MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_END);
    if (http->daemon == NULL) {
        return dunlin__file_fail(error, "listening on", options->host,
                                 errno != 0 ? errno : EADDRNOTAVAIL);
    }
    return DUNLIN_OK;
}

/* Some fewer than the descriptors allow: those that are closed take a moment for it. */
static dunlin_status open_connections(dunlin__http *http, dunlin_error *error)
{
    unsigned limit = connection_limit();
    struct rlimit files = {0};
    (void)getrlimit(RLIMIT_NOFILE, &files);
    unsigned n_held = limit - limit / 8;
    bool is_low = limit < CONNECTION_LIMIT;
    dunlin__log(&http->server->log, is_low ? DUNLIN_LOG_WARNING : DUNLIN_LOG_INFO, "http",
                "holds at most %u connections at a time: the limit of %llu descriptors%s", n_held,
                (unsigned long long)files.rlim_cur,
                is_low ? " (ulimit -n, LimitNOFILE) leaves no more" : " leaves room for all");
    /* A fault script is slow on purpose. */
    const dunlin__connection_limits limits = {.handshake_ms = HANDSHAKE_MS,
                                              .request_ms = REQUEST_MS,
                                              .idle_ms = IDLE_SECONDS * 1000,
                                              .least_rate = LEAST_RATE};
    const dunlin__connection_limits none = {0};
    http->connections = dunlin__connections_open(n_held, http->faults == NULL ? &limits : &none,
                                                 &http->server->alloc);
    return http->connections != NULL ? DUNLIN_OK
                                     : dunlin__fail(error, DUNLIN_MEMORY, "http", 0,
                                                    "no memory for the list of connections");
}

dunlin_status dunlin__http_start(dunlin__server *server, dunlin__http **out_http,
                                 uint16_t *out_port, dunlin_error *error)
{
    dunlin__http *http = dunlin__alloc_zeroed(&server->alloc, 1, sizeof *http);
    if (http == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "http", 0, "%zu bytes", sizeof *http);
    }
    http->server = server;
    dunlin_status status = dunlin__http_views_open(http, error);
    if (status == DUNLIN_OK) {
        status = read_trust(http, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__http_faults_open(server->options.faults_file, &server->alloc,
                                          &http->faults, error);
    }
    if (status == DUNLIN_OK) {
        status = open_connections(http, error);
    }
    if (status == DUNLIN_OK) {
        status = start_daemon(http, -1, error);
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

/* True if the certificates are the same; else they change places. */
static bool take_certificate(dunlin__server_certs *now, dunlin__server_certs *fresh)
{
    if (now->certificate_bytes == fresh->certificate_bytes && now->key_bytes == fresh->key_bytes &&
        memcmp(now->certificate, fresh->certificate, now->certificate_bytes) == 0 &&
        memcmp(now->key, fresh->key, now->key_bytes) == 0) {
        return true;
    }
    dunlin__server_certs before = *now;
    now->certificate = fresh->certificate;
    now->certificate_bytes = fresh->certificate_bytes;
    now->key = fresh->key;
    now->key_bytes = fresh->key_bytes;
    fresh->certificate = before.certificate;
    fresh->certificate_bytes = before.certificate_bytes;
    fresh->key = before.key;
    fresh->key_bytes = before.key_bytes;
    dunlin__wipe(&before, sizeof before);
    return false;
}

static void end_retired(dunlin__http *http)
{
    if (http->retired != NULL) {
        MHD_stop_daemon(http->retired);
        http->retired = NULL;
    }
}

dunlin_status dunlin__http_renew(dunlin__http *http, bool *out_is_new, dunlin_error *error)
{
    dunlin__server *server = http->server;
    dunlin__server_certs fresh;
    const dunlin__server_certs_wish wish = dunlin__server_wish(&server->options);
    *out_is_new = false;
    DUNLIN_TRY(
        dunlin__server_certs_load(server->folder.text, &wish, &server->alloc, &fresh, error));
    end_retired(http); /* it has had since the last renewal, or a minute, to end its requests */
    bool is_same = take_certificate(&server->certs, &fresh);
    dunlin__server_certs_free(&fresh, &server->alloc);
    if (is_same) {
        return DUNLIN_OK;
    }
    int socket = MHD_quiesce_daemon(http->daemon);
    if (socket < 0) {
        return dunlin__fail(error, DUNLIN_STATE, "http", 0,
                            "MHD_quiesce_daemon() gave no listening socket");
    }
    http->retired = http->daemon;
    http->daemon = NULL;
    *out_is_new = true;
    return start_daemon(http, socket, error);
}

void dunlin__http_stop(dunlin__http *http)
{
    if (http == NULL) {
        return;
    }
    if (http->faults != NULL) {
        dunlin__holds_end_all(http->faults->holds);
    }
    end_retired(http);
    if (http->daemon != NULL) {
        MHD_stop_daemon(http->daemon);
    }
    dunlin__connections_close(http->connections);
    dunlin_alloc alloc = http->server->alloc;
    dunlin__http_faults_free(http->faults, &alloc);
    dunlin__free_array(&alloc, http->trust, http->trust_bytes, 1);
    dunlin__free_array(&alloc, http, 1, sizeof *http);
}
