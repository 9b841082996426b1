/*
 * http_views.c - what people and monitors ask for: the page, the status, the metrics.
 *
 * Invariant: the page is the same for all, byte for byte; what devices and tasks say reaches it as
 * JSON alone. Source of the headers: Content Security Policy Level 3 (W3C); RFC 9110, RFC 9111.
 */
#include "http_views.h"

#include "connections.h"
#include "http_peer.h"
#include "server/exposition.h"
#include "server/metrics_text.h"
#include "server/status.h"
#include "state/reply.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* page/index.html, and how long it is. */
extern const unsigned char dunlin__server_page[];
extern const size_t dunlin__server_page_bytes;

/* ---- the page's policy ---- */

/* The hash of what stands between two tags of the page, as a policy spells it. */
static dunlin_status hash_between(const char *begin, const char *end, char *out, size_t n_out,
                                  dunlin_error *error)
{
    const char *page = (const char *)dunlin__server_page;
    const char *first = strstr(page, begin);
    const char *last = first != NULL ? strstr(first, end) : NULL;
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    if (last == NULL) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "http", 0, "the page has no %s", begin);
    }
    first += strlen(begin);
    DUNLIN_TRY(dunlin__sha256_of(first, (size_t)(last - first), sha256, error));
    const gnutls_datum_t raw = {.data = sha256, .size = sizeof sha256};
    gnutls_datum_t base64 = {.data = NULL, .size = 0};
    if (gnutls_base64_encode2(&raw, &base64) != 0) {
        return dunlin__fail(error, DUNLIN_MEMORY, "http", 0, "no memory for the page's policy");
    }
    (void)snprintf(out, n_out, "'sha256-%.*s'", (int)base64.size, (const char *)base64.data);
    gnutls_free(base64.data);
    return DUNLIN_OK;
}

dunlin_status dunlin__http_views_open(dunlin__http *http, dunlin_error *error)
{
    char script[64];
    char style[64];
    DUNLIN_TRY(hash_between("<script>", "</script>", script, sizeof script, error));
    DUNLIN_TRY(hash_between("<style>", "</style>", style, sizeof style, error));
    (void)snprintf(http->policy, sizeof http->policy,
                   "default-src 'none'; script-src %s; style-src %s; img-src data:; connect-src "
                   "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
                   script, style);
    return DUNLIN_OK;
}

/* ---- who asks for what ---- */

unsigned dunlin__http_view_of(const char *method, const char *path)
{
    static const struct {
        const char *path;
        unsigned view;
    } views[] = {{"/", DUNLIN_WATCH_PAGE},
                 {"/v1/status", DUNLIN_WATCH_STATUS},
                 {"/metrics", DUNLIN_WATCH_METRICS}};
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++) {
        if (strcmp(path, views[i].path) == 0) {
            return views[i].view;
        }
    }
    return 0;
}

bool dunlin__http_view_begin(dunlin__exchange *now, struct MHD_Connection *connection)
{
    if (!dunlin__http_peer(now, connection)) {
        return false;
    }
    if (dunlin__http_may_see_status(now, connection)) {
        return true;
    }
    if (now->view == DUNLIN_WATCH_PAGE && now->server->status_token.n_tokens > 0) {
        dunlin__server_reply_clear(&now->reply);
        return true;
    }
    return false;
}

/* ---- answers ---- */

static struct MHD_Response *page_response(const dunlin__http *http)
{
    /* libmicrohttpd only reads it. */
    void *page = (void *)(uintptr_t)dunlin__server_page;
    struct MHD_Response *response =
        MHD_create_response_from_buffer(dunlin__server_page_bytes, page, MHD_RESPMEM_PERSISTENT);
    if (response != NULL) {
        (void)MHD_add_response_header(response, "Content-Security-Policy", http->policy);
    }
    return response;
}

static struct MHD_Response *status_response(dunlin__server *server)
{
    char *text = dunlin__server_status_text(server);
    struct MHD_Response *response =
        text != NULL ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_COPY)
                     : NULL;
    free(text);
    return response;
}

static struct MHD_Response *metrics_response(dunlin__server *server)
{
    dunlin__exposition text = {0};
    struct MHD_Response *response =
        dunlin__server_metrics_text(server, &text)
            ? MHD_create_response_from_buffer(text.n_text, text.text, MHD_RESPMEM_MUST_COPY)
            : NULL;
    dunlin__exposition_free(&text);
    return response;
}

enum MHD_Result dunlin__http_view_send(dunlin__exchange *now, struct MHD_Connection *connection)
{
    static const char *const headers[][2] = {{"Cache-Control", "no-store"},
                                             {"X-Content-Type-Options", "nosniff"},
                                             {"Referrer-Policy", "no-referrer"},
                                             {"Cross-Origin-Resource-Policy", "same-origin"}};
    struct MHD_Response *response = NULL;
    const char *type = "application/json";
    if (now->view == DUNLIN_WATCH_PAGE) {
        response = page_response(now->http);
        type = "text/html; charset=utf-8";
    } else if (now->view == DUNLIN_WATCH_METRICS) {
        response = metrics_response(now->server);
        type = DUNLIN_EXPOSITION_TYPE;
    } else {
        response = status_response(now->server);
    }
    if (response == NULL) {
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, "Content-Type", type);
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
        (void)MHD_add_response_header(response, headers[i][0], headers[i][1]);
    }
    dunlin__connection_answered(now->http->connections, now->connection, 0);
    dunlin__watch_request(now->server, now->view, 0);
    enum MHD_Result result = MHD_queue_response(connection, 200, response);
    MHD_destroy_response(response);
    return result;
}
