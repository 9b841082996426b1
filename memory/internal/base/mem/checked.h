/*
 * checked.h - arithmetic of sizes that cannot wrap: false means the result does not fit.
 */
#ifndef DUNLIN_MEM_CHECKED_H
#define DUNLIN_MEM_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool dunlin__add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool dunlin__mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool dunlin__add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool dunlin__mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool dunlin__mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Bytes that the address space may be too small for. */
static inline bool dunlin__to_size(uint64_t bytes, size_t *out)
{
    *out = (size_t)bytes;
    return *out == bytes;
}

/* Rounds up to a multiple of `align`, a power of two. */
static inline bool dunlin__align_u64(uint64_t bytes, uint64_t align, uint64_t *out)
{
    uint64_t raised = 0;
    if (!dunlin__add_u64(bytes, align - 1, &raised)) {
        return false;
    }
    *out = raised & ~(align - 1);
    return true;
}

#endif
