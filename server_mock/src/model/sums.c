/*
 * sums.c - weighted sums of many values whose bits depend neither on order nor on grouping.
 *
 * Invariant: a limb is the integer sum of what each term gave it, and what a term gives follows
 * from its weight and value alone. A term gives at most 2^46 in magnitude to each limb, so 65,536
 * of them never overflow one. Nothing here may be contracted or reordered by the compiler. Limbs of
 * a chunk above its level count as 0 and are not even read: weighted values below 2^3 give nothing
 * to the two highest, for the nearest multiple of 2^4 is 0.
 */
#include "sums.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define CHUNK DUNLIN_SUMS_CHUNK

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

/* At least one. */
static size_t n_chunks(size_t n_values)
{
    return n_values / CHUNK + 1;
}

dunlin_status dunlin__sums_make(dunlin__sums *out_sums, size_t n_values, const dunlin_alloc *alloc,
                                dunlin_error *error)
{
    *out_sums = (dunlin__sums){.capacity = n_values};
    if (n_values < SIZE_MAX / (DUNLIN_SUMS_LIMBS * sizeof(int64_t)) - 1) {
        out_sums->stride = n_values > 0 ? n_values : 1;
        out_sums->limbs =
            dunlin__alloc_array(alloc, out_sums->stride * DUNLIN_SUMS_LIMBS, sizeof(int64_t));
        out_sums->levels = dunlin__alloc_zeroed(alloc, n_chunks(n_values), 1);
    }
    if (out_sums->limbs == NULL || out_sums->levels == NULL) {
        dunlin__sums_free(out_sums, alloc);
        return dunlin__fail(error, DUNLIN_MEMORY, "sums", 0, "no memory for %zu sums", n_values);
    }
    out_sums->n_values = n_values;
    return DUNLIN_OK;
}

void dunlin__sums_free(dunlin__sums *sums, const dunlin_alloc *alloc)
{
    dunlin__free_array(alloc, sums->limbs, sums->stride * DUNLIN_SUMS_LIMBS, sizeof(int64_t));
    dunlin__free_array(alloc, sums->levels, n_chunks(sums->capacity), 1);
    *sums = (dunlin__sums){0};
}

void dunlin__sums_reset(dunlin__sums *sums, size_t n_values)
{
    sums->n_values = n_values <= sums->capacity ? n_values : sums->capacity;
    sums->n_terms = 0;
    memset(sums->weight, 0, sizeof sums->weight);
    memset(sums->levels, 0, n_chunks(sums->n_values));
}

/* Values of a chunk of the sums. */
static size_t chunk_values(const dunlin__sums *sums, size_t chunk)
{
    const size_t left = sums->n_values - chunk * CHUNK;
    return left < CHUNK ? left : CHUNK;
}

/* The limbs of a chunk are there up to `level` afterwards. */
static void raise_level(dunlin__sums *sums, size_t chunk, uint8_t level)
{
    static const unsigned first_limb[] = {4, 2, 0}; /* by level */
    const size_t n = chunk_values(sums, chunk);
    const uint8_t before = sums->levels[chunk];
    if (before >= level) {
        return;
    }
    for (unsigned k = first_limb[level]; k < first_limb[before]; k++) {
        memset(sums->limbs + k * sums->stride + chunk * CHUNK, 0, n * sizeof(int64_t));
    }
    sums->levels[chunk] = level;
}

void dunlin__sums_raise(dunlin__sums *sums, uint8_t level)
{
    for (size_t i = 0; i * CHUNK < sums->n_values; i++) {
        raise_level(sums, i, level);
    }
}

uint8_t dunlin__sums_level(const dunlin__sums *sums)
{
    uint8_t level = DUNLIN_SUMS_EMPTY;
    for (size_t i = 0; i * CHUNK < sums->n_values; i++) {
        level = sums->levels[i] > level ? sums->levels[i] : level;
    }
    return level;
}

/* `sign` is all ones to take away what was added, else 0: (x ^ -1) - -1 is -x. */
static void add_high(dunlin__sums *sums, size_t first, size_t n, const double *restrict terms,
                     int64_t sign)
{
    int64_t *restrict a = sums->limbs + first;
    int64_t *restrict b = a + sums->stride;
    int64_t *restrict c = b + sums->stride;
    int64_t *restrict d = c + sums->stride;
    for (size_t i = 0; i < n; i++) {
        double rest = terms[i];
        a[i] += (extract(&rest, EXTRACTOR(0x1p51)) ^ sign) - sign;
        b[i] += (extract(&rest, EXTRACTOR(0x1p4)) ^ sign) - sign;
        c[i] += (extract(&rest, EXTRACTOR(0x1p-43)) ^ sign) - sign;
        d[i] += (extract(&rest, EXTRACTOR(0x1p-90)) ^ sign) - sign;
    }
}

/* Of terms whose two highest limbs are 0. */
static void add_low(dunlin__sums *sums, size_t first, size_t n, const double *restrict terms,
                    int64_t sign)
{
    int64_t *restrict c = sums->limbs + 2 * sums->stride + first;
    int64_t *restrict d = c + sums->stride;
    for (size_t i = 0; i < n; i++) {
        double rest = terms[i];
        c[i] += (extract(&rest, EXTRACTOR(0x1p-43)) ^ sign) - sign;
        d[i] += (extract(&rest, EXTRACTOR(0x1p-90)) ^ sign) - sign;
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
    double rest = weight;
    sums->weight[0] += extract(&rest, EXTRACTOR(0x1p51));
    sums->weight[1] += extract(&rest, EXTRACTOR(0x1p4));
    sums->weight[2] += extract(&rest, EXTRACTOR(0x1p-43));
    sums->weight[3] += extract(&rest, EXTRACTOR(0x1p-90));
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

/* Whether the two highest limbs of any are not 0, or it is no number. */
static bool has_high(const double *weighted, size_t n)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        seen |= (uint64_t)(bits_of(weighted[i] + EXTRACTOR(0x1p4)) ^ bits_of(EXTRACTOR(0x1p4)));
    }
    return seen != 0;
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

/* Values of one chunk of the sums. */
static dunlin_status add_chunk(dunlin__sums *sums, size_t first, size_t n,
                               const dunlin__sums_term *term, size_t at, int64_t sign,
                               dunlin_error *error)
{
    double weighted[CHUNK];
    weigh(term, at, n, weighted);
    if (!has_high(weighted, n)) {
        raise_level(sums, first / CHUNK, DUNLIN_SUMS_LOW);
        add_low(sums, first, n, weighted, sign);
        return DUNLIN_OK;
    }
    DUNLIN_TRY(check_each(term, at, weighted, n, error));
    raise_level(sums, first / CHUNK, DUNLIN_SUMS_HIGH);
    add_high(sums, first, n, weighted, sign);
    return DUNLIN_OK;
}

static dunlin_status add_signed(dunlin__sums *sums, size_t first, size_t n,
                                const dunlin__sums_term *term, int64_t sign, dunlin_error *error)
{
    if (first > sums->n_values || n > sums->n_values - first) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "sums", 0, "values %zu to %zu of %zu sums",
                            first, first + n, sums->n_values);
    }
    for (size_t at = 0; at < n;) {
        const size_t in_chunk = CHUNK - (first + at) % CHUNK;
        const size_t n_now = n - at < in_chunk ? n - at : in_chunk;
        DUNLIN_TRY(add_chunk(sums, first + at, n_now, term, at, sign, error));
        at += n_now;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__sums_add(dunlin__sums *sums, size_t first, size_t n,
                               const dunlin__sums_term *term, dunlin_error *error)
{
    return add_signed(sums, first, n, term, 0, error);
}

dunlin_status dunlin__sums_take_away(dunlin__sums *sums, size_t first, size_t n,
                                     const dunlin__sums_term *term, dunlin_error *error)
{
    return add_signed(sums, first, n, term, -1, error);
}

/* Adds the limbs of a chunk that are there. */
static void merge_chunk(dunlin__sums *sums, const dunlin__sums *from, size_t chunk)
{
    const uint8_t level = from->levels[chunk];
    const size_t n = chunk_values(sums, chunk);
    const size_t first = chunk * CHUNK;
    raise_level(sums, chunk, level);
    for (unsigned k = level == DUNLIN_SUMS_HIGH ? 0 : 2; k < DUNLIN_SUMS_LIMBS; k++) {
        int64_t *restrict to = sums->limbs + k * sums->stride + first;
        const int64_t *restrict add = from->limbs + k * from->stride + first;
        for (size_t i = 0; i < n; i++) {
            to[i] += add[i];
        }
    }
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
    for (size_t i = 0; i * CHUNK < sums->n_values; i++) {
        if (from->levels[i] != DUNLIN_SUMS_EMPTY) {
            merge_chunk(sums, from, i);
        }
    }
    for (unsigned k = 0; k < DUNLIN_SUMS_LIMBS; k++) {
        sums->weight[k] += from->weight[k];
    }
    sums->n_terms += from->n_terms;
    return DUNLIN_OK;
}

/* Carries first, so that no limb but the highest is above half of the next one's unit, and nothing
 * cancels when they are added from the lowest on. */
static double join_limbs(int64_t limbs[DUNLIN_SUMS_LIMBS])
{
    const int64_t carry_unit = INT64_C(1) << 47;
    double sum = 0;
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
        const uint8_t level = sums->levels[(first + i) / CHUNK];
        int64_t limbs[DUNLIN_SUMS_LIMBS] = {0};
        for (unsigned k = level == DUNLIN_SUMS_HIGH ? 0 : 2;
             k < DUNLIN_SUMS_LIMBS && level != DUNLIN_SUMS_EMPTY; k++) {
            limbs[k] = sums->limbs[k * sums->stride + first + i];
        }
        out_sums[i] = join_limbs(limbs);
    }
}

double dunlin__sums_weight(const dunlin__sums *sums)
{
    int64_t limbs[DUNLIN_SUMS_LIMBS];
    memcpy(limbs, sums->weight, sizeof limbs);
    return join_limbs(limbs);
}
