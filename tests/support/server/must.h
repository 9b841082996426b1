/*
 * must.h - checks of what a test needs before its subject; a check that fails ends the program.
 */
#ifndef DUNLIN_TESTS_MUST_H
#define DUNLIN_TESTS_MUST_H

#include <dunlin/base.h>

#include <stdio.h>
#include <stdlib.h>

/* Criterion tests and fuzz targets both stand on this: what must be there and is not ends either.
 */
#define MUST_HOLD(condition, ...)                                                                  \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                  \
            (void)fprintf(stderr, __VA_ARGS__);                                                    \
            (void)fputc('\n', stderr);                                                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#define MUST(expression)                                                                           \
    do {                                                                                           \
        dunlin_status must_status_ = (expression);                                                 \
        MUST_HOLD(must_status_ == DUNLIN_OK, "%s: %s: %s", #expression,                            \
                  dunlin_status_name(must_status_), error.text);                                   \
    } while (0)

#endif
