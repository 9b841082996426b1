/*
 * test_local.c - requests of the server's own process: what they leave out, and what they do not.
 */
#include "requests/local.h"
#include "server/device.h"

#include <criterion/criterion.h>

#include <string.h>
#include <unistd.h>

static const float ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void begin(test_server *fixture, test_device *device)
{
    test_server_folder(fixture);
    test_server_open(fixture, ", \"rounds\": 3, \"cohort\": 1", 0);
    test_device_make(device, fixture);
    cr_assert_eq(test_enrol(device, -1), 200, "%s", device->status.text);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

/* A check-in whose signature is of nothing. */
static uint32_t check_in_unsigned(test_device *device, dunlin__server_reply *reply)
{
    dunlin_error error = {0};
    uint8_t body[256];
    size_t n_body = 0;
    const dunlin__checkin_request asked = {.protocol_version = DUNLIN_WIRE_VERSION,
                                           .client_version = 1,
                                           .has_capabilities = true,
                                           .has_conditions = true};
    cr_assert_eq(dunlin__checkin_request_encode(&asked, body, sizeof body, &n_body, &error),
                 DUNLIN_OK);
    const dunlin__route route = dunlin__route_make(DUNLIN_CALL_CHECKIN, TEST_POPULATION);
    dunlin__server_request request = test_request(device, &route, body, n_body);
    memset(device->signature, '0', sizeof device->signature - 1);
    request.signature = device->signature;
    dunlin__server_perform(&device->fixture->server, &request, reply);
    return reply->http_code;
}

Test(local, only_a_server_that_trusts_its_callers_takes_no_signature)
{
    test_server fixture;
    test_device device;
    dunlin__server_reply reply;
    dunlin_error error = {0};
    begin(&fixture, &device);
    cr_assert_eq(check_in_unsigned(&device, &reply), 401);
    cr_assert_eq(dunlin__server_trust_callers(&fixture.server, false, &error), DUNLIN_OK);
    cr_assert_eq(check_in_unsigned(&device, &reply), 200);
    /* A counter counts once all the same, and a stranger stays one. */
    device.counter--;
    cr_assert_eq(check_in_unsigned(&device, &reply), 401);
    memset(device.id, 'f', strlen(device.id));
    cr_assert_eq(check_in_unsigned(&device, &reply), 401);
    end(&fixture);
}

Test(local, bytes_count_as_over_http_and_bad_requests_are_refused)
{
    test_server fixture;
    test_device device;
    dunlin__server_reply reply;
    dunlin_error error = {0};
    static uint8_t large[1 << 20];
    begin(&fixture, &device);
    dunlin__server *server = &fixture.server;
    cr_assert_eq(dunlin__server_trust_callers(server, false, &error), DUNLIN_OK);
    const uint64_t up = atomic_load(&server->counters.body_bytes_up);
    const uint64_t down = atomic_load(&server->counters.body_bytes_down);
    cr_assert_eq(check_in_unsigned(&device, &reply), 200);
    const dunlin__server_request nowhere = {
        .method = "GET", .path = "/v1/nowhere", .authority = TEST_AUTHORITY, .n_body = 5};
    dunlin__server_request request = nowhere;
    const size_t n_first = reply.n_body;
    dunlin__server_perform(server, &request, &reply);
    cr_expect_eq(reply.http_code, 404);
    cr_expect_eq(atomic_load(&server->counters.n_refused), 1);
    cr_expect_eq(atomic_load(&server->counters.body_bytes_down) - down, n_first + reply.n_body);
    cr_expect_gt(atomic_load(&server->counters.body_bytes_up) - up, 5);
    const dunlin__route route = dunlin__route_make(DUNLIN_CALL_CHECKIN, TEST_POPULATION);
    request = test_request(&device, &route, large, sizeof large);
    dunlin__server_perform(server, &request, &reply);
    cr_expect_eq(reply.http_code, 413);
    request = test_request(&device, &route, large, 0);
    request.method = "DELETE";
    dunlin__server_perform(server, &request, &reply);
    cr_expect_geq(reply.http_code, 400);
    end(&fixture);
}

Test(local, a_contribution_goes_through_without_a_sync)
{
    test_server fixture;
    test_device device;
    dunlin_error error = {0};
    float values[10];
    begin(&fixture, &device);
    cr_assert_eq(dunlin__server_trust_callers(&fixture.server, false, &error), DUNLIN_OK);
    cr_assert(test_take_work(&device));
    cr_assert_eq(test_contribute(&device, ones, 4), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    test_read_model(&fixture, 2, values);
    cr_expect_float_eq(values[0], 1.0F, 0.0F);
    /* What was kept is there for the next server: a kill of the process loses nothing. */
    test_server_close(&fixture);
    test_server_open(&fixture, ", \"rounds\": 3, \"cohort\": 1", 0);
    cr_expect_eq(fixture.server.n_closed, 1);
    end(&fixture);
}
