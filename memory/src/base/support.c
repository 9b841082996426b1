/*
 * support.c - failing with a detail, log lines, and memory through hooks.
 *
 * Invariant: every block handed out is freed with the size it was asked for, so hooks need no
 * headers of their own.
 */
#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_ALIGN 64

dunlin_status dunlin__fail(dunlin_error *error, dunlin_status status, const char *subsystem,
                           int code, const char *format, ...)
{
    if (error == NULL) {
        return status;
    }
    error->status = status;
    error->code = code;
    error->needed_bytes = 0;
    error->subsystem = subsystem;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(error->text, sizeof error->text, format, args);
    va_end(args);
    return status;
}

dunlin_status dunlin__fail_budget(dunlin_error *error, const char *subsystem, uint64_t budget_bytes,
                                  uint64_t needed_bytes)
{
    dunlin_status status = dunlin__fail(
        error, DUNLIN_BUDGET, subsystem, 0,
        "a budget of %" PRIu64 " bytes is too small: the least that works is %" PRIu64 " bytes",
        budget_bytes, needed_bytes);
    if (error != NULL) {
        error->needed_bytes = needed_bytes;
    }
    return status;
}

void dunlin__error_clear(dunlin_error *error)
{
    if (error != NULL) {
        memset(error, 0, sizeof *error);
    }
}

void dunlin__log(const dunlin_log *log, dunlin_log_level level, const char *subsystem,
                 const char *format, ...)
{
    if (log == NULL || log->write_fn == NULL || level > log->level || level == DUNLIN_LOG_OFF) {
        return;
    }
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log->write_fn(log->ctx, level, subsystem, text);
}

static void *libc_alloc(void *ctx, size_t bytes, size_t align)
{
    (void)ctx;
    void *memory = NULL;
    if (align < sizeof(void *)) {
        align = sizeof(void *);
    }
    return posix_memalign(&memory, align, bytes) == 0 ? memory : NULL;
}

static void libc_free(void *ctx, void *memory, size_t bytes)
{
    (void)ctx;
    (void)bytes;
    free(memory);
}

dunlin_alloc dunlin__alloc_or_default(const dunlin_alloc *hooks)
{
    if (hooks != NULL && hooks->alloc_fn != NULL && hooks->free_fn != NULL) {
        return *hooks;
    }
    return (dunlin_alloc){.ctx = NULL, .alloc_fn = libc_alloc, .free_fn = libc_free};
}

/* The counts may be added to by several threads at once; the peak is of what was held at a time. */
static void *counter_alloc(void *ctx, size_t bytes, size_t align)
{
    dunlin_alloc_counter *counter = ctx;
    const uint64_t now = __atomic_add_fetch(&counter->now_bytes, bytes, __ATOMIC_RELAXED);
    void *memory = NULL;
    if (counter->limit_bytes == 0 ||
        (bytes <= counter->limit_bytes && now <= counter->limit_bytes)) {
        memory = counter->inner.alloc_fn(counter->inner.ctx, bytes, align);
    }
    if (memory == NULL) {
        (void)__atomic_sub_fetch(&counter->now_bytes, bytes, __ATOMIC_RELAXED);
        return NULL;
    }
    (void)__atomic_add_fetch(&counter->n_allocs, 1, __ATOMIC_RELAXED);
    uint64_t peak = __atomic_load_n(&counter->peak_bytes, __ATOMIC_RELAXED);
    while (peak < now && !__atomic_compare_exchange_n(&counter->peak_bytes, &peak, now, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return memory;
}

static void counter_free(void *ctx, void *memory, size_t bytes)
{
    dunlin_alloc_counter *counter = ctx;
    if (memory != NULL) {
        (void)__atomic_add_fetch(&counter->n_frees, 1, __ATOMIC_RELAXED);
        counter->inner.free_fn(counter->inner.ctx, memory, bytes);
        (void)__atomic_sub_fetch(&counter->now_bytes, bytes, __ATOMIC_RELAXED);
    }
}

void dunlin_alloc_counter_init(dunlin_alloc_counter *counter, const dunlin_alloc *inner)
{
    memset(counter, 0, sizeof *counter);
    counter->inner = dunlin__alloc_or_default(inner);
    counter->hooks.ctx = counter;
    counter->hooks.alloc_fn = counter_alloc;
    counter->hooks.free_fn = counter_free;
}

void *dunlin__alloc_array(const dunlin_alloc *alloc, size_t n, size_t bytes)
{
    size_t total = 0;
    if (n == 0 || bytes == 0 || !dunlin__mul_size(n, bytes, &total)) {
        return NULL;
    }
    return alloc->alloc_fn(alloc->ctx, total, BLOCK_ALIGN);
}

void *dunlin__alloc_zeroed(const dunlin_alloc *alloc, size_t n, size_t bytes)
{
    void *memory = dunlin__alloc_array(alloc, n, bytes);
    if (memory != NULL) {
        memset(memory, 0, n * bytes);
    }
    return memory;
}

void dunlin__free_array(const dunlin_alloc *alloc, void *memory, size_t n, size_t bytes)
{
    if (memory != NULL) {
        alloc->free_fn(alloc->ctx, memory, n * bytes);
    }
}

bool dunlin__grow_array(const dunlin_alloc *alloc, void **array, size_t *capacity, size_t needed,
                        size_t bytes)
{
    if (needed <= *capacity) {
        return true;
    }
    size_t larger = *capacity < 8 ? 8 : *capacity;
    while (larger < needed) {
        if (!dunlin__mul_size(larger, 2, &larger)) {
            return false;
        }
    }
    void *memory = dunlin__alloc_array(alloc, larger, bytes);
    if (memory == NULL) {
        return false;
    }
    if (*capacity > 0) {
        memcpy(memory, *array, *capacity * bytes);
        dunlin__free_array(alloc, *array, *capacity, bytes);
    }
    *array = memory;
    *capacity = larger;
    return true;
}

bool dunlin__copy_text(const dunlin_alloc *alloc, const char *text, char **out_copy)
{
    *out_copy = NULL;
    if (text == NULL) {
        return true;
    }
    size_t n_bytes = strlen(text) + 1;
    *out_copy = dunlin__alloc_array(alloc, n_bytes, 1);
    if (*out_copy == NULL) {
        return false;
    }
    memcpy(*out_copy, text, n_bytes);
    return true;
}

void dunlin__free_text(const dunlin_alloc *alloc, char *text)
{
    if (text != NULL) {
        dunlin__free_array(alloc, text, strlen(text) + 1, 1);
    }
}
