/*
 * rotate.c - the fast Hadamard transform and its signs.
 *
 * Each butterfly is one addition and one subtraction in an order that the transform fixes, so the
 * results are the same however a compiler arranges them side by side.
 */
#include "rotate.h"

#include <math.h>

/* The sum and the difference of pairs `half` apart, over all of the block. */
static void butterflies(float *restrict values, size_t n, size_t half)
{
    for (size_t first = 0; first < n; first += 2 * half) {
        float *restrict low = values + first;
        float *restrict high = low + half;
        for (size_t i = 0; i < half; i++) {
            float a = low[i];
            float b = high[i];
            low[i] = a + b;
            high[i] = a - b;
        }
    }
}

/* The same for pairs 1, 2 and 4 apart, eight at a time. */
static void butterflies_of_8(float *values, size_t n)
{
    for (size_t first = 0; first < n; first += 8) {
        float *v = values + first;
        float a[8];
        float b[8];
        for (size_t i = 0; i < 4; i++) {
            a[2 * i] = v[2 * i] + v[2 * i + 1];
            a[2 * i + 1] = v[2 * i] - v[2 * i + 1];
        }
        for (size_t i = 0; i < 8; i++) {
            b[i] = ((i & 2) == 0) ? a[i] + a[i + 2] : a[i - 2] - a[i];
        }
        for (size_t i = 0; i < 4; i++) {
            v[i] = b[i] + b[i + 4];
            v[i + 4] = b[i] - b[i + 4];
        }
    }
}

static void transform(float *values, size_t n)
{
    size_t half = 1;
    if (n >= 8) {
        butterflies_of_8(values, n);
        half = 8;
    }
    for (; half < n; half *= 2) {
        butterflies(values, n, half);
    }
    const float factor = (float)(1.0 / sqrt((double)n));
    for (size_t i = 0; i < n; i++) {
        values[i] *= factor;
    }
}

/* Entry i changes its sign where bit i % 32 of word i / 32 is set. */
static void flip_signs(float *values, size_t n, const dunlin__draws *draws)
{
    uint32_t words[DUNLIN_DRAW_WORDS];
    for (size_t first = 0; first < n; first += (size_t)DUNLIN_DRAW_WORDS * 32) {
        dunlin__draws_words(draws, (uint32_t)(first / ((size_t)DUNLIN_DRAW_WORDS * 32)), words);
        for (size_t i = 0; i < (size_t)DUNLIN_DRAW_WORDS * 32 && first + i < n; i++) {
            float sign = ((words[i / 32] >> (i % 32) & 1u) != 0) ? -1.0f : 1.0f;
            values[first + i] *= sign;
        }
    }
}

void dunlin__rotate(float *values, size_t n, const dunlin__draws *draws)
{
    flip_signs(values, n, draws);
    transform(values, n);
}

void dunlin__rotate_back(float *values, size_t n, const dunlin__draws *draws)
{
    transform(values, n);
    flip_signs(values, n, draws);
}

size_t dunlin__rotate_size(size_t n)
{
    size_t size = 1;
    while (size < n) {
        size *= 2;
    }
    return size;
}
