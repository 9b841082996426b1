/*
 * test_secagg_fixed.c - values as whole numbers and back; terms that do not go together.
 */
#include "random.h"
#include "secagg/secagg_world.h"

#include <wire/fixed_point.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static dunlin__secagg_plan terms_for(uint32_t n, uint32_t bits, uint32_t value_limit,
                                     uint32_t weight_limit)
{
    dunlin__secagg_plan plan = secagg_terms(n, 4, 3, bits, 1000);
    plan.clip = 0.5f;
    plan.value_limit = value_limit;
    plan.weight_limit = weight_limit;
    return plan;
}

/* A mean of many roundings is the value: unbiased, to five standard deviations. */
Test(secagg_fixed, rounding_is_unbiased)
{
    const dunlin__secagg_plan plan = terms_for(10, 16, 100, 1);
    const size_t n = 20000;
    float *values = malloc(n * sizeof(values[0]));
    uint32_t *elements = malloc(n * sizeof(elements[0]));
    dunlin__fixed_point fixed;
    for (size_t i = 0; i < n; i++) {
        values[i] = 0.1234f; /* x 200 = 24.68 */
    }
    cr_assert_eq(dunlin__fixed_point_begin(&plan, 1, &fixed, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__fixed_point_next(&fixed, values, n, elements, NULL), DUNLIN_OK);
    dunlin__fixed_point_end(&fixed);
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        cr_assert(elements[i] == 24 || elements[i] == 25, "%u", elements[i]);
        sum += elements[i];
    }
    cr_assert_float_eq(sum / (double)n, 24.68, 5.0 * sqrt(0.68 * 0.32 / (double)n));
    cr_assert_eq(fixed.n_clipped, 0);
    free(values);
    free(elements);
}

Test(secagg_fixed, no_magnitude_is_above_the_limit)
{
    dunlin__secagg_plan plan = terms_for(3, 32, 715827882, 7);
    static const float values[] = {0.5f, -0.5f, 0.49999997f, 3e38f, -3e38f, 0.0f, -0.0f, 1e-40f};
    uint32_t elements[8];
    dunlin__fixed_point fixed;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__secagg_check(&plan, &error), DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "in an n_cohort of 3"), "%s", error.text);
    plan.n_neighbours = plan.threshold = 2;
    cr_assert_eq(dunlin__secagg_check(&plan, &error), DUNLIN_OK, "%s", error.text);
    for (int run = 0; run < 50; run++) {
        cr_assert_eq(dunlin__fixed_point_begin(&plan, 7, &fixed, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin__fixed_point_next(&fixed, values, 8, elements, NULL), DUNLIN_OK);
        dunlin__fixed_point_end(&fixed);
        cr_assert_eq(fixed.n_clipped, 2);
        for (size_t i = 0; i < 8; i++) {
            cr_assert_leq(llabs(dunlin__ring_signed(elements[i], 32)), 715827882);
        }
        cr_assert_eq(dunlin__ring_signed(elements[0], 32), 715827882);
        cr_assert_eq(dunlin__ring_signed(elements[4], 32), -715827882);
        cr_assert_eq(elements[5] | elements[6], 0);
    }
}

Test(secagg_fixed, a_weighted_mean_comes_back)
{
    uint64_t state = test_seed(341);
    const dunlin__secagg_plan plan = terms_for(20, 32, 100000000, 1000);
    uint32_t sums[64] = {0};
    double wanted[64] = {0};
    double mean[64];
    uint32_t weights = 0;
    for (uint32_t device = 0; device < 20; device++) {
        const uint32_t weight = 1 + (uint32_t)test_random_below(&state, 1000);
        float values[64];
        uint32_t elements[64];
        dunlin__fixed_point fixed;
        test_random_fill(values, 64, -0.5, 0.5, &state);
        cr_assert_eq(dunlin__fixed_point_begin(&plan, weight, &fixed, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin__fixed_point_next(&fixed, values, 64, elements, NULL), DUNLIN_OK);
        dunlin__fixed_point_end(&fixed);
        for (size_t i = 0; i < 64; i++) {
            sums[i] += elements[i];
            wanted[i] += (double)weight * (double)values[i];
        }
        weights += weight;
    }
    dunlin_error error = {0};
    cr_assert_eq(dunlin__fixed_point_mean(&plan, sums, 64, weights, 20, mean, &error), DUNLIN_OK,
                 "%s", error.text);
    for (size_t i = 0; i < 64; i++) {
        /* 20 roundings of at most 1 each. */
        const double most = 20.0 * 0.5 / 1e8 * 1000.0 / (double)weights;
        cr_assert_float_eq(mean[i], wanted[i] / (double)weights, most);
    }
}

Test(secagg_fixed, bad_input_is_named)
{
    const dunlin__secagg_plan plan = terms_for(10, 16, 100, 50);
    dunlin__fixed_point fixed;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__fixed_point_begin(&plan, 0, &fixed, &error), DUNLIN_ARGUMENT);
    cr_assert_not_null(strstr(error.text, "weight is 0"), "%s", error.text);
    cr_assert_eq(dunlin__fixed_point_begin(&plan, 51, &fixed, &error), DUNLIN_ARGUMENT);
    const float values[] = {0.0f, 1.0f, NAN};
    uint32_t elements[3];
    cr_assert_eq(dunlin__fixed_point_begin(&plan, 50, &fixed, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__fixed_point_next(&fixed, values, 3, elements, &error), DUNLIN_NUMERIC);
    cr_assert_not_null(strstr(error.text, "value 2"), "%s", error.text);
    dunlin__fixed_point_end(&fixed);
    double mean[1];
    const uint32_t sum = 401;
    cr_assert_eq(dunlin__fixed_point_mean(&plan, &sum, 1, 10, 4, mean, &error), DUNLIN_DATA);
    cr_assert_not_null(strstr(error.text, "401"), "%s", error.text);
    cr_assert_eq(dunlin__fixed_point_mean(&plan, &sum, 1, 3, 4, mean, &error), DUNLIN_DATA);
    cr_assert_eq(dunlin__fixed_point_mean(&plan, &sum, 1, 201, 4, mean, &error), DUNLIN_DATA);
    const uint32_t least = (uint32_t)-500;
    cr_assert_eq(dunlin__fixed_point_mean(&plan, &least, 1, 10, 5, mean, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_float_eq(mean[0], -500 * 0.5 / 100 * 50 / 10, 1e-12);
}

Test(secagg_fixed, terms_that_do_not_go_together)
{
    static const char *const wanted[] = {
        "version of",          "session has 15",  "ring_bits is 7",     "ring_bits is 33",
        "n_cohort is 2",       "n_cohort is 655", "least_devices is 1", "least_devices is 11",
        "n_values is 0",       "clip is",         "n_neighbours is 1,", "n_neighbours is 5",
        "n_neighbours is 255", "threshold is 2",  "threshold is 5",     "value_limit 0",
        "value_limit 3277",    "weight_limit 0",  "weight_limit 6554"};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        dunlin__secagg_plan plan = terms_for(10, 16, 3276, 6553);
        dunlin_error error = {0};
        cr_assert_eq(dunlin__secagg_check(&plan, &error), DUNLIN_OK, "%s", error.text);
        switch (i) {
        case 0:
            plan.version = 3;
            break;
        case 1:
            plan.session.size = 15;
            break;
        case 2:
            plan.ring_bits = 7;
            break;
        case 3:
            plan.ring_bits = 33;
            break;
        case 4:
            plan.n_cohort = 2;
            break;
        case 5:
            plan.n_cohort = 65537;
            break;
        case 6:
            plan.least_devices = 1;
            break;
        case 7:
            plan.least_devices = 11;
            break;
        case 8:
            plan.n_values = 0;
            break;
        case 9:
            plan.clip = NAN;
            break;
        case 10:
            plan.n_neighbours = 1;
            break;
        case 11:
            plan.n_neighbours = 5;
            break;
        case 12:
            plan.n_neighbours = 255;
            break;
        case 13:
            plan.threshold = 2;
            break;
        case 14:
            plan.threshold = 5;
            break;
        case 15:
            plan.value_limit = 0;
            break;
        case 16:
            plan.value_limit = 3277;
            break;
        case 17:
            plan.weight_limit = 0;
            break;
        default:
            plan.weight_limit = 6554;
            break;
        }
        cr_assert_eq(dunlin__secagg_check(&plan, &error), DUNLIN_ARGUMENT, "%s", wanted[i]);
        cr_assert_not_null(strstr(error.text, wanted[i]), "%s: %s", wanted[i], error.text);
    }
}

/* The whole way: values, elements, masks, a sum, a mean; the bits of the sum without masks. */
Test(secagg_fixed, a_mean_under_masks_is_the_plain_one)
{
    uint64_t state = test_seed(342);
    dunlin__secagg_plan plan = secagg_terms(5, 4, 3, 20, 200);
    plan.clip = 0.25f;
    plan.value_limit = 50000;
    plan.weight_limit = 40;
    secagg_world world;
    secagg_world_open(&world, &plan, &state);
    uint32_t plain[201] = {0};
    for (uint32_t i = 0; i < 5; i++) {
        float values[200];
        dunlin__fixed_point fixed;
        uint32_t *vector = world.members[i].vector;
        test_random_fill(values, 200, -0.3, 0.3, &state);
        vector[200] = 1 + (uint32_t)test_random_below(&state, 40);
        cr_assert_eq(dunlin__fixed_point_begin(&plan, vector[200], &fixed, NULL), DUNLIN_OK);
        cr_assert_eq(dunlin__fixed_point_next(&fixed, values, 200, vector, NULL), DUNLIN_OK);
        dunlin__fixed_point_end(&fixed);
        for (size_t j = 0; i != 3 && j <= 200; j++) {
            plain[j] += vector[j];
        }
    }
    world.members[3].leaves = DUNLIN_V1_SECAGG_STEP_MASK;
    cr_assert_eq(secagg_world_run(&world), DUNLIN_SECAGG_DONE, "%s", world.error.text);
    const uint32_t *sum = dunlin__secagg_server_sum(world.server);
    const uint32_t mask = (1u << 20) - 1;
    double masked_mean[200];
    double plain_mean[200];
    cr_assert_eq(dunlin__fixed_point_mean(&plan, sum, 200, sum[200] & mask, 4, masked_mean, NULL),
                 DUNLIN_OK);
    cr_assert_eq(dunlin__fixed_point_mean(&plan, plain, 200, plain[200], 4, plain_mean, NULL),
                 DUNLIN_OK);
    cr_assert_eq(memcmp(masked_mean, plain_mean, sizeof(plain_mean)), 0);
    secagg_world_close(&world);
}
