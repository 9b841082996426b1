/*
 * buffers.c - guarded float arrays. The length stands in front of the first guard.
 */
#include "buffers.h"

#include "random.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_FLOATS 16
#define GUARD_BYTE 0xA5

float *buffer_new(int64_t n)
{
    const size_t bytes = ((size_t)n * sizeof(float) + 63) / 64 * 64 + 3 * GUARD_FLOATS * 4;
    float *base = aligned_alloc(64, bytes);
    cr_assert_not_null(base);
    memset(base, GUARD_BYTE, bytes);
    memcpy(base, &n, sizeof n);
    float *buffer = base + 2 * GUARD_FLOATS;
    for (int64_t i = 0; i < n; i++) {
        buffer[i] = NAN;
    }
    return buffer;
}

void buffer_free(float *buffer)
{
    if (buffer != NULL) {
        free(buffer - 2 * GUARD_FLOATS);
    }
}

bool buffer_is_intact(const float *buffer)
{
    int64_t n = 0;
    memcpy(&n, buffer - 2 * GUARD_FLOATS, sizeof n);
    const unsigned char *before = (const unsigned char *)(buffer - GUARD_FLOATS);
    const unsigned char *behind = (const unsigned char *)(buffer + n);
    for (size_t i = 0; i < GUARD_FLOATS * sizeof(float); i++) {
        if (before[i] != GUARD_BYTE || behind[i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}

float *buffer_random(int64_t n, uint64_t *state)
{
    float *buffer = buffer_new(n);
    test_random_fill(buffer, n, -1.0, 1.0, state);
    return buffer;
}

double *buffer_doubles(const float *values, int64_t n)
{
    double *out = calloc((size_t)n + 1, sizeof *out);
    cr_assert_not_null(out);
    for (int64_t i = 0; values != NULL && i < n; i++) {
        out[i] = (double)values[i];
    }
    return out;
}

int64_t buffer_first_wrong(const float *values, const double *expected, const double *size,
                           double factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double bound = factor * (double)FLT_EPSILON * (size == NULL ? 1.0 : size[i]);
        if (!(fabs((double)values[i] - expected[i]) <= bound)) {
            return i;
        }
    }
    return -1;
}

bool buffer_same_bits(const float *a, const float *b, int64_t n)
{
    return memcmp(a, b, (size_t)n * sizeof(float)) == 0;
}

void each_isa(each_isa_fn fn)
{
    for (int i = 0; dunlin__kernels_isa(i) != NULL; i++) {
        const dunlin_kernels *kernels = dunlin__kernels_select(dunlin__kernels_isa(i));
        cr_assert_not_null(kernels);
        fn(kernels);
    }
}
