/*
 * fourier.c - the discrete Fourier transform in double precision: radix 2, in place.
 *
 * Invariant: each root of unity is computed by itself, so its error is that of one cosine.
 */
#include "fourier.h"

#include <mem/support.h>

#include <math.h>

#define PI 3.14159265358979323846

dunlin_status dunlin__fourier_make(dunlin__fourier *out_fourier, uint32_t log2_n,
                                   const dunlin_alloc *alloc, dunlin_error *error)
{
    *out_fourier = (dunlin__fourier){.n = (size_t)1 << log2_n, .log2_n = log2_n};
    out_fourier->roots = dunlin__alloc_array(alloc, out_fourier->n, sizeof(double));
    if (out_fourier->roots == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "privacy", 0, "no memory for %zu roots of unity",
                            out_fourier->n / 2);
    }
    for (size_t k = 0; k < out_fourier->n / 2; k++) {
        const double angle = 2 * PI * (double)k / (double)out_fourier->n;
        out_fourier->roots[2 * k] = cos(angle);
        out_fourier->roots[2 * k + 1] = sin(angle);
    }
    return DUNLIN_OK;
}

void dunlin__fourier_free(dunlin__fourier *fourier, const dunlin_alloc *alloc)
{
    dunlin__free_array(alloc, fourier->roots, fourier->n, sizeof(double));
    *fourier = (dunlin__fourier){0};
}

/* Value k and the value whose number is k with its bits in reverse order change places. */
static void exchange_reversed(double *values, size_t n)
{
    size_t other = 0;
    for (size_t k = 0; k + 1 < n; k++) {
        if (k < other) {
            const double re = values[2 * k];
            const double im = values[2 * k + 1];
            values[2 * k] = values[2 * other];
            values[2 * k + 1] = values[2 * other + 1];
            values[2 * other] = re;
            values[2 * other + 1] = im;
        }
        size_t bit = n / 2;
        while ((other & bit) != 0) {
            other ^= bit;
            bit /= 2;
        }
        other |= bit;
    }
}

void dunlin__fourier_run(const dunlin__fourier *fourier, double *values, bool is_inverse)
{
    const size_t n = fourier->n;
    const double sign = is_inverse ? 1 : -1;
    exchange_reversed(values, n);
    for (size_t half = 1; half < n; half *= 2) {
        const size_t stride = n / (2 * half);
        for (size_t first = 0; first < n; first += 2 * half) {
            double *restrict a = values + 2 * first;
            double *restrict b = a + 2 * half;
            for (size_t k = 0; k < half; k++) {
                const double c = fourier->roots[2 * k * stride];
                const double s = sign * fourier->roots[2 * k * stride + 1];
                const double re = b[2 * k] * c - b[2 * k + 1] * s;
                const double im = b[2 * k] * s + b[2 * k + 1] * c;
                b[2 * k] = a[2 * k] - re;
                b[2 * k + 1] = a[2 * k + 1] - im;
                a[2 * k] += re;
                a[2 * k + 1] += im;
            }
        }
    }
}
