/*
 * test_buffered.c - rounds that overlap: whose update counts in which round and for how much, what
 * is too old or too late, what a restart finds, and what does not go with it.
 */
#include "rounds/buffered.h"
#include "server/device.h"
#include "server/must.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <string.h>

#define N_VALUES 10
#define KEYS                                                                                       \
    ", \"rounds\": 20, \"cohort\": 2, \"over_select\": 2, \"deadline_s\": 100, "                   \
    "\"buffered\": {\"max_staleness\": 1, \"exponent\": 1}"

static test_server fixture;
static test_device devices[6];

static void begin(void)
{
    test_server_folder(&fixture);
    test_server_open(&fixture, KEYS, 0);
}

static void end(void)
{
    test_server_close(&fixture);
    test_server_end(&fixture);
}

static void start_again(void)
{
    test_server_close(&fixture);
    test_server_open(&fixture, KEYS, 0);
}

/* An update of one value all over. */
static dunlin_v1_commit_outcome_t give(int d, float value, uint64_t n_examples)
{
    float update[N_VALUES];
    for (int i = 0; i < N_VALUES; i++) {
        update[i] = value;
    }
    return test_contribute(&devices[d], update, n_examples);
}

static void expect_model(uint64_t round, float wanted)
{
    float found[N_VALUES];
    test_read_model(&fixture, round, found);
    for (int i = 0; i < N_VALUES; i++) {
        cr_expect_float_eq((double)found[i], (double)wanted, 1e-6, "round %d, value %d", (int)round,
                           i);
    }
}

/* Four work on the first base; the second round opens with the updates of two of them. */
static void make_second_round(void)
{
    for (int d = 0; d < 4; d++) {
        test_join(&devices[d], &fixture, d);
        cr_expect_eq(devices[d].assignment.aggregation, DUNLIN_V1_AGGREGATION_BUFFERED);
    }
    cr_assert_eq(give(0, 1.0F, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(give(1, 3.0F, 3), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    expect_model(2, 2.5F); /* (1 x 1 + 3 x 3) / 4 */
    const dunlin__round_row *row = &fixture.server.closed[0];
    cr_expect_eq(row->n_dropped, 0, "who goes on working is not dropped");
    cr_expect_eq(row->reason, DUNLIN_CLOSE_GOAL);
}

static dunlin__part_counts count(void)
{
    return dunlin__server_count_parts(&fixture.server, fixture.now_ms);
}

Test(buffered, a_stale_update_counts_for_less)
{
    begin();
    make_second_round();
    cr_expect_eq(count().n_assigned, 2);
    cr_assert_eq(give(2, 4.0F, 3), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert(test_take_work(&devices[0]), "it has given to the round before");
    cr_assert_eq(give(0, 8.0F, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 3);
    expect_model(3, 2.5F + 3.5F); /* (3 x 4 / 2 + 1 x 8) / (3 + 1) */
    cr_expect_float_eq(fixture.server.closed[1].weight_sum, 4.0, 0.0);
    end();
}

Test(buffered, the_factor_is_its_formula)
{
    dunlin__server_task task = {.buffered = {.is_on = true, .exponent = 0.5}};
    cr_expect_float_eq(dunlin__buffered_factor(&task, 0), 1.0, 0.0);
    cr_expect_float_eq(dunlin__buffered_factor(&task, 3), 0.5, 1e-15);
    cr_expect_float_eq(dunlin__buffered_factor(&task, 8), 1.0 / 3.0, 1e-15);
    task.buffered.exponent = 0;
    cr_expect_float_eq(dunlin__buffered_factor(&task, 8), 1.0, 0.0);
}

Test(buffered, what_is_too_old_is_late_and_makes_place)
{
    begin();
    make_second_round();
    for (int d = 0; d < 2; d++) {
        cr_assert(test_take_work(&devices[d]));
        cr_assert_eq(give(d, 0.0F, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    }
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 3);
    dunlin__commit_response answer;
    devices[3].manifest_sha256[0] = 1; /* it has put nothing, but that is not looked at */
    cr_assert_eq(test_commit(&devices[3], 1, NULL, &answer), 200);
    cr_expect_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_LATE);
    cr_expect_str_eq(answer.text, "the base is older than max_staleness");
    dunlin__server_tick(&fixture.server);
    cr_expect_eq(count().n_assigned, 0);
    end();
}

Test(buffered, each_has_a_deadline_of_its_own)
{
    const float update[N_VALUES] = {1};
    dunlin__put_response put;
    begin();
    for (int d = 0; d < 3; d++) {
        test_join(&devices[d], &fixture, d);
        if (d == 0) {
            cr_assert_eq(test_put(&devices[d], update, &put), 200);
            test_send_chunks(&devices[d], update);
        }
        fixture.now_ms += 40000;
    }
    cr_expect_eq(fixture.server.round.deadline_ms, 0);
    dunlin__server_tick(&fixture.server);
    cr_expect_eq(count().n_assigned, 2, "the first had 100 s, and 120 are over");
    dunlin__commit_response answer;
    cr_assert_eq(test_commit(&devices[0], 1, NULL, &answer), 200);
    cr_expect_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_LATE);
    cr_expect_eq(give(1, 1.0F, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_expect_eq(fixture.server.round.round, 1);
    end();
}

Test(buffered, so_many_work_at_a_time_and_a_device_counts_once_a_round)
{
    dunlin__checkin_response answer;
    begin();
    for (int d = 0; d < 4; d++) {
        test_join(&devices[d], &fixture, d);
    }
    test_device_make(&devices[4], &fixture);
    cr_assert_eq(test_enrol(&devices[4], 4), 200);
    cr_assert_eq(test_checkin(&devices[4], &answer), 200);
    cr_expect_eq(answer.rejection, DUNLIN_V1_REJECTION_ENOUGH_DEVICES);
    cr_assert_eq(give(0, 1.0F, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(test_checkin(&devices[0], &answer), 200);
    cr_expect_eq(answer.rejection, DUNLIN_V1_REJECTION_NO_WORK);
    cr_expect(test_take_work(&devices[4]), "one is done, another may begin");
    end();
}

/* Between the goal and the close nothing is lost: the device comes again. */
Test(buffered, what_comes_while_a_round_closes_comes_again)
{
    begin();
    for (int d = 0; d < 3; d++) {
        test_join(&devices[d], &fixture, d);
    }
    cr_assert_eq(give(0, 1.0F, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(give(1, 1.0F, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    float update[N_VALUES] = {2.0F};
    dunlin__put_response put;
    dunlin__commit_response answer;
    cr_assert_eq(test_put(&devices[2], update, &put), 200);
    test_send_chunks(&devices[2], update);
    cr_expect_eq(test_commit(&devices[2], 1, NULL, &answer), 503);
    dunlin__server_tick(&fixture.server);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_expect_eq(test_commit(&devices[2], 1, NULL, &answer), 200, "%s", devices[2].status.text);
    cr_expect_eq(answer.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_expect_eq(count().n_accepted, 1);
    end();
}

/* After a start the same work is taken, and weighs the same. */
Test(buffered, a_restart_changes_nothing)
{
    begin();
    make_second_round();
    start_again();
    cr_expect_eq(fixture.server.round.round, 2);
    cr_expect_eq(count().n_assigned, 2);
    cr_expect_eq(count().n_accepted, 0);
    dunlin__checkin_response answer;
    for (int d = 0; d < 4; d++) {
        devices[d].counter = 0; /* challenges live in memory */
        cr_assert_eq(test_enrol(&devices[d], d), 200);
    }
    cr_assert_eq(give(2, 4.0F, 3), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    start_again();
    cr_expect_eq(count().n_assigned, 1);
    cr_expect_eq(count().n_accepted, 1);
    for (int d = 0; d < 4; d++) {
        devices[d].counter = 0;
        cr_assert_eq(test_enrol(&devices[d], d), 200);
    }
    cr_assert_eq(test_checkin(&devices[2], &answer), 200);
    cr_expect_eq(answer.rejection, DUNLIN_V1_REJECTION_NO_WORK, "it has given to this round");
    cr_assert(test_take_work(&devices[0]));
    cr_assert_eq(give(0, 8.0F, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    expect_model(3, 6.0F);
    end();
}

/* As many bases as updates may be stale, and never fewer than three. */
Test(buffered, bases_are_kept_as_long_as_they_may_be_wanted)
{
    dunlin__server server = {.task = {.buffered = {.is_on = true, .max_staleness = 7}}};
    cr_expect_eq(dunlin__server_n_models(&server), 8);
    server.task.buffered.max_staleness = 1;
    cr_expect_eq(dunlin__server_n_models(&server), 3);
    server.task.buffered.max_staleness = 7;
    server.task.buffered.is_on = false;
    cr_expect_eq(dunlin__server_n_models(&server), 3);
}

#define REFUSED(keys, words)                                                                       \
    do {                                                                                           \
        dunlin_error error = {0};                                                                  \
        const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);                                 \
        dunlin__server_task task;                                                                  \
        const char *path = test_server_write(                                                      \
            &fixture, "task.json",                                                                 \
            "{\"population\": \"p\", \"task\": \"t\", \"rounds\": 2, \"cohort\": 2, \"model\": "   \
            "\"lenet5\", " keys "}");                                                              \
        cr_expect_eq(dunlin__server_task_read(path, &alloc, &task, &error), DUNLIN_DATA, "%s",     \
                     keys);                                                                        \
        cr_expect_not_null(strstr(error.text, words), "%s", error.text);                           \
    } while (0)

Test(buffered, what_does_not_go_with_it_is_refused_by_name)
{
    test_server_folder(&fixture);
    REFUSED("\"buffered\": {}, \"clients\": 4", "clients, which are known");
    REFUSED("\"buffered\": {}, \"evaluate_every\": 2", "evaluate_every");
    REFUSED("\"buffered\": {}, \"strategy\": \"median\"", "strategy median");
    REFUSED("\"buffered\": {}, \"strategy\": \"trimmed_mean\"", "strategy trimmed_mean");
    REFUSED("\"buffered\": {}, \"update_form\": \"weights\"", "update_form weights");
    REFUSED("\"buffered\": {}, \"rollback\": 0.1", "rollback");
    REFUSED("\"buffered\": {}, \"algorithm\": \"scaffold\"", "scaffold");
    REFUSED("\"buffered\": {}, \"plan\": {\"clip_norm\": 1, \"clip_quantile\": 0.5}",
            "clip_quantile");
    REFUSED("\"buffered\": {}, \"dp\": {\"clip\": 1, \"noise\": 1, \"delta\": 1e-5, "
            "\"population\": 1000, \"sampling\": \"arrival\"}",
            "buffered");
    REFUSED("\"buffered\": {\"max_staleness\": 33}", "max_staleness");
    REFUSED("\"buffered\": {\"exponent\": -1}", "exponent");
    REFUSED("\"buffered\": {\"staleness\": 1}", "staleness");
    REFUSED("\"buffered\": 3", "buffered");
    test_server_end(&fixture);
}
