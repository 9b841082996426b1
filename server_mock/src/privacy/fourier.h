/*
 * fourier.h - the discrete Fourier transform in double precision.
 *
 * Why there is one of our own: of Debian's libraries FFTW and GSL have the GPL, and kissfft is
 * built for single precision alone.
 */
#ifndef DUNLIN_SERVER_PRIVACY_FOURIER_H
#define DUNLIN_SERVER_PRIVACY_FOURIER_H

#include <dunlin/alloc.h>

#define DUNLIN_FOURIER_MOST_LOG2 24u

/* Room for one length: powers of the root of unity. */
typedef struct dunlin__fourier {
    double *roots; /* cosine and sine of 2 pi k / n, k below n / 2 */
    size_t n;
    uint32_t log2_n;
} dunlin__fourier;

/* For n = 2^log2_n values, log2_n from 1 to 24. MEMORY. Follow by dunlin__fourier_free(). */
DUNLIN_NODISCARD dunlin_status dunlin__fourier_make(dunlin__fourier *out_fourier, uint32_t log2_n,
                                                    const dunlin_alloc *alloc, dunlin_error *error);
void dunlin__fourier_free(dunlin__fourier *fourier, const dunlin_alloc *alloc);

/*
 * In place, not scaled: values[2 k] and values[2 k + 1] are real and imaginary part of value k; the
 * exponent's sign is minus, or plus when inverse. With u = 2^-53 the error is, in the Euclidean
 * norm, at most 7 log2(n) u of the result's (Higham 2002, "Accuracy and Stability of Numerical
 * Algorithms", theorem 24.2).
 */
void dunlin__fourier_run(const dunlin__fourier *fourier, double *values, bool is_inverse);

#endif
