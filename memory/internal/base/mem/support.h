/*
 * support.h - what every layer needs of the basics: failing with a detail, logging, allocating
 * through hooks.
 *
 * dunlin__fail() is called once, where a thing goes wrong; callers above pass the status on and
 * leave the detail alone.
 */
#ifndef DUNLIN_MEM_SUPPORT_H
#define DUNLIN_MEM_SUPPORT_H

#include <dunlin/alloc.h>
#include <dunlin/log.h>

/* Fills `error` (may be NULL) and returns `status`. The text is cut to fit. `subsystem` must be a
 * literal. */
dunlin_status dunlin__fail(dunlin_error *error, dunlin_status status, const char *subsystem,
                           int code, const char *format, ...) DUNLIN_PRINTF(5, 6);

/* BUDGET with the least number of bytes that would work. */
dunlin_status dunlin__fail_budget(dunlin_error *error, const char *subsystem, uint64_t budget_bytes,
                                  uint64_t needed_bytes);

void dunlin__error_clear(dunlin_error *error);

/* Formats and writes one line if the sink wants the level; `log` may be NULL. */
void dunlin__log(const dunlin_log *log, dunlin_log_level level, const char *subsystem,
                 const char *format, ...) DUNLIN_PRINTF(4, 5);

/* Returns usable hooks: `*hooks` if its functions are set, else the C library's. `hooks` may be
 * NULL. */
dunlin_alloc dunlin__alloc_or_default(const dunlin_alloc *hooks);

/* Memory for n elements, aligned to 64 bytes, zeroed or not; NULL when out of memory, when n *
 * bytes overflows or n is 0. */
void *dunlin__alloc_array(const dunlin_alloc *alloc, size_t n, size_t bytes);
void *dunlin__alloc_zeroed(const dunlin_alloc *alloc, size_t n, size_t bytes);

/* Gives back what dunlin__alloc_array(n, bytes) returned; NULL is fine. */
void dunlin__free_array(const dunlin_alloc *alloc, void *memory, size_t n, size_t bytes);

/* Grows an array that holds `n` and has room for `*capacity` elements so that `needed` fit;
 * contents are kept. */
bool dunlin__grow_array(const dunlin_alloc *alloc, void **array, size_t *capacity, size_t needed,
                        size_t bytes);

/* A copy of a text; NULL stays NULL and is no failure. False when out of memory. */
bool dunlin__copy_text(const dunlin_alloc *alloc, const char *text, char **out_copy);

/* Gives back a copy whose length has not changed since; NULL is fine. */
void dunlin__free_text(const dunlin_alloc *alloc, char *text);

#define DUNLIN_TRY(expression)                                                                     \
    do {                                                                                           \
        dunlin_status try_status_ = (expression);                                                  \
        if (try_status_ != DUNLIN_OK) {                                                            \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

#endif
