/*
 * ahead.c - a ring of slots that threads fill in the order of the list, and the reader reads.
 *
 * Invariant: `lock` guards everything but the bytes of a slot. Those belong to one thread while the
 * slot is BUSY, to the reader while it is pinned, and are written by nobody while it is READY and
 * neither used nor stale. Slots are given out in the order of the list, so a thread that is slow
 * holds the others up by a ring at most.
 */
#include "ahead.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#define LIST_SHARE 16 /* one part in so many of the bytes is the list */
#define LIST_LOOK 64  /* how far the reader looks for what it is about to make itself */
#define NO_SLOT (-1)

typedef enum slot_state { SLOT_EMPTY = 0, SLOT_BUSY, SLOT_READY } slot_state;

typedef struct slot {
    int64_t step, index;
    slot_state state;
    bool is_used;   /* read at least once: may make room */
    bool is_pinned; /* being read */
    int32_t label;
    int32_t next; /* in its bucket's chain */
} slot;

typedef struct listed {
    int64_t step, index;
} listed;

/* One of the threads that make. */
typedef struct worker {
    dunlin_ahead *ahead;
    int32_t number;
    pthread_t thread;
} worker;

struct dunlin_ahead {
    dunlin_alloc alloc;
    dunlin_ahead_options options;
    pthread_mutex_t lock;
    pthread_cond_t work;  /* for a thread: something to do, or the end */
    pthread_cond_t ready; /* for the reader: a slot is no longer BUSY */
    worker *workers;
    int32_t n_workers; /* that run */
    bool is_ending;
    int64_t step; /* the last that began */
    slot *slots;
    int32_t *buckets;
    unsigned char *examples;
    size_t stride; /* bytes between examples */
    int32_t n_slots;
    int32_t next_slot; /* filled next */
    listed *list;      /* a ring */
    size_t list_capacity, list_first, n_listed;
    int64_t n_ready, n_waited, n_unlisted;
    uint64_t waited_ns;
};

/* --- the table: (step, index) -> slot; `lock` is held --- */

static int32_t *bucket_of(dunlin_ahead *ahead, int64_t step, int64_t index)
{
    const uint64_t mixed =
        ((uint64_t)index * 0x9E3779B97F4A7C15ULL) ^ ((uint64_t)step * 0xC2B2AE3D27D4EB4FULL);
    return &ahead->buckets[(mixed >> 20) % (uint64_t)ahead->n_slots];
}

/* Of several equal ones one that was not read yet, if there is one. */
static slot *find_slot(dunlin_ahead *ahead, int64_t step, int64_t index)
{
    slot *found = NULL;
    for (int32_t i = *bucket_of(ahead, step, index); i != NO_SLOT; i = ahead->slots[i].next) {
        slot *at = &ahead->slots[i];
        if (at->step == step && at->index == index && (found == NULL || !at->is_used)) {
            found = at;
        }
    }
    return found;
}

static void unlink_slot(dunlin_ahead *ahead, slot *gone)
{
    int32_t *link = bucket_of(ahead, gone->step, gone->index);
    const int32_t self = (int32_t)(gone - ahead->slots);
    while (*link != self) {
        link = &ahead->slots[*link].next;
    }
    *link = gone->next;
    gone->state = SLOT_EMPTY;
}

static void link_slot(dunlin_ahead *ahead, slot *added, const listed *what)
{
    int32_t *bucket = bucket_of(ahead, what->step, what->index);
    *added = (slot){.step = what->step, .index = what->index, .state = SLOT_BUSY, .next = *bucket};
    *bucket = (int32_t)(added - ahead->slots);
}

static unsigned char *slot_bytes(const dunlin_ahead *ahead, const slot *at)
{
    return ahead->examples + (size_t)(at - ahead->slots) * ahead->stride;
}

static bool is_current(const dunlin_ahead *ahead, int64_t step)
{
    return step == ahead->step || step == ahead->step + 1;
}

/* --- the threads --- */

static bool is_free(const dunlin_ahead *ahead, const slot *at)
{
    if (at->state == SLOT_EMPTY) {
        return true;
    }
    return at->state != SLOT_BUSY && !at->is_pinned &&
           (at->is_used || !is_current(ahead, at->step));
}

/* Whether there is something to make and a slot for it; strikes off what is no longer wanted. */
static bool has_work(dunlin_ahead *ahead)
{
    while (ahead->n_listed > 0 && !is_current(ahead, ahead->list[ahead->list_first].step)) {
        ahead->list_first = (ahead->list_first + 1) % ahead->list_capacity;
        ahead->n_listed--;
    }
    return ahead->n_listed > 0 && is_free(ahead, &ahead->slots[ahead->next_slot]);
}

/* Takes the next thing to make off the list and gives it a slot; has_work() was true. */
static slot *next_work(dunlin_ahead *ahead)
{
    slot *at = &ahead->slots[ahead->next_slot];
    if (at->state != SLOT_EMPTY) {
        unlink_slot(ahead, at);
    }
    link_slot(ahead, at, &ahead->list[ahead->list_first]);
    ahead->list_first = (ahead->list_first + 1) % ahead->list_capacity;
    ahead->n_listed--;
    ahead->next_slot = (ahead->next_slot + 1) % ahead->n_slots;
    return at;
}

static void *run_thread(void *ctx)
{
    const worker *self = ctx;
    dunlin_ahead *ahead = self->ahead;
    (void)pthread_mutex_lock(&ahead->lock);
    while (!ahead->is_ending) {
        if (!has_work(ahead)) {
            (void)pthread_cond_wait(&ahead->work, &ahead->lock);
            continue;
        }
        slot *at = next_work(ahead);
        if (has_work(ahead)) {
            (void)pthread_cond_signal(&ahead->work); /* who takes something wakes the next one */
        }
        const int64_t step = at->step;
        const int64_t index = at->index;
        (void)pthread_mutex_unlock(&ahead->lock);
        int32_t label = 0;
        const dunlin_status status = ahead->options.make_fn(ahead->options.ctx, self->number, step,
                                                            index, slot_bytes(ahead, at), &label);
        (void)pthread_mutex_lock(&ahead->lock);
        at->label = label;
        at->state = SLOT_READY;
        if (status != DUNLIN_OK) {
            unlink_slot(ahead, at);
        }
        (void)pthread_cond_signal(&ahead->ready);
    }
    (void)pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

/* --- the reader --- */

/* What the reader makes itself, the thread need not. */
static void strike_from_list(dunlin_ahead *ahead, int64_t step, int64_t index)
{
    for (size_t k = 0; k < ahead->n_listed && k < LIST_LOOK; k++) {
        const listed *at = &ahead->list[(ahead->list_first + k) % ahead->list_capacity];
        if (at->step == step && at->index == index) {
            /* The list is in the order of the reads: what stands before it has been read too. */
            ahead->list_first = (ahead->list_first + k + 1) % ahead->list_capacity;
            ahead->n_listed -= k + 1;
            return;
        }
    }
}

void dunlin__ahead_begin(dunlin_ahead *ahead, int64_t step)
{
    (void)pthread_mutex_lock(&ahead->lock);
    ahead->step = step;
    (void)pthread_cond_signal(&ahead->work);
    (void)pthread_mutex_unlock(&ahead->lock);
}

void dunlin__ahead_hint(dunlin_ahead *ahead, int64_t step, const int64_t *indices, int64_t n)
{
    (void)pthread_mutex_lock(&ahead->lock);
    for (int64_t i = 0; i < n; i++) {
        if (ahead->n_listed == ahead->list_capacity) {
            ahead->n_unlisted += n - i;
            break;
        }
        ahead->list[(ahead->list_first + ahead->n_listed) % ahead->list_capacity] =
            (listed){.step = step, .index = indices[i]};
        ahead->n_listed++;
    }
    (void)pthread_cond_signal(&ahead->work);
    (void)pthread_mutex_unlock(&ahead->lock);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Waits while a slot of this example is BUSY; NULL: there is none, or none any more. */
static slot *await_slot(dunlin_ahead *ahead, int64_t step, int64_t index)
{
    slot *at = find_slot(ahead, step, index);
    if (at == NULL || at->state != SLOT_BUSY) {
        ahead->n_ready += at == NULL ? 0 : 1;
        return at;
    }
    const uint64_t start_ns = now_ns();
    ahead->n_waited++;
    while (at != NULL && at->state == SLOT_BUSY) {
        (void)pthread_cond_wait(&ahead->ready, &ahead->lock);
        at = find_slot(ahead, step, index);
    }
    ahead->waited_ns += now_ns() - start_ns;
    return at;
}

bool dunlin__ahead_take(dunlin_ahead *ahead, int64_t step, int64_t index, void *out_x,
                        int32_t *out_y)
{
    (void)pthread_mutex_lock(&ahead->lock);
    slot *at = await_slot(ahead, step, index);
    if (at == NULL) {
        strike_from_list(ahead, step, index);
    } else {
        at->is_pinned = true;
        *out_y = at->label;
        (void)pthread_mutex_unlock(&ahead->lock);
        memcpy(out_x, slot_bytes(ahead, at), ahead->options.example_bytes);
        (void)pthread_mutex_lock(&ahead->lock);
        at->is_pinned = false;
        at->is_used = true;
        if (has_work(ahead)) {
            (void)pthread_cond_signal(&ahead->work);
        }
    }
    (void)pthread_mutex_unlock(&ahead->lock);
    return at != NULL;
}

void dunlin__ahead_count(dunlin_ahead *ahead, dunlin_ahead_counts *out_counts)
{
    (void)pthread_mutex_lock(&ahead->lock);
    *out_counts = (dunlin_ahead_counts){
        .bytes = sizeof *ahead + (uint64_t)ahead->options.n_threads * sizeof *ahead->workers +
                 ahead->list_capacity * sizeof *ahead->list +
                 (uint64_t)ahead->n_slots *
                     (ahead->stride + sizeof *ahead->slots + sizeof *ahead->buckets),
        .n_slots = ahead->n_slots,
        .n_ready = ahead->n_ready,
        .n_waited = ahead->n_waited,
        .n_unlisted = ahead->n_unlisted,
        .waited_ns = ahead->waited_ns,
    };
    (void)pthread_mutex_unlock(&ahead->lock);
}

/* --- life --- */

static dunlin_status size_ring(dunlin_ahead *ahead, dunlin_error *error)
{
    const uint64_t bytes = ahead->options.bytes;
    const uint64_t list_bytes = bytes / LIST_SHARE;
    uint64_t stride = 0;
    uint64_t each = 0;
    uint64_t needed = 0;
    const uint64_t extra = sizeof *ahead->slots + sizeof *ahead->buckets;
    const uint64_t fixed =
        sizeof *ahead + (uint64_t)ahead->options.n_threads * sizeof *ahead->workers;
    if (!dunlin__align_u64(ahead->options.example_bytes, 64, &stride) ||
        !dunlin__add_u64(stride, extra, &each) ||
        !dunlin__add_u64(each, fixed + sizeof *ahead->list, &needed)) {
        return dunlin__fail(error, DUNLIN_OVERFLOW, "data", 0,
                            "an example of %zu bytes is too large", ahead->options.example_bytes);
    }
    /* The list takes its share, but one entry at least. */
    needed += needed / (LIST_SHARE - 1) + 1;
    if (bytes < needed) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "%" PRIu64 " bytes to read ahead hold no example: one takes %" PRIu64,
                            bytes, needed);
    }
    ahead->stride = (size_t)stride;
    ahead->list_capacity = (size_t)(list_bytes / sizeof *ahead->list);
    ahead->list_capacity = ahead->list_capacity < 1 ? 1 : ahead->list_capacity;
    uint64_t n = (bytes - fixed - ahead->list_capacity * sizeof *ahead->list) / each;
    const uint64_t most = (uint64_t)ahead->options.n_examples;
    if (most > 0) {
        ahead->list_capacity = most < ahead->list_capacity ? (size_t)most : ahead->list_capacity;
        n = most < n ? most : n;
    }
    ahead->n_slots = n > INT32_MAX ? INT32_MAX : (int32_t)n;
    return DUNLIN_OK;
}

static dunlin_status make_ring(dunlin_ahead *ahead, dunlin_error *error)
{
    const size_t n = (size_t)ahead->n_slots;
    ahead->slots = dunlin__alloc_zeroed(&ahead->alloc, n, sizeof *ahead->slots);
    ahead->buckets = dunlin__alloc_array(&ahead->alloc, n, sizeof *ahead->buckets);
    /* Zeroed, so that the bytes are taken now and not little by little while it trains. */
    ahead->examples = dunlin__alloc_zeroed(&ahead->alloc, n, ahead->stride);
    ahead->list = dunlin__alloc_array(&ahead->alloc, ahead->list_capacity, sizeof *ahead->list);
    ahead->workers = dunlin__alloc_zeroed(&ahead->alloc, (size_t)ahead->options.n_threads,
                                          sizeof *ahead->workers);
    if (ahead->slots == NULL || ahead->buckets == NULL || ahead->examples == NULL ||
        ahead->list == NULL || ahead->workers == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                            "no memory to read %zu examples of %zu bytes ahead", n, ahead->stride);
    }
    for (size_t i = 0; i < n; i++) {
        ahead->buckets[i] = NO_SLOT;
    }
    return DUNLIN_OK;
}

static void free_ring(dunlin_ahead *ahead)
{
    const dunlin_alloc alloc = ahead->alloc;
    const size_t n = (size_t)ahead->n_slots;
    dunlin__free_array(&alloc, ahead->slots, n, sizeof *ahead->slots);
    dunlin__free_array(&alloc, ahead->buckets, n, sizeof *ahead->buckets);
    dunlin__free_array(&alloc, ahead->examples, n, ahead->stride);
    dunlin__free_array(&alloc, ahead->list, ahead->list_capacity, sizeof *ahead->list);
    dunlin__free_array(&alloc, ahead->workers, (size_t)ahead->options.n_threads,
                       sizeof *ahead->workers);
    dunlin__free_array(&alloc, ahead, 1, sizeof *ahead);
}

/* The application's signals are its own threads' business. */
static int start_threads(dunlin_ahead *ahead)
{
    sigset_t all;
    sigset_t before;
    int code = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    while (code == 0 && ahead->n_workers < ahead->options.n_threads) {
        worker *next = &ahead->workers[ahead->n_workers];
        *next = (worker){.ahead = ahead, .number = ahead->n_workers};
        code = pthread_create(&next->thread, NULL, run_thread, next);
        ahead->n_workers += code == 0 ? 1 : 0;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

dunlin_status dunlin__ahead_create(const dunlin_ahead_options *options, const dunlin_alloc *alloc,
                                   dunlin_ahead **out_ahead, dunlin_error *error)
{
    *out_ahead = NULL;
    dunlin_ahead *ahead = dunlin__alloc_zeroed(alloc, 1, sizeof *ahead);
    if (ahead == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory to read ahead");
    }
    ahead->alloc = *alloc;
    ahead->options = *options;
    ahead->step = INT64_MIN;
    dunlin_status status = size_ring(ahead, error);
    if (status == DUNLIN_OK) {
        status = make_ring(ahead, error);
    }
    if (status != DUNLIN_OK) {
        free_ring(ahead);
        return status;
    }
    (void)pthread_mutex_init(&ahead->lock, NULL);
    (void)pthread_cond_init(&ahead->work, NULL);
    (void)pthread_cond_init(&ahead->ready, NULL);
    const int code = start_threads(ahead);
    if (code != 0) {
        const int32_t n_started = ahead->n_workers;
        dunlin__ahead_destroy(ahead);
        return dunlin__fail(error, DUNLIN_MEMORY, "data", code,
                            "the system gives %d of %d threads to read ahead (%d)", (int)n_started,
                            (int)options->n_threads, code);
    }
    *out_ahead = ahead;
    return DUNLIN_OK;
}

void dunlin__ahead_destroy(dunlin_ahead *ahead)
{
    if (ahead == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&ahead->lock);
    ahead->is_ending = true;
    (void)pthread_cond_broadcast(&ahead->work);
    (void)pthread_mutex_unlock(&ahead->lock);
    for (int32_t i = 0; i < ahead->n_workers; i++) {
        (void)pthread_join(ahead->workers[i].thread, NULL);
    }
    (void)pthread_cond_destroy(&ahead->ready);
    (void)pthread_cond_destroy(&ahead->work);
    (void)pthread_mutex_destroy(&ahead->lock);
    free_ring(ahead);
}
