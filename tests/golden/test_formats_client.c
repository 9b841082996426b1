/*
 * test_formats_client.c - databases of the client's folder that the library wrote once, in
 * tests/golden/formats, must load for ever: a journal with an assignment, an example store.
 *
 * DUNLIN_WRITE_FORMATS=FOLDER writes today's files there, and those of the wire.
 */
#include "../unit/sdk/journals.h"
#include "formats.h"

#include <mem/support.h>
#include <wire/signature.h>

#include <criterion/criterion.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A folder of the test's own, with bytes as a file of that name in it. */
typedef struct place {
    char folder[256];
    char path[320];
} place;

static place copy_data(const char *name, const char *as)
{
    uint8_t bytes[FORMATS_FILE_BYTES];
    const size_t n_bytes = formats_read(DUNLIN_FORMATS, name, bytes, sizeof bytes);
    place to;
    const char *base = getenv("TMPDIR");
    (void)snprintf(to.folder, sizeof to.folder, "%s/dunlin-formats-XXXXXX",
                   base != NULL && base[0] != 0 ? base : "/tmp");
    cr_assert_not_null(mkdtemp(to.folder));
    (void)snprintf(to.path, sizeof to.path, "%s/%s", to.folder, as);
    formats_write(to.folder, as, bytes, n_bytes);
    return to;
}

static void remove_place(const place *of)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        char path[352];
        (void)snprintf(path, sizeof path, "%s%s", of->path, endings[i]);
        (void)unlink(path);
    }
    cr_expect_eq(rmdir(of->folder), 0);
}

/* The first column of the first row of a query. */
static int64_t ask(const char *path, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK, "%s: %s", sql,
                 sqlite3_errmsg(db));
    cr_assert_eq(sqlite3_step(statement), SQLITE_ROW, "%s", sql);
    const int64_t found = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
    return found;
}

static dunlin__store *open_store(const place *at)
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__store *store = NULL;
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    cr_assert_eq(dunlin__store_open(at->folder, &alloc, &store, &error), DUNLIN_OK, "%s",
                 error.text);
    return store;
}

static void expect_journal(const char *name, int schema, const dunlin__journal *expected)
{
    const place copy = copy_data(name, "dunlin.db");
    dunlin__journal idle;
    dunlin__journal found;
    bool is_known = false;
    cr_expect_eq(ask(copy.path, "PRAGMA user_version"), schema);
    cr_expect_eq(ask(copy.path, "SELECT count(*) FROM clients"), 2);
    dunlin__store *store = open_store(&copy);
    cr_assert_eq(dunlin__store_load(store, FORMATS_CLIENT, &found, &is_known, NULL), DUNLIN_OK);
    cr_expect(is_known);
    test_journal_expect_same(expected, &found);
    memset(&idle, 0, sizeof idle);
    cr_assert_eq(dunlin__store_load(store, "idle", &found, &is_known, NULL), DUNLIN_OK);
    cr_expect(is_known);
    test_journal_expect_same(&idle, &found);
    dunlin__store_close(store);
    remove_place(&copy);
}

Test(formats_client, journals_load_for_ever)
{
    dunlin__journal expected;
    formats_journal(&expected);
    expect_journal("journal_6.db", 6, &expected);
    expected.kept_round = 0;
    expected.within_clip = 0;
    expect_journal("journal_5.db", 5, &expected);
}

Test(formats_client, heads_of_the_apps_model_load_for_ever)
{
    const place copy = copy_data("app_model_1.head", DUNLIN_APP_MODEL_HEAD);
    const dunlin__app_model_head expected = formats_app_model();
    dunlin__app_model_head found;
    dunlin_error error = {.status = DUNLIN_OK};
    cr_assert_eq(dunlin__app_model_head_read(copy.folder, &found, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_str_eq(found.task, expected.task);
    cr_expect_eq(found.run_epoch, expected.run_epoch);
    cr_expect_eq(found.round, expected.round);
    cr_expect(found.is_final);
    cr_expect_eq(found.manifest_bytes, expected.manifest_bytes);
    cr_expect_eq(found.n_bytes, expected.n_bytes);
    cr_expect_eq(memcmp(found.manifest_sha256, expected.manifest_sha256, DUNLIN_SHA256_BYTES), 0);
    remove_place(&copy);
}

static void expect_plan(const dunlin__training_plan *found, const dunlin__training_plan *expected)
{
    cr_expect_eq(found->learner, expected->learner);
    cr_expect_eq(found->n_epochs, expected->n_epochs);
    cr_expect_eq(found->batch_size, expected->batch_size);
    cr_expect_eq(found->optimizer, expected->optimizer);
    cr_expect_eq(found->learning_rate, expected->learning_rate);
    cr_expect_eq(found->momentum, expected->momentum);
    cr_expect_eq(found->algorithm, expected->algorithm);
    cr_expect_eq(found->seed, expected->seed);
    cr_expect_eq(found->weight_cap, expected->weight_cap);
    cr_expect_eq(found->update_form, expected->update_form);
    cr_expect_eq(found->update_encoding, expected->update_encoding);
    cr_expect_eq(found->chunk_bytes, expected->chunk_bytes);
}

/* What the journal keeps of an assignment is the server's answer, whose signature still holds. */
Test(formats_client, assignments_are_opened_for_ever)
{
    const place copy = copy_data("journal_6.db", "dunlin.db");
    uint8_t bytes[4096];
    size_t n_bytes = 0;
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__accept_response response;
    dunlin__assignment found;
    const dunlin__assignment expected = formats_assignment();
    uint8_t private_key[DUNLIN_PRIVATE_KEY_BYTES];
    dunlin__trusted_key key = {.key_id = "server-1"};
    dunlin__store *store = open_store(&copy);
    cr_assert_eq(
        dunlin__store_load_assignment(store, FORMATS_CLIENT, bytes, sizeof bytes, &n_bytes, NULL),
        DUNLIN_OK);
    dunlin__store_close(store);
    cr_assert_eq(dunlin__accept_response_decode(bytes, n_bytes, &response, &error), DUNLIN_OK, "%s",
                 error.text);
    cr_expect_eq(response.window.min_ms, 1000);
    cr_expect_eq(response.window.max_ms, 2000);
    formats_server_key(private_key);
    cr_assert_eq(dunlin__key_public(private_key, key.public_key, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__assignment_open(&response.assignment, &key, 1, &found, &error), DUNLIN_OK,
                 "%s", error.text);
    cr_expect_str_eq(found.population, expected.population);
    cr_expect_str_eq(found.task, expected.task);
    cr_expect_str_eq(found.assignment_id, expected.assignment_id);
    cr_expect_str_eq(found.device_id, expected.device_id);
    cr_expect_eq(found.run_epoch, expected.run_epoch);
    cr_expect_eq(found.round, expected.round);
    cr_expect_eq(found.kind, expected.kind);
    cr_expect_eq(found.deadline_ms, expected.deadline_ms);
    cr_expect_str_eq(found.token, expected.token);
    cr_expect_arr_eq(found.base_manifest_sha256, expected.base_manifest_sha256,
                     DUNLIN_SHA256_BYTES);
    cr_expect_eq(found.base_manifest_bytes, expected.base_manifest_bytes);
    expect_plan(&found.plan, &expected.plan);
    remove_place(&copy);
}

/* Which example stands at each place of the round: three to train on, one held out. */
static const int64_t CHOSEN[] = {4, 3, 0, 5};
#define N_CHOSEN 3
#define N_HELD_OUT 1

static void expect_chosen(dunlin_examples *examples)
{
    for (int64_t i = 0; i < N_CHOSEN + N_HELD_OUT; i++) {
        uint8_t data[64];
        dunlin_error error = {.status = DUNLIN_OK};
        dunlin_example_buffer buffer = {.data = data, .capacity = sizeof data};
        cr_assert_eq(dunlin_examples_read(examples, FORMATS_CLIENT, i, &buffer, &error), DUNLIN_OK,
                     "%s", error.text);
        cr_expect_eq(buffer.n_bytes, FORMATS_EXAMPLE_BYTES);
        cr_expect_eq(buffer.label, CHOSEN[i] - 2, "place %d", (int)i);
        for (size_t k = 0; k < FORMATS_EXAMPLE_BYTES; k++) {
            cr_expect_eq(data[k], formats_example_byte(CHOSEN[i], k));
        }
    }
}

Test(formats_client, example_stores_load_for_ever)
{
    const place copy = copy_data("examples_2.db", "examples.db");
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin_examples_stats stats = DUNLIN_EXAMPLES_STATS_INIT;
    dunlin__examples_state state = DUNLIN_EXAMPLES_NONE;
    dunlin__examples_parts parts = {0};
    cr_expect_eq(ask(copy.path, "PRAGMA user_version"), 2);
    cr_expect_eq(ask(copy.path, "SELECT made_ms FROM examples WHERE id = 2"),
                 FORMATS_NOW_MS - 1000 + 1);
    dunlin_examples *examples = formats_examples_open(copy.folder);
    cr_assert_eq(dunlin_examples_get_stats(examples, &stats, &error), DUNLIN_OK, "%s", error.text);
    cr_expect_eq(stats.n_examples, FORMATS_N_EXAMPLES - 1);
    cr_expect_eq(stats.data_bytes, (FORMATS_N_EXAMPLES - 1) * FORMATS_EXAMPLE_BYTES);
    cr_expect_eq(stats.n_held, 0);
    cr_assert_eq(dunlin__examples_look(examples, FORMATS_CLIENT, "assignment-7", &state, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_eq(state, DUNLIN_EXAMPLES_WHOLE);
    cr_assert_eq(dunlin__examples_choose(examples, FORMATS_CLIENT, "assignment-7", "task-1", 0,
                                         &parts, &error),
                 DUNLIN_OK, "%s", error.text);
    cr_expect_eq(parts.n_chosen, N_CHOSEN);
    cr_expect_eq(parts.n_held_out, N_HELD_OUT);
    expect_chosen(examples);
    dunlin_examples_close(examples);
    remove_place(&copy);
}

/* What is written today is read today; the committed files stay as they are. */
/* By the table: field 1 and 4 as numbers, then a field 8 each, of a name and a double. */
Test(formats_client, metrics_load_for_ever)
{
    /* Kind, a manifest's hash that is absent, the number of examples, two metrics. */
    static const uint8_t expected[] = {
        0x08, 0x02, 0x12, 0x20, 0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,
        0,    0,    0,    0,    0,    0,    0x20, 0x01, 0x42, 0x13, 0x0a, 0x08, 'f',  '1',  '/',
        'm',  'a',  'c',  'r',  'o',  0x11, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xe0, 0x3f, 0x42,
        0x0c, 0x0a, 0x01, 'x',  0x11, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xb0, 0xc0};
    uint8_t bytes[FORMATS_FILE_BYTES];
    const size_t n_bytes = formats_read(DUNLIN_FORMATS, "metrics_1.bin", bytes, sizeof bytes);
    cr_assert_eq(n_bytes, sizeof expected);
    cr_assert_arr_eq(bytes, expected, n_bytes);
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__commit_request found = {0};
    cr_assert_eq(dunlin__commit_request_decode(bytes, n_bytes, &found, &error), DUNLIN_OK, "%s",
                 error.text);
    const dunlin__commit_request wanted = formats_metrics();
    cr_assert_eq(found.app_metrics_count, wanted.app_metrics_count);
    for (size_t i = 0; i < found.app_metrics_count; i++) {
        cr_expect_str_eq(found.app_metrics[i].name, wanted.app_metrics[i].name);
        cr_expect_float_eq(found.app_metrics[i].value, wanted.app_metrics[i].value, 0);
    }
}

Test(formats_client, todays_files_are_written)
{
    const char *folder = getenv("DUNLIN_WRITE_FORMATS");
    place own = {.folder = ""};
    if (folder == NULL) {
        own = copy_data("base_1.bin", "base_1.bin");
        folder = own.folder;
    }
    formats_make(folder);
    static const char *const names[] = {"base_1.manifest",      "base_1.bin",
                                        "update_1.manifest",    "update_1.bin",
                                        "journal_6.db",         "examples_2.db",
                                        "metrics_1.bin",        "app_model_1.head",
                                        "packed_1.manifest",    "packed_1.bin",
                                        "packed_1.f32",         "int8_1.manifest",
                                        "int8_1.bin",           "packed_delta_1.bin",
                                        "packed_delta_1.to",    "masked_1_16.manifest",
                                        "masked_1_16.bin",      "masked_1_24.manifest",
                                        "masked_1_24.bin",      "masked_1_32.manifest",
                                        "masked_1_32.bin",      "secagg_terms_1.sha256",
                                        "secagg_terms_2.sha256"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        uint8_t now[FORMATS_FILE_BYTES];
        uint8_t then[FORMATS_FILE_BYTES];
        char path[FORMATS_PATH_BYTES];
        const size_t n_now = formats_read(folder, names[i], now, sizeof now);
        const size_t n_then = formats_read(DUNLIN_FORMATS, names[i], then, sizeof then);
        /* A database has the version of SQLite in it. */
        if (strstr(names[i], ".db") == NULL) {
            cr_expect(n_now == n_then && memcmp(now, then, n_now) == 0,
                      "%s is written otherwise than it was: a new version?", names[i]);
        }
        if (own.folder[0] != 0) {
            (void)unlink(formats_path(folder, names[i], path));
        }
    }
    if (own.folder[0] != 0) {
        remove_place(&own);
    }
}
