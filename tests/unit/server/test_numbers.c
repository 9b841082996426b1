/*
 * test_numbers.c - numbers from outside the server: what devices send, what the task file says, the
 * server's own clock. Each is judged where it comes in; a contribution may be refused, the round
 * goes on.
 */
#include "server/device.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static const float ones[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

static void begin(test_server *fixture, test_device *device, const char *keys)
{
    test_server_folder(fixture);
    test_server_open(fixture, keys, 0);
    test_join(device, fixture, -1);
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

/* ---- messages that no client of ours would encode, as bytes ---- */

typedef struct message {
    uint8_t bytes[512];
    size_t n;
} message;

static void put_varint(message *to, uint64_t value)
{
    for (; value >= 128; value >>= 7) {
        to->bytes[to->n++] = (uint8_t)(value | 128);
    }
    to->bytes[to->n++] = (uint8_t)value;
}

static void put_number(message *to, uint32_t field, uint64_t value)
{
    put_varint(to, field << 3);
    put_varint(to, value);
}

static void put_bytes(message *to, uint32_t field, const void *bytes, size_t n_bytes)
{
    put_varint(to, field << 3 | 2);
    put_varint(to, n_bytes);
    memcpy(to->bytes + to->n, bytes, n_bytes);
    to->n += n_bytes;
}

static void put_double(message *to, uint32_t field, double value)
{
    put_varint(to, field << 3 | 1);
    memcpy(to->bytes + to->n, &value, sizeof value);
    to->n += sizeof value;
}

static uint32_t send_message(test_device *device, dunlin__call call, const message *body)
{
    dunlin__route route = dunlin__route_make(
        call, call == DUNLIN_CALL_TELEMETRY ? NULL : device->assignment.assignment_id);
    return test_send(device, &route, body->bytes, body->n, NULL);
}

/* A commit with these numbers and one metric. */
static message commit_of(const test_device *device, uint64_t n_examples, uint64_t n_steps,
                         uint64_t train_ms, const char *name, double value)
{
    message body = {.n = 0};
    message metric = {.n = 0};
    put_bytes(&metric, 1, name, strlen(name));
    put_double(&metric, 2, value);
    put_number(&body, 1, DUNLIN_V1_KIND_TRAIN);
    put_bytes(&body, 2, device->manifest_sha256, DUNLIN_SHA256_BYTES);
    put_number(&body, 3, DUNLIN_V1_ENCODING_F32);
    put_number(&body, 4, n_examples);
    put_number(&body, 5, n_steps);
    put_number(&body, 6, train_ms);
    put_bytes(&body, 7, metric.bytes, metric.n);
    return body;
}

/* Counts, times and metrics of a training, each in turn far out of range: refused by name, and the
 * same device may still commit what is right. */
Test(numbers, of_a_commit)
{
    static const struct {
        uint64_t n_examples, n_steps, train_ms;
        const char *name;
        double value;
        const char *says;
    } WILD[] = {{0, 1, 1, "loss", 1, "n_examples is 0"},
                {UINT64_MAX, 1, 1, "loss", 1, "n_examples is 18446744073709551615"},
                {(UINT64_C(1) << 40) + 1, 1, 1, "loss", 1, "n_examples is 1099511627777"},
                {1, UINT64_MAX, 1, "loss", 1, "n_steps is"},
                {1, 1, UINT64_MAX, "loss", 1, "train_ms is"},
                {1, 1, 1, "loss", NAN, "metrics[0].value is not a finite"},
                {1, 1, 1, "loss_before", 1e308, "metrics[0].value is 1e+308"},
                {1, 1, 1, "accuracy_after", 1.5, "metrics[0].value is 1.5"},
                {1, 1, 1, "accuracy", -INFINITY, "metrics[0].value is not a finite"}};
    test_server fixture;
    test_device device;
    dunlin__put_response put;
    dunlin__commit_response commit;
    begin(&fixture, &device, ", \"rounds\": 2, \"cohort\": 1");
    cr_assert_eq(test_put(&device, ones, &put), 200);
    test_send_chunks(&device, ones);
    for (size_t i = 0; i < sizeof WILD / sizeof WILD[0]; i++) {
        message body = commit_of(&device, WILD[i].n_examples, WILD[i].n_steps, WILD[i].train_ms,
                                 WILD[i].name, WILD[i].value);
        cr_assert_eq(send_message(&device, DUNLIN_CALL_COMMIT, &body), 400, "%zu", i);
        cr_expect_eq(device.status.code, DUNLIN_V1_STATUS_CODE_INVALID);
        cr_expect_not_null(strstr(device.status.text, WILD[i].says), "%s", device.status.text);
    }
    cr_assert_eq(test_commit(&device, 7, NULL, &commit), 200, "%s", device.status.text);
    cr_assert_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    cr_assert_float_eq(fixture.server.closed[0].weight_sum, 7.0, 0);
    end(&fixture);
}

/* What cannot be checked has a cap: of 2^40 claimed examples 10,000 count. */
Test(numbers, of_examples_that_are_claimed)
{
    test_server fixture;
    test_device devices[2];
    float model[10];
    float update[10] = {0};
    test_server_folder(&fixture);
    test_server_open(&fixture, ", \"rounds\": 1, \"cohort\": 2", 0);
    test_join(&devices[0], &fixture, -1);
    test_join(&devices[1], &fixture, -1);
    cr_assert_eq(test_contribute(&devices[0], ones, UINT64_C(1) << 40),
                 DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    cr_assert_eq(test_contribute(&devices[1], update, 10000), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture.server);
    test_read_model(&fixture, 2, model);
    cr_assert_float_eq(model[0], 0.5F, 0.0F);
    end(&fixture);
}

Test(numbers, of_an_update)
{
    static const float WILD[] = {NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < 3; i++) {
        test_server fixture;
        test_device device;
        dunlin__put_response put;
        dunlin__commit_response commit;
        float values[10] = {0};
        values[6] = WILD[i];
        begin(&fixture, &device, ", \"rounds\": 1, \"cohort\": 2");
        cr_assert_eq(test_put(&device, values, &put), 200);
        test_send_chunks(&device, values);
        cr_assert_eq(test_commit(&device, 1, NULL, &commit), 200);
        cr_expect_eq(commit.outcome, DUNLIN_V1_COMMIT_OUTCOME_REFUSED);
        cr_expect_not_null(strstr(commit.text, "value 6 of the update is not finite"), "%s",
                           commit.text);
        cr_expect_eq(fixture.server.round.state, DUNLIN_ROUND_OPEN);
        end(&fixture);
    }
}

Test(numbers, of_an_abort)
{
    static const struct {
        uint64_t reason;
        int64_t status;
        const char *says;
    } WILD[] = {{99, 0, "reason is 99"}, {1, 5, "status is not"}, {1, -1000, "status is not"}};
    test_server fixture;
    test_device device;
    begin(&fixture, &device, ", \"rounds\": 1, \"cohort\": 1");
    for (size_t i = 0; i < sizeof WILD / sizeof WILD[0]; i++) {
        message body = {.n = 0};
        put_number(&body, 1, WILD[i].reason);
        put_number(&body, 2, (uint64_t)WILD[i].status);
        cr_assert_eq(send_message(&device, DUNLIN_CALL_ABORT, &body), 400);
        cr_expect_not_null(strstr(device.status.text, WILD[i].says), "%s", device.status.text);
    }
    cr_assert_eq(test_contribute(&device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    end(&fixture);
}

Test(numbers, of_telemetry)
{
    static const struct {
        uint64_t event, age_ms;
        int64_t count;
        double value;
        const char *says;
    } WILD[] = {{0, 0, 1, 1, "records[0].event is 0"},
                {5, UINT64_MAX, 1, 1, "records[0].age_ms is"},
                {5, 0, INT64_MAX, 1, "records[0].count is not"},
                {5, 0, INT64_MIN, 1, "records[0].count is not"},
                {5, 0, 1, NAN, "records[0].value is not a finite"},
                {5, 0, 1, 1e300, "records[0].value is 1e+300"},
                {5, 0, 1, -1e31, "records[0].value is -1e+31"}};
    test_server fixture;
    test_device device;
    begin(&fixture, &device, ", \"rounds\": 1, \"cohort\": 1");
    for (size_t i = 0; i < sizeof WILD / sizeof WILD[0]; i++) {
        message body = {.n = 0};
        message record = {.n = 0};
        uint64_t zigzag = (uint64_t)WILD[i].count << 1;
        put_number(&record, 1, WILD[i].event);
        put_number(&record, 2, WILD[i].age_ms);
        put_number(&record, 3, WILD[i].count < 0 ? ~zigzag : zigzag);
        put_double(&record, 4, WILD[i].value);
        put_bytes(&body, 1, "0123456789abcdef", 16);
        put_bytes(&body, 3, record.bytes, record.n);
        cr_assert_eq(send_message(&device, DUNLIN_CALL_TELEMETRY, &body), 400, "%zu", i);
        cr_expect_not_null(strstr(device.status.text, WILD[i].says), "%s", device.status.text);
    }
    cr_assert_eq(atomic_load(&fixture.server.counters.n_telemetry), 0);
    end(&fixture);
}

/* What a task file may say at most can be sent: devices get offers and assignments of it. */
Test(numbers, of_a_task_at_its_limits)
{
    static const char *const TASKS[] = {
        "\"plan\": {\"epochs\": 10000, \"batch\": 65536, \"max_steps\": 1099511627776,"
        " \"max_examples\": 1099511627776, \"lr\": 1000, \"momentum\": 0.99999,"
        " \"weight_decay\": 1}",
        "\"plan\": {\"lr\": 1e-12, \"lr_decay\": 1e-6, \"clip_norm\": 1e6}, \"seed\": "
        "9007199254740992",
        "\"plan\": {\"clip_norm\": 1e-30}, \"algorithm\": \"fedprox:1e-30\"",
        "\"algorithm\": \"fedprox:1000\", \"weight_cap\": 1099511627776, \"deadline_s\": 2592000",
        "\"deadline_s\": 0.001, \"weight_cap\": 1, \"chunk_bytes\": 1048576",
        "\"policy\": {\"min_examples\": 9007199254740992, \"min_separation_ms\": 30000000000,"
        " \"min_separation_rounds\": 1000000}"};
    for (size_t i = 0; i < sizeof TASKS / sizeof TASKS[0]; i++) {
        test_server fixture;
        test_device device;
        char keys[512];
        (void)snprintf(keys, sizeof keys, ", \"rounds\": 100000, \"cohort\": 65536, %s", TASKS[i]);
        test_server_folder(&fixture);
        test_server_open(&fixture, keys, 0);
        test_device_make(&device, &fixture);
        device.can_all = true;
        cr_assert_eq(test_enrol(&device, -1), 200);
        cr_assert(test_take_work(&device), "%s", TASKS[i]);
        end(&fixture);
    }
}

/* First weights that are not numbers are refused at the start, by the file's name. */
Test(numbers, of_the_first_weights)
{
    test_server fixture;
    dunlin__server_task task;
    dunlin_error error = {0};
    dunlin_log log = {0};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_server_options options = {.host = "127.0.0.1", .n_threads = 1};
    const float first[3] = {1, NAN, 1};
    char state[256];
    char initial[256];
    char text[512];
    test_server_folder(&fixture);
    (void)snprintf(initial, sizeof initial, "%s/first.f32", fixture.folder);
    FILE *file = fopen(initial, "wb");
    cr_assert_eq(fwrite(first, sizeof first, 1, file), 1);
    cr_assert_eq(fclose(file), 0);
    (void)snprintf(text, sizeof text,
                   "{\"population\": \"p\", \"task\": \"t\", \"rounds\": 1, \"cohort\": 1,"
                   " \"initial\": \"%s\", \"tensors\": [{\"name\": \"bias\", \"shape\": [3]}]}",
                   initial);
    const char *path = test_server_write(&fixture, "task.json", text);
    (void)snprintf(state, sizeof state, "%s/state", fixture.folder);
    options.state_folder = state;
    cr_assert_eq(dunlin__server_task_read(path, &alloc, &task, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_assert_eq(dunlin__server_open(&fixture.server, &options, &task, &log, &error),
                 DUNLIN_NUMERIC);
    cr_expect_not_null(strstr(error.text, "first.f32 has a value"), "%s", error.text);
    test_server_end(&fixture);
}

/* A machine whose clock was never set, or was set before 1970: there is an epoch all the same, and
 * the state is read again. */
Test(numbers, of_a_clock_before_1970)
{
    static const int64_t TIMES[] = {0, 999, -1, INT64_C(-400000000000)};
    const char *keys = ", \"rounds\": 2, \"cohort\": 1";
    for (size_t i = 0; i < sizeof TIMES / sizeof TIMES[0]; i++) {
        test_server fixture;
        test_device device;
        test_server_folder(&fixture);
        fixture.now_ms = TIMES[i];
        test_server_open(&fixture, keys, 0);
        cr_assert_eq(fixture.server.run_epoch, 1);
        test_join(&device, &fixture, -1);
        cr_assert_eq(test_contribute(&device, ones, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
        dunlin__server_tick(&fixture.server);
        cr_assert_eq(fixture.server.round.round, 2);
        test_server_close(&fixture);
        test_server_open(&fixture, keys, 0);
        cr_assert_eq(fixture.server.round.round, 2, "the same state");
        end(&fixture);
    }
}

/* A guess of a wait that is longer than the protocol has. */
Test(numbers, of_waits)
{
    dunlin__window window = dunlin__server_window(UINT64_MAX);
    cr_assert_leq(window.max_ms, DUNLIN_WIRE_MAX_WAIT_MS);
    cr_assert_leq(window.min_ms, window.max_ms);
    window = dunlin__server_window(1000);
    cr_assert_eq(window.min_ms, 1000);
    cr_assert_eq(window.max_ms, 1500);
}
