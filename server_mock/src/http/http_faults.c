/*
 * http_faults.c - applies a fault script to an exchange in exchange.c.
 *
 * Invariant: a fault is chosen once an exchange, when its headers are there; without a script
 * nothing here has an effect.
 */
#include "http_faults.h"

#include "exchange.h"
#include "faults/faults.h"
#include "faults/hold.h"
#include "requests/calls.h"
#include "requests/objects.h"
#include "state/reply.h"

#include <mem/support.h>

#include <time.h>
#include <unistd.h>

#define SLOW_TURN_MS 20

int64_t dunlin__http_uptime_ms(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

dunlin_status dunlin__http_faults_open(const char *path, const dunlin_alloc *alloc,
                                       dunlin__http_faults **out_faults, dunlin_error *error)
{
    *out_faults = NULL;
    if (path == NULL) {
        return DUNLIN_OK;
    }
    dunlin__http_faults *faults = dunlin__alloc_zeroed(alloc, 1, sizeof *faults);
    if (faults == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "http", 0, "%zu bytes", sizeof *faults);
    }
    (void)pthread_mutex_init(&faults->lock, NULL);
    dunlin_status status = dunlin__faults_read(path, alloc, &faults->script, error);
    if (status == DUNLIN_OK) {
        status = dunlin__holds_start(alloc, &faults->holds, error);
    }
    if (status != DUNLIN_OK) {
        dunlin__http_faults_free(faults, alloc);
        return status;
    }
    *out_faults = faults;
    return DUNLIN_OK;
}

void dunlin__http_faults_free(dunlin__http_faults *faults, const dunlin_alloc *alloc)
{
    if (faults == NULL) {
        return;
    }
    dunlin__holds_end_all(faults->holds);
    dunlin__holds_free(faults->holds);
    dunlin__faults_free(faults->script);
    (void)pthread_mutex_destroy(&faults->lock);
    dunlin__free_array(alloc, faults, 1, sizeof *faults);
}

bool dunlin__http_fault_begin(dunlin__exchange *now)
{
    dunlin__http_faults *faults = now->http->faults;
    if (faults == NULL) {
        return false;
    }
    now->begun_ms = dunlin__http_uptime_ms();
    now->fault = dunlin__faults_next(faults->script, now->request.route.call);
    if (now->fault.kind == DUNLIN_FAULT_NONE) {
        return false;
    }
    atomic_fetch_add(&now->server->counters.n_faults, 1);
    dunlin__log(&now->server->log, DUNLIN_LOG_DEBUG, "faults", "%s: %s", now->path,
                dunlin__fault_name(now->fault.kind));
    if (now->fault.kind == DUNLIN_FAULT_CLOCK_SKEW) {
        now->request.clock_skew_ms = now->fault.amount;
    }
    return dunlin__fault_replace(&now->fault, &now->reply);
}

size_t dunlin__http_fault_intake(dunlin__exchange *now, struct MHD_Connection *connection,
                                 size_t n_bytes, bool *out_is_over)
{
    *out_is_over = false;
    if (now->fault.kind == DUNLIN_FAULT_DROP_REQUEST) {
        uint64_t cut = dunlin__fault_byte(&now->fault, now->announced_bytes);
        uint64_t room = cut > now->n_taken ? cut - now->n_taken : 0;
        *out_is_over = n_bytes >= room;
        return n_bytes < room ? n_bytes : (size_t)room;
    }
    if (now->fault.kind == DUNLIN_FAULT_SLOW) {
        int64_t passed_ms = dunlin__http_uptime_ms() - now->begun_ms + SLOW_TURN_MS;
        uint64_t due = (uint64_t)now->fault.amount * (uint64_t)passed_ms / 1000 + 1;
        uint64_t room = due > now->n_taken ? due - now->n_taken : 0;
        if (n_bytes <= room) {
            return n_bytes;
        }
        (void)dunlin__hold(now->http->faults->holds, connection, SLOW_TURN_MS, false);
        return (size_t)room;
    }
    return n_bytes;
}

dunlin__fault_turn dunlin__http_fault_before(dunlin__exchange *now,
                                             struct MHD_Connection *connection)
{
    switch ((int)now->fault.kind) {
    case DUNLIN_FAULT_DROP_REQUEST:
        return DUNLIN_TURN_DROP;
    case DUNLIN_FAULT_STALL:
    case DUNLIN_FAULT_REORDER:
        if (now->was_held) {
            return DUNLIN_TURN_GO;
        }
        now->was_held = true;
        return dunlin__hold(now->http->faults->holds, connection, now->fault.amount,
                            now->fault.kind == DUNLIN_FAULT_REORDER)
                   ? DUNLIN_TURN_HELD
                   : DUNLIN_TURN_GO;
    default:
        return DUNLIN_TURN_GO;
    }
}

/* The same request comes in a second time, as a proxy that lost an answer sends it; the answer to
 * the second goes out. */
static void repeat(dunlin__exchange *now)
{
    if (now->reply.fd >= 0) {
        (void)close(now->reply.fd);
        now->reply.fd = -1;
    }
    dunlin__server_reply_end(&now->reply, &now->server->alloc);
    if (!now->is_upload) {
        dunlin__server_handle(now->server, &now->request, &now->reply);
    } else if (dunlin__server_upload_begin(now->server, &now->request, &now->upload, &now->reply)) {
        dunlin__server_upload_abort(&now->upload);
    }
}

/* Puts the answer before this one in its place, and keeps this one. */
static void exchange_earlier(dunlin__exchange *now, bool is_wanted)
{
    dunlin__http_faults *faults = now->http->faults;
    dunlin__call call = now->request.route.call;
    (void)pthread_mutex_lock(&faults->lock);
    dunlin__server_reply fresh = now->reply;
    if (is_wanted && faults->has_earlier[call]) {
        now->reply = faults->earlier[call];
    }
    faults->earlier[call] = fresh;
    faults->has_earlier[call] = true;
    (void)pthread_mutex_unlock(&faults->lock);
}

bool dunlin__http_fault_after(dunlin__exchange *now)
{
    if (now->http->faults == NULL) {
        return false;
    }
    if (now->fault.kind == DUNLIN_FAULT_DUPLICATE) {
        repeat(now);
    }
    const bool is_whole = now->reply.long_body == NULL; /* a long body is one reply's alone */
    if (dunlin__call_describe(now->request.route.call)->is_keyed && now->reply.http_code == 200 &&
        is_whole) {
        exchange_earlier(now, now->fault.kind == DUNLIN_FAULT_REPLAY);
    }
    dunlin__fault_spoil(now->server, &now->fault, &now->request, &now->reply);
    bool has_body = now->reply.n_body > 0 || now->reply.n_fd_bytes > 0;
    return now->fault.kind == DUNLIN_FAULT_LOSE ||
           (now->fault.kind == DUNLIN_FAULT_DROP_REPLY && !has_body);
}

void dunlin__http_fault_answered(dunlin__http *http)
{
    if (http->faults != NULL) {
        dunlin__holds_answered(http->faults->holds);
    }
}
