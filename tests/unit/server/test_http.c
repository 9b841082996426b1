/*
 * test_http.c - the sockets: TLS, its refusals, bodies that are too large, invalid paths.
 */
#include "base/private_key.h"
#include "http/http_daemon.h"
#include "server/device.h"

#include <criterion/criterion.h>

#include <curl/curl.h>
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct site {
    test_server fixture;
    dunlin__http *http;
    uint16_t port;
    char ca[256];
    char certificate[256];
    char key[256];
} site;

static void begin(site *where, bool is_mutual)
{
    dunlin_error error = {0};
    test_server_folder(&where->fixture);
    test_server_open(&where->fixture, ", \"rounds\": 1, \"cohort\": 1", 0);
    const char *folder = where->fixture.server.folder.text;
    (void)snprintf(where->ca, sizeof where->ca, "%.200s/ca.pem", folder);
    (void)snprintf(where->certificate, sizeof where->certificate, "%.200s/client.pem", folder);
    (void)snprintf(where->key, sizeof where->key, "%.200s/client.key", folder);
    where->fixture.server.options.mtls_ca = is_mutual ? where->ca : NULL;
    cr_assert_eq(dunlin__http_start(&where->fixture.server, &where->http, &where->port, &error),
                 DUNLIN_OK, "%s", error.text);
}

static void end(site *where)
{
    dunlin__http_stop(where->http);
    test_server_close(&where->fixture);
    test_server_end(&where->fixture);
}

typedef struct answer {
    CURLcode result;
    long code;
    size_t n_body;
    char body[8192];
} answer;

static size_t keep(char *data, size_t size, size_t n, void *ctx)
{
    answer *got = ctx;
    size_t n_bytes = size * n;
    size_t room = sizeof got->body - 1 - got->n_body;
    size_t n_kept = n_bytes < room ? n_bytes : room;
    memcpy(got->body + got->n_body, data, n_kept);
    got->n_body += n_kept;
    got->body[got->n_body] = 0;
    return n_bytes;
}

typedef struct asked {
    const char *method;
    const char *path;
    const char *ca;
    const char *certificate;
    const char *key;
    const char *header;
    const char *header2;
    const char *host; /* of the URL, by name resolution of our own; NULL: 127.0.0.1 */
    size_t n_body;
} asked;

static answer ask(const site *where, const asked *what)
{
    static char body[2u * 1024 * 1024];
    char url[512];
    answer got = {.result = CURLE_OK};
    CURL *easy = curl_easy_init();
    cr_assert_not_null(easy);
    const char *host = what->host != NULL ? what->host : "127.0.0.1";
    (void)snprintf(url, sizeof url, "https://%s:%u%s", host, (unsigned)where->port, what->path);
    char mapping[128];
    (void)snprintf(mapping, sizeof mapping, "%s:%u:127.0.0.1", host, (unsigned)where->port);
    struct curl_slist *hosts = curl_slist_append(NULL, mapping);
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:");
    headers = curl_slist_append(headers, what->header != NULL ? what->header : "X-None: 1");
    headers = what->header2 != NULL ? curl_slist_append(headers, what->header2) : headers;
    curl_easy_setopt(easy, CURLOPT_URL, url);
    curl_easy_setopt(easy, CURLOPT_RESOLVE, hosts);
    curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(easy, CURLOPT_PROXY, "");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT, 20L);
    curl_easy_setopt(easy, CURLOPT_CAINFO, what->ca != NULL ? what->ca : where->ca);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, keep);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &got);
    if (what->certificate != NULL) {
        curl_easy_setopt(easy, CURLOPT_SSLCERT, what->certificate);
        curl_easy_setopt(easy, CURLOPT_SSLKEY, what->key);
    }
    if (what->n_body > 0) {
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)what->n_body);
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, body);
    }
    if (what->method != NULL) {
        curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, what->method);
    }
    got.result = curl_easy_perform(easy);
    curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &got.code);
    curl_slist_free_all(headers);
    curl_slist_free_all(hosts);
    curl_easy_cleanup(easy);
    return got;
}

Test(http, status_over_tls)
{
    site where;
    begin(&where, false);
    answer got = ask(&where, &(asked){.path = "/v1/status"});
    cr_assert_eq(got.result, CURLE_OK, "%s", curl_easy_strerror(got.result));
    cr_assert_eq(got.code, 200);
    cr_assert_not_null(strstr(got.body, "\"population\": \"phones\""));
    /* Only this CA will do. */
    site other;
    begin(&other, false);
    got = ask(&where, &(asked){.path = "/v1/status", .ca = other.ca});
    cr_assert_eq(got.result, CURLE_PEER_FAILED_VERIFICATION);
    end(&other);
    end(&where);
}

#define SECRET "0123456789abcdef0123456789abcdef"

/* The status is for this machine, for whoever has the secret, or for all if the options say so;
 * what a proxy writes counts only if it is named. */
Test(http, the_status_is_not_for_everybody)
{
    static const struct {
        const char *header;
        const char *header2;
        bool has_proxy;
        bool is_open;
        long code;
        const char *says;
    } CASES[] = {
        {NULL, NULL, false, false, 200, "population"},
        {"X-Forwarded-For: 203.0.113.9", NULL, false, false, 403, "so through a proxy that no"},
        {"Via: 1.1 x", NULL, false, false, 403, "127.0.0.1 with the header Via"},
        {"X-Forwarded-For: 203.0.113.9", NULL, false, true, 200, "population"},
        {"X-Forwarded-For: 203.0.113.9", "Authorization: Bearer " SECRET, false, false, 200, "pop"},
        {NULL, NULL, true, false, 403, "X-Forwarded-For: (none)"},
        {"X-Forwarded-For: somebody", NULL, true, true, 403, "X-Forwarded-For: somebody"},
        {"X-Forwarded-For: 203.0.113.9", NULL, true, false, 403, "came from 203.0.113.9"},
        {"X-Forwarded-For: 127.0.0.1, 203.0.113.9", NULL, true, false, 403, "from 203.0.113.9"},
        {"X-Forwarded-For: ::1", NULL, true, false, 403, "came from ::1"},
        {"X-Forwarded-For: ::1", NULL, true, true, 200, "population"},
        {"X-Forwarded-For: ::1", "Authorization: Bearer " SECRET, true, false, 200, "population"},
        {"X-Forwarded-For: ::1", "Authorization: Bearer 0" SECRET, true, false, 403, "--status"},
        {"X-Forwarded-For: ::1", "Authorization: Basic " SECRET, true, false, 403, "--status"},
    };
    site where;
    begin(&where, false);
    dunlin__server *server = &where.fixture.server;
    dunlin_error error = {0};
    const char *path = test_server_write(&where.fixture, "secret", SECRET "\n");
    cr_assert_eq(dunlin__places_read(path, 1, &server->alloc, &server->status_token, &error),
                 DUNLIN_OK, "%s", error.text);
    static const char *const proxies[] = {"127.0.0.1"};
    server->options.proxies = proxies;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        server->options.n_proxies = CASES[i].has_proxy ? 1 : 0;
        server->options.has_open_status = CASES[i].is_open;
        answer got = ask(
            &where,
            &(asked){.path = "/v1/status", .header = CASES[i].header, .header2 = CASES[i].header2});
        cr_expect_eq(got.code, CASES[i].code, "%zu: %ld", i, got.code);
        cr_expect_not_null(strstr(got.body, CASES[i].says), "%zu: %s", i, got.body);
    }
    end(&where);
}

/* A new certificate is served without a stop, on the same port. */
Test(http, a_new_certificate_is_taken_up_while_it_runs)
{
    site where;
    begin(&where, false);
    dunlin_server_options *options = &where.fixture.server.options;
    const asked wanted = {.path = "/v1/status", .host = "fl.example.org"};
    dunlin_error error = {0};
    bool is_new = true;
    cr_assert_eq(ask(&where, &wanted).result, CURLE_PEER_FAILED_VERIFICATION);
    cr_assert_eq(dunlin__http_renew(where.http, &is_new, &error), DUNLIN_OK, "%s", error.text);
    cr_assert(!is_new);
    static const char *const names[] = {"fl.example.org"};
    options->names = names;
    options->n_names = 1;
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(dunlin__http_renew(where.http, &is_new, &error), DUNLIN_OK, "%s", error.text);
        cr_assert_eq(is_new, i == 0);
        answer got = ask(&where, &wanted);
        cr_assert_eq(got.code, 200, "%s", curl_easy_strerror(got.result));
    }
    end(&where);
}

Test(http, mutual_tls_lets_in_whom_it_knows)
{
    site where;
    site other;
    begin(&where, true);
    begin(&other, false);
    asked known = {.path = "/v1/status", .certificate = where.certificate, .key = where.key};
    asked foreign = {.path = "/v1/status", .certificate = other.certificate, .key = other.key};
    answer got = ask(&where, &known);
    cr_assert_eq(got.code, 200, "%s", curl_easy_strerror(got.result));
    got = ask(&where, &(asked){.path = "/v1/status"});
    cr_assert_neq(got.result, CURLE_OK);
    cr_assert_eq(got.code, 0);
    got = ask(&where, &foreign);
    cr_assert_neq(got.result, CURLE_OK);
    cr_assert_eq(got.code, 0);
    end(&other);
    end(&where);
}

/* A client certificate by the server's own CA, whose time is over. */
static void make_expired(const site *where, const char *path)
{
    char ca_key_path[256];
    unsigned char pem[2048] = {0};
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_pk_context ca_key;
    mbedtls_pk_context key;
    mbedtls_x509write_cert cert;
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&random);
    mbedtls_pk_init(&ca_key);
    mbedtls_pk_init(&key);
    mbedtls_x509write_crt_init(&cert);
    (void)snprintf(ca_key_path, sizeof ca_key_path, "%.200s/ca.key",
                   where->fixture.server.folder.text);
    cr_assert_eq(mbedtls_ctr_drbg_seed(&random, mbedtls_entropy_func, &entropy, NULL, 0), 0);
    cr_assert_eq(dunlin__read_private_key(&ca_key, ca_key_path, &random), 0);
    cr_assert_eq(dunlin__read_private_key(&key, where->key, &random), 0);
    mbedtls_x509write_crt_set_version(&cert, MBEDTLS_X509_CRT_VERSION_3);
    mbedtls_x509write_crt_set_md_alg(&cert, MBEDTLS_MD_SHA256);
    mbedtls_x509write_crt_set_subject_key(&cert, &key);
    mbedtls_x509write_crt_set_issuer_key(&cert, &ca_key);
    cr_assert_eq(mbedtls_x509write_crt_set_issuer_name(&cert, "CN=Dunlin development CA,O=Dunlin"),
                 0);
    cr_assert_eq(mbedtls_x509write_crt_set_subject_name(&cert, "CN=late"), 0);
    cr_assert_eq(dunlin__set_serial(&cert, (unsigned char[]){77}, 1), 0);
    cr_assert_eq(mbedtls_x509write_crt_set_validity(&cert, "20200101000000", "20210101000000"), 0);
    cr_assert_eq(
        mbedtls_x509write_crt_pem(&cert, pem, sizeof pem, mbedtls_ctr_drbg_random, &random), 0);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    (void)fputs((const char *)pem, file);
    (void)fclose(file);
    mbedtls_x509write_crt_free(&cert);
    mbedtls_pk_free(&key);
    mbedtls_pk_free(&ca_key);
    mbedtls_ctr_drbg_free(&random);
    mbedtls_entropy_free(&entropy);
}

Test(http, mutual_tls_refuses_an_expired_certificate)
{
    site where;
    char path[256];
    begin(&where, true);
    (void)snprintf(path, sizeof path, "%.200s/expired.pem", where.fixture.folder);
    make_expired(&where, path);
    asked expired = {.path = "/v1/status", .certificate = path, .key = where.key};
    answer got = ask(&where, &expired);
    cr_assert_neq(got.result, CURLE_OK);
    cr_assert_eq(got.code, 0);
    end(&where);
}

#define VERSION "Dunlin-Protocol: 1"

Test(http, refusals_carry_a_status)
{
    static const struct {
        asked what;
        long code;
        dunlin_v1_status_code_t status;
    } cases[] = {
        {{.path = "/index.html", .header = VERSION}, 404, DUNLIN_V1_STATUS_CODE_NOT_FOUND},
        {{.path = "/v1/status?x", .header = VERSION}, 404, DUNLIN_V1_STATUS_CODE_NOT_FOUND},
        {{.path = "/v1/objects/../../etc/passwd", .header = VERSION},
         404,
         DUNLIN_V1_STATUS_CODE_NOT_FOUND},
        {{.path = "/v1/populations/%70hones:enrol", .header = VERSION, .n_body = 4},
         404,
         DUNLIN_V1_STATUS_CODE_NOT_FOUND},
        {{.path = "/v1/populations/phones:enrol", .header = VERSION},
         405,
         DUNLIN_V1_STATUS_CODE_UNIMPLEMENTED},
        {{.path = "/v1/populations/phones:enrol", .n_body = 4}, 400, DUNLIN_V1_STATUS_CODE_VERSION},
        {{.path = "/v1/populations/phones:enrol", .header = "Dunlin-Protocol: 2", .n_body = 4},
         400,
         DUNLIN_V1_STATUS_CODE_VERSION},
        {{.path = "/v1/populations/phones:enrol", .header = VERSION, .n_body = 4},
         400,
         DUNLIN_V1_STATUS_CODE_INVALID},
        {{.path = "/v1/populations/phones:enrol", .header = VERSION, .n_body = 70000},
         413,
         DUNLIN_V1_STATUS_CODE_TOO_LARGE},
        {{.path = "/v1/populations/phones:enrol",
          .header = VERSION,
          .header2 = "Transfer-Encoding: chunked",
          .n_body = 70000},
         413,
         DUNLIN_V1_STATUS_CODE_TOO_LARGE},
        {{.path = "/v1/populations/phones:enrol",
          .header = VERSION,
          .header2 = "Content-Encoding: gzip",
          .n_body = 4},
         400,
         DUNLIN_V1_STATUS_CODE_INVALID},
        {{.path = "/v1/assignments/abc:put", .header = VERSION, .n_body = 2000000},
         413,
         DUNLIN_V1_STATUS_CODE_TOO_LARGE},
        {{.method = "PUT",
          .path = "/v1/assignments/abc/objects/"
                  "0000000000000000000000000000000000000000000000000000000000000000",
          .header = VERSION,
          .n_body = 100000},
         404,
         DUNLIN_V1_STATUS_CODE_NOT_FOUND},
    };
    site where;
    begin(&where, false);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        answer got = ask(&where, &cases[i].what);
        dunlin__status status;
        dunlin_error error = {0};
        cr_expect_eq(got.result, CURLE_OK, "%zu: %s", i, curl_easy_strerror(got.result));
        cr_expect_eq(got.code, cases[i].code, "%zu: %ld", i, got.code);
        cr_expect_eq(dunlin__status_decode((const uint8_t *)got.body, got.n_body, &status, &error),
                     DUNLIN_OK, "%zu: %s", i, error.text);
        cr_expect_eq(status.code, cases[i].status, "%zu: %s", i, status.text);
    }
    end(&where);
}

Test(http, headers_have_a_limit)
{
    static char header[70000];
    site where;
    begin(&where, false);
    memset(header, 'x', sizeof header - 1);
    header[0] = 'A';
    header[1] = ':';
    answer got = ask(&where, &(asked){.path = "/v1/status", .header = header});
    cr_expect_neq(got.code, 200);
    cr_expect(got.code == 431 || got.result != CURLE_OK, "%ld", got.code);
    got = ask(&where, &(asked){.path = "/v1/status"});
    cr_expect_eq(got.code, 200, "it goes on");
    end(&where);
}
