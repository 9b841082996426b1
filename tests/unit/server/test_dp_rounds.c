/*
 * test_dp_rounds.c - rounds with noise: what is released, and that a close which is repeated draws
 * nothing anew.
 */
#include "dp_fleet.h"
#include "model/noise.h"
#include "random.h"
#include "rounds/close.h"
#include "rounds/lineage.h"
#include "rounds/private.h"
#include "server/must.h"
#include "state/db.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- what is released ---- */

Test(dp_rounds, each_device_counts_once_and_the_divisor_is_the_cohort)
{
    test_server fixture;
    test_device devices[4];
    float update[DP_VALUES];
    float model[DP_VALUES];
    dp_begin(&fixture);
    test_server_open(&fixture, DP("2", "4", "4", "\"noise\": 0.05"), 0);
    dp_join_all(&fixture, devices, 4);
    dp_fill(update, 0.3F);
    /* Three of four come, with 1000, 1001 and 1002 examples. */
    cr_assert_eq(dp_contribute_all(devices, 3, update, 1000), 3);
    dp_close_round(&fixture);
    test_read_model(&fixture, 2, model);
    for (int i = 0; i < DP_VALUES; i++) { /* a deviation of 0.05 / 4: eight of them */
        cr_expect_float_eq(model[i], 0.225F, 0.1F, "value %d: %g", i, (double)model[i]);
    }
    float mean = 0;
    for (int i = 0; i < DP_VALUES; i++) {
        mean += model[i] / DP_VALUES;
    }
    cr_expect(mean > 0.2F && mean < 0.25F, "%g", (double)mean);
    const dunlin__round_row *row = &fixture.server.closed[0];
    cr_expect(row->is_private && row->epsilon > 0);
    cr_expect(!row->is_failed && row->n_participants == 0 && !(row->weight_sum > 0));
    cr_expect(!row->noise_seed.is_there && !row->draw_seed.is_there);
    dp_end(&fixture);
}

Test(dp_rounds, a_round_without_anybody_releases_noise)
{
    test_server fixture;
    test_device devices[4];
    float model[DP_VALUES];
    dp_begin(&fixture);
    test_server_open(&fixture, DP("2", "2", "4", "\"noise\": 2, \"sampling\": \"poisson\""), 0);
    dp_join_all(&fixture, devices, 4);
    dp_close_round(&fixture);
    test_read_model(&fixture, 2, model);
    int n_moved = 0;
    for (int i = 0; i < DP_VALUES; i++) {
        n_moved += fabsf(model[i]) > 1e-6F ? 1 : 0;
        cr_expect_lt(fabsf(model[i]), 9.0F, "nine deviations of 2 / 2");
    }
    cr_expect_eq(n_moved, DP_VALUES);
    cr_expect(!fixture.server.closed[0].is_failed, "%s", fixture.server.closed[0].why);
    dp_end(&fixture);
}

/* Two rounds of a run of three, of which `n_come` of four devices take part in the first, which may
 * be taken back after it: what they have cost. */
static double cost_of_two(int n_come, bool is_taken_back)
{
    test_server fixture;
    test_device devices[4];
    float update[DP_VALUES];
    dunlin_error error = {0};
    dp_begin(&fixture);
    test_server_open(&fixture, DP("3", "4", "4", "\"noise\": 1"), 0);
    dp_join_all(&fixture, devices, 4);
    dp_fill(update, 0.3F);
    cr_assert_eq(dp_contribute_all(devices, n_come, update, 10), n_come);
    dp_close_round(&fixture);
    const double first = fixture.server.closed[0].epsilon;
    if (is_taken_back) {
        MUST(dunlin__lineage_take_back(&fixture.server, 1, "its loss grew", &error));
        dunlin__server_tick(&fixture.server); /* the round that was opened from it */
    } else {
        dp_close_round(&fixture);
    }
    cr_assert_eq(fixture.server.n_closed, 2);
    cr_expect_eq(fixture.server.closed[0].is_taken_back, is_taken_back);
    const double second = fixture.server.closed[1].epsilon;
    cr_expect(first > 0 && second > first, "%g, then %g", first, second);
    dp_end(&fixture);
    return second;
}

/* Who is late or drops out counts as present, and a model that is taken back was released. */
Test(dp_rounds, who_stays_away_and_what_is_taken_back_has_spent_as_much)
{
    const double spent = cost_of_two(4, false);
    cr_expect_eq(cost_of_two(1, false), spent);
    cr_expect_eq(cost_of_two(4, true), spent);
}

/* ---- a close that is repeated ---- */

static void copy_state(const test_server *fixture, const char *to)
{
    char line[512];
    (void)snprintf(line, sizeof line, "rm -rf '%s/%s' && cp -a '%s/state' '%s/%s'", fixture->folder,
                   to, fixture->folder, fixture->folder, to);
    cr_assert_eq(system(line), 0); /* NOLINT(concurrency-mt-unsafe,cert-env33-c) */
}

static void swap_state(const test_server *fixture, const char *from)
{
    char line[512];
    (void)snprintf(line, sizeof line, "rm -rf '%s/state' && cp -a '%s/%s' '%s/state'",
                   fixture->folder, fixture->folder, from, fixture->folder);
    cr_assert_eq(system(line), 0); /* NOLINT(concurrency-mt-unsafe,cert-env33-c) */
}

/* A kill between the transaction that begins a close and the one that ends it, at whatever moment:
 * the folder is as it was after the first. */
static void kill_in_close(const char *keys, bool has_model)
{
    test_server fixture;
    test_device devices[4];
    float update[DP_VALUES];
    float first[DP_VALUES];
    float again[DP_VALUES];
    float other[DP_VALUES];
    dunlin_error error = {0};
    dp_begin(&fixture);
    test_server_open(&fixture, keys, 0);
    dp_join_all(&fixture, devices, 4);
    dp_fill(update, 0.25F);
    (void)dp_contribute_all(devices, 4, update, 5);
    copy_state(&fixture, "open");
    dunlin__round_row row = fixture.server.round;
    row.state = DUNLIN_ROUND_CLOSING;
    row.reason = DUNLIN_CLOSE_DEADLINE;
    MUST(dunlin__private_begin_close(&fixture.server, &row, &error));
    MUST(dunlin__server_save_round(&fixture.server, &row, &error));
    fixture.server.round = row;
    copy_state(&fixture, "closing");
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.n_closed, 1, "%s", fixture.server.fault.text);
    test_read_model(&fixture, 2, first);
    test_server_close(&fixture);
    if (has_model) { /* its files were written, and no more */
        char line[512];
        (void)snprintf(line, sizeof line, "cp '%s'/state/models/000002.* '%s/closing/models/'",
                       fixture.folder, fixture.folder);
        cr_assert_eq(system(line), 0); /* NOLINT(concurrency-mt-unsafe,cert-env33-c) */
    }
    for (int i = 0; i < 2; i++) {
        swap_state(&fixture, "closing");
        test_server_open(&fixture, keys, 0);
        dunlin__server_tick(&fixture.server);
        cr_assert_eq(fixture.server.n_closed, 1, "%s", fixture.server.fault.text);
        test_read_model(&fixture, 2, again);
        cr_expect_eq(memcmp(first, again, sizeof first), 0, "the same draw");
        test_server_close(&fixture);
    }
    /* Before the close had begun there was no draw: another one is another release, of one run. */
    swap_state(&fixture, "open");
    test_server_open(&fixture, keys, 0);
    fixture.now_ms += 700000;
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.n_closed, 1, "%s", fixture.server.fault.text);
    test_read_model(&fixture, 2, other);
    cr_expect_neq(memcmp(first, other, sizeof first), 0, "another draw");
    dp_end(&fixture);
}

Test(dp_rounds, a_close_that_is_repeated_draws_nothing_anew)
{
    kill_in_close(DP("3", "4", "4", "\"noise\": 1"), false);
    kill_in_close(DP("3", "2", "4", "\"noise\": 1, \"sampling\": \"poisson\""), true);
    kill_in_close(DP("3", "4", "4", "\"noise\": 1, \"mechanism\": \"tree\""), true);
}

/* The model's file of the second round; false: there is none yet. */
static bool read_weights(const test_server *fixture, float *out_model)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/state/models/000002.weights", fixture->folder);
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return false;
    }
    cr_assert_eq(fread(out_model, sizeof(float), DP_VALUES, file), DP_VALUES, "it is whole");
    cr_assert_eq(fclose(file), 0);
    return true;
}

static int64_t clock_us(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Opens the state in another process, which is to close the round, and kills it there after a time;
 * below 0: not. Gives how long it lived. */
static int64_t close_and_kill(test_server *fixture, const char *keys, int64_t after_us)
{
    const int64_t began_us = clock_us();
    const pid_t child = fork();
    if (child == 0) {
        test_server_open(fixture, keys, 0);
        dunlin__server_tick(&fixture->server);
        _exit(0);
    }
    cr_assert_gt(child, 0);
    if (after_us >= 0) {
        struct timespec pause = {.tv_sec = after_us / 1000000,
                                 .tv_nsec = after_us % 1000000 * 1000};
        (void)nanosleep(&pause, NULL);
        (void)kill(child, SIGKILL);
    }
    cr_assert_eq(waitpid(child, NULL, 0), child);
    return clock_us() - began_us;
}

/* Whatever moment a kill comes at: what a round's file has said once it says for ever, and once the
 * seed is there no other is drawn. */
Test(dp_rounds, kills_at_any_moment_of_a_close)
{
    test_server fixture;
    test_device devices[4];
    float update[DP_VALUES];
    const char *keys = DP("3", "4", "4", "\"noise\": 1");
    const int n_kills = test_cases(24);
    int n_files = 0;
    dp_begin(&fixture);
    test_server_open(&fixture, keys, 0);
    dp_join_all(&fixture, devices, 4);
    dp_fill(update, 0.25F);
    cr_assert_eq(dp_contribute_all(devices, 4, update, 5), 4);
    test_server_close(&fixture);
    copy_state(&fixture, "open");
    const int64_t whole_us = close_and_kill(&fixture, keys, -1);
    for (int k = 0; k < n_kills; k++) {
        float left[DP_VALUES];
        float models[2][DP_VALUES];
        bool has_seed = false;
        swap_state(&fixture, "open");
        (void)close_and_kill(&fixture, keys, whole_us * (k + 1) / n_kills);
        const bool has_file = read_weights(&fixture, left);
        n_files += has_file ? 1 : 0;
        copy_state(&fixture, "killed");
        for (int i = 0; i < 2; i++) {
            swap_state(&fixture, "killed");
            test_server_open(&fixture, keys, 0);
            has_seed = fixture.server.n_closed > 0 || fixture.server.round.noise_seed.is_there;
            dunlin__server_tick(&fixture.server);
            cr_assert_eq(fixture.server.n_closed, 1, "%s", fixture.server.fault.text);
            cr_assert(read_weights(&fixture, models[i]));
            test_server_close(&fixture);
        }
        cr_expect(!has_file || has_seed, "nothing is made before its seed is kept");
        cr_expect(!has_file || memcmp(left, models[0], sizeof left) == 0, "kill %d", k);
        cr_expect_eq(memcmp(models[0], models[1], sizeof left) == 0, has_seed, "kill %d", k);
    }
    (void)printf("%d kills, %d of them with a model's file\n", n_kills, n_files);
    test_server_end(&fixture);
}

/* The seed is neither in the database nor in its log once the round is closed. */
Test(dp_rounds, seeds_are_wiped)
{
    test_server fixture;
    test_device devices[4];
    float update[DP_VALUES];
    dunlin_error error = {0};
    char line[768];
    char hex[2 * DUNLIN_ROUND_SEED_BYTES + 1];
    dp_begin(&fixture);
    test_server_open(&fixture, DP("3", "2", "4", "\"noise\": 1, \"sampling\": \"poisson\""), 0);
    dp_join_all(&fixture, devices, 4);
    dp_fill(update, 0.25F);
    (void)dp_contribute_all(devices, 4, update, 5);
    dunlin__round_row row = fixture.server.round;
    row.state = DUNLIN_ROUND_CLOSING;
    row.reason = DUNLIN_CLOSE_DEADLINE;
    MUST(dunlin__private_begin_close(&fixture.server, &row, &error));
    MUST(dunlin__server_save_round(&fixture.server, &row, &error));
    fixture.server.round = row;
    for (size_t i = 0; i < DUNLIN_ROUND_SEED_BYTES; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", row.noise_seed.bytes[i]);
    }
    (void)snprintf(line, sizeof line,
                   "cat '%s'/state/server.db* | od -An -v -tx1 | tr -d ' \\n' | grep -q %s",
                   fixture.folder, hex);
    cr_expect_eq(system(line), 0, "it is there"); /* NOLINT(concurrency-mt-unsafe,cert-env33-c) */
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.n_closed, 1, "%s", fixture.server.fault.text);
    cr_expect_neq(system(line), 0, "and is gone"); /* NOLINT(concurrency-mt-unsafe,cert-env33-c) */
    dp_end(&fixture);
}

/* ---- the tree ---- */

/* After four rounds the running sum has one node's noise, whose seed is the only one left. */
Test(dp_rounds, a_tree_takes_the_noise_of_nodes_away_again)
{
    test_server fixture;
    test_device devices[2];
    float model[DP_VALUES];
    dunlin_error error = {0};
    dp_begin(&fixture);
    const char *keys = DP("8", "2", "2", "\"noise\": 3, \"mechanism\": \"tree\"");
    test_server_open(&fixture, keys, 0);
    dp_join_all(&fixture, devices, 2);
    for (uint64_t round = 1; round <= 7; round++) {
        dp_close_round(&fixture);
        dunlin__noise noise;
        double sums[DP_VALUES] = {0};
        size_t n_seeds = 0;
        for (uint64_t r = 1; r <= round; r++) {
            const dunlin__round_row *row = &fixture.server.closed[r - 1];
            if (row->noise_seed.is_there) {
                MUST(dunlin__noise_make(&noise, DP_CLIP, 3, DP_VALUES, &error));
                memcpy(noise.nodes[0].seed, row->noise_seed.bytes, DUNLIN_SEED_BYTES);
                noise.n_nodes = 1;
                n_seeds++;
                for (uint64_t i = 0; i < DP_VALUES; i++) {
                    sums[i] += dunlin__noise_draw(&noise, i) / 2;
                }
            }
        }
        static const size_t n_nodes[] = {0, 1, 1, 2, 1, 2, 2, 3};
        cr_expect_eq(n_seeds, n_nodes[round], "round %d: %zu nodes", (int)round, n_seeds);
        test_read_model(&fixture, round + 1, model);
        for (int i = 0; i < DP_VALUES; i++) {
            cr_expect_float_eq(model[i], (float)sums[i], 1e-5F, "round %d, value %d: %g, %g",
                               (int)round, i, (double)model[i], sums[i]);
        }
        if (round == 5) { /* what the state keeps is enough */
            test_server_close(&fixture);
            test_server_open(&fixture, keys, 0);
        }
    }
    dp_close_round(&fixture);
    for (int r = 0; r < 8; r++) {
        cr_expect(!fixture.server.closed[r].noise_seed.is_there, "the run is over");
    }
    dp_end(&fixture);
}
