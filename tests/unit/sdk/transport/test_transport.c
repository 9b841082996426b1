/*
 * test_transport.c - libcurl's transport against servers that cut, stall, redirect, encode, lie and
 * talk rubbish; several threads; stop.
 */
#include "client/fake_server.h"
#include "raw_server.h"

#include <criterion/criterion.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HELLO "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

static raw_server server;
static dunlin_transport *transport;

static dunlin_transport *make_transport(int32_t max_connections, int64_t stall_ms)
{
    dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_transport *made = NULL;
    dunlin_error error = {0};
    options.allow_plain_loopback = true;
    options.max_connections = max_connections;
    options.request_timeout_ms = stall_ms;
    options.connect_timeout_ms = 2000;
    cr_assert_eq(dunlin__transport_curl_create(&options, &alloc, &made, &error), DUNLIN_OK, "%s",
                 error.text);
    return made;
}

static void begin(const char *answer)
{
    raw_server_start(&server, answer);
    transport = make_transport(0, 1000);
}

static void end(void)
{
    transport->ops->destroy_fn(transport);
    raw_server_stop(&server);
}

static char body[256];

static dunlin_http_request get(void)
{
    dunlin_http_request request = DUNLIN_HTTP_REQUEST_INIT;
    request.method = "GET";
    request.url = server.url;
    request.reply = body;
    request.reply_limit_bytes = sizeof body;
    return request;
}

static dunlin_status perform(const dunlin_http_request *request, dunlin_http_reply *reply,
                             dunlin_error *error)
{
    memset(error, 0, sizeof *error);
    dunlin_status status = transport->ops->perform_fn(transport, request, reply, error);
    if (status != DUNLIN_OK) {
        cr_expect_eq(error->status, status);
        cr_expect_neq(error->text[0], '\0');
        cr_expect_null(strchr(error->text, '\n'));
    }
    return status;
}

static void expect_get(const char *answer, dunlin_status wanted)
{
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    begin(answer);
    server.then = RAW_CLOSE;
    dunlin_http_request request = get();
    dunlin_status status = perform(&request, &reply, &error);
    cr_expect_eq(status, wanted, "%.60s: %s, not %s: %s", answer, dunlin_status_name(status),
                 dunlin_status_name(wanted), error.text);
    end();
}

Test(transport, answers)
{
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    begin(HELLO);
    dunlin_http_request request = get();
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(perform(&request, &reply, &error), DUNLIN_OK, "%s", error.text);
        cr_expect_eq(reply.status, 200);
        cr_expect_eq(reply.body_bytes, 5);
        cr_expect_eq(reply.received_bytes, 5);
        cr_expect_eq(memcmp(body, "hello", 5), 0);
        cr_expect_eq(reply.upload_offset, -1);
    }
    dunlin_runtime_stats stats = DUNLIN_RUNTIME_STATS_INIT;
    transport->ops->get_stats_fn(transport, &stats);
    cr_expect_eq(stats.n_requests, 3);
    cr_expect_eq(stats.n_handshakes, 1, "the connection is kept");
    cr_expect_eq(stats.body_bytes_received, 15);
    cr_expect_eq(atomic_load(&server.n_connections), 1);
    end();
}

Test(transport, what_is_refused)
{
    expect_get("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
               DUNLIN_PROTOCOL);
    expect_get("HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 5\r\n\r\nhello",
               DUNLIN_OK);
    expect_get("HTTP/1.1 301 M\r\nLocation: https://other.example/\r\nContent-Length: 0\r\n\r\n",
               DUNLIN_PROTOCOL);
    expect_get("HTTP/1.1 302 M\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", DUNLIN_PROTOCOL);
    expect_get("HTTP/1.1 307 M\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", DUNLIN_PROTOCOL);
    expect_get("HTTP/1.1 308 M\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n", DUNLIN_PROTOCOL);
    expect_get("220 this is no web server\r\n", DUNLIN_PROTOCOL);
    expect_get("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
               "5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n",
               DUNLIN_OK);
    expect_get("HTTP/1.1 banana\r\n\r\n", DUNLIN_PROTOCOL);
    expect_get("HTTP/1.1 200 OK\r\nContent-Length: banana\r\n\r\nhello", DUNLIN_PROTOCOL);
    expect_get("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
               DUNLIN_CLOSED);
    expect_get("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhello", DUNLIN_CLOSED);
    expect_get("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", DUNLIN_CLOSED);
    expect_get("HTTP/1.1 200 OK\r\nConte", DUNLIN_CLOSED);
    expect_get("", DUNLIN_CLOSED);
}

Test(transport, a_reply_beyond_its_limit)
{
    static char answer[4096];
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    int n_head = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n");
    memset(answer + n_head, 'x', 300);
    begin(answer);
    dunlin_http_request request = get();
    static char guarded[300];
    memset(guarded, '-', sizeof guarded);
    request.reply = guarded;
    request.reply_limit_bytes = 299;
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_LIMIT);
    cr_expect_eq(guarded[299], '-');
    request.reply_limit_bytes = 300;
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_OK);
    end();
    memcpy(answer + 9, "500", 3); /* an error's body is cut and kept apart */
    begin(answer);
    memset(guarded, '-', sizeof guarded);
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_OK);
    cr_expect_eq(reply.status, 500);
    cr_expect_eq(reply.error_bytes, 300);
    cr_expect_eq(reply.body_bytes, 0);
    cr_expect_eq(guarded[0], '-');
    end();
}

Test(transport, an_endless_error_page_is_cut)
{
    static char answer[3 << 20];
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    memset(answer, 'x', sizeof answer - 1);
    static const char HEAD[] = "HTTP/1.1 404 No\r\nContent-Length: 99999999\r\n\r\n";
    memcpy(answer, HEAD, sizeof HEAD - 1);
    begin(answer);
    dunlin_http_request request = get();
    cr_expect_neq(perform(&request, &reply, &error), DUNLIN_OK);
    cr_expect_eq(reply.error_bytes, sizeof reply.error_body);
    end();
}

Test(transport, headers_that_matter)
{
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    begin("HTTP/1.1 206 Part\r\nretry-after: 7\r\nUPLOAD-OFFSET:  42 \r\n"
          "Content-Range: bytes 10-14/200\r\nContent-Length: 5\r\n\r\nhello");
    dunlin_http_request request = get();
    cr_assert_eq(perform(&request, &reply, &error), DUNLIN_OK);
    cr_expect_eq(reply.retry_after_ms, 7000);
    cr_expect_eq(reply.upload_offset, 42);
    cr_expect_eq(reply.range_first, 10);
    cr_expect_eq(reply.range_total, 200);
    end();
    begin("HTTP/1.1 200 OK\r\nRetry-After: 99999999999999999999\r\nUpload-Offset: -3\r\n"
          "Content-Range: bytes x-14/\r\nContent-Length: 5\r\n\r\nhello");
    cr_assert_eq(perform(&request, &reply, &error), DUNLIN_OK);
    cr_expect_eq(reply.retry_after_ms, -1);
    cr_expect_eq(reply.upload_offset, -1);
    cr_expect_eq(reply.range_first, -1);
    end();
}

Test(transport, stall)
{
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    struct timespec from;
    struct timespec to;
    begin("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
    server.then = RAW_STALL;
    dunlin_http_request request = get();
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_TIMEOUT, "%s", error.text);
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    cr_expect_leq(to.tv_sec - from.tv_sec, 5);
    request.timeout_ms = 100;
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_TIMEOUT, "%s", error.text);
    end();
}

/* libcurl takes a long, and where that has 32 bits this is one millisecond in the lower of them. */
Test(transport, a_long_limit_is_not_a_short_one)
{
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    struct timespec from;
    struct timespec to;
    begin("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel");
    server.then = RAW_STALL;
    dunlin_http_request request = get();
    request.timeout_ms = (INT64_C(1) << 32) + 1;
    (void)clock_gettime(CLOCK_MONOTONIC, &from);
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_TIMEOUT, "%s", error.text);
    (void)clock_gettime(CLOCK_MONOTONIC, &to);
    const int64_t ms =
        (int64_t)(to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
    cr_expect_geq(ms, 500, "after %lld ms", (long long)ms);
    end();
}

Test(transport, a_reset_connection_is_closed)
{
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    begin("HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello");
    server.then = RAW_RESET;
    dunlin_http_request request = get();
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_CLOSED, "%s", error.text);
    end();
}

Test(transport, nobody_listens)
{
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    begin(HELLO);
    dunlin_http_request request = get();
    char url[64];
    (void)strcpy(url, server.url);
    raw_server_stop(&server);
    request.url = url;
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_UNREACHABLE, "%s", error.text);
    request.url = "http://192.0.2.1/";
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_ARGUMENT, "plain http beyond loopback");
    transport->ops->destroy_fn(transport);
}

Test(transport, files_both_ways)
{
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    char path[] = "/tmp/dunlin-test-XXXXXX";
    char found[32] = {0};
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pwrite(fd, "0123456789", 10, 0), 10);
    begin(HELLO);
    dunlin_http_request request = get();
    request.method = "PUT";
    request.body_fd = fd;
    request.body_offset = 3;
    request.body_bytes = 4;
    request.reply_fd = fd;
    request.reply_offset = 8;
    cr_assert_eq(perform(&request, &reply, &error), DUNLIN_OK, "%s", error.text);
    cr_expect_eq(reply.sent_bytes, 4);
    cr_assert_eq(pread(fd, found, sizeof found, 0), 13);
    cr_expect_str_eq(found, "01234567hello");
    request.body_bytes = 400; /* more than there is */
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_IO, "%s", error.text);
    request.body_fd = -1;
    request.body_bytes = 0;
    request.method = "GET";
    request.reply_fd = open("/dev/full", O_RDWR);
    cr_expect_eq(perform(&request, &reply, &error), DUNLIN_SPACE, "%s", error.text);
    (void)close(request.reply_fd);
    end();
    (void)close(fd);
    (void)unlink(path);
}

/* --- threads --- */

#define N_THREADS 8
#define N_EACH 40

static void *ask_often(void *ctx)
{
    char own[16];
    intptr_t n_wrong = 0;
    (void)ctx;
    for (int i = 0; i < N_EACH; i++) {
        dunlin_http_request request = get();
        dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
        dunlin_error error = {0};
        memset(own, 0, sizeof own);
        request.reply = own;
        request.reply_limit_bytes = sizeof own;
        bool is_right =
            transport->ops->perform_fn(transport, &request, &reply, &error) == DUNLIN_OK &&
            reply.body_bytes == 5 && memcmp(own, "hello", 5) == 0;
        n_wrong += is_right ? 0 : 1;
    }
    return (void *)n_wrong;
}

Test(transport, threads_share_few_connections)
{
    pthread_t threads[N_THREADS];
    raw_server_start(&server, HELLO);
    transport = make_transport(3, 5000);
    for (int i = 0; i < N_THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, ask_often, NULL), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        void *n_wrong = NULL;
        (void)pthread_join(threads[i], &n_wrong);
        cr_expect_null(n_wrong);
    }
    dunlin_runtime_stats stats = DUNLIN_RUNTIME_STATS_INIT;
    transport->ops->get_stats_fn(transport, &stats);
    cr_expect_eq(stats.n_requests, N_THREADS * N_EACH);
    cr_expect_leq(stats.n_connections_peak, 3);
    cr_expect_leq(atomic_load(&server.n_open_peak), 3);
    cr_expect_leq(stats.n_handshakes, 6, "connections are used again");
    end();
}

static atomic_bool wants_stop;

static bool ask_stop(void *ctx)
{
    (void)ctx;
    return atomic_load(&wants_stop);
}

typedef struct waiting {
    dunlin_status status;
    int64_t ended_ms;
} waiting;

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void *wait_for_ever(void *ctx)
{
    waiting *w = ctx;
    char own[16];
    dunlin_http_request request = get();
    dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
    dunlin_error error;
    request.reply = own;
    request.reply_limit_bytes = sizeof own;
    request.should_stop_fn = ask_stop;
    w->status = transport->ops->perform_fn(transport, &request, &reply, &error);
    w->ended_ms = now_ms();
    return NULL;
}

/* Leader and followers alike end within 200 ms, while a ninth thread keeps the transport busy. */
Test(transport, stop_from_another_thread)
{
    static waiting all[N_THREADS];
    pthread_t threads[N_THREADS];
    raw_server_start(&server, HELLO);
    server.then = RAW_STALL;
    server.send_bytes = sizeof HELLO - 3;
    transport = make_transport(0, 30000);
    for (int i = 0; i < N_THREADS; i++) {
        cr_assert_eq(pthread_create(&threads[i], NULL, wait_for_ever, &all[i]), 0);
    }
    struct timespec pause = {.tv_nsec = 300000000L};
    (void)nanosleep(&pause, NULL);
    int64_t stopped_ms = now_ms();
    atomic_store(&wants_stop, true);
    for (int i = 0; i < N_THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
        cr_expect_eq(all[i].status, DUNLIN_STOPPED, "%s", dunlin_status_name(all[i].status));
        cr_expect_leq(all[i].ended_ms - stopped_ms, 200);
    }
    end();
}

Test(transport, options_are_checked)
{
    static const char *const SHORT[] = {"AAAA", NULL};
    static const char *const TRICK[] = {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA;AAAAAAAA=", NULL};
    static const char PIN[] = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    static const char *const MANY[] = {PIN, PIN, PIN, PIN, PIN, NULL};
    const char *const *const PINS[] = {SHORT, TRICK, MANY};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    for (size_t i = 0; i < 3; i++) {
        dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
        dunlin_transport *made = NULL;
        dunlin_error error = {0};
        options.spki_pins = PINS[i];
        cr_expect_eq(dunlin__transport_curl_create(&options, &alloc, &made, &error),
                     DUNLIN_ARGUMENT);
        cr_expect_not_null(strstr(error.text, "pin"));
        cr_expect_null(made);
    }
    dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
    dunlin_transport *made = NULL;
    dunlin_error error = {0};
    options.ca_file = "/nowhere/ca.pem";
    cr_expect_eq(dunlin__transport_curl_create(&options, &alloc, &made, &error), DUNLIN_TLS);
    cr_expect_not_null(strstr(error.text, "/nowhere/ca.pem"));
}
