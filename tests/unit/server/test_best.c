/*
 * test_best.c - which models stay, which is the best, when that ends the run; with a test set.
 *
 * Figures of rounds are put in place of the real ones where a test needs certain ones.
 */
#include "rounds/best.h"
#include "rounds/close.h"
#include "rounds/kept.h"
#include "rounds/lineage.h"
#include "server/device.h"
#include "server/told.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define VALUES 61706 /* of lenet5 */
#define BYTES ((int64_t)(VALUES * sizeof(float)))

static float update[VALUES];
static float models[10][VALUES]; /* by the round that begins with them */
static float found[VALUES];
static dunlin_error open_error;

static dunlin_status try_open(test_server *fixture, const char *keys, const char *test_set)
{
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_server_options options = {.n_threads = 1, .test_set = test_set, .host = "127.0.0.1"};
    dunlin__server_task task;
    dunlin_log log = {0};
    char text[512];
    static char state[256];
    (void)snprintf(text, sizeof text,
                   "{\"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\","
                   " \"test_examples\": 40, \"cohort\": 1%s}",
                   keys);
    const char *path = test_server_write(fixture, "task.json", text);
    (void)snprintf(state, sizeof state, "%s/state", fixture->folder);
    options.state_folder = state;
    memset(&fixture->server, 0, sizeof fixture->server);
    memset(&open_error, 0, sizeof open_error);
    cr_assert_eq(dunlin__server_task_read(path, &alloc, &task, &open_error), DUNLIN_OK, "%s",
                 open_error.text);
    return dunlin__server_open(&fixture->server, &options, &task, &log, &open_error);
}

static void open_keys(test_server *fixture, const char *keys)
{
    cr_assert_eq(try_open(fixture, keys, "synthetic"), DUNLIN_OK, "%s", open_error.text);
}

static void begin(test_server *fixture, test_device *device, const char *keys)
{
    test_server_folder(fixture);
    open_keys(fixture, keys);
    test_device_make(device, fixture);
    cr_assert_eq(test_enrol(device, -1), 200);
}

static void restart(test_server *fixture, test_device *device, const char *keys)
{
    dunlin__checkin_response answer;
    test_server_close(fixture);
    open_keys(fixture, keys);
    if (test_checkin(device, &answer) == 401) {
        memcpy(device->challenge, device->status.challenge, sizeof device->challenge);
    }
}

static void end(test_server *fixture)
{
    test_server_close(fixture);
    test_server_end(fixture);
}

/* A round whose model differs a little from the one before; its number. */
static uint64_t contribute(test_device *device)
{
    test_server *fixture = device->fixture;
    uint64_t round = fixture->server.round.round;
    update[0] = 1e-3F;
    cr_assert(test_take_work(device));
    cr_assert_eq(test_contribute(device, update, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    dunlin__server_tick(&fixture->server);
    cr_assert_eq(fixture->server.fault.status, DUNLIN_OK, "%s", fixture->server.fault.text);
    cr_assert_eq(fixture->server.round.round, round + 1);
    test_read_model(fixture, round + 1, models[round + 1]);
    return round;
}

/* Puts other figures in place of a round's, and lets the server see them. */
static void forge(test_server *fixture, uint64_t round, double accuracy, double loss)
{
    dunlin_error error = {0};
    dunlin__round_row *row = dunlin__lineage_find(&fixture->server, round);
    cr_assert_not_null(row);
    cr_assert(row->is_evaluated);
    row->accuracy = accuracy;
    row->loss = loss;
    cr_assert_eq(dunlin__server_db_put_round(fixture->server.db, row, &error), DUNLIN_OK);
    dunlin__server_tick(&fixture->server);
}

/* The first round, with figures that the real ones of later rounds do not reach. */
static void contribute_first(test_device *device)
{
    (void)contribute(device);
    cr_assert_eq(device->fixture->server.best.round, 1, "the first is the best so far");
    forge(device->fixture, 1, 0.5, 1);
}

static const char *path_of(test_server *fixture, const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/state/%s", fixture->folder, name);
    return path;
}

static bool is_there(test_server *fixture, const char *name)
{
    return dunlin__server_file_size(path_of(fixture, name)) >= 0;
}

/* models/best.weights is the model of the round; best.json and the status say so. */
static void expect_best(test_server *fixture, uint64_t round, double accuracy)
{
    FILE *file = fopen(path_of(fixture, "models/best.weights"), "rb");
    cr_assert_not_null(file);
    cr_assert_eq(fread(found, sizeof found[0], VALUES, file), VALUES);
    (void)fclose(file);
    cr_assert_arr_eq(found, models[round + 1], sizeof found, "round %d", (int)round);
    json_t *object = json_load_file(path_of(fixture, "models/best.json"), 0, NULL);
    cr_assert_eq(json_integer_value(json_object_get(object, "round")), (json_int_t)round);
    cr_assert_float_eq(json_number_value(json_object_get(object, "accuracy")), accuracy, 0);
    cr_assert_str_eq(json_string_value(json_object_get(object, "judged_by")), "test_set");
    json_decref(object);
    cr_assert(is_there(fixture, "models/best.onnx"));
    json_t *status = test_status(fixture);
    cr_assert_eq(json_integer_value(json_object_get(status, "best_round")), (json_int_t)round);
    cr_assert_float_eq(json_number_value(json_object_get(status, "best_accuracy")), accuracy, 0);
    json_decref(status);
}

Test(best, stays_while_newer_models_come_and_go)
{
    const char *keys = ", \"rounds\": 6";
    test_server fixture;
    test_device device;
    begin(&fixture, &device, keys);
    test_expect_in_status(&fixture, "\"best_round\": null");
    test_expect_in_status(&fixture, "\"stopped_by\": null");
    contribute_first(&device);
    (void)contribute(&device);
    forge(&fixture, 2, 0.9, 1);
    expect_best(&fixture, 2, 0.9);
    for (int i = 3; i <= 6; i++) {
        (void)contribute(&device);
    }
    dunlin__server_tick(&fixture.server);
    expect_best(&fixture, 2, 0.9);
    cr_assert(!is_there(&fixture, "models/000003.weights"), "one copy of it is enough");
    cr_assert(is_there(&fixture, "model.onnx"));
    cr_assert(is_there(&fixture, "model_best.onnx"));
    test_expect_in_status(&fixture, "\"state\": \"done\"");
    test_expect_in_status(&fixture, "\"stopped_by\": \"rounds\"");
    /* After a restart with more rounds it is still known, and still beaten by a better one alone.
     */
    restart(&fixture, &device, ", \"rounds\": 8");
    expect_best(&fixture, 2, 0.9);
    cr_assert_eq(contribute(&device), 7);
    expect_best(&fixture, 2, 0.9);
    forge(&fixture, 7, 0.95, 1);
    expect_best(&fixture, 7, 0.95);
    end(&fixture);
}

Test(best, ties_go_to_the_lower_loss_then_to_the_earlier)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device, ", \"rounds\": 6");
    contribute_first(&device);
    (void)contribute(&device);
    (void)contribute(&device);
    forge(&fixture, 2, 0.9, 1);
    expect_best(&fixture, 2, 0.9);
    forge(&fixture, 3, 0.9, 1);
    expect_best(&fixture, 2, 0.9);
    cr_assert_float_eq(fixture.server.best.loss, 1, 0);
    forge(&fixture, 3, 0.9, 0.5);
    expect_best(&fixture, 3, 0.9);
    end(&fixture);
}

Test(best, is_never_one_that_was_taken_back)
{
    test_server fixture;
    test_device device;
    dunlin_error error = {0};
    begin(&fixture, &device, ", \"rounds\": 6");
    contribute_first(&device);
    (void)contribute(&device);
    forge(&fixture, 2, 0.9, 1);
    cr_assert_eq(fixture.server.best.round, 2);
    cr_assert_eq(dunlin__lineage_take_back(&fixture.server, 2, "a test", &error), DUNLIN_OK);
    test_expect_in_status(&fixture, "\"best_round\": null");
    dunlin__server_tick(&fixture.server);
    expect_best(&fixture, 1, 0.5);
    restart(&fixture, &device, ", \"rounds\": 6");
    cr_assert_eq(fixture.server.best.round, 1);
    cr_assert_eq(dunlin__lineage_take_back(&fixture.server, 1, "a test", &error), DUNLIN_OK);
    dunlin__server_tick(&fixture.server);
    dunlin__round_row *row = dunlin__lineage_find(&fixture.server, 3);
    cr_assert_not_null(row, "the round that began from it has closed");
    cr_assert_eq(fixture.server.best.round, 0);
    cr_assert(!is_there(&fixture, "models/best.json"));
    cr_assert(!is_there(&fixture, "models/best.weights"));
    end(&fixture);
}

/* What a kill between two of the files leaves, or a damage, is made good at the next start. */
Test(best, half_written_files_are_written_again)
{
    static const char *const names[] = {"best.weights", "best.onnx", "best.json"};
    const char *keys = ", \"rounds\": 6";
    test_server fixture;
    test_device device;
    begin(&fixture, &device, keys);
    contribute_first(&device);
    (void)contribute(&device);
    forge(&fixture, 2, 0.9, 1);
    for (unsigned damaged = 1; damaged < 16; damaged++) {
        test_server_close(&fixture);
        for (unsigned i = 0; i < 3; i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "state/models/%s", names[i]);
            if ((damaged >> i & 1) != 0 && damaged >= 8) {
                (void)unlink(path_of(&fixture, name + 6));
            } else if ((damaged >> i & 1) != 0) {
                (void)test_server_write(&fixture, name, "{\"round\": 2}");
            }
        }
        open_keys(&fixture, keys);
        cr_assert_eq(fixture.server.best.round, damaged == 8 ? 2 : 0, "%u", damaged);
        dunlin__server_tick(&fixture.server);
        expect_best(&fixture, 2, 0.9);
        cr_assert_eq(dunlin__server_file_size(path_of(&fixture, "models/best.weights")), BYTES);
    }
    end(&fixture);
}

/* The row of a better model is stored; the kill comes before its files are. */
Test(best, a_kill_before_its_files_loses_no_best_model)
{
    const char *keys = ", \"rounds\": 6";
    test_server fixture;
    test_device device;
    dunlin_error error = {0};
    begin(&fixture, &device, keys);
    contribute_first(&device);
    (void)contribute(&device);
    dunlin__round_row *row = dunlin__lineage_find(&fixture.server, 2);
    row->accuracy = 0.9;
    cr_assert_eq(dunlin__server_db_put_round(fixture.server.db, row, &error), DUNLIN_OK);
    restart(&fixture, &device, keys);
    cr_assert_eq(fixture.server.best.round, 1);
    dunlin__kept_sweep(&fixture.server);
    dunlin__server_tick(&fixture.server);
    expect_best(&fixture, 2, 0.9);
    end(&fixture);
}

Test(best, is_not_kept_if_the_task_says_so)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device, ", \"rounds\": 2, \"keep_best\": false");
    (void)contribute(&device);
    forge(&fixture, 1, 0.9, 1);
    cr_assert(!is_there(&fixture, "models/best.json"));
    test_expect_in_status(&fixture, "\"best_is_kept\": false");
    test_expect_in_status(&fixture, "\"best_round\": 1");
    end(&fixture);
}

Test(best, every_nth_model_stays)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device, ", \"rounds\": 7, \"keep_every\": 2");
    for (int i = 1; i <= 7; i++) {
        (void)contribute(&device);
    }
    restart(&fixture, &device, ", \"rounds\": 7, \"keep_every\": 2");
    for (int round = 1; round <= 7; round++) {
        char name[64];
        (void)snprintf(name, sizeof name, "models/%06d.weights", round + 1);
        bool is_newest = round >= 5;
        cr_expect_eq(is_there(&fixture, name), round % 2 == 0 || is_newest, "%s", name);
    }
    cr_expect(!is_there(&fixture, "models/000001.weights"));
    end(&fixture);
}

/* ---- early stopping ---- */

Test(stop, the_run_ends_when_the_target_is_reached)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device, ", \"rounds\": 6, \"target_accuracy\": 0.000001");
    (void)contribute(&device);
    cr_assert(fixture.server.is_done);
    dunlin__checkin_response answer;
    cr_assert_eq(test_checkin(&device, &answer), 200);
    cr_assert_neq(answer.rejection, DUNLIN_V1_REJECTION_NONE);
    dunlin__server_tick(&fixture.server);
    test_expect_in_status(&fixture, "\"state\": \"done\"");
    test_expect_in_status(&fixture, "\"stopped_by\": \"target_accuracy\"");
    cr_assert(is_there(&fixture, "model_best.onnx"));
    restart(&fixture, &device, ", \"rounds\": 6, \"target_accuracy\": 0.000001");
    cr_assert(fixture.server.is_done, "a restart begins no other round");
    /* A higher target is another task: the run goes on where it was. */
    restart(&fixture, &device, ", \"rounds\": 6, \"target_accuracy\": 1");
    cr_assert(!fixture.server.is_done);
    cr_assert_eq(contribute(&device), 2);
    cr_assert(!fixture.server.is_done);
    end(&fixture);
}

Test(stop, the_next_round_opens_after_the_evaluation)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device, ", \"rounds\": 6, \"patience\": 5");
    cr_assert(test_take_work(&device));
    cr_assert_eq(test_contribute(&device, update, 1), DUNLIN_V1_COMMIT_OUTCOME_ACCEPTED);
    fixture.server.round.state = DUNLIN_ROUND_CLOSING;
    fixture.server.round.reason = DUNLIN_CLOSE_GOAL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__server_close_round(&fixture.server, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(fixture.server.round.round, 2);
    cr_assert(fixture.server.closed[0].is_evaluated);
    end(&fixture);
}

Test(stop, patience_ends_a_run_that_gets_no_better)
{
    const char *keys = ", \"rounds\": 7, \"patience\": 2, \"min_delta\": 0.01";
    test_server fixture;
    test_device device;
    begin(&fixture, &device, keys);
    (void)contribute(&device);
    double real = fixture.server.closed[0].accuracy;
    forge(&fixture, 1, real - 0.02, 1); /* so the second is better by enough */
    (void)contribute(&device);
    cr_assert(!fixture.server.is_done);
    forge(&fixture, 2, real - 0.005, 1); /* the third is better, but not by min_delta */
    (void)contribute(&device);
    cr_assert(!fixture.server.is_done);
    restart(&fixture, &device, keys);
    cr_assert(!fixture.server.is_done, "what was counted is counted again after a start");
    (void)contribute(&device);
    cr_assert(fixture.server.is_done);
    dunlin__server_tick(&fixture.server);
    test_expect_in_status(&fixture, "\"stopped_by\": \"patience\"");
    test_expect_in_status(&fixture, "\"state\": \"done\"");
    restart(&fixture, &device, ", \"rounds\": 7, \"patience\": 3");
    cr_assert(!fixture.server.is_done);
    end(&fixture);
}

Test(stop, the_last_round_is_the_end_by_rounds)
{
    test_server fixture;
    test_device device;
    begin(&fixture, &device, ", \"rounds\": 2, \"patience\": 1");
    (void)contribute(&device);
    (void)contribute(&device);
    cr_assert(fixture.server.is_done);
    test_expect_in_status(&fixture, "\"stopped_by\": \"rounds\"");
    end(&fixture);
}

Test(stop, wants_a_test_set)
{
    static const struct {
        const char *keys;
        const char *words;
    } cases[] = {{", \"target_accuracy\": 0.5", "target_accuracy 0.5 wants --test-set"},
                 {", \"patience\": 3", "patience 3 wants --test-set"},
                 {", \"rollback\": 0.25", "rollback does not go with a server without --test-set"},
                 {", \"keep_best\": true", "keep_best wants --test-set, evaluate_every or"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        test_server fixture;
        char keys[128];
        test_server_folder(&fixture);
        (void)snprintf(keys, sizeof keys, ", \"rounds\": 3%s", cases[i].keys);
        cr_expect_eq(try_open(&fixture, keys, NULL), DUNLIN_DATA, "%s", keys);
        cr_expect_not_null(strstr(open_error.text, cases[i].words), "%s", open_error.text);
        test_server_end(&fixture);
    }
}
