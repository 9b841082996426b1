/*
 * test_select.c - whom a round asks by what devices reported: the arithmetic beside small hand
 * computations, and what a server makes of it with known clients and with unknown ones.
 */
#include "rounds/ahead.h"
#include "rounds/profile.h"
#include "rounds/select.h"
#include "server/device.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

/* ---- the arithmetic ---- */

Test(select, utility_is_its_formula)
{
    const dunlin__reported one = {.round = 4, .loss = 2, .n_examples = 10, .took_ms = 100};
    cr_expect_eq(dunlin__select_useful(&one), 20);
    cr_expect_float_eq(dunlin__select_utility(&one, 1, 40, 0, 2), 0.5, 1e-15, "ln 1 is 0");
    /* sqrt(0.1 x 4.605170 / 4) = 0.339307 */
    cr_expect_float_eq(dunlin__select_utility(&one, 100, 40, 0, 2), 0.839307, 1e-6);
    cr_expect_float_eq(dunlin__select_utility(&one, 1, 10, 0, 2), 1, 1e-15, "it is capped");
    cr_expect_float_eq(dunlin__select_utility(&one, 1, 40, 100, 2), 0.5, 1e-15, "just in time");
    cr_expect_float_eq(dunlin__select_utility(&one, 1, 40, 50, 2), 0.125, 1e-15, "twice too slow");
    cr_expect_float_eq(dunlin__select_utility(&one, 1, 40, 50, 0), 0.5, 1e-15);
    cr_expect_float_eq(dunlin__select_utility(&one, 1, 0, 0, 2), 0, 0.0, "nobody is of use");
    const dunlin__reported gain = {.round = 1, .loss = -3, .n_examples = 10};
    cr_expect_eq(dunlin__select_useful(&gain), 0);
}

/* By hand, with windows of two rounds: 10 + 8 against 9 + 9 is no less, 8 + 9 against 9 + 5 is, and
 * so is 9 + 9 against 5 + 4. */
Test(select, the_pacer_gives_slow_devices_time_when_rounds_bring_less)
{
    const double useful[] = {10, 8, 9, 9, 5, 4};
    cr_expect_eq(dunlin__select_paced_ms(useful, 0, 2, 100, 7, 1000), 100);
    cr_expect_eq(dunlin__select_paced_ms(useful, 3, 2, 100, 7, 1000), 100, "too few rounds");
    cr_expect_eq(dunlin__select_paced_ms(useful, 4, 2, 100, 7, 1000), 100, "18 against 18");
    cr_expect_eq(dunlin__select_paced_ms(useful, 5, 2, 100, 7, 1000), 107);
    cr_expect_eq(dunlin__select_paced_ms(useful, 6, 2, 100, 7, 1000), 114);
    cr_expect_eq(dunlin__select_paced_ms(useful, 6, 2, 100, 7, 110), 110, "the deadline");
    cr_expect_eq(dunlin__select_paced_ms(useful, 6, 3, 100, 7, 1000), 107, "27 against 18");
    cr_expect_eq(dunlin__select_paced_ms(useful, 6, 4, 100, 7, 1000), 100);
}

Test(select, quantiles_are_of_the_nearest_rank)
{
    double four[] = {4, 1, 3, 2};
    cr_expect_eq(dunlin__select_quantile(four, 4, 0.5), 2);
    cr_expect_eq(dunlin__select_quantile(four, 4, 0.75), 3);
    cr_expect_eq(dunlin__select_quantile(four, 4, 0.95), 4);
    cr_expect_eq(dunlin__select_quantile(four, 4, 0), 1);
    cr_expect_eq(dunlin__select_quantile(four, 0, 0.5), 0);
}

Test(select, fewer_are_new_from_round_to_round)
{
    const dunlin__server_selection terms = {.explore = 0.9, .decay = 0.98, .least = 0.2};
    cr_expect_float_eq(dunlin__select_explore(&terms, 1), 0.9, 1e-15);
    cr_expect_float_eq(dunlin__select_explore(&terms, 3), 0.86436, 1e-12);
    cr_expect_float_eq(dunlin__select_explore(&terms, 500), 0.2, 1e-15);
    cr_expect_eq(dunlin__select_n_new(0.5, 10, 100, 100), 5);
    cr_expect_eq(dunlin__select_n_new(0.5, 10, 3, 100), 3);
    cr_expect_eq(dunlin__select_n_new(0.5, 10, 100, 2), 8);
    cr_expect_eq(dunlin__select_n_new(0, 10, 100, 100), 0);
}

/* 1 and 0.96 are within 95 % of the best, 0.5 is not; the draw goes by the ratio of the two. */
Test(select, by_utility_the_best_are_drawn)
{
    int n_first = 0;
    for (uint64_t round = 0; round < 4000; round++) {
        const dunlin__select_entry all[] = {
            {.rank = dunlin__server_rank(1, round, 0), .utility = 1, .client_index = 0},
            {.rank = dunlin__server_rank(1, round, 1), .utility = 0.96, .client_index = 1},
            {.rank = dunlin__server_rank(1, round, 2), .utility = 0.5, .client_index = 2}};
        dunlin__select_entry entries[] = {all[0], all[1], all[2]};
        dunlin__select_entry turned[] = {all[2], all[1], all[0]};
        dunlin__select_by_utility(entries, 3, 1);
        dunlin__select_by_utility(turned, 3, 1);
        cr_assert_neq(entries[0].client_index, 2);
        cr_assert_eq(entries[0].client_index, turned[0].client_index);
        n_first += entries[0].client_index == 0 ? 1 : 0;
    }
    /* 4000 / 1.96 = 2040.8; six standard deviations are 190. */
    cr_expect(n_first > 1850 && n_first < 2232, "%d of 4000", n_first);
}

Test(select, tiers_are_of_equal_size)
{
    double times[10];
    double ends[5];
    for (int i = 0; i < 10; i++) {
        times[i] = i + 1;
    }
    dunlin__select_tiers(times, 10, 5, ends);
    const double wanted[] = {2, 4, 6, 8, 10};
    cr_expect_eq(memcmp(ends, wanted, sizeof ends), 0);
    cr_expect_eq(dunlin__select_tier_of(2, ends, 5), 0);
    cr_expect_eq(dunlin__select_tier_of(5, ends, 5), 2);
    cr_expect_eq(dunlin__select_tier_of(11, ends, 5), 4);
    const double weights[] = {1, 0, 3};
    cr_expect_eq(dunlin__select_draw_tier(weights, 3, 0.2), 0);
    cr_expect_eq(dunlin__select_draw_tier(weights, 3, 0.25), 2);
    cr_expect_eq(dunlin__select_draw_tier(weights, 3, 0.999), 2);
    const double none[] = {0, 0, 0};
    cr_expect_eq(dunlin__select_draw_tier(none, 3, 0.5), 1);
}

/* ---- a server ---- */

static test_server fixture;
static test_device devices[12];

static dunlin__server_device *known(int d)
{
    return dunlin__devices_find_index(&fixture.server, d);
}

static void begin(const char *keys, int n)
{
    test_server_folder(&fixture);
    test_server_open(&fixture, keys, 0);
    for (int d = 0; d < n; d++) {
        test_device_make(&devices[d], &fixture);
        cr_assert_eq(test_enrol(&devices[d], d), 200);
    }
}

static void end(void)
{
    test_server_close(&fixture);
    test_server_end(&fixture);
}

static void report(int d, double loss, double took_ms)
{
    known(d)->reported =
        (dunlin__reported){.round = 1, .loss = loss, .n_examples = 10, .took_ms = took_ms};
    fixture.server.choice.round = 0;
}

static dunlin_v1_rejection_t ask(int d)
{
    dunlin__checkin_response answer;
    cr_assert_eq(test_checkin(&devices[d], &answer), 200);
    return answer.rejection;
}

#define START ", \"rounds\": 9, \"cohort\": 6, \"deadline_s\": 100"

Test(select, of_unknown_clients_those_of_less_use_wait)
{
    begin(START ", \"selection\": {\"kind\": \"utility\", \"decline\": 0.75, \"explore\": 0, "
                "\"explore_least\": 0}",
          6);
    for (int d = 0; d < 4; d++) {
        report(d, 1 + d, 1000);
    }
    cr_expect_eq(ask(0), DUNLIN_V1_REJECTION_ENOUGH_DEVICES);
    cr_expect_eq(ask(1), DUNLIN_V1_REJECTION_ENOUGH_DEVICES);
    cr_expect_eq(ask(2), DUNLIN_V1_REJECTION_NONE);
    cr_expect_eq(ask(3), DUNLIN_V1_REJECTION_NONE);
    cr_expect_eq(ask(4), DUNLIN_V1_REJECTION_ENOUGH_DEVICES, "none is new with explore 0");
    fixture.now_ms += 600; /* three of the waits that they were given */
    cr_expect_eq(ask(0), DUNLIN_V1_REJECTION_NONE);
    cr_expect_eq(ask(4), DUNLIN_V1_REJECTION_NONE);
    end();
}

Test(select, one_that_is_too_slow_waits_whatever_it_knows)
{
    begin(START ", \"selection\": {\"kind\": \"utility\", \"prefer_s\": 10}", 4);
    for (int d = 0; d < 4; d++) {
        report(d, 1 + d, d == 3 ? 100000 : 1000);
    }
    cr_expect_eq(ask(3), DUNLIN_V1_REJECTION_ENOUGH_DEVICES, "40 x (10 / 100)^2 is least");
    cr_expect_eq(ask(2), DUNLIN_V1_REJECTION_NONE);
    end();
}

/* It begins with a step; 10 x 3 before 10 x 2 makes another one, 10 x 2 before 10 x 2.5 none, and a
 * round of evaluation brings nothing. */
Test(select, the_pacer_goes_by_the_rounds_that_closed)
{
    static const double LOSSES[] = {3, 2, 2.5, 0};
    dunlin__round_row rows[4];
    begin(START ", \"selection\": {\"kind\": \"utility\", \"pacer_s\": 7, \"pacer_rounds\": 1}", 2);
    memset(rows, 0, sizeof rows);
    for (int i = 0; i < 4; i++) {
        rows[i].round = (uint64_t)i + 1;
        rows[i].weight_sum = 10;
        rows[i].metrics.is_there[DUNLIN_METRIC_LOSS] = true;
        rows[i].metrics.values[DUNLIN_METRIC_LOSS] = LOSSES[i];
        rows[i].is_evaluation = i == 3;
    }
    dunlin__round_row *kept = fixture.server.closed;
    const size_t n_kept = fixture.server.n_closed;
    fixture.server.closed = rows;
    for (size_t n = 1; n <= 4; n++) {
        fixture.server.n_closed = n;
        fixture.server.choice.round = 0;
        (void)dunlin__profile_is_welcome(&fixture.server, known(0), fixture.now_ms);
        cr_expect_eq(fixture.server.choice.prefer_ms, n == 1 ? 7000 : 14000, "%zu rounds", n);
    }
    fixture.server.closed = kept;
    fixture.server.n_closed = n_kept;
    end();
}

Test(select, too_little_is_known_at_first)
{
    begin(START ", \"selection\": {\"kind\": \"utility\", \"explore\": 0, \"explore_least\": 0}",
          2);
    cr_expect_eq(ask(0), DUNLIN_V1_REJECTION_NONE);
    report(0, 1, 1000);
    cr_expect_eq(ask(1), DUNLIN_V1_REJECTION_NONE);
    end();
}

Test(select, of_unknown_clients_one_tier_is_asked)
{
    begin(START ", \"selection\": {\"kind\": \"tiers\", \"tiers\": 3}", 8);
    for (int d = 0; d < 6; d++) {
        report(d, 1, 1000 * (1 + d));
    }
    int n_welcome = 0;
    for (int d = 0; d < 6; d++) {
        const bool is_welcome = ask(d) == DUNLIN_V1_REJECTION_NONE;
        n_welcome += is_welcome ? 1 : 0;
        cr_expect_eq(is_welcome, (uint32_t)d / 2 == fixture.server.choice.tier, "device %d", d);
    }
    cr_expect_eq(n_welcome, 2);
    cr_expect_eq(ask(7), DUNLIN_V1_REJECTION_NONE, "its time is not known yet");
    end();
}

/* Each round draws its tier; over some rounds all have their turn. */
Test(select, tiers_take_turns)
{
    begin(START ", \"selection\": {\"kind\": \"tiers\", \"tiers\": 3}", 6);
    uint32_t seen = 0;
    for (int d = 0; d < 6; d++) {
        report(d, 1, 1000 * (1 + d));
    }
    for (uint64_t round = 1; round <= 40; round++) {
        fixture.server.round.round = round;
        (void)dunlin__profile_is_welcome(&fixture.server, known(0), fixture.now_ms);
        seen |= UINT32_C(1) << fixture.server.choice.tier;
    }
    fixture.server.round.round = 1;
    cr_expect_eq(seen, 7);
    end();
}

/* Three tiers with losses 3, 1 and 2: of all the weights are 2, 0 and 1, without the first 0, 0, 1.
 */
Test(select, the_least_accurate_tiers_are_drawn_most)
{
    const double losses[] = {3, 1, 2};
    const double alike[] = {1, 1, 1};
    const bool all[] = {true, true, true};
    const bool two[] = {false, true, true};
    double weights[3];
    dunlin__select_change_tiers(losses, all, 3, weights);
    cr_expect(weights[0] == 2 && weights[1] == 0 && weights[2] == 1);
    dunlin__select_change_tiers(losses, two, 3, weights);
    cr_expect(weights[0] == 0 && weights[1] == 0 && weights[2] == 1);
    dunlin__select_change_tiers(alike, all, 3, weights);
    cr_expect(weights[0] == 2 && weights[1] == 1 && weights[2] == 0, "the faster first");
}

/* A round that is over, with so many updates, and the next one. */
static uint32_t next_tier(dunlin__round_row *rows, uint64_t round, uint64_t n_participants)
{
    rows[round - 2] = (dunlin__round_row){.round = round - 1, .n_participants = n_participants};
    fixture.server.closed = rows;
    fixture.server.n_closed = round - 1;
    fixture.server.round.round = round;
    (void)dunlin__profile_is_welcome(&fixture.server, known(0), fixture.now_ms);
    return fixture.server.choice.tier;
}

Test(select, tiers_have_as_many_rounds_as_credits)
{
    dunlin__round_row rows[16];
    uint32_t n_asked[3] = {0};
    begin(START ", \"selection\": {\"kind\": \"tiers\", \"tiers\": 3, \"credits\": [4, 0, 2]}", 6);
    dunlin__round_row *kept = fixture.server.closed;
    for (int d = 0; d < 6; d++) {
        report(d, 1, 1000 * (1 + d));
    }
    (void)dunlin__profile_is_welcome(&fixture.server, known(0), fixture.now_ms);
    n_asked[fixture.server.choice.tier]++;
    for (uint64_t round = 2; round <= 6; round++) {
        n_asked[next_tier(rows, round, 3)]++;
    }
    cr_expect(n_asked[0] == 4 && n_asked[1] == 0 && n_asked[2] == 2, "%u, %u, %u", n_asked[0],
              n_asked[1], n_asked[2]);
    (void)next_tier(rows, 7, 0); /* that of round 6 had nobody, and gives its credit back */
    cr_expect_eq(fixture.server.tiers.n_asked[0] + fixture.server.tiers.n_asked[2], 5);
    fixture.server.closed = kept;
    fixture.server.n_closed = 0;
    fixture.server.round.round = 1;
    end();
}

/* Every second round it is looked whether the tier of the last is more accurate than before. */
Test(select, tiers_are_drawn_anew_when_the_last_is_no_better)
{
    dunlin__round_row rows[16];
    begin(START ", \"selection\": {\"kind\": \"tiers\", \"tiers\": 3, \"interval\": 2}", 6);
    dunlin__round_row *kept = fixture.server.closed;
    for (int d = 0; d < 6; d++) {
        report(d, 5 - d / 2, 1000 * (1 + d));
    }
    (void)next_tier(rows, 2, 3);
    cr_expect(!fixture.server.tiers.has_weights, "nothing to hold it against");
    for (int d = 0; d < 6; d++) {
        report(d, 4 - d / 2, 1000 * (1 + d));
    }
    (void)next_tier(rows, 4, 3);
    cr_expect(!fixture.server.tiers.has_weights, "all are better");
    (void)next_tier(rows, 5, 3);
    cr_expect(!fixture.server.tiers.has_weights, "it is not looked yet");
    (void)next_tier(rows, 6, 3);
    cr_expect(fixture.server.tiers.has_weights, "none is better");
    cr_expect(fixture.server.tiers.weights[0] == 2 && fixture.server.tiers.weights[2] == 0);
    cr_expect_neq(fixture.server.choice.tier, 2, "the most accurate is not drawn");
    fixture.server.closed = kept;
    fixture.server.n_closed = 0;
    fixture.server.round.round = 1;
    end();
}

static void choose(void)
{
    dunlin_error error = {0};
    cr_assert_eq(dunlin__server_choose_cohort(&fixture.server, &error), DUNLIN_OK, "%s",
                 error.text);
    uint32_t n = 0;
    for (uint32_t i = 0; i < fixture.server.task.n_clients; i++) {
        n += fixture.server.in_cohort[i] ? 1 : 0;
    }
    cr_expect_eq(n, 2);
    cr_expect_eq(fixture.server.n_in_cohort, 2);
}

#define KNOWN ", \"rounds\": 9, \"cohort\": 2, \"clients\": 6"

Test(select, of_known_clients_the_useful_are_the_cohort)
{
    begin(KNOWN ", \"selection\": {\"kind\": \"utility\", \"explore\": 0.5}", 6);
    choose(); /* nobody has reported: any two */
    for (int d = 0; d < 4; d++) {
        report(d, d == 2 ? 9 : 1, 1000);
    }
    choose();
    cr_expect(fixture.server.in_cohort[2], "the most useful");
    cr_expect(fixture.server.in_cohort[4] || fixture.server.in_cohort[5], "and a new one");
    end();
}

Test(select, of_known_clients_a_tier_is_the_cohort)
{
    begin(KNOWN ", \"selection\": {\"kind\": \"tiers\", \"tiers\": 3}", 6);
    for (int d = 0; d < 4; d++) {
        report(d, 1, 1000 * (1 + d));
    }
    choose();
    cr_expect(fixture.server.in_cohort[4] && fixture.server.in_cohort[5], "new ones first");
    report(4, 1, 5000);
    report(5, 1, 6000);
    choose();
    const uint32_t tier = fixture.server.choice.tier;
    cr_expect(fixture.server.in_cohort[2 * tier] && fixture.server.in_cohort[2 * tier + 1]);
    end();
}

/* What is known of a device comes of its commit, and is found again after a start. */
Test(select, reports_are_kept)
{
    const char *keys = ", \"rounds\": 9, \"cohort\": 2, \"deadline_s\": 100, "
                       "\"selection\": {\"kind\": \"utility\"}";
    const float update[10] = {1};
    begin(keys, 2);
    cr_assert(test_take_work(&devices[0]));
    cr_assert(test_take_work(&devices[1]));
    fixture.now_ms += 5000;
    cr_assert_eq(test_contribute(&devices[0], update, 7), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_expect_eq(known(0)->reported.took_ms, 5000);
    cr_expect_eq(known(0)->reported.n_examples, 7);
    cr_expect_eq(known(0)->reported.round, 1);
    fixture.now_ms += 200000;
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_expect_eq(known(1)->reported.took_ms, 0);
    (void)ask(1);
    cr_expect_eq(known(1)->reported.took_ms, 100000, "the deadline passed without it");
    cr_expect_eq(known(1)->reported.round, 0);
    test_server_close(&fixture);
    test_server_open(&fixture, keys, 0);
    cr_expect_eq(known(0)->reported.round, 1);
    cr_expect_eq(known(0)->reported.n_examples, 7);
    end();
}

#define REFUSED(keys, words)                                                                       \
    do {                                                                                           \
        dunlin_error error = {0};                                                                  \
        const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);                                 \
        dunlin__server_task task;                                                                  \
        const char *path = test_server_write(                                                      \
            &fixture, "task.json",                                                                 \
            "{\"population\": \"p\", \"task\": \"t\", \"rounds\": 2, \"cohort\": 2, \"model\": "   \
            "\"lenet5\", \"selection\": " keys "}");                                               \
        cr_expect_eq(dunlin__server_task_read(path, &alloc, &task, &error), DUNLIN_DATA, "%s",     \
                     keys);                                                                        \
        cr_expect_not_null(strstr(error.text, words), "%s", error.text);                           \
    } while (0)

Test(select, what_it_cannot_be_is_refused_by_name)
{
    test_server_folder(&fixture);
    REFUSED("{}", "kind");
    REFUSED("{\"kind\": \"speed\"}", "selection.kind speed: wants utility or tiers");
    REFUSED("{\"kind\": \"tiers\", \"tiers\": 1}", "tiers");
    REFUSED("{\"kind\": \"tiers\", \"decline\": 0.5}", "selection.decline does not go with");
    REFUSED("{\"kind\": \"utility\", \"tiers\": 5}", "selection.tiers does not go with");
    REFUSED("{\"kind\": \"utility\", \"explore\": 1.5}", "explore");
    REFUSED("{\"kind\": \"utility\", \"credits\": [1]}", "selection.credits does not go with");
    REFUSED("{\"kind\": \"utility\", \"pacer_s\": -1}", "pacer_s");
    REFUSED("{\"kind\": \"utility\", \"pacer_rounds\": 0}", "pacer_rounds");
    REFUSED("{\"kind\": \"tiers\", \"pacer_s\": 1}", "selection.pacer_s does not go with");
    REFUSED("{\"kind\": \"tiers\", \"tiers\": 2, \"credits\": [1]}", "wants a list of 2 numbers");
    REFUSED("{\"kind\": \"tiers\", \"tiers\": 2, \"credits\": 7}", "wants a list of 2 numbers");
    REFUSED("{\"kind\": \"tiers\", \"tiers\": 2, \"credits\": [1, -1]}", "credits, entry 1");
    REFUSED("{\"kind\": \"tiers\", \"tiers\": 2, \"credits\": [1.5, 1]}", "credits, entry 0");
    REFUSED("{\"kind\": \"tiers\", \"interval\": -1}", "interval");
    REFUSED("{\"kind\": \"utility\"}, \"dp\": {\"clip\": 1, \"noise\": 1, \"delta\": 1e-5, "
            "\"population\": 1000, \"sampling\": \"arrival\"}",
            "selection");
    test_server_end(&fixture);
}
