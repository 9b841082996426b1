/*
 * log.h - where the library's log lines go. The library prints nothing by itself.
 *
 * Example: warnings and errors; write_line() is the app's.
 *
 * @code
 * extern void write_line(void *ctx, dunlin_log_level level, const char *subsystem,
 *                        const char *text);
 * const dunlin_log log = {.write_fn = write_line, .level = DUNLIN_LOG_WARNING};
 * (void)log; // goes into the options of a handle
 * @endcode
 */
#ifndef DUNLIN_LOG_H
#define DUNLIN_LOG_H

#include <dunlin/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dunlin_log_level {
    DUNLIN_LOG_OFF = 0,
    DUNLIN_LOG_ERROR = 1,
    DUNLIN_LOG_WARNING = 2,
    DUNLIN_LOG_INFO = 3,
    DUNLIN_LOG_DEBUG = 4
} dunlin_log_level;

/**
 * A sink of log lines. `write_fn` gets one line without a line break; `text` is valid during the
 * call. Lines above `level` are not formatted. A zeroed struct logs nothing. Never holds data,
 * weights, labels or keys; ids are redacted. This struct is frozen.
 */
typedef struct dunlin_log {
    void *ctx;
    void (*write_fn)(void *ctx, dunlin_log_level level, const char *subsystem, const char *text);
    dunlin_log_level level;
} dunlin_log;

#ifdef __cplusplus
}
#endif

#endif
