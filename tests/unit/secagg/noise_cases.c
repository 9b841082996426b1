/*
 * noise_cases.c - what is asked of noise of the devices of either kind alike.
 */
#include "noise_cases.h"

#include <wire/fixed_point.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

dunlin__secagg_plan noise_terms(dunlin_v1_secagg_noise_t kind, uint32_t n, uint32_t scale)
{
    dunlin__secagg_plan plan = secagg_terms(n, n - 1, n - 1, 32, 1000);
    plan.version = 2;
    plan.clip = 0.5f;
    plan.value_limit = 4096;
    plan.weight_limit = 1;
    plan.noise_kind = kind;
    plan.noise_scale = scale;
    plan.least_honest = plan.least_devices;
    return plan;
}

/* ---- draws ---- */

int32_t *noise_draw(dunlin_v1_secagg_noise_t kind, uint32_t scale, size_t n, int n_parts)
{
    const dunlin__secagg_plan plan = noise_terms(kind, 10, scale);
    uint32_t *drawn = calloc(n, sizeof drawn[0]);
    for (int part = 0; part < n_parts; part++) {
        dunlin__secagg_noise noise;
        dunlin_error error = {0};
        cr_assert_eq(dunlin__secagg_noise_begin(&plan, &noise, &error), DUNLIN_OK, "%s",
                     error.text);
        cr_assert_eq(dunlin__secagg_noise_add(&noise, drawn, n, &error), DUNLIN_OK, "%s",
                     error.text);
        dunlin__secagg_noise_end(&noise);
    }
    return (int32_t *)drawn;
}

void noise_expect_table(const noise_case *of, uint32_t scale, int n_parts)
{
    const size_t n = 200000;
    const double variance = (double)n_parts * scale * scale;
    const int64_t edge = (int64_t)(2 * sqrt(variance));
    int32_t *drawn = noise_draw(of->kind, scale, n, n_parts);
    size_t *counts = calloc((size_t)(2 * edge + 2), sizeof counts[0]);
    for (size_t i = 0; i < n; i++) {
        const bool is_inside = drawn[i] >= -edge && drawn[i] <= edge;
        counts[is_inside ? drawn[i] + edge : 2 * edge + 1]++;
    }
    double square = 0;
    double inside = 0;
    for (int64_t x = -edge; x <= edge; x++) {
        const double chance = of->chance_fn(variance, x);
        const double off = (double)counts[x + edge] - (double)n * chance;
        square += off * off / ((double)n * chance);
        inside += chance;
    }
    const double rest = (double)n * (1 - inside);
    const double off = (double)counts[2 * edge + 1] - rest;
    const double n_cells = (double)(2 * edge + 1);
    square += off * off / rest;
    cr_expect_leq(square, n_cells + 6 * sqrt(2 * n_cells), "kind %d, scale %u of %d: %g of %g",
                  (int)of->kind, scale, n_parts, square, n_cells);
    free(counts);
    free(drawn);
}

void noise_expect_moments(dunlin_v1_secagg_noise_t kind, uint32_t scale, double more)
{
    const size_t n = 200000;
    int32_t *drawn = noise_draw(kind, scale, n, 1);
    double sums[4] = {0};
    for (size_t i = 0; i < n; i++) {
        const double x = (double)drawn[i] / (double)scale;
        sums[0] += x;
        sums[1] += x * x;
        sums[2] += x * x * x;
        sums[3] += x * x * x * x;
    }
    const double root = sqrt((double)n);
    cr_expect_float_eq(sums[0] / (double)n, 0, 6 / root, "scale %u", scale);
    cr_expect_float_eq(sums[1] / (double)n, 1, 6 * sqrt(2 + more) / root, "scale %u", scale);
    cr_expect_float_eq(sums[2] / (double)n, 0, 6 * sqrt(15 + 30 * more) / root, "scale %u", scale);
    cr_expect_float_eq(sums[3] / (double)n, 3 + more, 6 * sqrt(96 + 300 * more) / root, "scale %u",
                       scale);
    free(drawn);
}

void noise_expect_others(dunlin_v1_secagg_noise_t kind)
{
    int32_t *one = noise_draw(kind, 1000, 64, 1);
    int32_t *other = noise_draw(kind, 1000, 64, 1);
    cr_expect_neq(memcmp(one, other, 64 * sizeof one[0]), 0);
    free(one);
    free(other);
}

/* ---- terms ---- */

void noise_expect_refused(const dunlin__secagg_plan *plan, const char *text)
{
    dunlin_error error = {0};
    cr_expect_eq(dunlin__secagg_check(plan, &error), DUNLIN_ARGUMENT, "%s", text);
    cr_expect_not_null(strstr(error.text, text), "%s: %s", text, error.text);
}

void noise_expect_terms(dunlin_v1_secagg_noise_t kind)
{
    const dunlin__secagg_plan good = noise_terms(kind, 10, 100);
    dunlin_error error = {0};
    cr_assert_eq(dunlin__secagg_check(&good, &error), DUNLIN_OK, "%s", error.text);
    dunlin__secagg_plan plan = good;
    plan.version = 1;
    noise_expect_refused(&plan, "version 2 alone has noise");
    plan = good;
    plan.noise_kind = DUNLIN_V1_SECAGG_NOISE_NONE;
    noise_expect_refused(&plan, "version 2 alone has noise");
    plan = secagg_terms(10, 9, 9, 32, 1000);
    plan.least_honest = 3;
    noise_expect_refused(&plan, "version 2 alone has noise");
    plan = good;
    plan.version = 3;
    noise_expect_refused(&plan, "understood are 1 and 2");
    plan = good;
    plan.noise_kind = (dunlin_v1_secagg_noise_t)3;
    noise_expect_refused(&plan, "noise_kind is 3, understood are 1 and 2");
    plan = good;
    plan.noise_scale = 0;
    noise_expect_refused(&plan, "noise_scale is 0");
    plan = good;
    plan.noise_scale = 1;
    noise_expect_refused(&plan, "noise_scale is 1");
    plan = good;
    plan.least_honest = plan.least_devices + 1;
    noise_expect_refused(&plan, "least_honest is");
    plan = good;
    plan.weight_limit = 2;
    noise_expect_refused(&plan, "each device counts once");
    plan = good;
    plan.n_values = 60000000;
    noise_expect_refused(&plan, "too coarse for 60000000 values");
    plan = good;
    plan.value_limit = 214748364; /* ten of them just fit without noise */
    noise_expect_refused(&plan, "beside their noise");
}

void noise_expect_mean(dunlin_v1_secagg_noise_t kind)
{
    const dunlin__secagg_plan plan = noise_terms(kind, 10, 100);
    const uint32_t most = 10 * plan.value_limit + (uint32_t)dunlin__secagg_noise_reach(&plan);
    const uint32_t far[] = {most, 0u - most};
    const uint32_t too_far[] = {most + 1, 0u - most - 1};
    double mean[2];
    dunlin_error error = {0};
    cr_expect_eq(dunlin__fixed_point_mean(&plan, far, 2, 10, 10, mean, &error), DUNLIN_OK, "%s",
                 error.text);
    for (int i = 0; i < 2; i++) {
        cr_expect_eq(dunlin__fixed_point_mean(&plan, &too_far[i], 1, 10, 10, mean, &error),
                     DUNLIN_DATA);
    }
}
