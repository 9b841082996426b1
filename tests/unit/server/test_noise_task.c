/*
 * test_noise_task.c - `dp` beside `secagg`: the whole numbers that come of it, and each refusal.
 */
#include "rounds/orders.h"
#include "server/device.h"

#include <mem/support.h>
#include <wire/secagg_noise.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static dunlin_status read_noisy(const char *keys, dunlin__server_task *out_task,
                                dunlin_error *error)
{
    char text[768];
    test_server fixture;
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    (void)snprintf(text, sizeof text,
                   "{\"population\": \"p\", \"task\": \"t\", \"model\": \"m\", \"rounds\": 20, "
                   "\"cohort\": 100, \"clients\": 2000%s}",
                   keys);
    test_server_folder(&fixture);
    const char *path = test_server_write(&fixture, "task.json", text);
    const dunlin_status status = dunlin__server_task_read(path, &alloc, out_task, error);
    test_server_end(&fixture);
    return status;
}

#define DP(more)                                                                                   \
    ", \"dp\": {\"clip\": 0.25, \"delta\": 1e-5, \"noise_by\": \"distributed\"" more "}"
#define SECAGG(more) ", \"secagg\": {\"corrupt\": 0.05" more "}"

Test(noise_task, whole_numbers_of_clip_and_noise)
{
    static const struct {
        const char *keys;
        double least_noise;
    } rows[] = {
        {DP(", \"noise\": 1.5, \"most\": 1") SECAGG(""), 1.5},
        {DP(", \"noise\": 1.5, \"most\": 1") SECAGG(", \"ring_bits\": 24"), 1.5},
        {DP(", \"noise\": 1.5, \"most\": 1") SECAGG(", \"ring_bits\": 16"), 1.5},
        {DP(", \"noise\": 30") SECAGG(", \"least_devices\": 80, \"clip\": 0.25"), 30},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dunlin__server_task task;
        dunlin_error error = {0};
        cr_assert_eq(read_noisy(rows[i].keys, &task, &error), DUNLIN_OK, "%s: %s", rows[i].keys,
                     error.text);
        const dunlin__secagg_plan plan = dunlin__server_task_secagg(&task, 1000);
        const dunlin__privacy_question *terms = &task.dp.question;
        cr_expect_eq(plan.version, 2);
        cr_expect_eq(plan.weight_limit, 1);
        cr_expect_eq(plan.least_honest, plan.least_devices - 5);
        cr_expect_eq(terms->n_parts, plan.least_honest);
        cr_expect_eq(terms->part_scale, plan.noise_scale);
        /* No less noise than was asked for, and not much more than steps make of it. */
        cr_expect_geq(terms->noise, rows[i].least_noise);
        cr_expect_leq(terms->noise, rows[i].least_noise * (1 + 1.0 / (double)plan.noise_scale));
        cr_expect_float_eq(terms->noise, dunlin__secagg_noise_multiplier(&plan), 1e-12);
        /* The ring is full to a few steps, or the scale at its most. */
        const uint64_t all =
            (uint64_t)plan.n_cohort * plan.value_limit + dunlin__secagg_noise_reach(&plan);
        cr_expect(all < UINT64_C(1) << (plan.ring_bits - 1) &&
                      (all > UINT64_C(13) << (plan.ring_bits - 5) ||
                       plan.noise_scale + 2 > DUNLIN_SECAGG_SCALE_MOST),
                  "%llu in 2^%u", (unsigned long long)all, plan.ring_bits - 1);
    }
}

Test(noise_task, a_wanted_epsilon)
{
    dunlin__server_task task;
    dunlin_error error = {0};
    cr_assert_eq(read_noisy(DP(", \"epsilon\": 4, \"separation\": 20") SECAGG(""), &task, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect(task.dp.cost.epsilon <= 4 && task.dp.cost.epsilon > 3.9, "%g", task.dp.cost.epsilon);
    cr_expect(task.dp.is_distributed && task.dp.cost.sensitivity < 1.5);
    /* One round of a device, as the other accountant has it for one draw. */
    const double reckoned =
        dunlin__secagg_noise_epsilon(task.dp.question.noise, 0, 1, task.dp.question.delta);
    cr_expect_float_eq(task.dp.cost.epsilon, reckoned, 1e-6);
    /* The same by another name. */
    cr_assert_eq(read_noisy(", \"dp\": {\"clip\": 1, \"delta\": 1e-5, \"noise_by\": \"cohort\", "
                            "\"noise\": 2}" SECAGG(""),
                            &task, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect(task.dp.is_distributed);
}

Test(noise_task, coarse_noise_costs_what_it_is_short_of_one_draw)
{
    dunlin__server_task task;
    dunlin_error error = {0};
    /* 2 whole numbers of a device: what the sum may differ by counts, in 2^36 values. */
    cr_assert_eq(read_noisy(DP(", \"noise\": 1.5, \"most\": 1")
                                SECAGG(", \"ring_bits\": 16, \"value_limit\": 8"),
                            &task, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_assert_eq(task.secagg.noise_scale, 2);
    const double exact =
        dunlin__secagg_noise_epsilon(task.dp.question.noise, 0, 1, task.dp.question.delta);
    cr_expect(task.dp.cost.epsilon > exact + 1e-6 && task.dp.cost.epsilon < exact + 1e-3,
              "%.9g, %.9g", task.dp.cost.epsilon, exact);
}

#define SKELLAM ", \"noise_kind\": \"skellam\""

/* The scale at its most, which is what limits the steps; or a ring that is as full as it may be. */
Test(noise_task, whole_numbers_of_skellam_noise)
{
    static const struct {
        const char *keys;
        double least_noise;
        bool is_full;
    } rows[] = {
        {DP(", \"noise\": 1.5, \"most\": 1" SKELLAM) SECAGG(""), 1.5, false},
        {DP(", \"noise\": 1.5, \"most\": 1" SKELLAM) SECAGG(", \"ring_bits\": 16"), 1.5, true},
        {DP(", \"noise\": 1.5, \"most\": 1" SKELLAM) SECAGG(", \"value_limit\": 300"), 1.5, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dunlin__server_task task;
        uint32_t features[DUNLIN_SERVER_FEATURES];
        dunlin_error error = {0};
        cr_assert_eq(read_noisy(rows[i].keys, &task, &error), DUNLIN_OK, "%s: %s", rows[i].keys,
                     error.text);
        const dunlin__secagg_plan plan = dunlin__server_task_secagg(&task, 1000);
        const dunlin__privacy_question *terms = &task.dp.question;
        cr_expect_eq(plan.noise_kind, DUNLIN_V1_SECAGG_NOISE_SKELLAM);
        cr_expect_geq(terms->noise, rows[i].least_noise);
        cr_expect_leq(terms->noise, rows[i].least_noise * (1 + 1.0 / (double)plan.noise_scale));
        const uint64_t all =
            (uint64_t)plan.n_cohort * plan.value_limit + dunlin__secagg_noise_reach(&plan);
        cr_expect_lt(all, UINT64_C(1) << (plan.ring_bits - 1));
        cr_expect_eq(rows[i].is_full, all > UINT64_C(13) << (plan.ring_bits - 5), "%llu in 2^%u",
                     (unsigned long long)all, plan.ring_bits - 1);
        cr_expect(i > 0 || plan.noise_scale == DUNLIN_SECAGG_SKELLAM_MOST, "%u", plan.noise_scale);
        cr_expect(i < 2 || plan.value_limit == 300, "%u", plan.value_limit);
        const dunlin__secagg_skellam sum = {terms->noise, (double)plan.value_limit,
                                            (double)terms->n_values};
        cr_expect_float_eq(task.dp.cost.epsilon,
                           dunlin__secagg_skellam_epsilon(&sum, 1, terms->delta), 1e-9);
        const size_t n_features = dunlin__server_features(&task, true, features);
        cr_expect_eq(features[n_features - 1], DUNLIN_V1_FEATURE_SKELLAM_NOISE);
    }
}

/* Also where orders that are no whole ones would have been the best, and steps are coarse. */
Test(noise_task, a_wanted_epsilon_of_skellam_noise)
{
    static const char *const rows[] = {
        DP(", \"epsilon\": 4, \"separation\": 20" SKELLAM) SECAGG(""),
        DP(", \"epsilon\": 4, \"separation\": 20" SKELLAM) SECAGG(", \"value_limit\": 40"),
        DP(", \"epsilon\": 4, \"separation\": 20" SKELLAM) SECAGG(", \"ring_bits\": 16"),
        DP(", \"epsilon\": 4" SKELLAM) SECAGG(""),
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dunlin__server_task task;
        dunlin_error error = {0};
        cr_assert_eq(read_noisy(rows[i], &task, &error), DUNLIN_OK, "%s: %s", rows[i], error.text);
        const double least = i == 1 ? 3 : 3.9;
        cr_expect(task.dp.cost.epsilon <= 4 && task.dp.cost.epsilon > least, "%s: %g", rows[i],
                  task.dp.cost.epsilon);
        const dunlin__secagg_plan plan = dunlin__server_task_secagg(&task, 1000);
        dunlin__secagg_plan whole = plan;
        whole.session.size = 16;
        cr_expect_eq(dunlin__secagg_check(&whole, &error), DUNLIN_OK, "%s", error.text);
        cr_expect(i != 1 || plan.value_limit == 40, "%u", plan.value_limit);
        cr_expect_float_eq(dunlin__secagg_noise_multiplier(&plan), task.dp.question.noise, 1e-12);
    }
}

Test(noise_task, what_does_not_go_with_it)
{
    static const struct {
        const char *keys;
        const char *text;
    } rows[] = {
        {DP(", \"noise\": 1"), "noise_by distributed goes with secagg"},
        {DP(", \"noise\": 1, \"sampling\": \"poisson\"") SECAGG(""), "knows whom it draws"},
        {DP(", \"noise\": 1, \"sampling\": \"fixed\"") SECAGG(""), "knows whom it draws"},
        {DP(", \"noise\": 1, \"mechanism\": \"tree\"") SECAGG(""), "take a node's noise away"},
        {DP(", \"noise\": 1, \"noise_cohort\": 1000, \"population\": 10000") SECAGG(""),
         "dp.noise_cohort"},
        {DP(", \"noise\": 1") SECAGG(", \"clip\": 1"), "secagg.clip is 1, with dp it is dp.clip"},
        {DP(", \"noise\": 1") SECAGG(", \"weight_limit\": 3"), "secagg.weight_limit is 3"},
        {DP(", \"noise\": 1") SECAGG(", \"least_devices\": 6"), "fewer than 2 honest devices"},
        {DP(", \"noise\": 1") SECAGG(", \"value_limit\": 30000000"), "no room for their noise"},
        {DP(", \"noise\": 1") SECAGG(", \"ring_bits\": 16, \"value_limit\": 3"),
         "use more secagg.ring_bits"},
        {DP(", \"noise\": 1e6") SECAGG(", \"ring_bits\": 16"), "use more secagg.ring_bits"},
        {DP(", \"noise\": 1, \"noise_kind\": \"laplace\"") SECAGG(""),
         "dp.noise_kind must be gaussian or skellam"},
        {", \"dp\": {\"clip\": 1, \"noise\": 1, \"delta\": 1e-5" SKELLAM "}",
         "dp.noise_kind skellam goes with dp.noise_by distributed"},
        {DP(", \"noise\": 1" SKELLAM) SECAGG(", \"value_limit\": 30000"),
         "noise of more than 1024 whole numbers of each device, at most 68"},
        {DP(", \"noise\": 1" SKELLAM) SECAGG(", \"ring_bits\": 16, \"value_limit\": 3"),
         "use more secagg.ring_bits"},
        {DP(", \"epsilon\": 1e-9") SECAGG(""), "dp: epsilon 1e-09 is not reached"},
        {DP(", \"noise\": 1, \"accountant\": \"pld\"") SECAGG(""), "goes with dp.accountant rdp"},
        {DP(", \"noise\": 1") SECAGG("") ", \"algorithm\": \"scaffold\"", "scaffold"},
        {", \"dp\": {\"clip\": 1, \"noise\": 1, \"delta\": 1e-5}" SECAGG(""),
         "secagg does not go with dp with noise_by server"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        dunlin__server_task task;
        dunlin_error error = {0};
        cr_expect_neq(read_noisy(rows[i].keys, &task, &error), DUNLIN_OK, "%s", rows[i].keys);
        cr_expect_not_null(strstr(error.text, rows[i].text), "%s: %s", rows[i].keys, error.text);
    }
}
