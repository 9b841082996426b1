/*
 * test_int8.c - int8 under one power of two, and the plan that orders it: what comes back is what
 * was encoded, and everything else is refused by name.
 */
#include "make_message.h"
#include "random.h"

#include <wire/int8.h>

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#define MOST 300

static float scale_of(const float *values, size_t n)
{
    dunlin__int8_range range = {.has_values = false};
    dunlin_error error = {0};
    float scale = 0.0F;
    const size_t half = n / 2; /* in two pieces */
    cr_assert_eq(dunlin__int8_range_add(&range, "w", values, half, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__int8_range_add(&range, "w", values + half, n - half, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__int8_scale_of(&range, "w", &scale, &error), DUNLIN_OK, "%s", error.text);
    return scale;
}

Test(int8, what_was_encoded_comes_back)
{
    uint64_t state = test_seed(31);
    float values[MOST];
    float again[MOST];
    int8_t bytes[MOST];
    uint8_t head[DUNLIN_INT8_SCALE_BYTES];
    dunlin_error error = {0};
    for (int i = 0; i < test_cases(2000); i++) {
        const size_t n = 1 + (size_t)(test_random_u64(&state) % MOST);
        const int exponent = (int)(test_random_u64(&state) % 240) - 126;
        float scale = 0.0F;
        for (size_t k = 0; k < n; k++) {
            values[k] = ldexpf((float)((int)(test_random_u64(&state) % 255) - 127), exponent);
        }
        dunlin__int8_scale_write(scale_of(values, n), head);
        cr_assert_eq(dunlin__int8_scale_read("w", head, &scale, &error), DUNLIN_OK, "%s",
                     error.text);
        dunlin__int8_encode(scale, values, n, bytes);
        cr_assert_eq(dunlin__int8_decode("w", scale, bytes, n, again, &error), DUNLIN_OK);
        for (size_t k = 0; k < n; k++) {
            cr_assert(again[k] == values[k], "%a of scale %a came back as %a", (double)values[k],
                      (double)scale, (double)again[k]);
        }
    }
}

/* The bytes are the wire's, so they are given here and not made. */
Test(int8, a_tensor_has_these_bytes)
{
    const float values[] = {0.75F, -1.0F, 0.0F, 31.75F};
    const uint8_t wanted_head[] = {0x00, 0x00, 0x80, 0x3e}; /* 0.25 */
    const int8_t wanted[] = {3, -4, 0, 127};
    uint8_t head[DUNLIN_INT8_SCALE_BYTES];
    int8_t bytes[4];
    const float scale = scale_of(values, 4);
    cr_expect_eq((double)scale, 0.25);
    dunlin__int8_scale_write(scale, head);
    dunlin__int8_encode(scale, values, 4, bytes);
    cr_expect_arr_eq(head, wanted_head, sizeof head);
    cr_expect_arr_eq(bytes, wanted, sizeof bytes);
    const float zeros[4] = {0.0F, -0.0F, 0.0F, 0.0F};
    cr_expect_eq((double)scale_of(zeros, 4), 1.0);
}

Test(int8, other_values_are_refused)
{
    const struct {
        float values[2];
        const char *text;
    } cases[] = {
        {{1.0F, 128.0F}, "multiples of 2^0 of up to 2^8"},
        {{1.0F, NAN}, "not finite"},
        {{-INFINITY, 0.0F}, "not finite"},
        {{0x1p-127F, 0.0F}, "no int8"},
        {{0x1p121F, 0.0F}, "no int8"},
        {{0.1F, 0.0F}, "no int8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin__int8_range range = {.has_values = false};
        dunlin_error error = {0};
        float scale = 0.0F;
        dunlin_status status =
            dunlin__int8_range_add(&range, "layer.w", cases[i].values, 2, &error);
        if (status == DUNLIN_OK) {
            status = dunlin__int8_scale_of(&range, "layer.w", &scale, &error);
        }
        cr_expect_eq(status, DUNLIN_NUMERIC, "case %zu", i);
        cr_expect_not_null(strstr(error.text, cases[i].text), "%s", error.text);
        cr_expect_not_null(strstr(error.text, "layer.w"), "%s", error.text);
    }
}

Test(int8, other_bytes_are_refused)
{
    const uint8_t scales[][DUNLIN_INT8_SCALE_BYTES] = {
        {0x00, 0x00, 0x80, 0xbe}, /* -0.25 */
        {0x00, 0x00, 0xc0, 0x3e}, /* 0.375 */
        {0x00, 0x00, 0x00, 0x00}, /* 0 */
        {0x00, 0x00, 0x80, 0x7f}, /* infinite */
        {0x01, 0x00, 0x80, 0x3e}, /* a bit more than 0.25 */
        {0x00, 0x00, 0x00, 0x7f}, /* 2^127: its multiples are not finite */
    };
    const int8_t bytes[] = {1, -128};
    dunlin_error error = {0};
    float scale = 0.0F;
    float values[2];
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        cr_expect_eq(dunlin__int8_scale_read("layer.w", scales[i], &scale, &error), DUNLIN_PROTOCOL,
                     "case %zu", i);
        cr_expect_not_null(strstr(error.text, "\"layer.w\": its scale 0x"), "%s", error.text);
    }
    cr_expect_eq(dunlin__int8_decode("layer.w", 1.0F, bytes, 2, values, &error), DUNLIN_PROTOCOL);
    cr_expect_not_null(strstr(error.text, "the byte -128"), "%s", error.text);
}

/* ---- the plan ---- */

/* A plain plan in integers, with its feature. */
static void make_integer(dunlin__assignment *m)
{
    uint64_t state = test_seed(5);
    memset(m, 0, sizeof *m);
    make_assignment(m, &state);
    const dunlin__training_plan plain = {.learner = DUNLIN_V1_LEARNER_KIND_BUILTIN,
                                         .n_epochs = 1,
                                         .batch_size = 8,
                                         .optimizer = DUNLIN_V1_OPTIMIZER_SGD,
                                         .algorithm = DUNLIN_V1_ALGORITHM_FEDAVG,
                                         .weight_cap = 100,
                                         .update_form = DUNLIN_V1_UPDATE_FORM_WEIGHTS,
                                         .update_encoding = DUNLIN_V1_ENCODING_INT8_SCALE,
                                         .chunk_bytes = DUNLIN_WIRE_CHUNK_MIN_BYTES,
                                         .precision = "niti",
                                         .grad_bits = 4};
    m->plan = plain;
    m->aggregation = DUNLIN_V1_AGGREGATION_PLAIN;
    m->required_features_count = 1;
    m->required_features[0] = DUNLIN_V1_FEATURE_PRECISION;
}

static dunlin_status encode(const dunlin__assignment *m, dunlin_error *error)
{
    static uint8_t bytes[8192];
    size_t n_bytes = 0;
    return dunlin__assignment_encode(m, bytes, sizeof bytes, &n_bytes, error);
}

Test(int8, a_plan_in_integers_has_no_rate)
{
    dunlin__assignment m;
    dunlin_error error = {0};
    make_integer(&m);
    cr_assert_eq(encode(&m, &error), DUNLIN_OK, "%s", error.text);
    m.plan.update_encoding = DUNLIN_V1_ENCODING_F32;
    m.plan.update_form = DUNLIN_V1_UPDATE_FORM_DELTA;
    m.plan.clip_norm = 1.0F;
    cr_assert_eq(encode(&m, &error), DUNLIN_OK, "differences may be clipped: %s", error.text);
}

#define REFUSED(change, words)                                                                     \
    do {                                                                                           \
        dunlin__assignment m;                                                                      \
        dunlin_error error = {0};                                                                  \
        make_integer(&m);                                                                          \
        change;                                                                                    \
        cr_expect_eq(encode(&m, &error), DUNLIN_PROTOCOL, "%s", words);                            \
        cr_expect_not_null(strstr(error.text, words), "%s", error.text);                           \
    } while (0)

static void make_rated(dunlin__assignment *m)
{
    make_integer(m);
    (void)strcpy(m->plan.precision, "adaptive-int8");
    m->plan.learning_rate = 0.1F;
    m->plan.grad_bits = 0;
    m->plan.update_encoding = DUNLIN_V1_ENCODING_F32;
    m->plan.update_form = DUNLIN_V1_UPDATE_FORM_DELTA;
    m->required_features[0] = DUNLIN_V1_FEATURE_PRODUCT_PRECISION;
}

Test(int8, a_plan_whose_products_are_in_integers_has_a_rate)
{
    dunlin__assignment m;
    dunlin_error error = {0};
    make_rated(&m);
    m.plan.clip_norm = 1.0F;
    cr_assert_eq(encode(&m, &error), DUNLIN_OK, "%s", error.text);
    /* The feature of the other ones is not enough. */
    m.required_features[0] = DUNLIN_V1_FEATURE_PRECISION;
    cr_expect_eq(encode(&m, &error), DUNLIN_PROTOCOL);
    cr_expect_not_null(strstr(error.text, "plan.precision is given, but required_features"));
    make_rated(&m);
    m.plan.grad_bits = 5;
    cr_expect_eq(encode(&m, &error), DUNLIN_PROTOCOL);
    cr_expect_not_null(strstr(error.text, "plan.learning_rate is given, but grad_bits"));
    make_rated(&m);
    m.plan.update_encoding = DUNLIN_V1_ENCODING_INT8_SCALE;
    m.plan.update_form = DUNLIN_V1_UPDATE_FORM_WEIGHTS;
    cr_expect_eq(encode(&m, &error), DUNLIN_PROTOCOL);
    cr_expect_not_null(strstr(error.text, "plan.update_encoding is INT8_SCALE"));
}

Test(int8, a_plan_that_contradicts_itself_is_refused)
{
    REFUSED(m.required_features_count = 0, "plan.precision is given, but required_features");
    REFUSED(m.plan.learning_rate = 0.1F, "plan.precision is given, but required_features");
    REFUSED(m.plan.grad_bits = 8, "plan.grad_bits is 8");
    REFUSED(m.plan.update_form = DUNLIN_V1_UPDATE_FORM_DELTA, "plan.update_encoding is INT8_SCALE");
    REFUSED(m.plan.clip_norm = 1.0F, "plan.clip_norm is given");
    REFUSED(m.plan.algorithm = DUNLIN_V1_ALGORITHM_SCAFFOLD, "the algorithm is SCAFFOLD");
    REFUSED(memset(m.plan.precision, 0, sizeof m.plan.precision);
            m.plan.learning_rate = 0.1F, "plan.grad_bits is given without a precision");
    REFUSED(strcpy(m.plan.precision, "ni\nti"), "plan.precision");
    /* One that an older device would read as float32 has no rate for it. */
    REFUSED(memset(m.plan.precision, 0, sizeof m.plan.precision);
            m.plan.grad_bits = 0, "plan.learning_rate is not above 0");
}
