/*
 * clock.c - the time that calls are measured by.
 */
#include "clock.h"

#include <time.h>

double dunlin__clock_ms(void)
{
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}
