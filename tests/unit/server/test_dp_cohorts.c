/*
 * test_dp_cohorts.c - who is asked in rounds with noise, and the noise itself.
 */
#include "dp_fleet.h"
#include "model/noise.h"
#include "rounds/close.h"
#include "rounds/private.h"
#include "server/must.h"
#include "state/db.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- who is asked ---- */

static void count_cohorts(const char *keys, int n_draws, uint32_t *counts, double *out_mean,
                          double *out_square)
{
    test_server fixture;
    dunlin_error error = {0};
    dp_begin(&fixture);
    test_server_open(&fixture, keys, 0);
    dunlin__server *server = &fixture.server;
    *out_mean = 0;
    *out_square = 0;
    for (int i = 0; i < n_draws; i++) {
        server->round.draw_seed.is_there = false;
        MUST(dunlin__private_open(server, &server->round, &error));
        MUST(dunlin__private_choose(server, &error));
        uint32_t n = 0;
        for (uint32_t c = 0; c < server->task.n_clients; c++) {
            counts[c] += server->in_cohort[c] ? 1 : 0;
            n += server->in_cohort[c] ? 1 : 0;
        }
        cr_assert_eq(n, server->n_in_cohort);
        *out_mean += (double)n / n_draws;
        *out_square += (double)n * n / n_draws;
    }
    dp_end(&fixture);
}

Test(dp_cohorts, poisson_draws_each_device_by_itself)
{
    enum { DRAWS = 4000, CLIENTS = 50 };
    uint32_t counts[CLIENTS] = {0};
    double mean = 0;
    double square = 0;
    count_cohorts(DP("2", "5", "50", "\"noise\": 1, \"sampling\": \"poisson\""), DRAWS, counts,
                  &mean, &square);
    /* Binomial, 50 times 0.1: mean 5, variance 4.5; six deviations of each. */
    cr_expect_float_eq(mean, 5, 6 * sqrt(4.5 / DRAWS), "%g", mean);
    cr_expect_float_eq(square - mean * mean, 4.5, 0.7, "%g", square - mean * mean);
    for (int c = 0; c < CLIENTS; c++) {
        cr_expect_float_eq(counts[c], 0.1 * DRAWS, 6 * sqrt(0.09 * DRAWS), "client %d", c);
    }
}

Test(dp_cohorts, a_fixed_cohort_has_its_size_and_is_drawn_afresh)
{
    enum { DRAWS = 4000, CLIENTS = 50 };
    uint32_t counts[CLIENTS] = {0};
    double mean = 0;
    double square = 0;
    count_cohorts(DP("2", "5", "50", "\"noise\": 1, \"sampling\": \"fixed\""), DRAWS, counts, &mean,
                  &square);
    cr_expect_float_eq(mean, 5, 1e-9);
    cr_expect_float_eq(square, 25, 1e-9);
    for (int c = 0; c < CLIENTS; c++) {
        cr_expect_float_eq(counts[c], 0.1 * DRAWS, 6 * sqrt(0.09 * DRAWS), "client %d", c);
    }
}

/* The same seed of the task draws other cohorts; a restart keeps the open round's. */
Test(dp_cohorts, who_is_drawn_does_not_follow_from_the_tasks_seed)
{
    bool cohorts[3][64];
    test_server fixture;
    const char *keys = DP("2", "32", "64", "\"noise\": 1, \"sampling\": \"poisson\"");
    for (int i = 0; i < 2; i++) {
        dp_begin(&fixture);
        test_server_open(&fixture, keys, 0);
        memcpy(cohorts[i], fixture.server.in_cohort, sizeof cohorts[i]);
        if (i == 1) {
            test_server_close(&fixture);
            test_server_open(&fixture, keys, 0);
            memcpy(cohorts[2], fixture.server.in_cohort, sizeof cohorts[2]);
        }
        dp_end(&fixture);
    }
    cr_expect_neq(memcmp(cohorts[0], cohorts[1], sizeof cohorts[0]), 0);
    cr_expect_eq(memcmp(cohorts[1], cohorts[2], sizeof cohorts[1]), 0);
}

Test(dp_cohorts, a_device_keeps_separation_and_most)
{
    test_server fixture;
    test_device device;
    dp_begin(&fixture);
    const char *keys = ", \"rounds\": 12, \"cohort\": 2, \"dp\": {\"clip\": 1, \"delta\": 1e-5, "
                       "\"noise\": 1, \"population\": 9, \"separation\": 3, \"most\": 2}";
    test_server_open(&fixture, keys, 0);
    dp_join_all(&fixture, &device, 1);
    bool was_asked[10] = {false};
    for (int round = 1; round <= 9; round++) {
        was_asked[round] = test_take_work(&device); /* and never comes back with an update */
        dunlin__round_row *open = &fixture.server.round;
        open->deadline_ms = open->deadline_ms != 0 ? open->deadline_ms : fixture.now_ms + 1;
        if (round == 2) { /* the state remembers */
            test_server_close(&fixture);
            test_server_open(&fixture, keys, 0);
            fixture.server.round.deadline_ms = fixture.now_ms + 1;
            dunlin__checkin_response answer;
            cr_expect_eq(test_checkin(&device, &answer), 401, "the challenge is another one");
            memcpy(device.challenge, device.status.challenge, sizeof device.challenge);
        }
        dp_close_round(&fixture);
    }
    for (int round = 1; round <= 9; round++) {
        cr_expect_eq(was_asked[round], round == 1 || round == 4, "round %d", round);
    }
    dp_end(&fixture);
}

/* ---- noise on a grid ---- */

Test(dp_cohorts, updates_are_rounded_to_the_grid_and_counted_so)
{
    dunlin_error error = {0};
    static const struct {
        double clip, noise;
        uint64_t n;
    } cases[] = {{1, 1, 10}, {1e-6, 0.05, 1000}, {1e6, 50, 44426}, {0.3, 2, 100000000}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin__noise noise;
        float values[64];
        MUST(dunlin__noise_make(&noise, cases[i].clip, cases[i].noise, cases[i].n, &error));
        const double least = cases[i].clip * (1 + 2e-6) + noise.grid * sqrt((double)cases[i].n) / 2;
        cr_expect_geq(noise.sensitivity, least * (1 - 1e-12));
        cr_expect_lt(noise.sensitivity, cases[i].clip * 1.001, "%zu", i);
        const double wanted = cases[i].noise * cases[i].clip;
        cr_expect(wanted / noise.grid >= 0x1p29 && wanted / noise.grid < 0x1p30);
        for (int k = 0; k < 64; k++) {
            values[k] = (float)(cases[i].clip * sin(k + 1.0));
        }
        dunlin__noise_round(&noise, 0.75, values, 64);
        for (int k = 0; k < 64; k++) {
            const double exact = 0.75 * (double)(float)(cases[i].clip * sin(k + 1.0));
            const double steps = (double)values[k] / noise.grid;
            cr_expect_float_eq(steps, rint(steps), 0, "value %d", k);
            cr_expect_float_eq((double)values[k], exact, noise.grid / 2 + 0x1p-24 * fabs(exact),
                               "value %d", k);
        }
    }
    dunlin__noise noise;
    cr_expect_eq(dunlin__noise_make(&noise, 1, 1e6, (uint64_t)1 << 60, &error), DUNLIN_LIMIT);
}

Test(dp_cohorts, the_noise_of_a_sum_has_its_deviation)
{
    enum { DRAWS = 20000 };
    dunlin_error error = {0};
    dunlin__noise noise;
    double sum = 0;
    double square = 0;
    MUST(dunlin__noise_make(&noise, 2, 0.5, 100, &error));
    memset(noise.nodes[0].seed, 9, DUNLIN_SEED_BYTES);
    noise.n_nodes = 1;
    for (uint64_t i = 0; i < DRAWS; i++) {
        const double x = dunlin__noise_draw(&noise, i);
        sum += x / DRAWS;
        square += x * x / DRAWS;
    }
    cr_expect_float_eq(sum, 0, 6 / sqrt(DRAWS), "%g", sum);
    cr_expect_float_eq(square, 1, 6 * sqrt(2.0 / DRAWS), "%g", square);
    cr_expect_float_eq(dunlin__noise_draw(&noise, 5), dunlin__noise_draw(&noise, 5), 0);
    dunlin__noise_wipe(&noise);
    cr_expect_eq(noise.n_nodes, 0);
}
