/*
 * test_formats_server.c - a database that a server wrote once, in tests/golden/formats, is opened
 * by every later server with all that it holds; one of a later schema is refused and left alone.
 *
 * DUNLIN_WRITE_FORMATS=FOLDER writes today's file there.
 */
#include "formats_server.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[64];
static char path[FORMATS_PATH_BYTES];       /* the golden file's copy */
static char fresh_path[FORMATS_PATH_BYTES]; /* what is written today */

static void set_up(void)
{
    static uint8_t bytes[FORMATS_FILE_BYTES];
    const size_t n_bytes = formats_read(DUNLIN_FORMATS, FORMATS_SERVER_DB, bytes, sizeof bytes);
    (void)strcpy(folder, "/tmp/dunlin-formats-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    (void)formats_path(folder, "golden.db", path);
    (void)formats_path(folder, "fresh.db", fresh_path);
    formats_write(folder, "golden.db", bytes, n_bytes);
}

static void tear_down(void)
{
    static const char *const endings[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        char other[FORMATS_PATH_BYTES + 8];
        (void)snprintf(other, sizeof other, "%s%s", path, endings[i]);
        (void)unlink(other);
        (void)snprintf(other, sizeof other, "%s%s", fresh_path, endings[i]);
        (void)unlink(other);
    }
    cr_expect_eq(rmdir(folder), 0);
}

TestSuite(formats_server, .init = set_up, .fini = tear_down);

/* The first column of the first row. */
static int64_t ask(const char *of, const char *sql)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    cr_assert_eq(sqlite3_open(of, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_prepare_v2(db, sql, -1, &statement, NULL), SQLITE_OK, "%s: %s", sql,
                 sqlite3_errmsg(db));
    cr_assert_eq(sqlite3_step(statement), SQLITE_ROW, "%s", sql);
    const int64_t found = sqlite3_column_int64(statement, 0);
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
    return found;
}

static dunlin__server_db *open_db(const char *of)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__server_db *db = NULL;
    cr_assert_eq(dunlin__server_db_open(of, &alloc, &db, &error), DUNLIN_OK, "%s", error.text);
    return db;
}

/* Whether a column of both rows is the same. */
static bool is_same(sqlite3_stmt *a, sqlite3_stmt *b, int column)
{
    const int n_bytes = sqlite3_column_bytes(a, column);
    const void *of_a = sqlite3_column_blob(a, column);
    const void *of_b = sqlite3_column_blob(b, column);
    return sqlite3_column_type(a, column) == sqlite3_column_type(b, column) &&
           sqlite3_column_bytes(b, column) == n_bytes &&
           (n_bytes == 0 || memcmp(of_a, of_b, (size_t)n_bytes) == 0);
}

/* Both databases answer a query alike, row by row; how many rows they have. */
static int expect_alike(sqlite3 *golden, sqlite3 *fresh, const char *sql)
{
    sqlite3_stmt *a = NULL;
    sqlite3_stmt *b = NULL;
    int n = 0;
    cr_assert_eq(sqlite3_prepare_v2(golden, sql, -1, &a, NULL), SQLITE_OK, "%s", sql);
    cr_assert_eq(sqlite3_prepare_v2(fresh, sql, -1, &b, NULL), SQLITE_OK, "%s", sql);
    cr_assert_eq(sqlite3_column_count(a), sqlite3_column_count(b), "%s", sql);
    for (;; n++) {
        const int code = sqlite3_step(a);
        cr_assert_eq(sqlite3_step(b), code, "%s, row %d", sql, n);
        if (code != SQLITE_ROW) {
            break;
        }
        for (int i = 0; i < sqlite3_column_count(a); i++) {
            cr_expect(is_same(a, b, i), "%s, row %d: %s", sql, n, sqlite3_column_name(a, i));
        }
    }
    (void)sqlite3_finalize(a);
    (void)sqlite3_finalize(b);
    return n;
}

/* Opened by today's server it has the tables of a new one, and the rows that were put there. */
Test(formats_server, an_older_database_is_whole)
{
    static const char *const tables[] = {"meta",         "devices",       "sessions", "assignments",
                                         "rounds",       "contributions", "answers",  "telemetry",
                                         "proofs",       "replaced",      "terms",    "app_metrics",
                                         "round_metrics"};
    sqlite3 *golden = NULL;
    sqlite3 *fresh = NULL;
    char sql[96];
    cr_expect_eq(ask(path, "PRAGMA user_version"), FORMATS_SERVER_SCHEMA);
    dunlin__server_db_close(open_db(path));
    formats_server_fill(fresh_path);
    cr_assert_eq(sqlite3_open(path, &golden), SQLITE_OK);
    cr_assert_eq(sqlite3_open(fresh_path, &fresh), SQLITE_OK);
    /* A table that is changed without a new schema is found here, by its own words. */
    cr_expect_gt(expect_alike(golden, fresh,
                              "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE"
                              " 'sqlite_%' ORDER BY name"),
                 13);
    (void)expect_alike(golden, fresh, "PRAGMA user_version");
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        (void)snprintf(sql, sizeof sql, "SELECT * FROM %s ORDER BY 1, 2", tables[i]);
        cr_expect_gt(expect_alike(golden, fresh, sql), 0, "%s has no row", tables[i]);
    }
    (void)sqlite3_close(golden);
    (void)sqlite3_close(fresh);
}

static dunlin_status expect_device(void *ctx, const dunlin__device_row *found)
{
    int64_t *n = ctx;
    const dunlin__device_row wanted = formats_server_device(*n);
    cr_expect_eq(found->row, wanted.row);
    cr_expect_str_eq(found->id, wanted.id);
    cr_expect_arr_eq(found->public_key, wanted.public_key, DUNLIN_PUBLIC_KEY_BYTES);
    cr_expect_eq(found->client_index, wanted.client_index);
    cr_expect_eq(found->last_round, wanted.last_round);
    cr_expect_eq(found->n_rounds, wanted.n_rounds);
    (*n)++;
    return DUNLIN_OK;
}

static void expect_metrics(const dunlin__device_metrics *found,
                           const dunlin__device_metrics *wanted)
{
    for (int i = 0; i < DUNLIN_N_METRICS; i++) {
        cr_expect_eq(found->is_there[i], wanted->is_there[i], "metric %d", i);
        cr_expect(!wanted->is_there[i] || found->values[i] == wanted->values[i], "metric %d", i);
    }
}

static dunlin_status expect_contribution(void *ctx, const dunlin__contribution_row *found)
{
    int64_t *n = ctx;
    const dunlin__contribution_row wanted = formats_server_contribution();
    cr_expect_eq(found->client_index, wanted.client_index);
    cr_expect_eq(found->device, wanted.device);
    cr_expect_str_eq(found->assignment, wanted.assignment);
    cr_expect(found->weight == wanted.weight && found->norm == wanted.norm);
    cr_expect(found->n_steps == wanted.n_steps && found->train_ms == wanted.train_ms);
    cr_expect_eq(found->within_clip, wanted.within_clip);
    expect_metrics(&found->metrics, &wanted.metrics);
    (*n)++;
    return DUNLIN_OK;
}

static void expect_seed(const dunlin__round_seed *found, const dunlin__round_seed *wanted)
{
    cr_expect_eq(found->is_there, wanted->is_there);
    cr_expect(!wanted->is_there ||
              memcmp(found->bytes, wanted->bytes, DUNLIN_ROUND_SEED_BYTES) == 0);
}

static dunlin_status expect_round(void *ctx, const dunlin__round_row *found)
{
    int64_t *n = ctx;
    const dunlin__round_row wanted = formats_server_round((uint64_t)*n + 1);
    cr_expect_eq(found->round, wanted.round);
    cr_expect(found->state == wanted.state && found->reason == wanted.reason);
    cr_expect(found->opened_ms == wanted.opened_ms && found->deadline_ms == wanted.deadline_ms &&
              found->closed_ms == wanted.closed_ms);
    cr_expect(found->n_participants == wanted.n_participants &&
              found->n_dropped == wanted.n_dropped && found->n_scaled == wanted.n_scaled);
    cr_expect(found->bytes_down == wanted.bytes_down && found->bytes_up == wanted.bytes_up);
    cr_expect_eq(found->is_evaluated, wanted.is_evaluated);
    cr_expect(found->accuracy == wanted.accuracy && found->loss == wanted.loss);
    cr_expect(found->weight_sum == wanted.weight_sum && found->norm_bound == wanted.norm_bound);
    cr_expect(found->clip_norm == wanted.clip_norm && found->clip_within == wanted.clip_within);
    cr_expect(found->base == wanted.base && found->is_taken_back == wanted.is_taken_back);
    cr_expect_str_eq(found->why, wanted.why);
    cr_expect(found->is_private == wanted.is_private && found->epsilon == wanted.epsilon);
    expect_metrics(&found->metrics, &wanted.metrics);
    expect_seed(&found->draw_seed, &wanted.draw_seed);
    expect_seed(&found->noise_seed, &wanted.noise_seed);
    (*n)++;
    return DUNLIN_OK;
}

static void expect_work(dunlin__server_db *db)
{
    dunlin_error error = {.status = DUNLIN_OK};
    const dunlin__session_row session = formats_server_session();
    const dunlin__assignment_row assignment = formats_server_assignment();
    dunlin__session_row found_session;
    dunlin__assignment_row found;
    bool is_found = false;
    cr_assert_eq(dunlin__server_db_find_session(db, session.id, &found_session, &is_found, &error),
                 DUNLIN_OK);
    cr_assert(is_found);
    cr_expect(found_session.device == session.device && found_session.round == session.round &&
              found_session.state == session.state && found_session.until_ms == session.until_ms);
    cr_expect(found_session.packs && found_session.unpacks);
    cr_assert_eq(dunlin__server_db_find_assignment(db, assignment.id, &found, &is_found, &error),
                 DUNLIN_OK);
    cr_assert(is_found);
    cr_expect_str_eq(found.token, assignment.token);
    cr_expect(found.deadline_ms == assignment.deadline_ms && found.packs && found.has_manifest);
    cr_expect_arr_eq(found.manifest_sha256, assignment.manifest_sha256, DUNLIN_SHA256_BYTES);
}

Test(formats_server, its_rows_are_read)
{
    dunlin_error error = {.status = DUNLIN_OK};
    int64_t n = 0;
    int64_t epoch = 0;
    char term[32];
    static dunlin__answer_row answer;
    const dunlin__answer_row wanted = formats_server_answer();
    bool is_found = false;
    dunlin__server_db *db = open_db(path);
    cr_assert_eq(dunlin__server_db_each_device(db, expect_device, &n, &error), DUNLIN_OK);
    cr_expect_eq(n, FORMATS_SERVER_N_DEVICES);
    n = 0;
    cr_assert_eq(dunlin__server_db_each_contribution(db, 1, expect_contribution, &n, &error),
                 DUNLIN_OK);
    cr_expect_eq(n, 1);
    n = 0;
    cr_assert_eq(dunlin__server_db_each_round(db, expect_round, &n, &error), DUNLIN_OK);
    cr_expect_eq(n, 2);
    expect_work(db);
    cr_assert_eq(dunlin__server_db_get(db, "run_epoch", 0, &epoch, &error), DUNLIN_OK);
    cr_expect_eq(epoch, 41);
    cr_assert_eq(dunlin__server_db_get_term(db, "dp", term, sizeof term, &error), DUNLIN_OK);
    cr_expect_str_eq(term, "a promise");
    cr_assert_eq(
        dunlin__server_db_find_answer(db, wanted.scope, wanted.key, &answer, &is_found, &error),
        DUNLIN_OK);
    cr_expect(is_found && answer.http_code == wanted.http_code && answer.n_body == wanted.n_body);
    cr_expect_arr_eq(answer.body, wanted.body, wanted.n_body);
    dunlin__server_db_close(db);
}

/* By its number, and nothing in it is changed. */
Test(formats_server, a_later_database_is_refused)
{
    static uint8_t before[FORMATS_FILE_BYTES];
    static uint8_t after[FORMATS_FILE_BYTES];
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin__server_db *db = NULL;
    sqlite3 *file = NULL;
    char sql[64];
    char text[32];
    dunlin__server_db_close(open_db(path));
    const int64_t next = ask(path, "PRAGMA user_version") + 1;
    (void)snprintf(sql, sizeof sql, "PRAGMA user_version = %d", (int)next);
    cr_assert_eq(sqlite3_open(path, &file), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(file, sql, NULL, NULL, NULL), SQLITE_OK);
    cr_assert_eq(sqlite3_close(file), SQLITE_OK);
    const size_t n_before = formats_read(folder, "golden.db", before, sizeof before);
    (void)snprintf(text, sizeof text, "schema %d", (int)next);
    cr_expect_eq(dunlin__server_db_open(path, &alloc, &db, &error), DUNLIN_VERSION);
    cr_expect_null(db);
    cr_expect_not_null(strstr(error.text, text), "%s", error.text);
    cr_expect_eq(formats_read(folder, "golden.db", after, sizeof after), n_before);
    cr_expect_arr_eq(after, before, n_before);
}

/* For a new schema: its file. A database has the version of SQLite in it, so bytes may differ. */
Test(formats_server, todays_file_is_written)
{
    const char *to = getenv("DUNLIN_WRITE_FORMATS");
    char name[FORMATS_PATH_BYTES];
    formats_small_pages(to != NULL ? formats_path(to, FORMATS_SERVER_DB, name) : fresh_path);
    formats_server_fill(to != NULL ? name : fresh_path);
    cr_expect_eq(ask(to != NULL ? name : fresh_path, "PRAGMA user_version"), FORMATS_SERVER_SCHEMA);
}
