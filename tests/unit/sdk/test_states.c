/*
 * test_states.c - states in which a store may be found: damaged, older, newer, a copy, not
 * readable, without room; each has its own status, nothing is reset, the app's own files stay, and
 * afterwards the round continues to one contribution.
 */
#include "client/fake_server.h"

#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static fake_world w;

static void path_of(const char *name, char out_path[128])
{
    (void)snprintf(out_path, 128, "%s/%s", w.folder, name);
}

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_geq(fputs(text, file), 0);
    cr_assert_eq(fclose(file), 0);
}

/* Files of the app's own beside ours, where it should not have put them. */
static void put_app_files(void)
{
    char path[128];
    path_of("notes.txt", path);
    write_text(path, "the app's");
    path_of("base.bin", path);
    write_text(path, "the app's");
}

static void expect_app_files(const char *when)
{
    static const char *const NAMES[] = {"notes.txt", "base.bin"};
    for (size_t i = 0; i < 2; i++) {
        char path[128];
        char text[32] = "";
        path_of(NAMES[i], path);
        FILE *file = fopen(path, "r");
        cr_assert_not_null(file, "%s: %s is gone", when, NAMES[i]);
        cr_expect_not_null(fgets(text, sizeof text, file));
        cr_expect_str_eq(text, "the app's", "%s: %s", when, NAMES[i]);
        (void)fclose(file);
    }
}

static void begin(void)
{
    fake_world_make(&w);
    w.server.deadline_ms = 30LL * 24 * 3600 * 1000;
    w.plug = fake_learner_make_keeping(&w.learner);
    w.options.checkpoint_ms = 1;
    w.learner.clock = &w.server;
    w.learner.slice_ms = 10;
    put_app_files();
    fake_world_open(&w);
}

static void end(void)
{
    fake_world_close(&w);
    expect_app_files("at the end");
    cr_assert_str_eq(w.server.complaint, "");
    fake_folder_remove(w.folder);
}

static void learn_a_little(void)
{
    while (w.learner.n_fits < 2) {
        int64_t wait_ms = 0;
        bool is_ended = false;
        cr_assert_eq(dunlin_client_step(w.client, 0, &wait_ms, &is_ended, NULL), DUNLIN_OK);
        cr_assert_not(is_ended);
    }
}

static void finish_round(const char *what)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int i = 0; i < 6 && report.outcome != DUNLIN_OUTCOME_ACCEPTED; i++) {
        dunlin_status status = dunlin_client_run_round(w.client, &report);
        cr_assert_eq(status, DUNLIN_OK, "%s: %s", what, dunlin_client_last_error(w.client)->text);
        w.server.now_ms += dunlin_client_wait_ms(w.client);
    }
    cr_assert_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s: %s", what,
                 dunlin_outcome_name(report.outcome));
    cr_assert_eq(w.server.n_contributions, 1, "%s", what);
}

/* --- found at the start --- */

static void run_sql(const char *sql)
{
    char path[128];
    sqlite3 *db = NULL;
    path_of("dunlin.db", path);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
}

static void make_no_database(void)
{
    char path[128];
    path_of("dunlin.db", path);
    write_text(path, "this is not a database, and longer than the header of one would have been: "
                     "a hundred bytes");
}

static void make_newer(void)
{
    run_sql("PRAGMA user_version = 99");
}

static void spoil_row(void)
{
    run_sql("UPDATE clients SET phase = 77");
}

static dunlin_status open_public(dunlin_error *error)
{
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    dunlin_runtime *runtime = NULL;
    dunlin_client *client = NULL;
    shared.store_folder = w.folder;
    dunlin_status status = dunlin_runtime_create(&shared, &runtime, error);
    if (status == DUNLIN_OK) {
        status = dunlin_client_create(runtime, &w.options, &w.plug, &client, error);
        dunlin_client_destroy(client);
        dunlin_runtime_destroy(runtime);
    }
    return status;
}

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 20];
    char path[128];
    path_of(from, path);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    size_t n = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    path_of(to, path);
    file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, n, file), n);
    (void)fclose(file);
}

Test(states, damaged_and_newer_stores_are_told_apart_and_left)
{
    static const struct {
        const char *what;
        void (*spoil_fn)(void);
        dunlin_status status;
    } CASES[] = {{"no database", make_no_database, DUNLIN_DATA},
                 {"newer", make_newer, DUNLIN_VERSION},
                 {"damaged row", spoil_row, DUNLIN_DATA}};
    begin();
    learn_a_little();
    fake_world_close(&w);
    copy_file("dunlin.db", "kept.db");
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        dunlin_error error = {0};
        CASES[i].spoil_fn();
        for (int k = 0; k < 2; k++) { /* and it stays so: nothing was reset */
            dunlin_status status = open_public(&error);
            cr_expect_eq(status, CASES[i].status, "%s: %s: %s", CASES[i].what,
                         dunlin_status_name(status), error.text);
            cr_expect_eq(error.status, CASES[i].status);
        }
        expect_app_files(CASES[i].what);
        copy_file("kept.db", "dunlin.db");
    }
    char path[128];
    path_of("kept.db", path);
    cr_assert_eq(unlink(path), 0);
    fake_world_open(&w);
    finish_round("after the damage");
    cr_expect_eq(w.server.n_enrolled, 1);
    cr_expect_eq(w.learner.n_fits, w.learner.n_slices, "the round went on where it was");
    end();
}

/* --- a copy --- */

static void name_installation(uint8_t with)
{
    memset(w.runtime->installation, with, sizeof w.runtime->installation);
}

/* Opens the client as installation `with`. */
static void open_as(uint8_t with)
{
    dunlin_error error = {0};
    w.runtime = fake_server_runtime(&w.server, w.folder, NULL);
    name_installation(with);
    cr_assert_eq(dunlin_client_create(w.runtime, &w.options, &w.plug, &w.client, &error), DUNLIN_OK,
                 "%s", error.text);
}

Test(states, a_copy_of_another_device_enrols_anew)
{
    begin();
    fake_world_close(&w);
    open_as(1);
    learn_a_little();
    uint8_t key[DUNLIN_PRIVATE_KEY_BYTES];
    memcpy(key, w.client->journal.private_key, sizeof key);
    uint64_t seen = w.client->journal.seen_round;
    fake_world_close(&w);
    open_as(0); /* not known here: not judged */
    cr_expect_arr_eq(w.client->journal.private_key, key, sizeof key);
    fake_world_close(&w);
    open_as(2);
    cr_expect_str_eq(w.client->journal.device_id, "");
    cr_expect_eq(w.client->journal.phase, DUNLIN_PHASE_IDLE, "the round is the other device's");
    cr_expect_eq(w.client->journal.seen_round, seen, "an older round is refused all the same");
    finish_round("copy");
    cr_expect_eq(w.server.n_enrolled, 2);
    cr_expect_neq(memcmp(w.client->journal.private_key, key, sizeof key), 0);
    memcpy(key, w.client->journal.private_key, sizeof key);
    fake_world_close(&w);
    open_as(2); /* and is at home now */
    cr_expect_arr_eq(w.client->journal.private_key, key, sizeof key);
    end();
}

Test(states, the_installation_is_the_apps_name_for_it)
{
    uint8_t first[DUNLIN_SHA256_BYTES];
    for (int i = 0; i < 3; i++) {
        char folder[64];
        dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
        dunlin_runtime *runtime = NULL;
        fake_folder_make(folder);
        shared.store_folder = folder;
        shared.installation = i < 2 ? "9774d56d682e549c" : "9774d56d682e549d";
        cr_assert_eq(dunlin_runtime_create(&shared, &runtime, NULL), DUNLIN_OK);
        if (i == 0) {
            memcpy(first, runtime->installation, sizeof first);
        } else {
            cr_expect_eq(memcmp(first, runtime->installation, sizeof first) == 0, i == 1);
        }
        dunlin_runtime_destroy(runtime);
        fake_folder_remove(folder);
    }
}

/* --- shut or full storage, at any write of the database --- */

static int write_error; /* 0: writes work */
static long n_writes;
static long fail_from; /* the n-th write and all after it */

static ssize_t failing_write(int fd, const void *data, size_t n, off_t offset)
{
    n_writes++;
    if (write_error != 0 && n_writes >= fail_from) {
        errno = write_error;
        return -1;
    }
    return pwrite(fd, data, n, offset);
}

static int open_error;

static int failing_open(const char *path, int flags, int mode)
{
    if (open_error != 0 && strstr(path, "dunlin.db") != NULL) {
        errno = open_error;
        return -1;
    }
    return open(path, flags, (mode_t)mode);
}

static void put_before_sqlite(const char *name, sqlite3_syscall_ptr call)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    if (vfs->xGetSystemCall(vfs, name) != NULL) {
        cr_assert_eq(vfs->xSetSystemCall(vfs, name, call), SQLITE_OK);
    }
}

Test(states, a_shut_store_is_later_and_never_reset)
{
    static const int ERRORS[] = {EPERM, EACCES};
    for (size_t i = 0; i < 2; i++) {
        dunlin_error error = {0};
        begin();
        learn_a_little();
        fake_world_close(&w);
        put_before_sqlite("open", (sqlite3_syscall_ptr)failing_open);
        open_error = ERRORS[i];
        for (int k = 0; k < 3; k++) {
            dunlin_status status = open_public(&error);
            cr_expect_eq(status, DUNLIN_LOCKED, "%s: %s", dunlin_status_name(status), error.text);
        }
        open_error = 0;
        put_before_sqlite("open", NULL);
        fake_world_open(&w);
        finish_round("shut store");
        cr_expect_eq(w.server.n_enrolled, 1);
        cr_expect_eq(w.learner.n_fits, w.learner.n_slices);
        end();
    }
}

/* From the n-th write on, until the call has failed; then there is room, or it is open, again. */
Test(states, each_write_of_the_journal_may_fail)
{
    static const struct {
        int os_error;
        dunlin_status status;
    } CASES[] = {{ENOSPC, DUNLIN_SPACE}, {EPERM, DUNLIN_LOCKED}, {EIO, DUNLIN_IO}};
    put_before_sqlite("pwrite", (sqlite3_syscall_ptr)failing_write);
    put_before_sqlite("pwrite64", (sqlite3_syscall_ptr)failing_write);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        int n_failed = 0;
        for (long n = 1;; n += i == 0 ? 1 : 5) {
            dunlin_status status = DUNLIN_OK;
            bool is_ended = false;
            begin();
            n_writes = 0;
            fail_from = n;
            write_error = CASES[i].os_error;
            while (status == DUNLIN_OK && !is_ended) {
                int64_t wait_ms = 0;
                status = dunlin_client_step(w.client, 0, &wait_ms, &is_ended, NULL);
                w.server.now_ms += wait_ms;
            }
            write_error = 0;
            bool was_reached = n_writes >= n;
            if (status != DUNLIN_OK) {
                n_failed++;
                cr_expect_eq(status, CASES[i].status, "write %ld: %s: %s", n,
                             dunlin_status_name(status), dunlin_client_last_error(w.client)->text);
                expect_app_files("a write that failed");
            }
            if (n % 2 == 0) {
                fake_world_close(&w);
                fake_world_open(&w);
            }
            if (w.server.n_contributions == 0 || status != DUNLIN_OK) {
                finish_round("after a write that failed");
            }
            cr_expect_eq(w.server.n_contributions, 1, "write %ld", n);
            cr_expect_leq(w.server.n_enrolled, 2, "write %ld", n);
            end();
            if (!was_reached) {
                cr_expect_geq(n_failed, i == 0 ? 8 : 2);
                break;
            }
        }
    }
    put_before_sqlite("pwrite", NULL);
    put_before_sqlite("pwrite64", NULL);
}
