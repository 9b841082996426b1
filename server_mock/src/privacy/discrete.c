/*
 * discrete.c - whole numbers with the discrete Laplace and the discrete Gaussian distribution.
 *
 * Invariant: with a numerator up to 2^62, a denominator up to 2^32, hence a scale up to 2^31 + 1
 * and a draw below 2^63, all products are below 2^320: the square of |draw| scale denominator is
 * the largest, below 2^254, and a count of up to 2^31 times 2 numerator denominator scale^2 below
 * 2^190.
 */
#include "discrete.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define LIMBS DUNLIN_WIDE_LIMBS

static void wide_set(mp_limb_t out_wide[LIMBS], uint64_t value)
{
    memset(out_wide, 0, LIMBS * sizeof(mp_limb_t));
    for (int i = 0; i * GMP_NUMB_BITS < 64; i++) {
        out_wide[i] = (mp_limb_t)(value >> (i * GMP_NUMB_BITS) & GMP_NUMB_MAX);
    }
}

/* out may be a or b. */
static void wide_multiply(mp_limb_t out_wide[LIMBS], const mp_limb_t *a, const mp_limb_t *b)
{
    mp_limb_t product[2 * LIMBS];
    mpn_mul_n(product, a, b, LIMBS);
    memcpy(out_wide, product, LIMBS * sizeof(mp_limb_t));
}

/* Whether a random number in [0, 1) is below a / b: its bits are compared with those of a / b,
 * which a long division gives. `a` is below b and is used up. */
static bool wide_chance(dunlin__bits *bits, mp_limb_t a[LIMBS], const mp_limb_t b[LIMBS])
{
    while (!mpn_zero_p(a, LIMBS)) {
        (void)mpn_lshift(a, a, LIMBS, 1);
        const uint32_t digit = mpn_cmp(a, b, LIMBS) >= 0;
        if (digit != 0) {
            (void)mpn_sub_n(a, a, b, LIMBS);
        }
        const uint32_t bit = dunlin__bits_one(bits);
        if (bit != digit) {
            return bit < digit;
        }
    }
    return false;
}

bool dunlin__discrete_chance(dunlin__bits *bits, uint64_t a, uint64_t b)
{
    if (a >= b) {
        return true;
    }
    while (a != 0) {
        a *= 2;
        const uint32_t digit = a >= b;
        a -= digit != 0 ? b : 0;
        const uint32_t bit = dunlin__bits_one(bits);
        if (bit != digit) {
            return bit < digit;
        }
    }
    return false;
}

/* A chance of e^(-a / b), a at most b. */
static bool exponential_chance(dunlin__bits *bits, uint64_t a, uint64_t b)
{
    uint64_t k = 1;
    while (dunlin__discrete_chance(bits, a, b * k)) {
        k++;
    }
    return k % 2 == 1;
}

int64_t dunlin__discrete_laplace(dunlin__bits *bits, uint64_t scale)
{
    for (;;) {
        const uint64_t rest = dunlin__bits_below(bits, scale);
        if (!exponential_chance(bits, rest, scale)) {
            continue;
        }
        uint64_t n_scales = 0;
        while (exponential_chance(bits, 1, 1)) {
            n_scales++;
        }
        const bool is_negative = dunlin__bits_one(bits) != 0;
        const int64_t size = (int64_t)(rest + scale * n_scales);
        if (is_negative && size == 0) {
            continue; /* else 0 would come twice as often */
        }
        return is_negative ? -size : size;
    }
}

/* The root of a / b, rounded down. */
static uint64_t root_of(uint64_t a, uint64_t b)
{
    uint64_t root = 0;
    for (uint64_t bit = (uint64_t)1 << 31; bit != 0; bit /= 2) {
        const uint64_t next = root + bit;
        root = next * next <= a / b ? next : root;
    }
    return root;
}

dunlin_status dunlin__discrete_gaussian_make(dunlin__discrete_gaussian *out_noise,
                                             uint64_t numerator, uint64_t denominator,
                                             dunlin_error *error)
{
    *out_noise = (dunlin__discrete_gaussian){0};
    if (numerator == 0 || denominator == 0 || numerator > DUNLIN_VARIANCE_NUMERATOR ||
        denominator > DUNLIN_VARIANCE_DENOMINATOR || numerator < denominator >> 20) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "privacy", 0,
                            "a variance of %" PRIu64 "/%" PRIu64
                            " is not one of 2^-20 to 2^62 with a denominator from 1 to 2^32",
                            numerator, denominator);
    }
    out_noise->scale = root_of(numerator, denominator) + 1;
    mp_limb_t part[LIMBS];
    wide_set(out_noise->variance, numerator);
    wide_set(out_noise->scaled, out_noise->scale);
    wide_set(part, denominator);
    wide_multiply(out_noise->scaled, out_noise->scaled, part);
    wide_set(part, 2 * out_noise->scale);
    wide_multiply(out_noise->twice_squared, out_noise->variance, part);
    wide_multiply(out_noise->twice_squared, out_noise->twice_squared, out_noise->scaled);
    return DUNLIN_OK;
}

/* A chance of e^-((size - variance / scale)^2 / (2 variance)). */
static bool is_accepted(const dunlin__discrete_gaussian *noise, dunlin__bits *bits, uint64_t size)
{
    mp_limb_t distance[LIMBS];
    wide_set(distance, size);
    wide_multiply(distance, distance, noise->scaled);
    if (mpn_cmp(distance, noise->variance, LIMBS) >= 0) {
        (void)mpn_sub_n(distance, distance, noise->variance, LIMBS);
    } else {
        (void)mpn_sub_n(distance, noise->variance, distance, LIMBS);
    }
    wide_multiply(distance, distance, distance);
    while (mpn_cmp(distance, noise->twice_squared, LIMBS) >= 0) {
        if (!exponential_chance(bits, 1, 1)) {
            return false;
        }
        (void)mpn_sub_n(distance, distance, noise->twice_squared, LIMBS);
    }
    mp_limb_t divisor[LIMBS]; /* twice_squared times k */
    memcpy(divisor, noise->twice_squared, sizeof divisor);
    for (uint64_t k = 1;; k++) {
        mp_limb_t left[LIMBS];
        memcpy(left, distance, sizeof left);
        if (!wide_chance(bits, left, divisor)) {
            return k % 2 == 1;
        }
        (void)mpn_add_n(divisor, divisor, noise->twice_squared, LIMBS);
    }
}

int64_t dunlin__discrete_gaussian_draw(const dunlin__discrete_gaussian *noise, dunlin__bits *bits)
{
    for (;;) {
        const int64_t value = dunlin__discrete_laplace(bits, noise->scale);
        if (is_accepted(noise, bits, (uint64_t)(value < 0 ? -value : value))) {
            return value;
        }
    }
}
