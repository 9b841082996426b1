/*
 * raw_server.c - a thread that accepts, a thread for each connection; requests are only counted.
 */
#include "raw_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct connection {
    raw_server *server;
    int fd;
} connection;

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = 0, .tv_nsec = ms * 1000000L};
    (void)nanosleep(&pause, NULL);
}

/* Bytes of the body that the request's head announces. */
static size_t body_length(const char *head)
{
    for (const char *line = strchr(head, '\n'); line != NULL; line = strchr(line + 1, '\n')) {
        if (strncasecmp(line + 1, "Content-Length:", 15) == 0) {
            return strtoul(line + 16, NULL, 10);
        }
    }
    return 0;
}

/* Reads one request, head and body; false when the other side is gone or the test ends. */
static bool read_request(const connection *c)
{
    static _Thread_local char buffer[1 << 16];
    size_t n_bytes = 0;
    size_t wanted = 0;
    while (!atomic_load(&c->server->is_ending)) {
        struct pollfd ready = {.fd = c->fd, .events = POLLIN};
        if (poll(&ready, 1, 20) <= 0) {
            continue;
        }
        ssize_t n = recv(c->fd, buffer + n_bytes, sizeof buffer - 1 - n_bytes, 0);
        if (n <= 0) {
            return false;
        }
        n_bytes += (size_t)n;
        buffer[n_bytes] = '\0';
        const char *end = strstr(buffer, "\r\n\r\n");
        if (wanted == 0 && end != NULL) {
            wanted = (size_t)(end - buffer) + 4 + body_length(buffer);
        }
        if (wanted != 0 && n_bytes >= wanted) {
            return true;
        }
    }
    return false;
}

static void *serve(void *ctx)
{
    connection c = *(connection *)ctx;
    raw_server *server = c.server;
    free(ctx);
    while (read_request(&c)) {
        (void)atomic_fetch_add(&server->n_requests, 1);
        size_t n_sent = 0;
        while (n_sent < server->send_bytes) {
            ssize_t n =
                send(c.fd, server->answer + n_sent, server->send_bytes - n_sent, MSG_NOSIGNAL);
            if (n <= 0) {
                break;
            }
            n_sent += (size_t)n;
        }
        if (server->then == RAW_RESET) {
            struct linger now = {.l_onoff = 1, .l_linger = 0};
            (void)setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        }
        if (server->then == RAW_CLOSE || server->then == RAW_RESET) {
            break;
        }
    }
    (void)close(c.fd);
    (void)atomic_fetch_sub(&server->n_open, 1);
    (void)atomic_fetch_sub(&server->n_threads, 1);
    return NULL;
}

static void *accept_all(void *ctx)
{
    raw_server *server = ctx;
    while (!atomic_load(&server->is_ending)) {
        struct pollfd ready = {.fd = server->fd, .events = POLLIN};
        if (poll(&ready, 1, 20) <= 0) {
            continue;
        }
        connection *c = malloc(sizeof *c);
        c->server = server;
        c->fd = accept(server->fd, NULL, NULL);
        pthread_t thread;
        (void)atomic_fetch_add(&server->n_connections, 1);
        int n_open = atomic_fetch_add(&server->n_open, 1) + 1;
        if (n_open > atomic_load(&server->n_open_peak)) {
            atomic_store(&server->n_open_peak, n_open); /* this thread alone writes it */
        }
        (void)atomic_fetch_add(&server->n_threads, 1);
        (void)pthread_create(&thread, NULL, serve, c);
        (void)pthread_detach(thread);
    }
    return NULL;
}

void raw_server_start(raw_server *server, const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_bytes = sizeof address;
    memset(server, 0, sizeof *server);
    server->answer = text;
    server->answer_bytes = strlen(text);
    server->send_bytes = server->answer_bytes;
    server->then = RAW_KEEP;
    server->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(server->fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(server->fd, 64) != 0 ||
        getsockname(server->fd, (struct sockaddr *)&address, &n_bytes) != 0) {
        perror("raw server");
        abort();
    }
    (void)snprintf(server->url, sizeof server->url, "http://127.0.0.1:%d/v1/x",
                   ntohs(address.sin_port));
    (void)pthread_create(&server->thread, NULL, accept_all, server);
}

void raw_server_stop(raw_server *server)
{
    atomic_store(&server->is_ending, true);
    (void)pthread_join(server->thread, NULL);
    while (atomic_load(&server->n_threads) > 0) {
        pause_ms(2);
    }
    (void)close(server->fd);
}
