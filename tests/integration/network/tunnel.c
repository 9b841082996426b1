/*
 * tunnel.c - a proxy for CONNECT: a thread that accepts, and one for each connection.
 *
 * Invariant: what a connection's thread uses is its own or atomic; closing waits for all of them.
 */
#define _GNU_SOURCE
#include "tunnel.h"

#include <criterion/criterion.h>

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_CONNECTIONS 64
#define POLL_MS 20

typedef struct {
    tunnel *proxy;
    int fd;
    pthread_t thread;
} connection;

struct tunnel {
    int fd;
    uint16_t port;
    const char *refusal;
    pthread_t thread;
    connection connections[MAX_CONNECTIONS];
    int n_connections;
    atomic_bool is_closing;
    atomic_int n_requests;
    atomic_int n_readable;
    _Atomic uint64_t n_bytes;
};

static bool is_closing(tunnel *proxy)
{
    return atomic_load(&proxy->is_closing);
}

/* True: there is something to read, or the other side is gone. */
static bool wait_for(tunnel *proxy, int fd)
{
    struct pollfd waits = {.fd = fd, .events = POLLIN};
    while (!is_closing(proxy)) {
        if (poll(&waits, 1, POLL_MS) > 0) {
            return true;
        }
    }
    return false;
}

static bool send_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0) {
            return false;
        }
        bytes += sent;
        n -= (size_t)sent;
    }
    return true;
}

/* Up to the empty line; false: it is gone or too long. */
static bool read_head(connection *at, char *head, size_t n_max)
{
    size_t n = 0;
    while (n + 1 < n_max && wait_for(at->proxy, at->fd)) {
        const ssize_t got = recv(at->fd, head + n, 1, 0);
        if (got <= 0) {
            return false;
        }
        n += (size_t)got;
        head[n] = '\0';
        if (n >= 4 && strcmp(head + n - 4, "\r\n\r\n") == 0) {
            return true;
        }
    }
    return false;
}

static int connect_to(const char *head)
{
    int port = 0;
    if (sscanf(head, "CONNECT 127.0.0.1:%d HTTP/1.1", &port) != 1) {
        return -1;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

/* Passes on what is there; false: the end. */
static bool pass(tunnel *proxy, int from, int to)
{
    char bytes[16384];
    const ssize_t n = recv(from, bytes, sizeof bytes - 1, 0);
    if (n <= 0) {
        return false;
    }
    bytes[n] = '\0';
    atomic_fetch_add(&proxy->n_bytes, (uint64_t)n);
    if (memmem(bytes, (size_t)n, "Dunlin-", 7) != NULL ||
        memmem(bytes, (size_t)n, "/v1/", 4) != NULL) {
        atomic_fetch_add(&proxy->n_readable, 1);
    }
    return send_all(to, bytes, (size_t)n);
}

static void relay(connection *at, int other)
{
    struct pollfd waits[2] = {{.fd = at->fd, .events = POLLIN}, {.fd = other, .events = POLLIN}};
    bool goes_on = true;
    while (goes_on && !is_closing(at->proxy)) {
        if (poll(waits, 2, POLL_MS) <= 0) {
            continue;
        }
        if (waits[0].revents != 0) {
            goes_on = pass(at->proxy, at->fd, other);
        }
        if (goes_on && waits[1].revents != 0) {
            goes_on = pass(at->proxy, other, at->fd);
        }
    }
}

static void *serve(void *ctx)
{
    static const char ANSWER[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    connection *at = ctx;
    char head[2048];
    if (read_head(at, head, sizeof head)) {
        atomic_fetch_add(&at->proxy->n_requests, 1);
        const char *refusal = at->proxy->refusal;
        const int other = refusal == NULL ? connect_to(head) : -1;
        if (refusal != NULL) {
            (void)send_all(at->fd, refusal, strlen(refusal));
        }
        if (other >= 0 && send_all(at->fd, ANSWER, sizeof ANSWER - 1)) {
            relay(at, other);
        }
        if (other >= 0) {
            (void)close(other);
        }
    }
    (void)close(at->fd);
    return NULL;
}

static void *accept_all(void *ctx)
{
    tunnel *proxy = ctx;
    while (wait_for(proxy, proxy->fd) && proxy->n_connections < MAX_CONNECTIONS) {
        connection *at = &proxy->connections[proxy->n_connections];
        at->proxy = proxy;
        at->fd = accept(proxy->fd, NULL, NULL);
        if (at->fd >= 0 && pthread_create(&at->thread, NULL, serve, at) == 0) {
            proxy->n_connections++;
        }
    }
    return NULL;
}

tunnel *tunnel_open(const char *refusal)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t n = sizeof address;
    tunnel *proxy = calloc(1, sizeof *proxy);
    cr_assert_not_null(proxy);
    proxy->refusal = refusal;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    proxy->fd = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert_geq(proxy->fd, 0);
    cr_assert_eq(bind(proxy->fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert_eq(listen(proxy->fd, 16), 0);
    cr_assert_eq(getsockname(proxy->fd, (struct sockaddr *)&address, &n), 0);
    proxy->port = ntohs(address.sin_port);
    cr_assert_eq(pthread_create(&proxy->thread, NULL, accept_all, proxy), 0);
    return proxy;
}

void tunnel_close(tunnel *proxy)
{
    atomic_store(&proxy->is_closing, true);
    (void)pthread_join(proxy->thread, NULL);
    for (int i = 0; i < proxy->n_connections; i++) {
        (void)pthread_join(proxy->connections[i].thread, NULL);
    }
    (void)close(proxy->fd);
    free(proxy);
}

uint16_t tunnel_port(const tunnel *proxy)
{
    return proxy->port;
}

int tunnel_requests(const tunnel *proxy)
{
    return atomic_load(&proxy->n_requests);
}

uint64_t tunnel_bytes(const tunnel *proxy)
{
    return atomic_load(&proxy->n_bytes);
}

int tunnel_readable(const tunnel *proxy)
{
    return atomic_load(&proxy->n_readable);
}
