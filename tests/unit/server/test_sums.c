/*
 * test_sums.c - weighted sums: the same bits in every order and grouping, near the exact sum within
 * the stated error, and refused by name at their limits.
 */
#include "model/sums.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <random.h>
#include <stdio.h>
#include <string.h>

#define N_TERMS 40
#define N_VALUES 700u /* more than a chunk of the sums, and an odd end */

static float values[N_TERMS][N_VALUES];
static float origin[N_VALUES];
static double weights[N_TERMS];
static double scales[N_TERMS];

/* Of every kind: ordinary ones, tiny and denormal ones, zeros of both signs, huge ones. */
static float draw(uint64_t *state)
{
    const double sign = test_random_below(state, 2) == 0 ? 1 : -1;
    const double mantissa = sign * test_random_range(1, 2, state);
    switch (test_random_below(state, 5)) {
    case 0:
        return (float)(mantissa * ldexp(1, -(int)test_random_below(state, 149)));
    case 1:
        return (float)(mantissa * ldexp(1, (int)test_random_below(state, 80)));
    case 2:
        return (float)(sign * 0.0);
    default:
        return (float)(mantissa * 0.01);
    }
}

static void draw_all(uint64_t *state)
{
    for (size_t i = 0; i < N_VALUES; i++) {
        origin[i] = draw(state);
    }
    for (int t = 0; t < N_TERMS; t++) {
        weights[t] = (double)(1 + test_random_below(state, 10000));
        scales[t] = test_random_below(state, 4) == 0 ? test_random_range(0.01, 0.99, state) : 1;
        for (size_t i = 0; i < N_VALUES; i++) {
            values[t][i] = draw(state);
        }
    }
}

static void make(dunlin__sums *sums)
{
    dunlin_error error = {0};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    cr_assert_eq(dunlin__sums_make(sums, N_VALUES, &alloc, &error), DUNLIN_OK, "%s", error.text);
}

static void drop(dunlin__sums *sums)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__sums_free(sums, &alloc);
}

/* One term, in blocks of `block` values. */
static void add(dunlin__sums *sums, int t, size_t block)
{
    dunlin_error error = {0};
    cr_assert_eq(dunlin__sums_count(sums, weights[t], &error), DUNLIN_OK, "%s", error.text);
    for (size_t at = 0; at < N_VALUES; at += block) {
        const size_t n = N_VALUES - at < block ? N_VALUES - at : block;
        const dunlin__sums_term term = {.values = values[t] + at,
                                        .origin = origin + at,
                                        .weight = weights[t],
                                        .scale = scales[t]};
        cr_assert_eq(dunlin__sums_add(sums, at, n, &term, &error), DUNLIN_OK, "%s", error.text);
    }
}

static void shuffle(int *order, uint64_t *state)
{
    for (int i = 0; i < N_TERMS; i++) {
        order[i] = i;
    }
    for (int i = N_TERMS - 1; i > 0; i--) {
        const int j = (int)test_random_below(state, (uint64_t)i + 1);
        const int held = order[i];
        order[i] = order[j];
        order[j] = held;
    }
}

Test(sums, same_bits_in_every_order_and_grouping)
{
    static double wanted[N_VALUES];
    static double found[N_VALUES];
    uint64_t state = test_seed(32);
    const int n_cases = test_cases(200);
    for (int c = 0; c < n_cases; c++) {
        enum { GROUPS = 5 };
        dunlin_error error = {0};
        dunlin__sums whole;
        dunlin__sums parts[GROUPS];
        int order[N_TERMS];
        draw_all(&state);
        make(&whole);
        for (int t = 0; t < N_TERMS; t++) {
            add(&whole, t, N_VALUES);
        }
        dunlin__sums_read(&whole, 0, N_VALUES, wanted);
        shuffle(order, &state);
        for (int g = 0; g < GROUPS; g++) {
            make(&parts[g]);
        }
        for (int i = 0; i < N_TERMS; i++) {
            add(&parts[test_random_below(&state, GROUPS)], order[i],
                1 + (size_t)test_random_below(&state, N_VALUES));
        }
        for (int n = GROUPS; n > 1; n--) { /* any two, until there is one */
            const uint64_t into = test_random_below(&state, (uint64_t)n);
            const uint64_t from =
                (into + 1 + test_random_below(&state, (uint64_t)n - 1)) % (uint64_t)n;
            cr_assert_eq(dunlin__sums_merge(&parts[into], &parts[from], &error), DUNLIN_OK);
            drop(&parts[from]);
            parts[from] = parts[n - 1];
        }
        dunlin__sums_read(&parts[0], 0, N_VALUES, found);
        cr_assert_eq(memcmp(found, wanted, sizeof found), 0, "case %d", c);
        cr_assert_eq(parts[0].n_terms, N_TERMS);
        const double weight = dunlin__sums_weight(&parts[0]);
        double plain = 0; /* whole numbers: exact */
        for (int t = 0; t < N_TERMS; t++) {
            plain += weights[t];
        }
        cr_assert(weight >= plain && weight <= plain, "%.17g, not %.17g", weight, plain);
        drop(&parts[0]);
        drop(&whole);
    }
}

/* ---- beside the exact sum ---- */

/* A whole number of 2^-149, in two's complement: exact for all that floats and whole weights give.
 */
#define WORDS 12
typedef struct exact {
    uint32_t words[WORDS];
} exact;

static void exact_add(exact *sum, uint64_t magnitude, int shift, bool is_negative)
{
    exact term = {{0}};
    for (int bit = 0; bit < 64; bit++) {
        if ((magnitude >> bit & 1) != 0) {
            cr_assert(shift + bit >= 0 && shift + bit < WORDS * 32 - 1);
            term.words[(shift + bit) / 32] |= UINT32_C(1) << (shift + bit) % 32;
        }
    }
    uint64_t carry = is_negative ? 1 : 0;
    for (int w = 0; w < WORDS; w++) {
        carry += (uint64_t)sum->words[w] + (is_negative ? ~term.words[w] : term.words[w]);
        sum->words[w] = (uint32_t)carry;
        carry >>= 32;
    }
}

static long double exact_value(const exact *sum)
{
    exact copy = *sum;
    const bool is_negative = copy.words[WORDS - 1] >> 31 != 0;
    if (is_negative) {
        uint64_t carry = 1;
        for (int w = 0; w < WORDS; w++) {
            carry += (uint32_t)~copy.words[w];
            copy.words[w] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    long double value = 0;
    for (int w = WORDS; w > 0; w--) {
        value = value * 4294967296.0L + (long double)copy.words[w - 1];
    }
    value = ldexpl(value, -149);
    return is_negative ? -value : value;
}

static void exact_add_product(exact *sum, double value, uint64_t weight)
{
    int exponent = 0;
    const double mantissa = frexp(fabs(value), &exponent);
    const uint64_t bits = (uint64_t)ldexp(mantissa, 53);
    const bool is_negative = signbit(value) != 0;
    if (bits == 0) {
        return;
    }
    /* A double's 53 bits times a weight's 14 are more than 64: in two halves. */
    const int place = exponent - 53 + 149;
    uint64_t high = bits >> 29;
    uint64_t low = bits & ((UINT64_C(1) << 29) - 1);
    if (place < 0) { /* a float has no more bits than these */
        cr_assert_eq(low << (64 + place > 29 ? 29 : 0), low << 29);
    }
    if (high != 0) {
        int at = place + 29;
        while (at < 0) {
            cr_assert_eq(high & 1, 0);
            high >>= 1;
            at++;
        }
        exact_add(sum, high * weight, at, is_negative);
    }
    if (low != 0) {
        int at = place;
        while (at < 0) {
            cr_assert_eq(low & 1, 0);
            low >>= 1;
            at++;
        }
        exact_add(sum, low * weight, at, is_negative);
    }
}

Test(sums, within_the_stated_error_of_the_exact_sum)
{
    static double found[N_VALUES];
    uint64_t state = test_seed(33);
    const int n_cases = test_cases(20);
    for (int c = 0; c < n_cases; c++) {
        dunlin__sums sums;
        draw_all(&state);
        make(&sums);
        for (int t = 0; t < N_TERMS; t++) {
            scales[t] = 1;
            add(&sums, t, N_VALUES);
        }
        dunlin__sums_read(&sums, 0, N_VALUES, found);
        for (size_t i = 0; i < N_VALUES; i++) {
            exact sum = {{0}};
            exact left = {{0}};
            double magnitude = 0;
            for (int t = 0; t < N_TERMS; t++) {
                exact_add_product(&sum, (double)values[t][i], (uint64_t)weights[t]);
                magnitude += weights[t] * fabs((double)values[t][i]);
            }
            left = sum;
            exact_add_product(&left, -found[i], 1);
            const double bound =
                magnitude * 0x1p-53 + N_TERMS * 0x1p-91 + fabs((double)exact_value(&sum)) * 0x1p-51;
            cr_assert_leq(fabs((double)exact_value(&left)), bound, "case %d, value %zu: %.17g", c,
                          i, found[i]);
        }
        drop(&sums);
    }
}

/* Whole numbers and their halves, and what cancels: nothing is lost at all. */
Test(sums, what_fits_the_limbs_is_exact)
{
    dunlin_error error = {0};
    dunlin__sums sums;
    double found[4];
    const float given[3][4] = {{0x1p90F, 3, -0.0F, 0x1p-90F},
                               {0x1p-60F, -3, 0, 0x1p-90F},
                               {-0x1p90F, 0x1p-80F, -0.0F, 0x1p-149F}};
    make(&sums);
    dunlin__sums_reset(&sums, 4);
    for (int t = 0; t < 3; t++) {
        const dunlin__sums_term term = {.values = given[t], .weight = 7, .scale = 1};
        cr_assert_eq(dunlin__sums_count(&sums, 7, &error), DUNLIN_OK);
        cr_assert_eq(dunlin__sums_add(&sums, 0, 4, &term, &error), DUNLIN_OK);
    }
    dunlin__sums_read(&sums, 0, 4, found);
    cr_expect_float_eq(found[0], 7 * 0x1p-60, 0);
    cr_expect_float_eq(found[1], 7 * 0x1p-80, 0);
    cr_expect(found[2] == 0 && !signbit(found[2]), "zeros of either sign give +0");
    cr_expect_float_eq(found[3], 14 * 0x1p-90, 0, "denormals are below the unit");
    drop(&sums);
}

/* ---- limits ---- */

static dunlin_status add_one(dunlin__sums *sums, double weight, float value, dunlin_error *error)
{
    const float pair[2] = {1, value};
    const dunlin__sums_term term = {
        .values = pair, .weight = weight, .scale = 1, .first_value = 100, .client_index = 12};
    DUNLIN_TRY(dunlin__sums_count(sums, weight, error));
    return dunlin__sums_add(sums, 0, 2, &term, error);
}

Test(sums, refuses_what_is_too_large_by_name)
{
    static const struct {
        double weight;
        float value;
        dunlin_status status;
        const char *says;
    } cases[] = {
        {1, 0x1p97F, DUNLIN_OVERFLOW, "value 101 of client 12, 1.58456e+29 times the weight 1, is"},
        {1, -0x1p97F, DUNLIN_OVERFLOW, "not below 1.58456e+29"},
        {0x1p40, 0x1p57F, DUNLIN_OVERFLOW, "value 101"},
        {1, FLT_MAX, DUNLIN_OVERFLOW, "value 101"},
        {1, INFINITY, DUNLIN_OVERFLOW, "inf times"},
        {1, -INFINITY, DUNLIN_OVERFLOW, "-inf times"},
        {1, NAN, DUNLIN_OVERFLOW, "nan times"},
        {0, 1, DUNLIN_NUMERIC, "a weight of 0: wants"},
        {-1, 1, DUNLIN_NUMERIC, "a weight of -1"},
        {NAN, 1, DUNLIN_NUMERIC, "a weight of nan"},
        {INFINITY, 1, DUNLIN_NUMERIC, "a weight of inf"},
        {0x1p97, 0, DUNLIN_NUMERIC, "a weight of 1.58456e+29"},
        {1, 0x1.fffffep96F, DUNLIN_OK, ""},
        {1, -0x1.fffffep96F, DUNLIN_OK, ""},
        {0x1p40, 0x1.fffffep56F, DUNLIN_OK, ""},
        {0x1p96, 1, DUNLIN_OK, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin_error error = {0};
        dunlin__sums sums;
        make(&sums);
        cr_expect_eq(add_one(&sums, cases[i].weight, cases[i].value, &error), cases[i].status,
                     "case %zu: %s", i, error.text);
        cr_expect_not_null(strstr(error.text, cases[i].says), "%s", error.text);
        drop(&sums);
    }
}

/* As many terms of the largest value as a sum takes: nothing wraps, and the next is refused. */
Test(sums, the_largest_sum)
{
    dunlin_error error = {0};
    dunlin__sums sums;
    dunlin__sums one;
    double found[2];
    make(&sums);
    make(&one);
    for (uint32_t t = 0; t < DUNLIN_SUMS_TERMS; t++) {
        cr_assert_eq(add_one(&sums, 1, -0x1.fffffep96F, &error), DUNLIN_OK, "%s", error.text);
    }
    dunlin__sums_read(&sums, 0, 2, found);
    cr_expect_float_eq(found[0], 65536.0, 0);
    cr_expect(found[1] <= -0x1.fffffep112 && found[1] >= -0x1.fffffep112, "%.17g", found[1]);
    cr_assert_eq(add_one(&sums, 1, 1, &error), DUNLIN_OVERFLOW);
    cr_expect_not_null(strstr(error.text, "update 65537 of a sum, which takes 65536"), "%s",
                       error.text);
    cr_assert_eq(add_one(&one, 1, 1, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__sums_merge(&one, &sums, &error), DUNLIN_OVERFLOW);
    cr_expect_not_null(strstr(error.text, "sums of 1 and 65536 updates"), "%s", error.text);
    cr_expect_eq(one.n_terms, 1);
    dunlin__sums_reset(&one, 1);
    cr_assert_eq(dunlin__sums_merge(&one, &sums, &error), DUNLIN_MISMATCH);
    cr_expect_not_null(strstr(error.text, "1 sums and 700"), "%s", error.text);
    drop(&sums);
    drop(&one);
}

Test(sums, room_that_is_not_there)
{
    dunlin_error error = {0};
    dunlin__sums sums;
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    char wanted[64];
    (void)snprintf(wanted, sizeof wanted, "no memory for %zu sums", SIZE_MAX - 1);
    cr_assert_eq(dunlin__sums_make(&sums, SIZE_MAX - 1, &alloc, &error), DUNLIN_MEMORY);
    cr_expect_not_null(strstr(error.text, wanted), "%s", error.text);
    dunlin__sums_free(&sums, &alloc);
    make(&sums);
    const dunlin__sums_term term = {.values = origin, .weight = 1, .scale = 1};
    cr_assert_eq(dunlin__sums_add(&sums, 1, N_VALUES, &term, &error), DUNLIN_INTERNAL);
    drop(&sums);
}

/* Small numbers are in the lowest limbs alone, and one large one brings the others of its chunk. */
Test(sums, levels_and_what_is_taken_away_do_not_show)
{
    static double wanted[N_VALUES];
    static double found[N_VALUES];
    uint64_t state = test_seed(33);
    const int n_cases = test_cases(100);
    for (int c = 0; c < n_cases; c++) {
        dunlin_error error = {0};
        dunlin__sums low;
        dunlin__sums high;
        draw_all(&state);
        for (int t = 0; t < N_TERMS; t++) {
            for (size_t i = 0; i < DUNLIN_SUMS_CHUNK; i++) {
                values[t][i] = (float)test_random_range(-7e-4, 7e-4, &state);
                origin[i] = 0;
            }
            values[t][DUNLIN_SUMS_CHUNK] = 0x1p80F; /* the first of the next chunk */
        }
        make(&low);
        make(&high);
        dunlin__sums_raise(&high, DUNLIN_SUMS_HIGH);
        cr_assert_eq(dunlin__sums_level(&low), DUNLIN_SUMS_EMPTY);
        for (int t = 0; t < N_TERMS; t++) {
            add(&low, t, N_VALUES);
            add(&high, t, 100);
        }
        cr_assert_eq(low.levels[0], DUNLIN_SUMS_LOW);
        cr_assert_eq(low.levels[1], DUNLIN_SUMS_HIGH);
        dunlin__sums_read(&low, 0, N_VALUES, found);
        dunlin__sums_read(&high, 0, N_VALUES, wanted);
        cr_assert_eq(memcmp(found, wanted, sizeof found), 0, "case %d", c);
        /* All but the first are taken away again: what is left is the first alone. */
        for (int t = 1; t < N_TERMS; t++) {
            const dunlin__sums_term term = {
                .values = values[t], .origin = origin, .weight = weights[t], .scale = scales[t]};
            cr_assert_eq(dunlin__sums_take_away(&low, 0, N_VALUES, &term, &error), DUNLIN_OK);
        }
        dunlin__sums_reset(&high, N_VALUES);
        add(&high, 0, N_VALUES);
        dunlin__sums_read(&low, 0, N_VALUES, found);
        dunlin__sums_read(&high, 0, N_VALUES, wanted);
        cr_assert_eq(memcmp(found, wanted, sizeof found), 0, "case %d", c);
        drop(&low);
        drop(&high);
    }
}
