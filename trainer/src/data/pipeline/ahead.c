/*
 * ahead.c - a ring of slots that one thread fills in the order of the list, and the other reads.
 *
 * Invariant: `lock` guards everything but the bytes of a slot. Those belong to the thread while the
 * slot is BUSY, to the reader while it is pinned, and are written by nobody while it is READY and
 * neither used nor stale.
 */
#include "ahead.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#define LIST_SHARE 16 /* one part in so many of the bytes is the list */
#define LIST_LOOK 64  /* how far the reader looks for what it is about to make itself */
#define NO_SLOT (-1)

typedef enum slot_state { SLOT_EMPTY = 0, SLOT_BUSY, SLOT_READY, SLOT_FAILED } slot_state;

typedef struct slot {
    int64_t step, index;
    slot_state state;
    bool is_used;   /* read at least once: may make room */
    bool is_pinned; /* being read */
    int32_t label;
    dunlin_status status;
    int32_t next; /* in its bucket's chain */
} slot;

typedef struct listed {
    int64_t step, index;
} listed;

struct dunlin_ahead {
    dunlin_alloc alloc;
    dunlin_ahead_options options;
    pthread_mutex_t lock;
    pthread_cond_t work;  /* for the thread: something to do, or the end */
    pthread_cond_t ready; /* for the reader: a slot is no longer BUSY */
    pthread_t thread;
    bool is_ending;
    bool has_failed; /* nothing is made until the failure has been read, or a step begins */
    int64_t step;    /* the last that began */
    slot *slots;
    int32_t *buckets;
    unsigned char *examples;
    size_t stride; /* bytes between examples */
    int32_t n_slots;
    int32_t next_slot; /* filled next */
    listed *list;      /* a ring */
    size_t list_capacity, list_first, n_listed;
    char text[DUNLIN_ERROR_TEXT_BYTES]; /* of the failure */
    int64_t n_ready, n_waited, n_unlisted;
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

/* --- the thread --- */

static bool is_free(const dunlin_ahead *ahead, const slot *at)
{
    if (at->state == SLOT_EMPTY) {
        return true;
    }
    return at->state != SLOT_BUSY && !at->is_pinned &&
           (at->is_used || !is_current(ahead, at->step));
}

/* Takes the next thing to make off the list and gives it a slot; NULL: nothing to do now. */
static slot *next_work(dunlin_ahead *ahead)
{
    while (ahead->n_listed > 0 && !is_current(ahead, ahead->list[ahead->list_first].step)) {
        ahead->list_first = (ahead->list_first + 1) % ahead->list_capacity;
        ahead->n_listed--;
    }
    slot *at = &ahead->slots[ahead->next_slot];
    if (ahead->n_listed == 0 || ahead->has_failed || !is_free(ahead, at)) {
        return NULL;
    }
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
    dunlin_ahead *ahead = ctx;
    char text[DUNLIN_ERROR_TEXT_BYTES] = "";
    (void)pthread_mutex_lock(&ahead->lock);
    while (!ahead->is_ending) {
        slot *at = next_work(ahead);
        if (at == NULL) {
            (void)pthread_cond_wait(&ahead->work, &ahead->lock);
            continue;
        }
        const int64_t step = at->step;
        const int64_t index = at->index;
        (void)pthread_mutex_unlock(&ahead->lock);
        int32_t label = 0;
        const dunlin_status status = ahead->options.make_fn(ahead->options.ctx, step, index,
                                                            slot_bytes(ahead, at), &label, text);
        (void)pthread_mutex_lock(&ahead->lock);
        at->label = label;
        at->status = status;
        at->state = status == DUNLIN_OK ? SLOT_READY : SLOT_FAILED;
        if (status != DUNLIN_OK) {
            memcpy(ahead->text, text, sizeof ahead->text);
            ahead->has_failed = is_current(ahead, step);
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
    ahead->has_failed = false;
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

dunlin_status dunlin__ahead_take(dunlin_ahead *ahead, int64_t step, int64_t index, void *out_x,
                                 int32_t *out_y, bool *out_is_there, char *out_text)
{
    *out_is_there = false;
    (void)pthread_mutex_lock(&ahead->lock);
    slot *at = find_slot(ahead, step, index);
    if (at == NULL) {
        strike_from_list(ahead, step, index);
        (void)pthread_mutex_unlock(&ahead->lock);
        return DUNLIN_OK;
    }
    ahead->n_waited += at->state == SLOT_BUSY ? 1 : 0;
    ahead->n_ready += at->state == SLOT_BUSY ? 0 : 1;
    while (at->state == SLOT_BUSY) {
        (void)pthread_cond_wait(&ahead->ready, &ahead->lock);
    }
    const dunlin_status status = at->status;
    if (status != DUNLIN_OK) {
        memcpy(out_text, ahead->text, DUNLIN_ERROR_TEXT_BYTES);
        ahead->has_failed = false;
        unlink_slot(ahead, at); /* asked for again, it is tried again */
    } else {
        at->is_pinned = true;
        *out_y = at->label;
        (void)pthread_mutex_unlock(&ahead->lock);
        memcpy(out_x, slot_bytes(ahead, at), ahead->options.example_bytes);
        (void)pthread_mutex_lock(&ahead->lock);
        at->is_pinned = false;
        at->is_used = true;
        *out_is_there = true;
    }
    (void)pthread_cond_signal(&ahead->work);
    (void)pthread_mutex_unlock(&ahead->lock);
    return status;
}

void dunlin__ahead_count(dunlin_ahead *ahead, dunlin_ahead_counts *out_counts)
{
    (void)pthread_mutex_lock(&ahead->lock);
    *out_counts = (dunlin_ahead_counts){
        .bytes = sizeof *ahead + ahead->list_capacity * sizeof *ahead->list +
                 (uint64_t)ahead->n_slots *
                     (ahead->stride + sizeof *ahead->slots + sizeof *ahead->buckets),
        .n_slots = ahead->n_slots,
        .n_ready = ahead->n_ready,
        .n_waited = ahead->n_waited,
        .n_unlisted = ahead->n_unlisted,
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
    if (!dunlin__align_u64(ahead->options.example_bytes, 64, &stride) ||
        !dunlin__add_u64(stride, extra, &each) ||
        !dunlin__add_u64(each, sizeof *ahead + sizeof *ahead->list, &needed)) {
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
    const uint64_t n = (bytes - sizeof *ahead - ahead->list_capacity * sizeof *ahead->list) / each;
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
    if (ahead->slots == NULL || ahead->buckets == NULL || ahead->examples == NULL ||
        ahead->list == NULL) {
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
    dunlin__free_array(&alloc, ahead, 1, sizeof *ahead);
}

/* The application's signals are its own threads' business. */
static int start_thread(dunlin_ahead *ahead)
{
    sigset_t all;
    sigset_t before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    const int code = pthread_create(&ahead->thread, NULL, run_thread, ahead);
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
    const int code = start_thread(ahead);
    if (code != 0) {
        (void)pthread_cond_destroy(&ahead->ready);
        (void)pthread_cond_destroy(&ahead->work);
        (void)pthread_mutex_destroy(&ahead->lock);
        free_ring(ahead);
        return dunlin__fail(error, DUNLIN_MEMORY, "data", code,
                            "the system gives no thread to read ahead (%d)", code);
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
    (void)pthread_cond_signal(&ahead->work);
    (void)pthread_mutex_unlock(&ahead->lock);
    (void)pthread_join(ahead->thread, NULL);
    (void)pthread_cond_destroy(&ahead->ready);
    (void)pthread_cond_destroy(&ahead->work);
    (void)pthread_mutex_destroy(&ahead->lock);
    free_ring(ahead);
}
