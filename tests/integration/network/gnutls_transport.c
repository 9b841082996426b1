/*
 * gnutls_transport.c - one request, one connection: connect, handshake, send, read to the end.
 */
#include "gnutls_transport.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct gnutls_transport {
    dunlin_transport base;
    gnutls_certificate_credentials_t trust;
    dunlin_runtime_stats stats;
} gnutls_transport;

typedef struct exchange {
    const dunlin_http_request *request;
    dunlin_http_reply *reply;
    dunlin_error *error;
    gnutls_session_t session;
    char host[128];
    char path[512];
    int fd;
} exchange;

static dunlin_status fail(exchange *now, dunlin_status status, const char *what)
{
    now->error->status = status;
    (void)snprintf(now->error->text, sizeof now->error->text, "%s: %s", now->request->url, what);
    return status;
}

/* https://127.0.0.1:PORT/path: as the tests have it. */
static dunlin_status open_connection(gnutls_transport *transport, exchange *now)
{
    unsigned port = 0;
    if (sscanf(now->request->url, "https://127.0.0.1:%u%511s", &port, now->path) != 2) {
        return fail(now, DUNLIN_ARGUMENT, "not an address of the tests");
    }
    (void)snprintf(now->host, sizeof now->host, "127.0.0.1:%u", port);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    now->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (now->fd < 0 || connect(now->fd, (struct sockaddr *)&address, sizeof address) != 0) {
        return fail(now, DUNLIN_UNREACHABLE, strerror(errno));
    }
    (void)gnutls_init(&now->session, GNUTLS_CLIENT);
    (void)gnutls_set_default_priority(now->session);
    (void)gnutls_credentials_set(now->session, GNUTLS_CRD_CERTIFICATE, transport->trust);
    gnutls_session_set_verify_cert(now->session, "127.0.0.1", 0);
    gnutls_transport_set_int(now->session, now->fd);
    int code = 0;
    do {
        code = gnutls_handshake(now->session);
    } while (code < 0 && gnutls_error_is_fatal(code) == 0);
    return code < 0 ? fail(now, DUNLIN_TLS, gnutls_strerror(code)) : DUNLIN_OK;
}

static bool send_all(exchange *now, const void *bytes, size_t n_bytes)
{
    const char *from = bytes;
    while (n_bytes > 0) {
        ssize_t n = gnutls_record_send(now->session, from, n_bytes);
        if (n < 0 && gnutls_error_is_fatal((int)n) == 0) {
            continue;
        }
        if (n <= 0) {
            return false;
        }
        from += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

static dunlin_status send_request(exchange *now)
{
    const dunlin_http_request *request = now->request;
    char head[4096];
    int n = snprintf(head, sizeof head, "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n",
                     request->method, now->path, now->host);
    for (int32_t i = 0; i < request->n_headers; i++) {
        n += snprintf(head + n, sizeof head - (size_t)n, "%s\r\n", request->headers[i]);
    }
    n += snprintf(head + n, sizeof head - (size_t)n, "Content-Length: %llu\r\n\r\n",
                  (unsigned long long)request->body_bytes);
    bool is_sent = send_all(now, head, (size_t)n);
    for (uint64_t done = 0; is_sent && done < request->body_bytes;) {
        char block[8192];
        uint64_t left = request->body_bytes - done;
        size_t n_bytes = left < sizeof block ? (size_t)left : sizeof block;
        if (request->body_fd < 0) {
            memcpy(block, (const char *)request->body + done, n_bytes);
        } else if (pread(request->body_fd, block, n_bytes, (off_t)(request->body_offset + done)) !=
                   (ssize_t)n_bytes) {
            return fail(now, DUNLIN_IO, "the body's file");
        }
        is_sent = send_all(now, block, n_bytes);
        done += n_bytes;
        now->reply->sent_bytes = done;
    }
    return is_sent ? DUNLIN_OK : fail(now, DUNLIN_CLOSED, "the connection closed");
}

/* A line without its end; false when the connection has ended. */
static bool read_line(exchange *now, char *out, size_t capacity)
{
    size_t n = 0;
    while (n + 1 < capacity) {
        char c = 0;
        ssize_t n_read = gnutls_record_recv(now->session, &c, 1);
        if (n_read < 0 && gnutls_error_is_fatal((int)n_read) == 0) {
            continue;
        }
        if (n_read <= 0) {
            return false;
        }
        if (c == '\n') {
            break;
        }
        if (c != '\r') {
            out[n++] = c;
        }
    }
    out[n] = 0;
    return true;
}

static dunlin_status keep(exchange *now, const char *bytes, size_t n_bytes)
{
    dunlin_http_reply *reply = now->reply;
    const dunlin_http_request *request = now->request;
    reply->received_bytes += n_bytes;
    if (reply->status >= 300) {
        size_t room = sizeof reply->error_body - (size_t)reply->error_bytes;
        size_t n_kept = n_bytes < room ? n_bytes : room;
        memcpy(reply->error_body + reply->error_bytes, bytes, n_kept);
        reply->error_bytes += n_kept;
        return DUNLIN_OK;
    }
    if (n_bytes > request->reply_limit_bytes - reply->body_bytes) {
        return fail(now, DUNLIN_LIMIT, "the reply is too long");
    }
    if (request->reply_fd < 0) {
        memcpy((char *)request->reply + reply->body_bytes, bytes, n_bytes);
    } else if (pwrite(request->reply_fd, bytes, n_bytes,
                      (off_t)(request->reply_offset + reply->body_bytes)) != (ssize_t)n_bytes) {
        return fail(now, DUNLIN_IO, "the reply's file");
    }
    reply->body_bytes += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status read_reply(exchange *now)
{
    char line[1024];
    uint64_t length = 0;
    if (!read_line(now, line, sizeof line) ||
        sscanf(line, "HTTP/1.1 %d", &now->reply->status) != 1) {
        return fail(now, DUNLIN_CLOSED, "no status line");
    }
    do {
        if (!read_line(now, line, sizeof line)) {
            return fail(now, DUNLIN_CLOSED, "the headers are cut");
        }
        dunlin_http_reply_header(now->reply, line, strlen(line));
        if (strncasecmp(line, "Content-Length:", 15) == 0) {
            length = strtoull(line + 15, NULL, 10);
        }
    } while (line[0] != 0);
    if (strcmp(now->request->method, "HEAD") == 0) {
        return DUNLIN_OK;
    }
    while (now->reply->received_bytes < length) {
        char block[8192];
        uint64_t left = length - now->reply->received_bytes;
        ssize_t n = gnutls_record_recv(now->session, block,
                                       left < sizeof block ? (size_t)left : sizeof block);
        if (n < 0 && gnutls_error_is_fatal((int)n) == 0) {
            continue;
        }
        if (n <= 0) {
            return fail(now, DUNLIN_CLOSED, "the reply is cut");
        }
        dunlin_status status = keep(now, block, (size_t)n);
        if (status != DUNLIN_OK) {
            return status;
        }
    }
    return DUNLIN_OK;
}

static dunlin_status perform(dunlin_transport *base, const dunlin_http_request *request,
                             dunlin_http_reply *out_reply, dunlin_error *error)
{
    gnutls_transport *transport = (gnutls_transport *)(void *)base;
    exchange now = {.request = request, .reply = out_reply, .error = error, .fd = -1};
    dunlin_http_reply_begin(out_reply);
    dunlin_status status = open_connection(transport, &now);
    if (status == DUNLIN_OK) {
        status = send_request(&now);
    }
    if (status == DUNLIN_OK) {
        status = read_reply(&now);
    }
    transport->stats.n_requests++;
    transport->stats.body_bytes_sent += out_reply->sent_bytes;
    transport->stats.body_bytes_received += out_reply->received_bytes;
    if (now.session != NULL) {
        gnutls_deinit(now.session);
    }
    if (now.fd >= 0) {
        (void)close(now.fd);
    }
    return status;
}

static void get_stats(dunlin_transport *base, dunlin_runtime_stats *out_stats)
{
    const dunlin_runtime_stats *stats = &((const gnutls_transport *)(void *)base)->stats;
    out_stats->n_requests = stats->n_requests;
    out_stats->n_handshakes = stats->n_handshakes;
    out_stats->n_connections_peak = stats->n_connections_peak;
    out_stats->body_bytes_sent = stats->body_bytes_sent;
    out_stats->body_bytes_received = stats->body_bytes_received;
}

static void destroy(dunlin_transport *base)
{
    gnutls_transport *transport = (gnutls_transport *)(void *)base;
    gnutls_certificate_free_credentials(transport->trust);
    free(transport);
}

static const dunlin_transport_ops OPS = {.struct_size = sizeof(dunlin_transport_ops),
                                         .perform_fn = perform,
                                         .get_stats_fn = get_stats,
                                         .destroy_fn = destroy};

dunlin_transport *gnutls_transport_make(const char *ca_file)
{
    gnutls_transport *transport = calloc(1, sizeof *transport);
    if (transport == NULL || gnutls_certificate_allocate_credentials(&transport->trust) < 0 ||
        gnutls_certificate_set_x509_trust_file(transport->trust, ca_file, GNUTLS_X509_FMT_PEM) <
            1) {
        abort();
    }
    transport->base.ops = &OPS;
    return &transport->base;
}
