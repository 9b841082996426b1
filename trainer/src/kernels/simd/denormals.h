/*
 * denormals.h - numbers below the smallest normal one count as zero, going in and coming out.
 *
 * Momentum of a weight whose gradient has gone shrinks step by step, and stays at a few of the
 * least subnormal numbers for ever; arithmetic on those takes processors up to a hundred times as
 * long. The mode is the calling thread's own; workers take over that of whoever hands them work
 * (threads.c), so that bits do not depend on who does it. On other processors than these nothing
 * changes.
 */
#ifndef DUNLIN_KERNELS_DENORMALS_H
#define DUNLIN_KERNELS_DENORMALS_H

#include <stdbool.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#define SUBNORMALS_FLUSHED 0x8040U /* results (FZ) and operands (DAZ) */
#elif defined(__aarch64__)
#define SUBNORMALS_FLUSHED (UINT64_C(1) << 24) /* FZ: both */
#else
#define SUBNORMALS_FLUSHED 0U
#endif

static inline uint64_t float_mode_get(void)
{
#if defined(__SSE2__)
    return _mm_getcsr();
#elif defined(__aarch64__)
    uint64_t mode = 0;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
#else
    return 0;
#endif
}

static inline void float_mode_set(uint64_t mode)
{
#if defined(__SSE2__)
    _mm_setcsr((unsigned)mode);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(mode) : "memory");
#else
    (void)mode;
#endif
}

static inline bool subnormals_are_flushed(void)
{
    return (float_mode_get() & SUBNORMALS_FLUSHED) != 0;
}

/* Returns the mode that float_mode_set() brings back. */
static inline uint64_t subnormals_flush(void)
{
    const uint64_t mode = float_mode_get();
    float_mode_set(mode | SUBNORMALS_FLUSHED);
    return mode;
}

#endif
