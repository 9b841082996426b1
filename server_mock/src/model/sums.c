/*
 * sums.c - weighted sums of many values whose bits depend neither on order nor on grouping.
 *
 * Invariant: a limb is the integer sum of what each term gave it, and what a term gives follows
 * from its weight and value alone. A term gives at most 2^46 in magnitude to each limb, so 65,536
 * of them never overflow one. Nothing here may be contracted or reordered by the compiler.
 */
#include "sums.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define CHUNK 512u /* values that are worked on in the cache */

/* 2^(51 - 47 k): what limb k counts. */
static const double units[DUNLIN_SUMS_LIMBS] = {0x1p51, 0x1p4, 0x1p-43, 0x1p-90};

/* A number as large as this leaves a sum's last bit at the unit. */
#define EXTRACTOR(unit) (0x1.8p52 * (unit))

static inline int64_t bits_of(double value)
{
    int64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Takes the nearest multiple of the extractor's unit from the rest and gives how many units it is:
 * so much does adding the extractor add to its bits; subtracting both again is exact. */
static inline int64_t extract(double *rest, double extractor)
{
    const double rounded = *rest + extractor;
    *rest -= rounded - extractor;
    return bits_of(rounded) - bits_of(extractor);
}

dunlin_status dunlin__sums_make(dunlin__sums *out_sums, size_t n_values, const dunlin_alloc *alloc,
                                dunlin_error *error)
{
    *out_sums = (dunlin__sums){.capacity = n_values};
    if (n_values < SIZE_MAX / (DUNLIN_SUMS_LIMBS * sizeof(int64_t)) - 1) {
        out_sums->stride = n_values + 1;
        out_sums->limbs =
            dunlin__alloc_zeroed(alloc, out_sums->stride * DUNLIN_SUMS_LIMBS, sizeof(int64_t));
    }
    if (out_sums->limbs == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "sums", 0, "no memory for %zu sums", n_values);
    }
    out_sums->n_values = n_values;
    return DUNLIN_OK;
}

void dunlin__sums_free(dunlin__sums *sums, const dunlin_alloc *alloc)
{
    dunlin__free_array(alloc, sums->limbs, sums->stride * DUNLIN_SUMS_LIMBS, sizeof(int64_t));
    *sums = (dunlin__sums){0};
}

void dunlin__sums_reset(dunlin__sums *sums, size_t n_values)
{
    sums->n_values = n_values <= sums->capacity ? n_values : sums->capacity;
    sums->n_terms = 0;
    for (unsigned k = 0; k < DUNLIN_SUMS_LIMBS; k++) {
        memset(sums->limbs + k * sums->stride, 0, (sums->n_values + 1) * sizeof(int64_t));
    }
}

static void add_terms(dunlin__sums *sums, size_t first, size_t n, const double *restrict terms)
{
    int64_t *restrict a = sums->limbs + first;
    int64_t *restrict b = a + sums->stride;
    int64_t *restrict c = b + sums->stride;
    int64_t *restrict d = c + sums->stride;
    for (size_t i = 0; i < n; i++) {
        double rest = terms[i];
        a[i] += extract(&rest, EXTRACTOR(0x1p51));
        b[i] += extract(&rest, EXTRACTOR(0x1p4));
        c[i] += extract(&rest, EXTRACTOR(0x1p-43));
        d[i] += extract(&rest, EXTRACTOR(0x1p-90));
    }
}

dunlin_status dunlin__sums_count(dunlin__sums *sums, double weight, dunlin_error *error)
{
    if (!(weight > 0 && weight < DUNLIN_SUMS_LIMIT)) {
        return dunlin__fail(error, DUNLIN_NUMERIC, "sums", 0,
                            "a weight of %.6g: wants one above 0 and below %.6g", weight,
                            DUNLIN_SUMS_LIMIT);
    }
    if (sums->n_terms == DUNLIN_SUMS_TERMS) {
        return dunlin__fail(error, DUNLIN_OVERFLOW, "sums", 0,
                            "update %" PRIu32 " of a sum, which takes %u", sums->n_terms + 1,
                            DUNLIN_SUMS_TERMS);
    }
    sums->n_terms++;
    add_terms(sums, sums->n_values, 1, &weight);
    return DUNLIN_OK;
}

static void weigh(const dunlin__sums_term *term, size_t first, size_t n, double *restrict out)
{
    const float *values = term->values + first;
    const float *origin = term->origin;
    if (!(term->scale < 1)) {
        for (size_t i = 0; i < n; i++) {
            out[i] = term->weight * (double)values[i];
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const double from = origin != NULL ? (double)origin[first + i] : 0;
        out[i] = term->weight * (from + term->scale * ((double)values[i] - from));
    }
}

/* False if each is below half of the limit or so, from the highest limbs alone: they are in
 * [-2^45, 2^45). */
static bool may_be_large(const double *weighted, size_t n)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        const int64_t limb = bits_of(weighted[i] + EXTRACTOR(0x1p51)) - bits_of(EXTRACTOR(0x1p51));
        seen |= (uint64_t)limb + (UINT64_C(1) << 45);
    }
    return seen >> 46 != 0;
}

static dunlin_status check_each(const dunlin__sums_term *term, size_t first, const double *weighted,
                                size_t n, dunlin_error *error)
{
    for (size_t i = 0; i < n; i++) {
        if (!(fabs(weighted[i]) < DUNLIN_SUMS_LIMIT)) {
            return dunlin__fail(error, DUNLIN_OVERFLOW, "sums", 0,
                                "value %" PRIu64 " of client %" PRId64
                                ", %.6g times the weight %.6g, is not below %.6g",
                                term->first_value + first + i, term->client_index,
                                (double)term->values[first + i], term->weight, DUNLIN_SUMS_LIMIT);
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__sums_add(dunlin__sums *sums, size_t first, size_t n,
                               const dunlin__sums_term *term, dunlin_error *error)
{
    double weighted[CHUNK];
    if (first > sums->n_values || n > sums->n_values - first) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "sums", 0, "values %zu to %zu of %zu sums",
                            first, first + n, sums->n_values);
    }
    for (size_t at = 0; at < n; at += CHUNK) {
        const size_t n_now = n - at < CHUNK ? n - at : CHUNK;
        weigh(term, at, n_now, weighted);
        if (may_be_large(weighted, n_now)) {
            DUNLIN_TRY(check_each(term, at, weighted, n_now, error));
        }
        add_terms(sums, first + at, n_now, weighted);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__sums_merge(dunlin__sums *sums, const dunlin__sums *from, dunlin_error *error)
{
    if (sums->n_values != from->n_values) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "sums", 0, "%zu sums and %zu: wants as many",
                            sums->n_values, from->n_values);
    }
    if (from->n_terms > DUNLIN_SUMS_TERMS - sums->n_terms) {
        return dunlin__fail(error, DUNLIN_OVERFLOW, "sums", 0,
                            "sums of %" PRIu32 " and %" PRIu32 " updates: one takes %u",
                            sums->n_terms, from->n_terms, DUNLIN_SUMS_TERMS);
    }
    for (unsigned k = 0; k < DUNLIN_SUMS_LIMBS; k++) {
        int64_t *restrict to = sums->limbs + k * sums->stride;
        const int64_t *restrict add = from->limbs + k * from->stride;
        for (size_t i = 0; i <= sums->n_values; i++) {
            to[i] += add[i];
        }
    }
    sums->n_terms += from->n_terms;
    return DUNLIN_OK;
}

/* Carries first, so that no limb but the highest is above half of the next one's unit, and nothing
 * cancels when they are added from the lowest on. */
static double read_one(const dunlin__sums *sums, size_t at)
{
    const int64_t carry_unit = INT64_C(1) << 47;
    int64_t limbs[DUNLIN_SUMS_LIMBS];
    double sum = 0;
    for (unsigned k = 0; k < DUNLIN_SUMS_LIMBS; k++) {
        limbs[k] = sums->limbs[k * sums->stride + at];
    }
    for (unsigned k = DUNLIN_SUMS_LIMBS - 1; k > 0; k--) {
        const int64_t biased = limbs[k] + carry_unit / 2;
        const int64_t carry =
            biased / carry_unit - (biased % carry_unit < 0 ? 1 : 0); /* rounded down */
        limbs[k] -= carry * carry_unit;
        limbs[k - 1] += carry;
    }
    for (unsigned k = DUNLIN_SUMS_LIMBS; k > 0; k--) {
        sum += (double)limbs[k - 1] * units[k - 1];
    }
    return sum;
}

void dunlin__sums_read(const dunlin__sums *sums, size_t first, size_t n, double *out_sums)
{
    for (size_t i = 0; i < n; i++) {
        out_sums[i] = read_one(sums, first + i);
    }
}

double dunlin__sums_weight(const dunlin__sums *sums)
{
    return read_one(sums, sums->n_values);
}
