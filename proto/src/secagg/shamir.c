/*
 * shamir.c - shares of 32 bytes over GF(2^8), in constant time.
 *
 * Invariant: no branch and no address depends on a secret's byte. Masks are made by arithmetic from
 * one bit; places and weights are public, yet treated alike.
 */
#include <mem/support.h>
#include <wire/digest.h>
#include <wire/shamir.h>

#include <string.h>

/* All bits set if the lowest of `value` is. */
static uint8_t mask_of(unsigned value)
{
    return (uint8_t)(0u - (value & 1u));
}

/* Times x, modulo x^8 + x^4 + x^3 + x + 1. */
static uint8_t times_x(uint8_t a)
{
    return (uint8_t)((unsigned)(a << 1) ^ (0x1bu & mask_of((unsigned)a >> 7)));
}

static uint8_t multiply(uint8_t a, uint8_t b)
{
    uint8_t product = 0;
    for (unsigned bit = 0; bit < 8; bit++) {
        product ^= (uint8_t)(a & mask_of((unsigned)b >> bit));
        a = times_x(a);
    }
    return product;
}

/* a^254, which is 1 / a; 0 for 0. */
static uint8_t invert(uint8_t a)
{
    uint8_t power = a;
    uint8_t result = 1;
    for (unsigned i = 0; i < 7; i++) {
        power = multiply(power, power);
        result = multiply(result, power);
    }
    return result;
}

void dunlin__shamir_add(uint8_t sum[DUNLIN_SHAMIR_BYTES], uint8_t weight,
                        const uint8_t share[DUNLIN_SHAMIR_BYTES])
{
    uint8_t shifted[DUNLIN_SHAMIR_BYTES];
    memcpy(shifted, share, sizeof(shifted));
    for (unsigned bit = 0; bit < 8; bit++) {
        const uint8_t mask = mask_of((unsigned)weight >> bit);
        for (size_t i = 0; i < DUNLIN_SHAMIR_BYTES; i++) {
            sum[i] ^= (uint8_t)(shifted[i] & mask);
            shifted[i] = times_x(shifted[i]);
        }
    }
    dunlin__wipe(shifted, sizeof(shifted));
}

/* Horner: ((c_n x + c_n-1) x + ...) x + secret. */
void dunlin__shamir_share(const uint8_t secret[DUNLIN_SHAMIR_BYTES], const uint8_t *coefficients,
                          unsigned threshold, uint8_t place, uint8_t out_share[DUNLIN_SHAMIR_BYTES])
{
    uint8_t value[DUNLIN_SHAMIR_BYTES] = {0};
    uint8_t next[DUNLIN_SHAMIR_BYTES];
    for (unsigned i = threshold; i > 0; i--) {
        const uint8_t *term = i > 1 ? coefficients + (size_t)(i - 2) * DUNLIN_SHAMIR_BYTES : secret;
        memcpy(next, term, sizeof(next));
        dunlin__shamir_add(next, place, value);
        memcpy(value, next, sizeof(value));
    }
    memcpy(out_share, value, sizeof(value));
    dunlin__wipe(value, sizeof(value));
    dunlin__wipe(next, sizeof(next));
}

/* The product over the others of (at - x_j) / (x_i - x_j); minus is plus. */
dunlin_status dunlin__shamir_weights(const uint8_t *places, unsigned n, uint8_t at,
                                     uint8_t *out_weights, dunlin_error *error)
{
    for (unsigned i = 0; i < n; i++) {
        uint8_t above = 1;
        uint8_t below = 1;
        for (unsigned j = 0; j < n; j++) {
            if (j != i) {
                above = multiply(above, (uint8_t)(at ^ places[j]));
                below = multiply(below, (uint8_t)(places[i] ^ places[j]));
            }
        }
        if (places[i] == 0 || below == 0) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "secagg", 0,
                                "place %u of a share is 0 or there twice", (unsigned)places[i]);
        }
        out_weights[i] = multiply(above, invert(below));
    }
    return DUNLIN_OK;
}

void dunlin__shamir_select(bool takes_second, const uint8_t first[DUNLIN_SHAMIR_BYTES],
                           const uint8_t second[DUNLIN_SHAMIR_BYTES],
                           uint8_t out_share[DUNLIN_SHAMIR_BYTES])
{
    const uint8_t mask = mask_of(takes_second ? 1u : 0u);
    for (size_t i = 0; i < DUNLIN_SHAMIR_BYTES; i++) {
        out_share[i] = (uint8_t)((first[i] & (uint8_t)~mask) | (second[i] & mask));
    }
}

bool dunlin__shamir_equal(const uint8_t a[DUNLIN_SHAMIR_BYTES],
                          const uint8_t b[DUNLIN_SHAMIR_BYTES])
{
    uint8_t differs = 0;
    for (size_t i = 0; i < DUNLIN_SHAMIR_BYTES; i++) {
        differs |= (uint8_t)(a[i] ^ b[i]);
    }
    return differs == 0;
}
