/*
 * test_crash.c - a device and the real server, killed and cut from power at operations on their
 * files and at any time: every round ends with one contribution and the model of the undisturbed
 * run, to the bit. A few dozen in the normal run; with DUNLIN_CRASH_LONG every operation.
 */
#include "crash_model.h"
#include "crash_world.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(crash, .timeout = 7200);

static crash_world undisturbed;
static crash_world world;
static uint64_t models[CRASH_MAX_ROUNDS + 2];   /* of `world` */
static uint64_t expected[CRASH_MAX_ROUNDS + 2]; /* of `undisturbed` */

static void begin(void)
{
    crash_world_begin(&world);
    cr_assert_str_eq(world.complaint, "");
    crash_world_begin(&undisturbed);
    cr_assert_str_eq(undisturbed.complaint, "");
}

static void close_worlds(void)
{
    crash_world_end(&world);
    crash_world_end(&undisturbed);
}

/* All rounds have closed with one contribution, and their models are those of as many rounds that
 * nobody disturbed. */
static void end(void)
{
    cr_assert(crash_world_check_rounds(&world), "%s", world.complaint);
    cr_assert(crash_world_undisturbed(&undisturbed, world.round, expected), "%s",
              undisturbed.complaint);
    for (int round = 2; round <= world.round + 1; round++) {
        cr_assert(models[round] != 0 && models[round] == expected[round],
                  "another model before round %d of %d: see %s", round, world.round + 1,
                  world.folder);
    }
    (void)fprintf(stderr, "crash: %d rounds, each counted once, the models of an undisturbed run\n",
                  world.round);
    close_worlds();
}

static bool is_long(void)
{
    const char *text = getenv("DUNLIN_CRASH_LONG");
    return text != NULL && text[0] == '1';
}

static void expect_round(const char *what, const crash_plan *device, const crash_plan *server)
{
    static const crash_plan NONE = {.how = CRASH_KILL};
    const crash_plan *plan = device != NULL ? device : (server != NULL ? server : &NONE);
    cr_assert_lt(world.round, CRASH_MAX_ROUNDS);
    cr_assert(crash_world_round(&world, device, server), "%s at %ld, %d, %lld us: %s", what,
              plan->at, plan->how, (long long)plan->us, world.complaint);
    models[world.round + 1] = crash_world_model(&world, world.round + 1);
}

/* Operations of an undisturbed round of the device, and of a server that is started for one. */
static long device_operations(void)
{
    expect_round("undisturbed", NULL, NULL);
    expect_round("undisturbed", NULL, NULL);
    return world.n_operations;
}

static long server_operations(void)
{
    static const crash_plan COUNTED = {.how = CRASH_KILL};
    expect_round("undisturbed", NULL, NULL);
    expect_round("undisturbed", NULL, &COUNTED);
    return crash_world_server_operations(&world);
}

/* Points of a series: all of them, or n_few spread over all. */
static long point(long i, long n_few, long n_all)
{
    return is_long() ? i + 1 : 1 + (i * n_all + n_all / 2) / n_few;
}

static long n_points(long n_few, long n_all)
{
    return is_long() ? n_all : n_few;
}

static void print_series(const char *what, long n_plans, int n_ends)
{
    (void)fprintf(stderr, "crash: %s: %ld points, %d ends\n", what, n_plans, n_ends);
}

/* One kind of power loss alone, by its number, if the environment asks for it. */
static bool is_wanted(int how)
{
    const char *text = getenv("DUNLIN_CRASH_HOW");
    return text == NULL || strtol(text, NULL, 10) == how;
}

/* The first round of a device too, with enrolment and the making of the database: its store is
 * removed before, so that it enrols with the same invitation again. */
static void forget_device(void)
{
    char command[256];
    (void)snprintf(command, sizeof command, "rm -rf %s/store", world.device);
    cr_assert_eq(system(command), 0);
    world.has_model = false;
}

Test(crash, a_device_killed_at_its_operations)
{
    begin();
    long n_all = device_operations();
    cr_assert_gt(n_all, 50);
    int n_before = world.n_ends;
    long n = n_points(16, n_all);
    for (long i = 0; i < n; i++) {
        crash_plan plan = {.at = point(i, n, n_all), .how = CRASH_KILL};
        expect_round("killed", &plan, NULL);
    }
    cr_expect_geq(world.n_ends - n_before, n * 9 / 10);
    print_series("device killed", n, world.n_ends - n_before);
    n_before = world.n_ends;
    n = n_points(4, n_all);
    for (long i = 0; i < n; i++) {
        crash_plan plan = {.at = point(i, n, n_all), .how = CRASH_KILL};
        forget_device();
        expect_round("a new device killed", &plan, NULL);
    }
    print_series("new device killed", n, world.n_ends - n_before);
    end();
}

Test(crash, the_power_of_a_device_fails)
{
    begin();
    long n_all = device_operations();
    for (int how = CRASH_DROP; how <= CRASH_TEAR; how++) {
        int n_before = world.n_ends;
        long n = is_wanted(how) ? n_points(3, n_all) : 0;
        for (long i = 0; i < n; i++) {
            crash_plan plan = {
                .at = point(i, n, n_all), .how = how, .seed = (uint64_t)(i * 4 + how)};
            if (how == CRASH_DROP || i % 4 == 3) {
                forget_device();
            }
            expect_round("power lost", &plan, NULL);
        }
        static const char *const NAMES[] = {"unsynced lost", "names kept", "data kept", "torn"};
        print_series(NAMES[how], n, world.n_ends - n_before);
    }
    end();
}

/* The same with an example store beside the journal: what a round trains on is chosen once, and is
 * the same after whatever comes between. A new device fills its store first. */
Test(crash, a_device_with_an_example_store)
{
    cr_assert_eq(setenv("CRASH_EXAMPLES", "1", 1), 0);
    begin();
    long n_all = device_operations();
    int n_before = world.n_ends;
    long n = n_points(10, n_all);
    for (long i = 0; i < n; i++) {
        crash_plan plan = {.at = point(i, n, n_all), .how = CRASH_KILL};
        expect_round("killed", &plan, NULL);
    }
    print_series("device with an example store killed", n, world.n_ends - n_before);
    n_before = world.n_ends;
    n = n_points(3, n_all);
    for (long i = 0; i < n; i++) {
        crash_plan plan = {.at = point(i, n, n_all), .how = CRASH_KILL};
        forget_device();
        expect_round("a new device killed", &plan, NULL);
    }
    print_series("the same, new, killed", n, world.n_ends - n_before);
    n_before = world.n_ends;
    n = n_points(2, n_all);
    for (int how = CRASH_DROP; how <= CRASH_TEAR; how++) {
        for (long i = 0; i < n; i++) {
            crash_plan plan = {
                .at = point(i, n, n_all), .how = how, .seed = (uint64_t)(i * 4 + how)};
            expect_round("power lost", &plan, NULL);
        }
    }
    print_series("the same, cut from power", 4 * n, world.n_ends - n_before);
    end();
    cr_assert_eq(unsetenv("CRASH_EXAMPLES"), 0);
}

/* Updates that are clipped, packed and fed back, and models that come down packed or as deltas:
 * what a round leaves for the next one is neither lost nor added twice, and nothing is drawn anew,
 * or the models would differ. */
Test(crash, a_device_that_packs_with_feedback)
{
    cr_assert_eq(setenv("CRASH_PACKED", "1", 1), 0);
    begin();
    long n_all = device_operations();
    int n_before = world.n_ends;
    long n = n_points(12, n_all);
    for (long i = 0; i < n; i++) {
        crash_plan plan = {.at = point(i, n, n_all), .how = CRASH_KILL};
        expect_round("killed", &plan, NULL);
    }
    cr_expect_geq(world.n_ends - n_before, n * 9 / 10);
    print_series("device that packs killed", n, world.n_ends - n_before);
    n_before = world.n_ends;
    n = n_points(2, n_all);
    for (int how = CRASH_DROP; how <= CRASH_TEAR; how++) {
        for (long i = 0; i < n; i++) {
            crash_plan plan = {
                .at = point(i, n, n_all), .how = how, .seed = (uint64_t)(i * 4 + how)};
            expect_round("power lost", &plan, NULL);
        }
    }
    print_series("the same, cut from power", 4 * n, world.n_ends - n_before);
    n = n_points(3, n_all);
    n_before = world.n_ends;
    for (long i = 0; i < n; i++) {
        crash_plan plan = {.at = point(i, n, n_all), .how = CRASH_KILL};
        expect_round("the server killed", NULL, &plan);
    }
    print_series("its server killed", n, world.n_ends - n_before);
    end();
    cr_assert_eq(unsetenv("CRASH_PACKED"), 0);
}

/* A round in int8: resumed from its journal and checkpoint it goes on in integers, its base is
 * rounded by the same draws, and the same bytes go up, or the models would differ. */
Test(crash, a_device_in_integers)
{
    cr_assert_eq(setenv("CRASH_INTEGERS", "1", 1), 0);
    begin();
    long n_all = device_operations();
    int n_before = world.n_ends;
    long n = n_points(12, n_all);
    for (long i = 0; i < n; i++) {
        crash_plan plan = {.at = point(i, n, n_all), .how = CRASH_KILL};
        expect_round("killed", &plan, NULL);
    }
    cr_expect_geq(world.n_ends - n_before, n * 9 / 10);
    print_series("device in integers killed", n, world.n_ends - n_before);
    end();
    cr_assert_eq(unsetenv("CRASH_INTEGERS"), 0);
}

Test(crash, the_server_killed_at_its_operations)
{
    begin();
    long n_all = server_operations();
    cr_assert_gt(n_all, 20);
    int n_before = world.n_ends;
    long n = n_points(8, n_all);
    for (long i = 0; i < n; i++) {
        crash_plan plan = {.at = point(i, n, n_all), .how = CRASH_KILL};
        expect_round("server killed", NULL, &plan);
    }
    print_series("server killed", n, world.n_ends - n_before);
    end();
}

Test(crash, the_power_of_the_server_fails)
{
    begin();
    long n_all = server_operations();
    for (int how = CRASH_DROP; how <= CRASH_TEAR; how++) {
        int n_before = world.n_ends;
        long n = is_wanted(how) ? n_points(1, n_all) : 0;
        for (long i = 0; i < n; i++) {
            crash_plan plan = {
                .at = point(i, n, n_all), .how = how, .seed = (uint64_t)(i * 4 + how)};
            expect_round("server's power lost", NULL, &plan);
        }
        static const char *const NAMES[] = {"server: unsynced lost", "server: names kept",
                                            "server: data kept", "server: torn"};
        print_series(NAMES[how], n, world.n_ends - n_before);
    }
    end();
}

Test(crash, killed_at_any_time)
{
    uint64_t random = 88172645463325252ULL;
    begin();
    (void)device_operations();
    int n = is_long() ? 500 : 8;
    for (int i = 0; i < n; i++) {
        random ^= random << 13; /* Marsaglia's xorshift */
        random ^= random >> 7;
        random ^= random << 17;
        crash_plan plan = {.how = CRASH_KILL, .us = 1 + (int64_t)(random % 150000)};
        bool is_server = i % 4 == 3;
        expect_round("killed", is_server ? NULL : &plan, is_server ? &plan : NULL);
    }
    print_series("at random times", n, world.n_ends);
    end();
}

static bool is_as_undisturbed(uint64_t model)
{
    cr_assert(crash_world_undisturbed(&undisturbed, world.round - undisturbed.round, expected),
              "%s", undisturbed.complaint);
    return model == expected[world.round + 1];
}

/* The test of the test: a sync that is left out is seen, which no kill could show. */
Test(crash, a_sync_that_is_left_out_is_seen)
{
    static const struct {
        const char *what;
        crash_loss how;
    } SYNCS[] = {{"update.bin", CRASH_KEEP_NAMES},
                 {"update.manifest", CRASH_KEEP_NAMES},
                 {"folder:round-", CRASH_KEEP_DATA},
                 {"base.bin", CRASH_KEEP_NAMES}};
    size_t n = is_long() ? sizeof SYNCS / sizeof SYNCS[0] : 1;
    for (size_t k = 0; k < n; k++) {
        begin();
        long n_all = device_operations();
        long at = n_all;
        world.max_round_ms = 4000;
        bool is_seen = false;
        while (at > n_all / 2 && !is_seen) {
            crash_plan plan = {.at = at--, .how = (int)SYNCS[k].how, .forget = SYNCS[k].what};
            is_seen = !crash_world_round(&world, &plan, NULL) ||
                      !is_as_undisturbed(crash_world_model(&world, world.round + 1));
        }
        cr_expect(is_seen, "no power loss shows that syncs of %s are left out", SYNCS[k].what);
        (void)fprintf(stderr, "crash: left-out syncs of %s: seen at operation %ld of %ld\n",
                      SYNCS[k].what, at + 1, n_all);
        world.complaint[0] = '\0';
        close_worlds();
    }
}
