/*
 * test_views.c - the page and the metrics over TLS: headers, who gets them, what is counted.
 */
#include "base/log.h"
#include "http/http_daemon.h"
#include "server/device.h"
#include "server/exposition.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <criterion/criterion.h>

#include <curl/curl.h>
#include <gnutls/gnutls.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECRET "0123456789abcdef0123456789abcdef"
#define FAR "X-Forwarded-For: 203.0.113.9" /* what a proxy on this machine sends */

typedef struct place {
    test_server fixture;
    dunlin__http *http;
    uint16_t port;
    char ca[256];
    char logged[4096];
} place;

static void note(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    place *where = ctx;
    size_t n = strlen(where->logged);
    (void)snprintf(where->logged + n, sizeof where->logged - n, "%d %s: %s\n", (int)level,
                   subsystem, text);
}

static void begin(place *where)
{
    dunlin_error error = {0};
    test_server_folder(&where->fixture);
    where->logged[0] = 0;
    where->fixture.log = (dunlin_log){.ctx = where, .write_fn = note, .level = DUNLIN_LOG_INFO};
    test_server_open(&where->fixture, ", \"rounds\": 1, \"cohort\": 1", 0);
    (void)snprintf(where->ca, sizeof where->ca, "%.200s/ca.pem", where->fixture.server.folder.text);
    cr_assert_eq(dunlin__http_start(&where->fixture.server, &where->http, &where->port, &error),
                 DUNLIN_OK, "%s", error.text);
}

static void end(place *where)
{
    dunlin__http_stop(where->http);
    test_server_close(&where->fixture);
    test_server_end(&where->fixture);
}

/* The status token, as --status-token has it. */
static void give_token(place *where)
{
    dunlin_error error = {0};
    dunlin__server *server = &where->fixture.server;
    const char *path = test_server_write(&where->fixture, "secret", SECRET "\n");
    cr_assert_eq(dunlin__places_read(path, 1, &server->alloc, &server->status_token, &error),
                 DUNLIN_OK, "%s", error.text);
}

typedef struct text {
    char *bytes;
    size_t n;
} text;

typedef struct got {
    long code;
    text head;
    text body;
} got;

static size_t keep(char *data, size_t size, size_t n, void *ctx)
{
    text *into = ctx;
    into->bytes = realloc(into->bytes, into->n + size * n + 1);
    cr_assert_not_null(into->bytes);
    memcpy(into->bytes + into->n, data, size * n);
    into->n += size * n;
    into->bytes[into->n] = 0;
    return size * n;
}

static got ask(const place *where, const char *method, const char *path, const char *header,
               const char *header2)
{
    got answer = {.head = {calloc(1, 1), 0}, .body = {calloc(1, 1), 0}};
    char url[256];
    CURL *easy = curl_easy_init();
    struct curl_slist *headers = curl_slist_append(NULL, header != NULL ? header : "X-None: 1");
    headers = header2 != NULL ? curl_slist_append(headers, header2) : headers;
    (void)snprintf(url, sizeof url, "https://127.0.0.1:%u%s", (unsigned)where->port, path);
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, 20L);
    curl_easy_setopt(easy, CURLOPT_CAINFO, where->ca);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &answer.body);
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, keep);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, &answer.head);
    if (strcmp(method, "HEAD") == 0) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    } else {
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    }
    CURLcode result = curl_easy_perform(easy);
    cr_assert_eq(result, CURLE_OK, "%s", curl_easy_strerror(result));
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &answer.code);
    curl_slist_free_all(headers);
    curl_easy_cleanup(easy);
    return answer;
}

static void drop(got *answer)
{
    free(answer->head.bytes);
    free(answer->body.bytes);
}

/* The value of a header, up to its line's end. */
static void header_of(const got *answer, const char *name, char out[512])
{
    char line[128];
    (void)snprintf(line, sizeof line, "\r\n%s: ", name);
    const char *at = strstr(answer->head.bytes, line);
    out[0] = 0;
    if (at != NULL) {
        at += strlen(line);
        (void)snprintf(out, 512, "%.*s", (int)strcspn(at, "\r\n"), at);
    }
}

Test(views, the_page_and_its_headers)
{
    static const struct {
        const char *name;
        const char *value;
    } HEADERS[] = {{"Content-Type", "text/html; charset=utf-8"},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"},
                   {"Cross-Origin-Resource-Policy", "same-origin"},
                   {"Cache-Control", "no-store"}};
    static const char *const RULES[] = {
        "default-src 'none';",    "connect-src 'self';", "base-uri 'none';",  "form-action 'none';",
        "frame-ancestors 'none'", "script-src 'sha256-", "style-src 'sha256-"};
    place where;
    char value[512];
    begin(&where);
    got page = ask(&where, "GET", "/", NULL, NULL);
    cr_assert_eq(page.code, 200);
    for (size_t i = 0; i < sizeof HEADERS / sizeof HEADERS[0]; i++) {
        header_of(&page, HEADERS[i].name, value);
        cr_expect_str_eq(value, HEADERS[i].value, "%s: %s", HEADERS[i].name, value);
    }
    header_of(&page, "Content-Security-Policy", value);
    for (size_t i = 0; i < sizeof RULES / sizeof RULES[0]; i++) {
        cr_expect_not_null(strstr(value, RULES[i]), "%s: %s", RULES[i], value);
    }
    cr_expect_null(strstr(value, "unsafe"), "%s", value);
    cr_expect_null(strstr(value, "http"), "%s", value);
    cr_expect_eq(strncmp(page.body.bytes, "<!doctype html>", 15), 0);
    got head = ask(&where, "HEAD", "/", NULL, NULL);
    cr_expect_eq(head.code, 200);
    cr_expect_eq(head.body.n, 0);
    got post = ask(&where, "POST", "/", "Dunlin-Protocol: 1", NULL);
    cr_expect_eq(post.code, 404);
    drop(&page);
    drop(&head);
    drop(&post);
    end(&where);
}

/* The one script is what the policy names, and nothing of the page asks for markup to be read. */
Test(views, the_policy_has_the_hash_of_the_script)
{
    static const char *const FORBIDDEN[] = {"innerHTML", "outerHTML",      "insertAdjacentHTML",
                                            "eval(",     "document.write", " style=\"",
                                            " onclick=", "http://127",     "https://"};
    place where;
    char value[512];
    char expected[80];
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    dunlin_error error = {0};
    begin(&where);
    got page = ask(&where, "GET", "/", NULL, NULL);
    header_of(&page, "Content-Security-Policy", value);
    const char *first = strstr(page.body.bytes, "<script>") + strlen("<script>");
    const char *last = strstr(first, "</script>");
    cr_assert_eq(dunlin__sha256_of(first, (size_t)(last - first), sha256, &error), DUNLIN_OK);
    gnutls_datum_t raw = {.data = sha256, .size = sizeof sha256};
    gnutls_datum_t base64;
    cr_assert_eq(gnutls_base64_encode2(&raw, &base64), 0);
    (void)snprintf(expected, sizeof expected, "script-src 'sha256-%.*s';", (int)base64.size,
                   (const char *)base64.data);
    gnutls_free(base64.data);
    cr_expect_not_null(strstr(value, expected), "%s in %s", expected, value);
    cr_expect_null(strstr(last, "<script"), "there is one script");
    for (size_t i = 0; i < sizeof FORBIDDEN / sizeof FORBIDDEN[0]; i++) {
        cr_expect_null(strstr(page.body.bytes, FORBIDDEN[i]), "%s", FORBIDDEN[i]);
    }
    drop(&page);
    end(&where);
}

Test(views, access_is_that_of_the_status)
{
    static const struct {
        const char *path;
        const char *header2;
        bool has_token;
        bool is_open;
        long code;
    } CASES[] = {
        {"/", NULL, false, false, 403},
        {"/metrics", NULL, false, false, 403},
        {"/", NULL, false, true, 200},
        {"/metrics", NULL, false, true, 200},
        /* With a token the page, which has no figures, asks for it. */
        {"/", NULL, true, false, 200},
        {"/metrics", NULL, true, false, 403},
        {"/v1/status", NULL, true, false, 403},
        {"/metrics", "Authorization: Bearer " SECRET, true, false, 200},
        {"/v1/status", "Authorization: Bearer " SECRET, true, false, 200},
        {"/metrics", "Authorization: Bearer 0" SECRET, true, false, 403},
        {"/metrics?token=" SECRET, NULL, true, false, 404},
    };
    place where;
    begin(&where);
    give_token(&where);
    dunlin__server *server = &where.fixture.server;
    const size_t n_tokens = server->status_token.n_tokens;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        server->status_token.n_tokens = CASES[i].has_token ? n_tokens : 0;
        server->options.has_open_status = CASES[i].is_open;
        got answer = ask(&where, "GET", CASES[i].path, FAR, CASES[i].header2);
        cr_expect_eq(answer.code, CASES[i].code, "%zu: %ld", i, answer.code);
        if (answer.code == 403) {
            cr_expect_null(strstr(answer.body.bytes, "phones"), "%zu: %s", i, answer.body.bytes);
            cr_expect_not_null(strstr(answer.body.bytes, "--status-token"), "%zu", i);
        }
        drop(&answer);
    }
    server->status_token.n_tokens = n_tokens;
    end(&where);
}

Test(views, metrics_have_their_type_and_count_requests)
{
    place where;
    char value[512];
    begin(&where);
    got refused = ask(&where, "POST", "/v1/populations/phones:enrol", "Dunlin-Protocol: 1", NULL);
    got stranger = ask(&where, "GET", "/nowhere", "Dunlin-Protocol: 1", NULL);
    got metrics = ask(&where, "GET", "/metrics", NULL, NULL);
    cr_expect_eq(metrics.code, 200);
    header_of(&metrics, "Content-Type", value);
    cr_expect_str_eq(value, "text/plain; version=0.0.4; charset=utf-8");
    cr_expect_not_null(
        strstr(metrics.body.bytes, "dunlin_requests_total{call=\"enrol\",result=\"invalid\"} 1\n"),
        "%s", metrics.body.bytes);
    cr_expect_not_null(
        strstr(metrics.body.bytes, "dunlin_requests_total{call=\"other\",result=\"not_found\"} 1"),
        "%s", metrics.body.bytes);
    const char *open = strstr(metrics.body.bytes, "\ndunlin_connections_open ");
    cr_assert_not_null(open, "%s", metrics.body.bytes);
    long n_open = strtol(strchr(open, ' '), NULL, 10);
    cr_expect(n_open >= 1 && n_open <= 3, "this one, and those that are closing: %ld", n_open);
    cr_expect_not_null(strstr(metrics.body.bytes, "\nprocess_open_fds "));
    cr_expect_eq(metrics.body.bytes[metrics.body.n - 1], '\n');
    cr_expect_not_null(strstr(where.logged, "3 devices: refused: enrol, invalid (400)"), "%s",
                       where.logged);
    cr_expect_not_null(strstr(where.logged, "3 devices: refused: other, not_found (404): no call"),
                       "%s", where.logged);
    cr_expect_null(strstr(where.logged, "127.0.0.1"), "no address is logged: %s", where.logged);
    drop(&refused);
    drop(&stranger);
    drop(&metrics);
    end(&where);
}
