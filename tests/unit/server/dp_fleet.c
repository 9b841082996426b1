/*
 * dp_fleet.c - a server whose rounds have noise, and devices that take part in them.
 */
#include "dp_fleet.h"

#include <criterion/criterion.h>

void dp_begin(test_server *fixture)
{
    test_server_folder(fixture);
    fixture->has_no_statistics = true;
}

void dp_end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

void dp_join_all(test_server *fixture, test_device *devices, int n)
{
    dunlin__checkin_response answer;
    for (int i = 0; i < n; i++) {
        test_device_make(&devices[i], fixture);
        devices[i].can_all = true;
        cr_assert_eq(test_enrol(&devices[i], i), 200);
    }
    for (int i = 0; i < n; i++) {
        cr_assert_eq(test_checkin(&devices[i], &answer), 200);
    }
}

int dp_contribute_all(test_device *devices, int n, const float *update, uint64_t n_examples)
{
    int n_asked = 0;
    for (int i = 0; i < n; i++) {
        if (test_take_work(&devices[i])) {
            cr_assert_eq(test_contribute(&devices[i], update, n_examples + (uint64_t)i),
                         DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED, "%s", devices[i].status.text);
            n_asked++;
        }
    }
    return n_asked;
}

void dp_close_round(test_server *fixture)
{
    const size_t n_before = fixture->server.n_closed;
    const int64_t deadline_ms = fixture->server.round.deadline_ms;
    cr_assert_gt(deadline_ms, 0);
    fixture->now_ms = deadline_ms > fixture->now_ms ? deadline_ms : fixture->now_ms;
    dunlin__server_tick(&fixture->server);
    cr_assert_eq(fixture->server.n_closed, n_before + 1, "%s", fixture->server.fault.text);
}

void dp_fill(float *update, float value)
{
    for (int i = 0; i < DP_VALUES; i++) {
        update[i] = value;
    }
}
