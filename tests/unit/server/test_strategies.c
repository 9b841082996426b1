/*
 * test_strategies.c - strategies beside computations of their own, written from the papers: over
 * restarts, a kill in a close, models that are taken back, and files that are lost.
 */
#include "rounds/lineage.h"
#include "server/device.h"

#include <criterion/criterion.h>

#include <float.h>
#include <math.h>
#include <random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define N 10         /* values of the fixture's model */
#define N_AVERAGED 6 /* the first ones; the others are statistics */
#define N_ROUNDS 5
#define BASIC ", \"rounds\": 20, \"cohort\": 2"

static float updates[N_ROUNDS][2][N];

static void draw_updates(uint64_t seed)
{
    uint64_t state = test_seed(seed);
    test_random_fill(&updates[0][0][0], N_ROUNDS * 2 * N, -1, 1, &state);
}

/* Two devices that count for 3 and 5 examples; gives the next base. */
static void run_round(test_server *fixture, int which, float *out_model)
{
    test_device devices[2];
    const uint64_t round = fixture->server.round.round;
    for (int i = 0; i < 2; i++) {
        test_join(&devices[i], fixture, -1);
        cr_assert_eq(test_contribute(&devices[i], updates[which][i], i == 0 ? 3 : 5),
                     DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    }
    dunlin__server_tick(&fixture->server);
    cr_assert_eq(fixture->server.round.round, round + 1, "%s", fixture->server.fault.text);
    cr_assert(!fixture->server.closed[fixture->server.n_closed - 1].is_failed, "%s",
              fixture->server.closed[fixture->server.n_closed - 1].why);
    test_read_model(fixture, round + 1, out_model);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

/* ---- the server's optimisers ---- */

typedef struct optimiser {
    const char *name;
    const char *keys;
    double lr, momentum, beta1, beta2, tau;
} optimiser;

static const optimiser optimisers[] = {
    {"fedavgm", "", 1, 0.9, 0, 0, 0},
    {"fedavgm", ", \"server_lr\": 0.5, \"server_momentum\": 0.3", 0.5, 0.3, 0, 0, 0},
    {"fedadagrad", "", 0.01, 0, 0, 0, 1e-3},
    {"fedadagrad", ", \"server_lr\": 0.2, \"beta1\": 0.4, \"tau\": 0.05", 0.2, 0, 0.4, 0, 0.05},
    {"fedadam", "", 0.03, 0, 0.9, 0.99, 1e-3},
    {"fedadam", ", \"server_lr\": 1, \"beta1\": 0.5, \"beta2\": 0.7, \"tau\": 0.5", 1, 0, 0.5, 0.7,
     0.5},
    {"fedyogi", "", 0.03, 0, 0.9, 0.99, 1e-3},
    {"fedyogi", ", \"beta2\": 0.2, \"tau\": 0.7", 0.03, 0, 0.9, 0.2, 0.7},
};

/* What the paper's state is, in float64. */
typedef struct wanted {
    double x[N], m[N], v[N];
} wanted;

static void wanted_begin(const optimiser *by, wanted *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < N; i++) {
        out->v[i] = by->tau * by->tau;
    }
}

/* Reddi et al. 2021, algorithm 2; of momentum Hsu et al. 2019, section 4.1; statistics: FedAvg. */
static void wanted_step(const optimiser *by, wanted *of, int which)
{
    for (int i = 0; i < N; i++) {
        const double d = (3 * (double)updates[which][0][i] + 5 * (double)updates[which][1][i]) / 8;
        if (i >= N_AVERAGED) {
            of->x[i] += d;
        } else if (strcmp(by->name, "fedavgm") == 0) {
            of->m[i] = by->momentum * of->m[i] + d;
            of->x[i] += by->lr * of->m[i];
        } else {
            of->m[i] = by->beta1 * of->m[i] + (1 - by->beta1) * d;
            if (strcmp(by->name, "fedadagrad") == 0) {
                of->v[i] += d * d;
            } else if (strcmp(by->name, "fedadam") == 0) {
                of->v[i] = by->beta2 * of->v[i] + (1 - by->beta2) * d * d;
            } else {
                const double over = of->v[i] - d * d;
                const double sign = over > 0 ? 1 : over < 0 ? -1 : 0;
                of->v[i] -= (1 - by->beta2) * d * d * sign;
            }
            of->x[i] += by->lr * of->m[i] / (sqrt(of->v[i]) + by->tau);
        }
    }
}

static void expect(const wanted *of, const float *model, const char *name, int round)
{
    for (int i = 0; i < N; i++) {
        cr_assert_float_eq((double)model[i], of->x[i], 1e-6 * (1 + fabs(of->x[i])),
                           "%s, round %d, value %d: %.9g, not %.9g", name, round, i,
                           (double)model[i], of->x[i]);
    }
}

static void keys_of(const optimiser *by, char *out, size_t n)
{
    (void)snprintf(out, n, BASIC ", \"strategy\": \"%s\"%s", by->name, by->keys);
}

Test(strategies, follow_their_papers_over_restarts)
{
    draw_updates(7);
    for (size_t k = 0; k < sizeof optimisers / sizeof optimisers[0]; k++) {
        test_server fixture;
        wanted state;
        char keys[256];
        float model[N];
        keys_of(&optimisers[k], keys, sizeof keys);
        wanted_begin(&optimisers[k], &state);
        test_server_folder(&fixture);
        test_server_open(&fixture, keys, 0);
        for (int r = 0; r < N_ROUNDS; r++) {
            run_round(&fixture, r, model);
            wanted_step(&optimisers[k], &state, r);
            expect(&state, model, optimisers[k].name, r + 1);
            test_server_close(&fixture);
            test_server_open(&fixture, keys, 0);
        }
        end(&fixture);
    }
}

/* Whole weights instead of differences: the same change. */
Test(strategies, take_whole_weights)
{
    static const optimiser by = {"fedadam", ", \"update_form\": \"weights\"", 0.03, 0, 0.9, 0.99,
                                 1e-3};
    test_server fixture;
    wanted state;
    char keys[256];
    float model[N] = {0};
    keys_of(&by, keys, sizeof keys);
    wanted_begin(&by, &state);
    test_server_folder(&fixture);
    test_server_open(&fixture, keys, 0);
    for (int r = 0; r < 3; r++) {
        draw_updates(50 + (uint64_t)r);
        wanted_step(&by, &state, r);
        for (int i = 0; i < N; i++) {
            updates[r][0][i] += model[i];
            updates[r][1][i] += model[i];
        }
        run_round(&fixture, r, model);
        expect(&state, model, by.name, r + 1);
    }
    end(&fixture);
}

/* A kill after weights and moments were written and before the transaction: the close is repeated
 * from the state before, and gives the same bytes. */
Test(strategies, a_kill_in_a_close_changes_nothing)
{
    draw_updates(8);
    for (int is_killed = 0; is_killed < 2; is_killed++) {
        static float models[2][N];
        const optimiser by = optimisers[4];
        test_server fixture;
        test_device devices[2];
        char keys[256];
        dunlin_error error = {0};
        keys_of(&by, keys, sizeof keys);
        test_server_folder(&fixture);
        test_server_open(&fixture, keys, 0);
        run_round(&fixture, 0, models[is_killed]);
        for (int i = 0; i < 2; i++) {
            test_join(&devices[i], &fixture, -1);
            cr_assert_eq(test_contribute(&devices[i], updates[1][i], i == 0 ? 3 : 5),
                         DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
        }
        if (is_killed == 1) {
            fixture.server.round.state = DUNLIN_ROUND_CLOSING;
            fixture.server.round.reason = DUNLIN_CLOSE_GOAL;
            cr_assert_eq(
                dunlin__server_db_put_round(fixture.server.db, &fixture.server.round, &error),
                DUNLIN_OK);
            (void)test_server_write(&fixture, "state/models/000003.weights", "half");
            (void)test_server_write(&fixture, "state/models/000003.moments", "half");
            test_server_close(&fixture);
            test_server_open(&fixture, keys, 0);
        }
        dunlin__server_tick(&fixture.server);
        cr_assert_eq(fixture.server.round.round, 3, "%s", fixture.server.fault.text);
        run_round(&fixture, 2, models[is_killed]);
        end(&fixture);
        if (is_killed == 1) {
            cr_assert_arr_eq(models[0], models[1], sizeof models[0]);
        }
    }
}

/* Round 2 is taken back: what comes after it goes on from round 1's weights and moments. */
Test(strategies, a_model_taken_back_takes_its_moments_along)
{
    draw_updates(9);
    for (size_t k = 0; k < sizeof optimisers / sizeof optimisers[0]; k++) {
        test_server fixture;
        wanted state;
        char keys[256];
        float model[N];
        dunlin_error error = {0};
        keys_of(&optimisers[k], keys, sizeof keys);
        wanted_begin(&optimisers[k], &state);
        test_server_folder(&fixture);
        test_server_open(&fixture, keys, 0);
        run_round(&fixture, 0, model);
        run_round(&fixture, 1, model);
        cr_assert_eq(dunlin__lineage_take_back(&fixture.server, 2, "a test", &error), DUNLIN_OK);
        dunlin__server_tick(&fixture.server); /* round 3 began from it and ends */
        cr_assert_eq(fixture.server.round.round, 4, "%s", fixture.server.fault.text);
        cr_assert_eq(fixture.server.round.base, 1);
        run_round(&fixture, 2, model);
        wanted_step(&optimisers[k], &state, 0);
        wanted_step(&optimisers[k], &state, 2);
        expect(&state, model, optimisers[k].name, 4);
        end(&fixture);
    }
}

/* Rounds that change no model change no moments: of evaluation, and those that failed. */
Test(strategies, rounds_without_updates_keep_the_moments)
{
    const optimiser by = optimisers[6];
    test_server fixture;
    test_device devices[2];
    dunlin__commit_response commit;
    wanted state;
    char keys[256];
    float model[N];
    draw_updates(10);
    (void)snprintf(keys, sizeof keys, BASIC ", \"strategy\": \"%s\", \"evaluate_every\": 2",
                   by.name);
    wanted_begin(&by, &state);
    test_server_folder(&fixture);
    test_server_open(&fixture, keys, 0);
    run_round(&fixture, 0, model);
    for (int i = 0; i < 2; i++) {
        test_join(&devices[i], &fixture, -1);
        cr_assert_eq(test_commit_evaluation(&devices[i], 4, 1, 0.5, &commit), 200);
    }
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 3);
    run_round(&fixture, 1, model);
    wanted_step(&by, &state, 0);
    wanted_step(&by, &state, 1);
    expect(&state, model, by.name, 3);
    end(&fixture);
}

static void count_anew(void *ctx, dunlin_log_level level, const char *component, const char *text)
{
    (void)level;
    (void)component;
    *(int *)ctx += strstr(text, "begins anew") != NULL ? 1 : 0;
}

/* Moments of another strategy, cut short or gone: the strategy begins anew, with a warning where
 * there was something to leave out. Those of fedadam do not come back after rounds of average. */
Test(strategies, moments_that_cannot_be_used_begin_anew)
{
    const optimiser by = optimisers[4];
    static const char *const between[] = {"fedyogi", "cut", "gone", "average"};
    static const int n_warnings[] = {2, 1, 0,
                                     0}; /* fedyogi leaves fedadam's out, and the reverse */
    draw_updates(11);
    for (size_t c = 0; c < 4; c++) {
        test_server fixture;
        wanted state;
        char keys[256];
        char other[256];
        char path[512];
        float model[N];
        int n_found = 0;
        const bool has_round = strcmp(between[c], "cut") != 0 && strcmp(between[c], "gone") != 0;
        keys_of(&by, keys, sizeof keys);
        test_server_folder(&fixture);
        fixture.log = (dunlin_log){&n_found, count_anew, DUNLIN_LOG_WARNING};
        test_server_open(&fixture, keys, 0);
        run_round(&fixture, 0, model);
        test_server_close(&fixture);
        (void)snprintf(path, sizeof path, "%s/state/models/000002.moments", fixture.folder);
        if (has_round) {
            (void)snprintf(other, sizeof other, BASIC ", \"strategy\": \"%s\"", between[c]);
            test_server_open(&fixture, other, 0);
            run_round(&fixture, 1, model);
            test_server_close(&fixture);
        } else {
            cr_assert_eq(strcmp(between[c], "cut") == 0 ? truncate(path, 40) : unlink(path), 0);
        }
        test_server_open(&fixture, keys, 0);
        wanted_begin(&by, &state);
        for (int i = 0; i < N; i++) {
            state.x[i] = (double)model[i];
        }
        run_round(&fixture, 2, model);
        wanted_step(&by, &state, 2);
        expect(&state, model, between[c], 2);
        cr_expect_eq(n_found, n_warnings[c], "%s: %d", between[c], n_found);
        end(&fixture);
    }
}

/* The file beside a base is as proto/FORMATS.md has it. */
Test(strategies, the_file_of_moments_has_its_format)
{
    const optimiser by = optimisers[5];
    struct {
        char text[8];
        uint32_t strategy, zero;
        uint64_t n_values, zeros;
        double pairs[2 * N_AVERAGED];
    } file;
    test_server fixture;
    wanted state;
    char keys[256];
    char path[512];
    float model[N];
    draw_updates(13);
    keys_of(&by, keys, sizeof keys);
    wanted_begin(&by, &state);
    test_server_folder(&fixture);
    test_server_open(&fixture, keys, 0);
    run_round(&fixture, 0, model);
    wanted_step(&by, &state, 0);
    (void)snprintf(path, sizeof path, "%s/state/models/000002.moments", fixture.folder);
    FILE *from = fopen(path, "rb");
    cr_assert_not_null(from);
    cr_assert_eq(fread(&file, 1, sizeof file, from), 32 + 16 * N_AVERAGED);
    cr_assert_eq(fgetc(from), EOF);
    cr_assert_eq(fclose(from), 0);
    cr_expect_eq(memcmp(file.text, "dunmom01", 8), 0);
    cr_expect(file.strategy == 3 && file.zero == 0 && file.n_values == 6 && file.zeros == 0);
    for (int i = 0; i < N_AVERAGED; i++) {
        cr_expect_float_eq(file.pairs[2 * i], state.m[i], 1e-14);
        cr_expect_float_eq(file.pairs[2 * i + 1], state.v[i], 1e-14);
    }
    end(&fixture);
}

/* A step out of float32's range fails the round; weights and moments stay. */
Test(strategies, a_step_out_of_range_fails_the_round)
{
    test_server fixture;
    test_device device;
    float first[N];
    float model[N];
    float large[N] = {0};
    char keys[512];
    test_server_folder(&fixture);
    char initial[256];
    for (int i = 0; i < N; i++) {
        first[i] = FLT_MAX;
        large[i] = 1e29F;
    }
    (void)snprintf(initial, sizeof initial, "%s/first.f32", fixture.folder);
    FILE *file = fopen(initial, "wb");
    cr_assert_eq(fwrite(first, sizeof first, 1, file), 1);
    cr_assert_eq(fclose(file), 0);
    (void)snprintf(keys, sizeof keys,
                   ", \"rounds\": 4, \"cohort\": 1, \"strategy\": \"fedavgm\", \"server_lr\": 1000,"
                   " \"initial\": \"%s\"",
                   initial);
    test_server_open(&fixture, keys, 0);
    test_join(&device, &fixture, -1);
    cr_assert_eq(test_contribute(&device, large, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2, "%s", fixture.server.fault.text);
    cr_assert(fixture.server.closed[0].is_failed);
    cr_expect_not_null(strstr(fixture.server.closed[0].why, "have no finite average"), "%s",
                       fixture.server.closed[0].why);
    test_read_model(&fixture, 2, model);
    cr_assert_arr_eq(model, first, sizeof model);
    char path[512];
    (void)snprintf(path, sizeof path, "%s/state/models/000002.moments", fixture.folder);
    cr_assert_neq(access(path, F_OK), 0, "no step was made");
    end(&fixture);
}

/* ---- robust middles ---- */

#define N_DEVICES 7

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Seven devices, one of which says whatever it likes and claims to have the most examples. */
Test(strategies, robust_middles_beside_sorted_columns)
{
    static const struct {
        const char *keys;
        int n_devices, n_cut; /* at each end */
    } cases[] = {{"\"strategy\": \"median\"", 7, 3},
                 {"\"strategy\": \"median\"", 6, 2},
                 {"\"strategy\": \"median\"", 1, 0},
                 {"\"strategy\": \"trimmed_mean\"", 7, 0},
                 {"\"strategy\": \"trimmed_mean\", \"trim\": 0.2", 7, 1},
                 {"\"strategy\": \"trimmed_mean\", \"trim\": 0.49", 7, 3},
                 {"\"strategy\": \"trimmed_mean\", \"trim\": 0.49", 6, 2},
                 {"\"strategy\": \"trimmed_mean\", \"trim\": 0", 5, 0}};
    uint64_t state = test_seed(12);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const int n = cases[c].n_devices;
        float values[N_DEVICES][N];
        float model[N];
        char keys[256];
        test_server fixture;
        test_device devices[N_DEVICES];
        (void)snprintf(keys, sizeof keys, ", \"rounds\": 1, \"cohort\": %d, %s", n, cases[c].keys);
        test_server_folder(&fixture);
        test_server_open(&fixture, keys, 0);
        for (int d = 0; d < n; d++) {
            test_random_fill(values[d], N, -1, 1, &state);
            for (int i = 0; i < N && d == 0 && cases[c].n_cut > 0; i++) {
                values[d][i] = i % 2 == 0 ? 5.0F : -5.0F; /* below the norm bound */
            }
            test_join(&devices[d], &fixture, -1);
            cr_assert_eq(test_contribute(&devices[d], values[d], d == 0 ? 9000 : 1),
                         DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
        }
        dunlin__server_tick(&fixture.server);
        cr_assert_eq(fixture.server.round.round, 2, "%s", fixture.server.fault.text);
        cr_assert_eq(fixture.server.closed[0].n_scaled, 0);
        test_read_model(&fixture, 2, model);
        for (int i = 0; i < N; i++) { /* statistics, too */
            double column[N_DEVICES];
            double sum = 0;
            for (int d = 0; d < n; d++) {
                column[d] = (double)values[d][i];
            }
            qsort(column, (size_t)n, sizeof column[0], compare);
            for (int d = cases[c].n_cut; d < n - cases[c].n_cut; d++) {
                sum += column[d];
            }
            const double middle = sum / (n - 2 * cases[c].n_cut);
            cr_assert_float_eq((double)model[i], middle, 1e-7, "case %zu, value %d", c, i);
            cr_assert(cases[c].n_cut == 0 || fabs((double)model[i]) <= 1, "the liar counts");
        }
        end(&fixture);
    }
}
