/*
 * stress_transport.c - eight threads over one transport of three connections: answers, a server
 * that closes after each, and stops in the middle of a stalled exchange.
 */
#include "raw_server.h"
#include "transport/transport.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#define HELLO "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
#define N_THREADS 8
#define N_EACH 60

static raw_server server;
static dunlin_transport *transport;
static atomic_bool wants_stop;
static dunlin_status wanted;
static atomic_int n_wrong;

static bool ask_stop(void *ctx)
{
    (void)ctx;
    return atomic_load(&wants_stop);
}

static void *ask(void *ctx)
{
    int n = *(const int *)ctx;
    for (int i = 0; i < n; i++) {
        char own[16];
        dunlin_http_request request = DUNLIN_HTTP_REQUEST_INIT;
        dunlin_http_reply reply = DUNLIN_HTTP_REPLY_INIT;
        dunlin_error error = {0};
        request.method = "GET";
        request.url = server.url;
        request.reply = own;
        request.reply_limit_bytes = sizeof own;
        request.should_stop_fn = ask_stop;
        dunlin_status status = transport->ops->perform_fn(transport, &request, &reply, &error);
        if (status != wanted || (status == DUNLIN_OK && memcmp(own, "hello", 5) != 0)) {
            (void)fprintf(stderr, "stress_transport: %s: %s\n", dunlin_status_name(status),
                          error.text);
            (void)atomic_fetch_add(&n_wrong, 1);
        }
    }
    return NULL;
}

static void run(raw_then then, size_t send_bytes, int n_each, dunlin_status expected)
{
    pthread_t threads[N_THREADS];
    raw_server_start(&server, HELLO);
    server.then = then;
    server.send_bytes = send_bytes;
    wanted = expected;
    atomic_store(&wants_stop, false);
    for (int i = 0; i < N_THREADS; i++) {
        (void)pthread_create(&threads[i], NULL, ask, &n_each);
    }
    if (expected == DUNLIN_STOPPED) {
        struct timespec pause = {.tv_nsec = 200000000L};
        (void)nanosleep(&pause, NULL);
        atomic_store(&wants_stop, true);
    }
    for (int i = 0; i < N_THREADS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
}

int main(void)
{
    dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_error error = {0};
    options.allow_plain_loopback = true;
    options.max_connections = 3;
    if (dunlin__transport_curl_create(&options, &alloc, &transport, &error) != DUNLIN_OK) {
        (void)fprintf(stderr, "stress_transport: %s\n", error.text);
        return 1;
    }
    run(RAW_KEEP, sizeof HELLO - 1, N_EACH, DUNLIN_OK);
    raw_server_stop(&server);
    run(RAW_CLOSE, sizeof HELLO - 1, N_EACH, DUNLIN_OK);
    raw_server_stop(&server);
    run(RAW_STALL, sizeof HELLO - 3, 1, DUNLIN_STOPPED);
    transport->ops->destroy_fn(transport);
    raw_server_stop(&server);
    return atomic_load(&n_wrong) == 0 ? 0 : 1;
}
