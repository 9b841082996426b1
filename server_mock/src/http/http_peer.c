/*
 * http_peer.c - who is at the other end of a connection.
 *
 * Invariant: these answers come from the socket and from TLS, never from what the peer sends.
 */
#include "http_peer.h"

#include "exchange.h"
#include "state/places.h"
#include "state/reply.h"
#include "task/options.h"

#include <arpa/inet.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BEARER "Bearer "

/* An address as 16 bytes: IPv4 as IPv6 maps it (RFC 4291, 2.5.5.2). */
typedef struct address {
    uint8_t bytes[16];
} address;

static address mapped(const void *v4)
{
    address mapped = {.bytes = {[10] = 0xFF, [11] = 0xFF}};
    memcpy(mapped.bytes + 12, v4, 4);
    return mapped;
}

static bool parse(const char *text, address *out)
{
    uint8_t v4[4];
    if (inet_pton(AF_INET, text, v4) == 1) {
        *out = mapped(v4);
        return true;
    }
    return inet_pton(AF_INET6, text, out->bytes) == 1;
}

static address of_socket(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    address peer = {.bytes = {0}};
    if (info != NULL && info->client_addr->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)info->client_addr;
        peer = mapped(&v4->sin_addr);
    } else if (info != NULL && info->client_addr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)info->client_addr;
        memcpy(peer.bytes, &v6->sin6_addr, sizeof peer.bytes);
    }
    return peer;
}

static bool is_mapped(const address *peer)
{
    static const uint8_t prefix[12] = {[10] = 0xFF, [11] = 0xFF};
    return memcmp(peer->bytes, prefix, sizeof prefix) == 0;
}

static bool is_loopback(const address *peer)
{
    static const uint8_t one[16] = {[15] = 1};
    return is_mapped(peer) ? peer->bytes[12] == 127 : memcmp(peer->bytes, one, sizeof one) == 0;
}

static void format(const address *peer, char out[DUNLIN_SERVER_HOST_BYTES])
{
    bool is_v4 = is_mapped(peer);
    if (inet_ntop(is_v4 ? AF_INET : AF_INET6, peer->bytes + (is_v4 ? 12 : 0), out,
                  DUNLIN_SERVER_HOST_BYTES) == NULL) {
        out[0] = 0;
    }
}

static bool is_proxy(const dunlin_server_options *options, const address *peer)
{
    for (uint32_t i = 0; i < options->n_proxies; i++) {
        address proxy;
        if (parse(options->proxies[i], &proxy) && memcmp(&proxy, peer, sizeof proxy) == 0) {
            return true;
        }
    }
    return false;
}

static const char *header(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

static void refuse(dunlin__exchange *now, const char *format, ...) DUNLIN_PRINTF(2, 3);

/* 403: for a person who asks for the status as plain text, for a device as it expects it. */
static void refuse(dunlin__exchange *now, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (now->view == 0) {
        dunlin__server_refuse(&now->reply, DUNLIN_V1_STATUS_CODE_FORBIDDEN, "%s", text);
        return;
    }
    int n = snprintf((char *)now->reply.body, sizeof now->reply.body, "%s\n", text);
    now->reply.http_code = 403;
    now->reply.n_body = n > 0 ? (size_t)n : 0;
    now->reply.content_type = "text/plain";
}

/* The name of a header by which proxies tell of themselves, NULL if there is none. */
static const char *find_trace(struct MHD_Connection *connection)
{
    static const char *const names[] = {"X-Forwarded-For", "Forwarded", "X-Real-IP",
                                        "X-Forwarded-Host", "Via"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (header(connection, names[i]) != NULL) {
            return names[i];
        }
    }
    return NULL;
}

/* The last entry of X-Forwarded-For is the proxy's own word, the ones before it the client's. */
static bool take_forwarded(dunlin__exchange *now, struct MHD_Connection *connection)
{
    const char *text = header(connection, "X-Forwarded-For");
    char last[DUNLIN_SERVER_HOST_BYTES] = "";
    address client;
    if (text != NULL) {
        const char *comma = strrchr(text, ',');
        const char *from = comma != NULL ? comma + 1 : text;
        from += strspn(from, " ");
        (void)snprintf(last, sizeof last, "%s", from);
    }
    if (text == NULL || !parse(last, &client)) {
        refuse(now,
               "the proxy at %s (--trusted-proxy) sent X-Forwarded-For: %.60s; its last entry has "
               "to be the client's address",
               now->peer, text != NULL ? text : "(none)");
        return false;
    }
    format(&client, now->peer);
    return true;
}

bool dunlin__http_address(const dunlin__http *http, struct MHD_Connection *connection,
                          uint8_t out_bytes[16])
{
    address peer = of_socket(connection);
    memcpy(out_bytes, peer.bytes, sizeof peer.bytes);
    return !is_proxy(&http->server->options, &peer);
}

bool dunlin__http_peer(dunlin__exchange *now, struct MHD_Connection *connection)
{
    address peer = of_socket(connection);
    format(&peer, now->peer);
    now->trace = find_trace(connection);
    if (is_proxy(&now->server->options, &peer)) {
        now->is_proxied = true;
        return take_forwarded(now, connection);
    }
    now->is_near = is_loopback(&peer) && now->trace == NULL;
    return true;
}

static bool has_token(dunlin__exchange *now, struct MHD_Connection *connection)
{
    const dunlin__places *token = &now->server->status_token;
    const char *text = header(connection, "Authorization");
    dunlin_error ignored;
    size_t number = 1;
    return token->n_tokens > 0 && text != NULL && strncmp(text, BEARER, sizeof BEARER - 1) == 0 &&
           dunlin__places_find(token, text + sizeof BEARER - 1, &number, &ignored) == DUNLIN_OK &&
           number < token->n_tokens;
}

bool dunlin__http_may_see_status(dunlin__exchange *now, struct MHD_Connection *connection)
{
    const dunlin_server_options *options = &now->server->options;
    bool is_known = options->mtls_ca != NULL && !now->is_proxied; /* or TLS had refused it */
    if (options->has_open_status || now->is_near || is_known || has_token(now, connection)) {
        return true;
    }
    bool is_stray = now->trace != NULL && !now->is_proxied;
    refuse(
        now,
        "The status is told to this machine alone, to whoever sends the secret of --status-token "
        "as \"Authorization: Bearer SECRET\", or to everybody with --open-status. This request "
        "came from %s%s%s%s.",
        now->peer, is_stray ? " with the header " : "", is_stray ? now->trace : "",
        is_stray ? ", so through a proxy that no --trusted-proxy names" : "");
    return false;
}

bool dunlin__http_certificate(struct MHD_Connection *connection,
                              uint8_t out_sha256[DUNLIN_SHA256_BYTES])
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info == NULL || info->tls_session == NULL) {
        return false;
    }
    unsigned n_certificates = 0;
    gnutls_session_t session = info->tls_session;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(session, &n_certificates);
    gnutls_x509_crt_t leaf = NULL;
    if (chain == NULL || n_certificates == 0 || gnutls_x509_crt_init(&leaf) != 0) {
        return false;
    }
    size_t n_bytes = DUNLIN_SHA256_BYTES;
    bool is_read =
        gnutls_x509_crt_import(leaf, &chain[0], GNUTLS_X509_FMT_DER) == 0 &&
        gnutls_x509_crt_get_key_id(leaf, GNUTLS_KEYID_USE_SHA256, out_sha256, &n_bytes) == 0 &&
        n_bytes == DUNLIN_SHA256_BYTES;
    gnutls_x509_crt_deinit(leaf);
    return is_read;
}
