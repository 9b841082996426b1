/*
 * test_guard.c - updates with far larger norms than others: the bound to which they are scaled, and
 * when.
 */
#include "server/device.h"
#include "server/told.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

#define VALUES 10

static void fill(float values[VALUES], float value)
{
    for (int i = 0; i < VALUES; i++) {
        values[i] = value;
    }
}

/* Devices that take part in round after round. */
typedef struct group {
    test_server fixture;
    test_device devices[8];
    int n;
} group;

static void begin(group *all, const char *keys, int n)
{
    test_server_folder(&all->fixture);
    test_server_open(&all->fixture, keys, 0);
    all->n = n;
    for (int i = 0; i < n; i++) {
        test_device_make(&all->devices[i], &all->fixture);
        cr_assert_eq(test_enrol(&all->devices[i], -1), 200);
    }
}

/* One round: device i sends `value[i]` ten times over, with one example. */
static void run_round(group *all, const float *values)
{
    float update[VALUES];
    for (int i = 0; i < all->n; i++) {
        dunlin__checkin_response answer;
        if (test_checkin(&all->devices[i], &answer) == 401) { /* after a restart */
            memcpy(all->devices[i].challenge, all->devices[i].status.challenge,
                   sizeof all->devices[i].challenge);
        }
        cr_assert(test_take_work(&all->devices[i]));
        fill(update, values[i]);
        cr_assert_eq(test_contribute(&all->devices[i], update, 1),
                     DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    }
    dunlin__server_tick(&all->fixture.server);
}

static void end(group *all)
{
    test_server_close(&all->fixture);
    test_server_end(&all->fixture);
}

static const float ONE_HUGE[] = {1, 1, 1, 1, 1e20F};
static const float PLAIN[] = {1, 1, 1, 1, 1};

static const dunlin__round_row *last_round(const group *all)
{
    return &all->fixture.server.closed[all->fixture.server.n_closed - 1];
}

Test(guard, a_huge_update_is_scaled_down_to_ten_medians_of_its_round)
{
    group all;
    float model[VALUES];
    begin(&all, ", \"rounds\": 2, \"cohort\": 5", 5);
    run_round(&all, ONE_HUGE);
    test_read_model(&all.fixture, 2, model);
    /* The median update is all ones; the huge one counts as all tens. */
    cr_assert_float_eq(model[0], (4 + 10) / 5.0F, 1e-6F);
    cr_assert_eq(last_round(&all)->n_scaled, 1);
    cr_assert_float_eq(last_round(&all)->norm_bound, 10 * sqrt(10.0), 1e-9);
    test_expect_in_status(&all.fixture, "\"scaled\": 1");
    test_expect_in_status(&all.fixture, "\"norm_bound\": 31.6");
    end(&all);
}

Test(guard, whole_weights_are_scaled_by_their_difference)
{
    group all;
    float model[VALUES];
    const float second[] = {4, 4, 4, 4, -1e20F};
    begin(&all, ", \"rounds\": 2, \"cohort\": 5, \"update_form\": \"weights\"", 5);
    run_round(&all, (const float[]){3, 3, 3, 3, 3});
    run_round(&all, second);
    /* The history's norms are those of 3; the bound is a difference of 30, down from 3. */
    test_read_model(&all.fixture, 3, model);
    cr_assert_float_eq(model[9], (4 * 4 + (3 - 30)) / 5.0F, 1e-5F);
    cr_assert_eq(last_round(&all)->n_scaled, 1);
    end(&all);
}

/* Norms of the last five closed rounds count, lie in the database, and outlive the server. */
Test(guard, the_history_is_of_five_rounds_and_survives_a_restart)
{
    const char *keys = ", \"rounds\": 9, \"cohort\": 5";
    group all;
    begin(&all, keys, 5);
    run_round(&all, (const float[]){100, 100, 100, 100, 100});
    for (int i = 0; i < 4; i++) {
        run_round(&all, (const float[]){20, 20, 20, 20, 20});
    }
    double unit = sqrt((double)VALUES);
    cr_assert_float_eq(last_round(&all)->norm_bound, 10 * 20 * unit, 1e-6);
    test_server_close(&all.fixture);
    test_server_open(&all.fixture, keys, 0);
    run_round(&all, (const float[]){1, 2, 3, 1000, 5});
    cr_assert_float_eq(last_round(&all)->norm_bound, 10 * 20 * unit, 1e-6);
    cr_assert_eq(last_round(&all)->n_scaled, 1);
    /* Now the hundreds are forgotten, and the sorted norms are 1 2 3 5 20 ... 20 1000. */
    run_round(&all, PLAIN);
    cr_assert_float_eq(last_round(&all)->norm_bound, 10 * 20 * unit, 1e-6);
    run_round(&all, PLAIN);
    run_round(&all, PLAIN);
    /* Of the rounds 4 to 8: ten of 20, ten of 1, and 1 2 3 5 1000: the lower median is 3's. */
    cr_assert_float_eq(last_round(&all)->norm_bound, 10 * 3 * unit, 1e-6);
    end(&all);
}

Test(guard, half_of_an_even_number_is_the_lower_one)
{
    group all;
    begin(&all, ", \"rounds\": 1, \"cohort\": 6", 6);
    run_round(&all, (const float[]){1, 1, 1, 50, 50, 50});
    cr_assert_float_eq(last_round(&all)->norm_bound, 10 * sqrt((double)VALUES), 1e-9);
    cr_assert_eq(last_round(&all)->n_scaled, 3);
    end(&all);
}

Test(guard, small_cohorts_and_rounds_of_nothing_have_no_bound)
{
    group all;
    float model[VALUES];
    begin(&all, ", \"rounds\": 1, \"cohort\": 4", 4);
    run_round(&all, (const float[]){1, 1, 1, 1000});
    test_read_model(&all.fixture, 2, model);
    cr_assert_float_eq(model[0], 1003 / 4.0F, 0.0F);
    cr_assert_eq(last_round(&all)->n_scaled, 0);
    cr_assert(!(last_round(&all)->norm_bound > 0));
    end(&all);
    /* Half of the updates are all zeros: ten times nothing is no bound. */
    begin(&all, ", \"rounds\": 1, \"cohort\": 5", 5);
    run_round(&all, (const float[]){0, 0, 0, 5, 5});
    test_read_model(&all.fixture, 2, model);
    cr_assert_float_eq(model[0], 2.0F, 0.0F);
    cr_assert_eq(last_round(&all)->n_scaled, 0);
    end(&all);
}

/* The same bits as without a guard, where none is too long. */
Test(guard, updates_within_the_bound_are_folded_as_they_are)
{
    group all;
    float model[VALUES];
    const float values[] = {0.1F, 0.2F, 0.3F, 0.7F, 0.9F};
    begin(&all, ", \"rounds\": 1, \"cohort\": 5", 5);
    run_round(&all, values);
    test_read_model(&all.fixture, 2, model);
    double sum = 0;
    for (int i = 0; i < 5; i++) {
        sum += (double)values[i];
    }
    float wanted = (float)(sum / 5);
    cr_assert_eq(memcmp(&model[3], &wanted, sizeof wanted), 0);
    cr_assert_eq(last_round(&all)->n_scaled, 0);
    end(&all);
}
