/*
 * test_app_model.c - the newest federated model on the device: what is handed out and when, what
 * damage does, and the end of a run, which only the holder of the signing key can state.
 */
#include "client/in_world.h"
#include "store/app_model_files.h"

#include <dunlin/app_model.h>

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define APP_TEST(name) WORLD_TEST(app_model, name)

static dunlin_app_model *model;
static dunlin_app_model_info info;
static dunlin_error error;

/* Another client on the same storage, with what is to be kept. */
static void reopen(dunlin_model_keeping keeping)
{
    fake_world_close(&w);
    w.options.model_keeping = keeping;
    fake_world_open(&w);
}

static dunlin_status look(void)
{
    dunlin_app_model_close(model);
    return dunlin_app_model_open(w.client, &model, &error);
}

/* The model is the server's base as it is now, by name and as a whole. */
static void expect_base(uint64_t round, bool is_final)
{
    static float values[FAKE_VALUES];
    dunlin_weights_reader reader;
    int64_t n = 0;
    cr_assert_eq(look(), DUNLIN_OK, "%s", error.text);
    info = (dunlin_app_model_info)DUNLIN_APP_MODEL_INFO_INIT;
    cr_assert_eq(dunlin_app_model_get_info(model, &info), DUNLIN_OK);
    cr_expect_eq(info.round, round, "%llu", (unsigned long long)info.round);
    cr_expect_eq(info.is_final, is_final);
    cr_expect_eq(info.run_epoch, w.server.run_epoch);
    cr_expect_str_eq(info.task, "sum");
    cr_expect_eq(info.n_tensors, FAKE_TENSORS);
    cr_expect_eq(info.n_own, 0);
    cr_expect_eq(info.n_bytes, sizeof w.server.values);
    cr_expect_eq(memcmp(info.sha256, w.server.manifest_sha256, sizeof info.sha256), 0);
    cr_assert_eq(dunlin_app_model_get_reader(model, &reader), DUNLIN_OK);
    for (int32_t i = 0; i < reader.n_tensors; i++) {
        const int64_t n_elements = reader.tensors[i].n_elements;
        cr_assert_leq(n + n_elements, FAKE_VALUES);
        cr_assert_eq(reader.read_fn(reader.ctx, i, 0, n_elements, values + n), DUNLIN_OK);
        n += n_elements;
    }
    cr_assert_eq(n, FAKE_VALUES);
    cr_assert_eq(memcmp(values, w.server.values, sizeof values), 0);
    memset(values, 0, sizeof values);
    cr_assert_eq(dunlin_app_model_get_tensor(model, reader.tensors[0].name, values,
                                             reader.tensors[0].n_elements, &error),
                 DUNLIN_OK);
    cr_assert_eq(
        memcmp(values, w.server.values, (size_t)reader.tensors[0].n_elements * sizeof(float)), 0);
}

/* A round later; the base of the next one has other values. */
static void next_round(bool has_other_base)
{
    w.server.now_ms += 10000000;
    w.server.round++;
    if (has_other_base) {
        w.server.values[17] += 1.0F;
        w.server.values[FAKE_VALUES - 1] -= 1.0F;
        fake_server_remake_base(&w.server);
    }
}

/* Files in the model's folder, and one of them. */
static int count_files(void)
{
    char folder[DUNLIN_FILE_PATH_BYTES];
    cr_assert_eq(dunlin__client_model_folder(w.client, folder, NULL), DUNLIN_OK);
    return access(folder, F_OK) == 0 ? fake_folder_count(folder) : 0;
}

static const char *path_in_model(const char *ending)
{
    static char path[DUNLIN_FILE_PATH_BYTES];
    char folder[DUNLIN_FILE_PATH_BYTES];
    cr_assert_eq(dunlin__client_model_folder(w.client, folder, NULL), DUNLIN_OK);
    if (strcmp(ending, DUNLIN_APP_MODEL_HEAD) == 0) {
        cr_assert_eq(dunlin__file_path(folder, ending, path, NULL), DUNLIN_OK);
    } else {
        cr_assert_eq(dunlin__app_model_path(folder, w.server.manifest_sha256, ending, path, NULL),
                     DUNLIN_OK);
    }
    return path;
}

static void flip(const char *ending, long at)
{
    uint8_t byte = 0;
    int fd = open(path_in_model(ending), O_RDWR);
    cr_assert_geq(fd, 0);
    cr_assert_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
}

static void expect_failure(dunlin_status status, const char *part_of_text)
{
    const dunlin_status found = look();
    cr_assert_eq(found, status, "%s: %s", dunlin_status_name(found), error.text);
    cr_assert_null(model);
    cr_expect_not_null(strstr(error.text, part_of_text), "%s", error.text);
}

APP_TEST(there_is_none_before_the_first_and_then_always_the_newest)
{
    reopen(DUNLIN_MODEL_KEEPING_ROUNDS);
    expect_failure(DUNLIN_STATE, "has no federated model yet");
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    expect_base(6, false); /* the base of round 7 */
    cr_expect_eq(count_files(), 3);
    reopen(DUNLIN_MODEL_KEEPING_ROUNDS);
    expect_base(6, false);
    next_round(true);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    expect_base(7, false);
    cr_expect_eq(count_files(), 3, "one model is kept");
    next_round(true);
    w.server.outcome = DUNLIN_V1_COMMIT_OUTCOME_LATE;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_LATE);
    expect_base(8, false);
    dunlin_app_model_close(model);
    cr_expect_eq(dunlin_client_forget(w.client), DUNLIN_OK);
    cr_expect_eq(count_files(), 0);
    cr_expect_eq(dunlin_app_model_open(w.client, &model, &error), DUNLIN_STATE);
}

APP_TEST(a_handle_stays_what_it_was)
{
    static float before[FAKE_VALUES];
    float value = 0.0F;
    dunlin_app_model *old = NULL;
    dunlin_weights_reader reader;
    reopen(DUNLIN_MODEL_KEEPING_ROUNDS);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    memcpy(before, w.server.values, sizeof before);
    cr_assert_eq(dunlin_app_model_open(w.client, &old, &error), DUNLIN_OK, "%s", error.text);
    next_round(true);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    fake_world_close(&w); /* its client goes, too */
    cr_assert_eq(dunlin_app_model_get_reader(old, &reader), DUNLIN_OK);
    cr_assert_eq(reader.read_fn(reader.ctx, 0, 17, 1, &value), DUNLIN_OK);
    cr_expect_float_eq(value, before[17], 0);
    cr_expect_neq(value, w.server.values[17]);
    cr_expect_eq(reader.read_fn(reader.ctx, FAKE_TENSORS, 0, 1, &value), DUNLIN_ARGUMENT);
    cr_expect_eq(reader.read_fn(reader.ctx, 0, reader.tensors[0].n_elements, 1, &value),
                 DUNLIN_ARGUMENT);
    cr_expect_eq(reader.read_fn(reader.ctx, 0, 1, INT64_MAX, &value), DUNLIN_ARGUMENT);
    dunlin_app_model_close(old);
    fake_world_open(&w);
}

APP_TEST(it_is_there_while_a_round_runs)
{
    bool is_ended = false;
    reopen(DUNLIN_MODEL_KEEPING_ROUNDS);
    w.learner.n_slices = 5;
    while (w.client->journal.phase < DUNLIN_PHASE_LEARN) {
        cr_assert_eq(dunlin_client_step(w.client, 0, NULL, &is_ended, NULL), DUNLIN_OK);
    }
    expect_base(6, false);
    fake_world_close(&w); /* and after a kill in the middle */
    fake_world_open(&w);
    expect_base(6, false);
    const uint64_t n_bytes = w.server.object_bytes;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.object_bytes, n_bytes);
    cr_expect_eq(w.server.n_contributions, 1);
}

APP_TEST(a_base_that_is_here_is_not_fetched_again)
{
    reopen(DUNLIN_MODEL_KEEPING_ROUNDS);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    const uint64_t n_bytes = w.server.object_bytes;
    cr_expect_eq(n_bytes, sizeof w.server.values + w.server.manifest_bytes);
    next_round(false);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.object_bytes, n_bytes);
    expect_base(7, false);
}

APP_TEST(an_app_without_room_keeps_none)
{
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED); /* a learner that does not ask for it */
    expect_failure(DUNLIN_STATE, "no federated model yet");
    reopen(DUNLIN_MODEL_KEEPING_ROUNDS);
    next_round(true);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    expect_base(7, false);
    reopen(DUNLIN_MODEL_KEEPING_NONE);
    cr_expect_eq(count_files(), 0);
    expect_failure(DUNLIN_STATE, "no federated model yet");
    next_round(true);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    expect_no_files();
}

/* The round in progress reads its base from there: it ends first. */
APP_TEST(switched_off_in_the_middle_of_a_round)
{
    bool is_ended = false;
    reopen(DUNLIN_MODEL_KEEPING_ALL);
    while (w.client->journal.phase < DUNLIN_PHASE_LEARN) {
        cr_assert_eq(dunlin_client_step(w.client, 0, NULL, &is_ended, NULL), DUNLIN_OK);
    }
    reopen(DUNLIN_MODEL_KEEPING_NONE);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(w.server.n_contributions, 1);
    expect_no_files();
}

APP_TEST(damage_is_refused_by_name_and_mended_by_the_next_round)
{
    static const struct {
        const char *what;
        long at;
        long length; /* to cut to; -1: a bit of the byte is wrong */
        dunlin_status status;
        const char *text;
    } DAMAGES[] = {{".bin", 4, -1, DUNLIN_DIGEST, "chunk 0 of "},
                   {".bin", FAKE_VALUES * 4 - 1, -1, DUNLIN_DIGEST, "does not match its hash"},
                   {".bin", 0, FAKE_VALUES * 4 - 1, DUNLIN_DATA, ".bin has 280059 bytes"},
                   {".manifest", 40, -1, DUNLIN_DIGEST, ".manifest does not match"},
                   {".manifest", 0, 3, DUNLIN_DIGEST, ".manifest does not match"},
                   {DUNLIN_APP_MODEL_HEAD, 30, -1, DUNLIN_DIGEST, "the hash at its end"},
                   {DUNLIN_APP_MODEL_HEAD, 0, -1, DUNLIN_DATA, "is no head of a model"},
                   {DUNLIN_APP_MODEL_HEAD, 9, -1, DUNLIN_VERSION, "has version 4097"},
                   {DUNLIN_APP_MODEL_HEAD, 0, 100, DUNLIN_DATA, "has 100 bytes"},
                   {DUNLIN_APP_MODEL_HEAD, 0, 0, DUNLIN_DATA, "has 0 bytes"}};
    reopen(DUNLIN_MODEL_KEEPING_ROUNDS);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    for (size_t i = 0; i < sizeof DAMAGES / sizeof DAMAGES[0]; i++) {
        if (DAMAGES[i].length >= 0) {
            cr_assert_eq(truncate(path_in_model(DAMAGES[i].what), DAMAGES[i].length), 0);
        } else {
            flip(DAMAGES[i].what, DAMAGES[i].at);
        }
        expect_failure(DAMAGES[i].status, DAMAGES[i].text);
        next_round(false);
        (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
        expect_base(w.server.round - 1, false);
        cr_expect_eq(count_files(), 3);
    }
}

APP_TEST(values_that_are_gone_are_fetched_anew)
{
    reopen(DUNLIN_MODEL_KEEPING_ROUNDS);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_assert_eq(unlink(path_in_model(".bin")), 0);
    expect_failure(DUNLIN_IO, ".bin");
    next_round(false);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    expect_base(7, false);
}

APP_TEST(what_is_asked_for_wrongly_is_named)
{
    float values[4];
    reopen(DUNLIN_MODEL_KEEPING_ROUNDS);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    cr_assert_eq(look(), DUNLIN_OK);
    cr_expect_eq(dunlin_app_model_get_tensor(model, "nothing", values, 4, &error), DUNLIN_ARGUMENT);
    cr_expect_str_eq(error.text, "the model has no tensor nothing");
    cr_expect_eq(dunlin_app_model_get_tensor(model, "bias", values, 4, &error), DUNLIN_MISMATCH);
    cr_expect_not_null(strstr(error.text, "tensor bias has "), "%s", error.text);
    cr_expect_eq(dunlin_app_model_get_tensor(NULL, "bias", values, 4, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_app_model_get_tensor(model, "bias", NULL, 4, &error), DUNLIN_ARGUMENT);
    dunlin_app_model_info zero = {0};
    cr_expect_eq(dunlin_app_model_get_info(model, &zero), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_app_model_get_info(NULL, &info), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_app_model_get_reader(model, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_app_model_open(w.client, NULL, &error), DUNLIN_ARGUMENT);
    dunlin_app_model *none = NULL;
    cr_expect_eq(dunlin_app_model_open(NULL, &none, &error), DUNLIN_ARGUMENT);
    dunlin_client_options options = w.options;
    dunlin_client *client = NULL;
    options.name = "other";
    options.model_keeping = (dunlin_model_keeping)4;
    cr_expect_eq(dunlin_client_create(w.runtime, &options, &w.plug, &client, &error),
                 DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "model_keeping is 4"), "%s", error.text);
}

/* ---- the end of a run ---- */

static void end_run(void)
{
    w.server.now_ms += 10000000;
    w.server.has_offer = false;
    w.server.is_over = true;
}

APP_TEST(a_run_that_is_over_leaves_its_model_and_a_long_wait)
{
    reopen(DUNLIN_MODEL_KEEPING_ALL);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    next_round(true); /* what round 7 has made of it */
    w.server.round = 7;
    end_run();
    dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_RUN_OVER);
    cr_expect_str_eq(dunlin_outcome_name(report.outcome), "run over");
    cr_expect_eq(report.round, 7);
    cr_expect(report.retry_after_ms >= 500000 && report.retry_after_ms <= 600000);
    expect_base(7, true);
    cr_expect_eq(count_files(), 3);
    const uint64_t n_bytes = w.server.object_bytes;
    reopen(DUNLIN_MODEL_KEEPING_ALL);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_TOO_EARLY);
    w.server.now_ms += 600000;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_RUN_OVER);
    cr_expect_eq(w.server.object_bytes, n_bytes, "it is here already");
    /* The operator begins another run. */
    w.server.now_ms += 600000;
    w.server.run_epoch++;
    w.server.round = 1;
    w.server.has_offer = true;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    expect_base(0, false);
}

APP_TEST(an_app_may_do_without_the_model_that_a_run_leaves)
{
    reopen(DUNLIN_MODEL_KEEPING_ROUNDS);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    const uint64_t n_bytes = w.server.object_bytes;
    end_run();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_RUN_OVER);
    cr_expect_eq(w.server.object_bytes, n_bytes);
    expect_base(6, false);
}

static void other_device(dunlin__run_over *statement)
{
    (void)strcpy(statement->device_id, "device-of-another");
}

static void other_population(dunlin__run_over *statement)
{
    (void)strcpy(statement->population, "tablets");
}

static void older_run(dunlin__run_over *statement)
{
    statement->run_epoch--;
}

static void older_round(dunlin__run_over *statement)
{
    statement->round--;
}

static void no_signature(dunlin_v1_signed_run_over_t *sealed)
{
    memset(sealed->signature, 0, sizeof sealed->signature);
}

static void wrong_signature(dunlin_v1_signed_run_over_t *sealed)
{
    sealed->signature[40] ^= 1;
}

static void longer_wait(dunlin_v1_signed_run_over_t *sealed)
{
    sealed->statement.bytes[sealed->statement.size - 12] ^= 1;
}

static void wrong_key(dunlin_v1_signed_run_over_t *sealed)
{
    uint8_t other[DUNLIN_PRIVATE_KEY_BYTES];
    uint8_t public_key[DUNLIN_PUBLIC_KEY_BYTES];
    dunlin__run_over statement;
    cr_assert_eq(
        dunlin__run_over_decode(sealed->statement.bytes, sealed->statement.size, &statement, NULL),
        DUNLIN_OK);
    cr_assert_eq(dunlin__key_generate(other, public_key, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__run_over_seal(&statement, other, sealed, NULL), DUNLIN_OK);
}

static void empty(dunlin_v1_signed_run_over_t *sealed)
{
    memset(sealed, 0, sizeof *sealed);
}

APP_TEST(what_no_trusted_key_states_is_no_work_and_no_more)
{
    static void (*const EDITS[])(dunlin__run_over *) = {other_device, other_population, older_run,
                                                        older_round};
    static void (*const FORGERIES[])(dunlin_v1_signed_run_over_t *) = {
        no_signature, wrong_signature, longer_wait, wrong_key, empty};
    const size_t n_edits = sizeof EDITS / sizeof EDITS[0];
    const size_t n_all = n_edits + sizeof FORGERIES / sizeof FORGERIES[0];
    reopen(DUNLIN_MODEL_KEEPING_ALL);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    const uint64_t n_bytes = w.server.object_bytes;
    for (size_t i = 0; i < n_all; i++) {
        end_run();
        w.server.edit_over_fn = i < n_edits ? EDITS[i] : NULL;
        w.server.edit_sealed_over_fn = i < n_edits ? NULL : FORGERIES[i - n_edits];
        dunlin_round_report report = run(DUNLIN_OK, DUNLIN_OUTCOME_NOT_SELECTED);
        cr_expect(report.retry_after_ms >= 3000 && report.retry_after_ms <= 4000,
                  "forgery %zu: %lld", i, (long long)report.retry_after_ms);
    }
    cr_expect_eq(w.server.object_bytes, n_bytes, "nothing is fetched for it");
    w.server.edit_sealed_over_fn = NULL;
    end_run();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_RUN_OVER);
}

APP_TEST(a_cut_while_the_last_model_comes_down_is_mended_by_the_next_call)
{
    reopen(DUNLIN_MODEL_KEEPING_ALL);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    next_round(true);
    end_run();
    w.server.spoil_call = DUNLIN_CALL_OBJECT_GET;
    w.server.spoil = FAKE_LOST_REQUEST;
    w.server.spoil_times = 1;
    (void)run(DUNLIN_CLOSED, DUNLIN_OUTCOME_NONE);
    cr_assert_eq(look(), DUNLIN_OK, "%s", error.text); /* the one before */
    info = (dunlin_app_model_info)DUNLIN_APP_MODEL_INFO_INIT;
    cr_assert_eq(dunlin_app_model_get_info(model, &info), DUNLIN_OK);
    cr_expect_eq(info.round, 6);
    w.server.now_ms += 10000;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_RUN_OVER);
    expect_base(w.server.round, true);
}

static bool is_metered;

static bool be_metered(void *ctx, dunlin_conditions *out_conditions)
{
    (void)ctx;
    out_conditions->is_unmetered = !is_metered;
    out_conditions->n_examples = 40;
    return true;
}

static bool leave_network(void *ctx, const dunlin_event *event)
{
    (void)ctx;
    is_metered = is_metered || (w.server.is_over && event->phase == DUNLIN_PHASE_FETCH);
    return true;
}

APP_TEST(the_last_model_comes_down_only_while_the_conditions_hold)
{
    w.options.require_unmetered = true;
    w.options.conditions_fn = be_metered;
    w.options.event_fn = leave_network;
    reopen(DUNLIN_MODEL_KEEPING_ALL);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_ACCEPTED);
    const uint64_t n_bytes = w.server.object_bytes;
    next_round(true);
    end_run();
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_NOT_ELIGIBLE); /* after the first chunk */
    cr_expect_lt(w.server.object_bytes, 2 * n_bytes);
    w.server.now_ms += 10000;
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_NOT_ELIGIBLE); /* at once */
    is_metered = false;
    w.options.event_fn = NULL;
    reopen(DUNLIN_MODEL_KEEPING_ALL);
    (void)run(DUNLIN_OK, DUNLIN_OUTCOME_RUN_OVER);
    expect_base(w.server.round, true);
    cr_expect_leq(w.server.object_bytes, 2 * n_bytes, "what had come was kept");
}
