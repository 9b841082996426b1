/*
 * connections.c - keeps a list of the open connections and ends those that take too long.
 *
 * Invariant: a record is in the list from the accept to just before its socket is closed, so what
 * is shut down under the lock is the socket that was meant.
 */
#include "connections.h"

#include <mem/support.h>

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define LOOK_MS 250

struct dunlin__connection {
    dunlin__connection *before; /* older */
    dunlin__connection *after;  /* newer */
    int socket;
    bool has_peer;
    uint8_t peer[16];
    bool is_good;        /* has had an answer that was no refusal */
    bool is_idle;        /* between two requests */
    bool is_told;        /* was shut down */
    int64_t since_ms;    /* of the current piece of work */
    int64_t deadline_ms; /* 0: none */
};

struct dunlin__connections {
    dunlin_alloc alloc;
    uint32_t limit;
    uint32_t limit_of_peer;
    dunlin__connection_limits limits;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    dunlin__connection *oldest;
    dunlin__connection *newest;
    uint32_t n;
    pthread_t watcher;
    bool has_watcher;
    bool is_stopping;
};

static int64_t now_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void end(dunlin__connection *one)
{
    one->is_told = true;
    (void)shutdown(one->socket, SHUT_RDWR);
}

static void *watch(void *ctx)
{
    dunlin__connections *all = ctx;
    (void)pthread_mutex_lock(&all->lock);
    while (!all->is_stopping) {
        int64_t now = now_ms();
        for (dunlin__connection *one = all->oldest; one != NULL; one = one->after) {
            if (!one->is_told && one->deadline_ms != 0 && now >= one->deadline_ms) {
                end(one);
            }
        }
        struct timespec until = {0};
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&all->changed, &all->lock, &until);
    }
    (void)pthread_mutex_unlock(&all->lock);
    return NULL;
}

dunlin__connections *dunlin__connections_open(uint32_t limit,
                                              const dunlin__connection_limits *limits,
                                              const dunlin_alloc *alloc)
{
    dunlin__connections *all = dunlin__alloc_zeroed(alloc, 1, sizeof *all);
    if (all == NULL) {
        return NULL;
    }
    all->alloc = *alloc;
    all->limit = limit;
    all->limit_of_peer = limit - limit / 4;
    all->limits = *limits;
    (void)pthread_mutex_init(&all->lock, NULL);
    (void)pthread_cond_init(&all->changed, NULL);
    all->has_watcher = pthread_create(&all->watcher, NULL, watch, all) == 0;
    if (!all->has_watcher) {
        dunlin__connections_close(all);
        return NULL;
    }
    return all;
}

void dunlin__connections_close(dunlin__connections *all)
{
    if (all == NULL) {
        return;
    }
    if (all->has_watcher) {
        (void)pthread_mutex_lock(&all->lock);
        all->is_stopping = true;
        (void)pthread_cond_signal(&all->changed);
        (void)pthread_mutex_unlock(&all->lock);
        (void)pthread_join(all->watcher, NULL);
    }
    while (all->oldest != NULL) {
        dunlin__connections_remove(all, all->oldest);
    }
    (void)pthread_cond_destroy(&all->changed);
    (void)pthread_mutex_destroy(&all->lock);
    dunlin_alloc alloc = all->alloc;
    dunlin__free_array(&alloc, all, 1, sizeof *all);
}

/* Whom it hurts least to lose: one that has shown nothing, then one that does nothing. */
static int worth(const dunlin__connection *one)
{
    if (!one->is_good) {
        return 0;
    }
    return one->is_idle ? 1 : 2;
}

static bool is_peer(const dunlin__connection *one, const uint8_t *peer)
{
    return peer == NULL || (one->has_peer && memcmp(one->peer, peer, sizeof one->peer) == 0);
}

/* Ends one connection of the peer, or of all: the list is in the order of age. */
static void make_room(dunlin__connections *all, const uint8_t *peer)
{
    dunlin__connection *least = NULL;
    for (dunlin__connection *one = all->oldest; one != NULL; one = one->after) {
        if (one->is_told || !is_peer(one, peer)) {
            continue;
        }
        if (least == NULL || worth(one) < worth(least) ||
            (worth(one) == 1 && worth(least) == 1 && one->since_ms < least->since_ms)) {
            least = one;
        }
        if (worth(least) == 0) {
            break;
        }
    }
    if (least != NULL) {
        end(least);
    }
}

/* Those of the peer that were not shut down; NULL: all. */
static uint32_t count(const dunlin__connections *all, const uint8_t *peer)
{
    uint32_t n = 0;
    for (const dunlin__connection *one = all->oldest; one != NULL; one = one->after) {
        n += !one->is_told && is_peer(one, peer) ? 1 : 0;
    }
    return n;
}

/* What the bytes may take at the least rate. */
static int64_t time_of(const dunlin__connections *all, uint64_t n_bytes)
{
    return all->limits.least_rate > 0 && all->limits.request_ms > 0
               ? (int64_t)(n_bytes * 1000 / all->limits.least_rate)
               : 0;
}

static void set_deadline(dunlin__connection *one, int64_t ms)
{
    one->since_ms = now_ms();
    one->deadline_ms = ms > 0 ? one->since_ms + ms : 0;
}

dunlin__connection *dunlin__connections_add(dunlin__connections *all, int socket,
                                            const uint8_t *peer)
{
    dunlin__connection *one = dunlin__alloc_zeroed(&all->alloc, 1, sizeof *one);
    if (one == NULL) {
        return NULL;
    }
    one->socket = socket;
    one->has_peer = peer != NULL;
    if (peer != NULL) {
        memcpy(one->peer, peer, sizeof one->peer);
    }
    (void)pthread_mutex_lock(&all->lock);
    if (all->n >= all->limit && count(all, NULL) >= all->limit) {
        make_room(all, NULL);
    } else if (peer != NULL && all->n >= all->limit_of_peer &&
               count(all, peer) >= all->limit_of_peer) {
        make_room(all, peer);
    }
    set_deadline(one, all->limits.handshake_ms);
    one->before = all->newest;
    *(all->newest != NULL ? &all->newest->after : &all->oldest) = one;
    all->newest = one;
    all->n++;
    (void)pthread_mutex_unlock(&all->lock);
    return one;
}

void dunlin__connections_remove(dunlin__connections *all, dunlin__connection *one)
{
    if (one == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&all->lock);
    *(one->before != NULL ? &one->before->after : &all->oldest) = one->after;
    *(one->after != NULL ? &one->after->before : &all->newest) = one->before;
    all->n--;
    (void)pthread_mutex_unlock(&all->lock);
    dunlin__free_array(&all->alloc, one, 1, sizeof *one);
}

void dunlin__connection_begun(dunlin__connections *all, dunlin__connection *one)
{
    if (one != NULL) {
        (void)pthread_mutex_lock(&all->lock);
        one->is_idle = false;
        set_deadline(one, all->limits.handshake_ms);
        (void)pthread_mutex_unlock(&all->lock);
    }
}

void dunlin__connection_headed(dunlin__connections *all, dunlin__connection *one)
{
    if (one != NULL) {
        (void)pthread_mutex_lock(&all->lock);
        set_deadline(one, all->limits.request_ms);
        (void)pthread_mutex_unlock(&all->lock);
    }
}

void dunlin__connection_moved(dunlin__connections *all, dunlin__connection *one, uint64_t n_bytes)
{
    if (one != NULL) {
        (void)pthread_mutex_lock(&all->lock);
        one->deadline_ms += one->deadline_ms != 0 ? time_of(all, n_bytes) : 0;
        (void)pthread_mutex_unlock(&all->lock);
    }
}

void dunlin__connection_answered(dunlin__connections *all, dunlin__connection *one,
                                 uint64_t n_bytes)
{
    if (one != NULL) {
        (void)pthread_mutex_lock(&all->lock);
        set_deadline(one, all->limits.request_ms + time_of(all, n_bytes));
        (void)pthread_mutex_unlock(&all->lock);
    }
}

void dunlin__connection_ended(dunlin__connections *all, dunlin__connection *one, bool is_good)
{
    if (one != NULL) {
        (void)pthread_mutex_lock(&all->lock);
        one->is_idle = true;
        one->is_good = one->is_good || is_good;
        set_deadline(one, all->limits.idle_ms);
        (void)pthread_mutex_unlock(&all->lock);
    }
}
