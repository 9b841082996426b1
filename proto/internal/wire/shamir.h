/*
 * shamir.h - a secret of 32 bytes cut into shares of which any `threshold` give it back, fewer
 * nothing.
 *
 * Shamir, "How to share a secret" (CACM 1979), byte by byte over GF(2^8) with the polynomial of AES
 * (x^8 + x^4 + x^3 + x + 1). Places are public, secrets and shares are not: no branch and no
 * address depends on a byte of either, and there are no tables.
 */
#ifndef DUNLIN_WIRE_SHAMIR_H
#define DUNLIN_WIRE_SHAMIR_H

#include <dunlin/base.h>

#define DUNLIN_SHAMIR_BYTES 32u
#define DUNLIN_SHAMIR_PLACES 255u

/**
 * The share of one place, 1 to 255. `coefficients` has threshold - 1 times 32 bytes, unpredictable
 * and the same for all places of one secret; whoever made them wipes them.
 */
void dunlin__shamir_share(const uint8_t secret[DUNLIN_SHAMIR_BYTES], const uint8_t *coefficients,
                          unsigned threshold, uint8_t place,
                          uint8_t out_share[DUNLIN_SHAMIR_BYTES]);

/**
 * Lagrange's weights of `n` places (1 to 255) for the value at `at`: 0 for the secret, another one
 * for the share that this place must have.
 *
 * @return OK; ARGUMENT names a place that is 0 or there twice.
 */
DUNLIN_NODISCARD dunlin_status dunlin__shamir_weights(const uint8_t *places, unsigned n, uint8_t at,
                                                      uint8_t *out_weights, dunlin_error *error);

/** Adds weight x share to `sum`, which begins as zeros. */
void dunlin__shamir_add(uint8_t sum[DUNLIN_SHAMIR_BYTES], uint8_t weight,
                        const uint8_t share[DUNLIN_SHAMIR_BYTES]);

/** Copies the second share if `takes_second`, else the first, touching both alike. */
void dunlin__shamir_select(bool takes_second, const uint8_t first[DUNLIN_SHAMIR_BYTES],
                           const uint8_t second[DUNLIN_SHAMIR_BYTES],
                           uint8_t out_share[DUNLIN_SHAMIR_BYTES]);

/** Whether two are the same, in a time that does not tell where they differ. */
bool dunlin__shamir_equal(const uint8_t a[DUNLIN_SHAMIR_BYTES],
                          const uint8_t b[DUNLIN_SHAMIR_BYTES]);

#endif
