/*
 * test_store.c - the journal's database: round trips, other schemas, damage, locks, no room.
 */
#include "client/fake_server.h"
#include "client/storage.h"
#include "journals.h"

#include <criterion/criterion.h>

#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static dunlin_alloc alloc_of(void)
{
    return dunlin__alloc_or_default(NULL);
}

static dunlin__store *open_store(const char *folder)
{
    dunlin__store *store = NULL;
    dunlin_error error = {0};
    dunlin_alloc alloc = alloc_of();
    cr_assert_eq(dunlin__store_open(folder, &alloc, &store, &error), DUNLIN_OK, "%s", error.text);
    return store;
}

Test(store, round_trip)
{
    char folder[64];
    uint8_t sealed[900];
    uint8_t found[1000];
    size_t n_bytes = 0;
    bool is_known = true;
    dunlin__journal journal;
    dunlin__journal loaded;
    fake_folder_make(folder);
    dunlin__store *store = open_store(folder);
    cr_assert_eq(dunlin__store_load(store, "one", &loaded, &is_known, NULL), DUNLIN_OK);
    cr_expect_not(is_known);
    for (size_t i = 0; i < sizeof sealed; i++) {
        sealed[i] = (uint8_t)(i * 7);
    }
    test_journal_fill(&journal, 1);
    cr_assert_eq(dunlin__store_save(store, "one", &journal, NULL), DUNLIN_OK);
    test_journal_fill(&journal, 2);
    cr_assert_eq(dunlin__store_save_assignment(store, "two", &journal, sealed, sizeof sealed, NULL),
                 DUNLIN_OK);
    cr_assert_eq(dunlin__store_save(store, "two", &journal, NULL), DUNLIN_OK);
    dunlin__store_close(store);
    store = open_store(folder);
    for (uint8_t i = 1; i <= 2; i++) {
        test_journal_fill(&journal, i);
        cr_assert_eq(dunlin__store_load(store, i == 1 ? "one" : "two", &loaded, &is_known, NULL),
                     DUNLIN_OK);
        cr_expect(is_known);
        test_journal_expect_same(&journal, &loaded);
    }
    cr_assert_eq(dunlin__store_load_assignment(store, "two", found, sizeof found, &n_bytes, NULL),
                 DUNLIN_OK);
    cr_expect_eq(n_bytes, sizeof sealed);
    cr_expect_arr_eq(found, sealed, sizeof sealed);
    cr_expect_eq(dunlin__store_load_assignment(store, "two", found, 899, &n_bytes, NULL),
                 DUNLIN_DATA);
    cr_assert_eq(dunlin__store_load_assignment(store, "one", found, sizeof found, &n_bytes, NULL),
                 DUNLIN_OK);
    cr_expect_eq(n_bytes, 0);
    cr_assert_eq(dunlin__store_forget(store, "two", NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__store_load(store, "two", &loaded, &is_known, NULL), DUNLIN_OK);
    cr_expect_not(is_known);
    dunlin__store_close(store);
    fake_folder_remove(folder);
}

Test(store, private_to_its_owner)
{
    char folder[64];
    char inner[128];
    char path[160];
    struct stat about;
    fake_folder_make(folder);
    (void)snprintf(inner, sizeof inner, "%s/state", folder);
    (void)umask(0);
    dunlin__store_close(open_store(inner));
    cr_assert_eq(stat(inner, &about), 0);
    cr_expect_eq(about.st_mode & 0777, 0700);
    (void)snprintf(path, sizeof path, "%s/dunlin.db", inner);
    cr_assert_eq(stat(path, &about), 0);
    cr_expect_eq(about.st_mode & 0777, 0600);
    fake_folder_remove(folder);
}

static bool holds(const char *bytes, size_t n_bytes, const uint8_t *part, size_t n_part)
{
    for (size_t i = 0; i + n_part <= n_bytes; i++) {
        if (memcmp(bytes + i, part, n_part) == 0) {
            return true;
        }
    }
    return false;
}

/* The key of a client that was forgotten is in no file any more. */
Test(store, forgotten_keys_are_gone_from_the_files)
{
    static const char *const NAMES[] = {"dunlin.db", "dunlin.db-wal"};
    char folder[64];
    dunlin__journal journal;
    fake_folder_make(folder);
    dunlin__store *store = open_store(folder);
    test_journal_fill(&journal, 0xC7);
    cr_assert_eq(dunlin__store_save(store, "one", &journal, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin__store_forget(store, "one", NULL), DUNLIN_OK);
    for (size_t i = 0; i < 2; i++) {
        static char bytes[1 << 20];
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s", folder, NAMES[i]);
        int fd = open(path, O_RDONLY);
        ssize_t n_bytes = fd < 0 ? 0 : read(fd, bytes, sizeof bytes);
        cr_expect_not(n_bytes > 0 && holds(bytes, (size_t)n_bytes, journal.private_key, 32),
                      "%s still has the key", NAMES[i]);
        (void)close(fd);
    }
    dunlin__store_close(store);
    fake_folder_remove(folder);
}

/* --- what is refused and left as it is --- */

typedef struct snapshot {
    char *bytes;
    long n_bytes;
} snapshot;

static snapshot take_snapshot(const char *folder)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/dunlin.db", folder);
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file);
    (void)fseek(file, 0, SEEK_END);
    snapshot shot = {.n_bytes = ftell(file)};
    rewind(file);
    shot.bytes = malloc((size_t)shot.n_bytes + 1);
    cr_assert_eq(fread(shot.bytes, 1, (size_t)shot.n_bytes, file), (size_t)shot.n_bytes);
    (void)fclose(file);
    return shot;
}

static void expect_refused(const char *folder, dunlin_status wanted)
{
    snapshot before = take_snapshot(folder);
    dunlin__store *store = NULL;
    dunlin_error error = {0};
    dunlin_alloc alloc = alloc_of();
    dunlin_status status = dunlin__store_open(folder, &alloc, &store, &error);
    cr_expect_eq(status, wanted, "%s: %s", dunlin_status_name(status), error.text);
    cr_expect_null(store);
    cr_expect_eq(error.status, wanted);
    cr_expect_not_null(strstr(error.text, "store"));
    snapshot after = take_snapshot(folder);
    cr_expect_eq(before.n_bytes, after.n_bytes);
    cr_expect_eq(memcmp(before.bytes, after.bytes, (size_t)before.n_bytes), 0);
    free(before.bytes);
    free(after.bytes);
}

Test(store, a_newer_schema_is_left_alone)
{
    char folder[64];
    fake_folder_make(folder);
    dunlin__store_close(open_store(folder));
    storage_run_sql(folder, "dunlin.db", "PRAGMA user_version = 99");
    expect_refused(folder, DUNLIN_VERSION);
    fake_folder_remove(folder);
}

/* A database as the first version of the library left it: what it holds is kept, and what is new
 * begins at nothing. */
Test(store, an_older_schema_is_brought_up)
{
    static const char FIRST[] =
        "DROP TABLE clients; CREATE TABLE clients ("
        " name TEXT PRIMARY KEY NOT NULL, device_id TEXT NOT NULL, private_key BLOB NOT NULL,"
        " challenge TEXT NOT NULL, counter INTEGER NOT NULL, wait_wall_ms INTEGER NOT NULL,"
        " wait_boot_ms INTEGER NOT NULL, wait_boot_id TEXT NOT NULL, wait_ms INTEGER NOT NULL,"
        " seen_epoch INTEGER NOT NULL, seen_round INTEGER NOT NULL,"
        " contributed_wall_ms INTEGER NOT NULL, contributed_round INTEGER NOT NULL,"
        " phase INTEGER NOT NULL, begun_wall_ms INTEGER NOT NULL, begun_boot_ms INTEGER NOT NULL,"
        " begun_boot_id TEXT NOT NULL, session TEXT NOT NULL, offer_id TEXT NOT NULL,"
        " key TEXT NOT NULL, accepted_wait_ms INTEGER NOT NULL, rejected_wait_ms INTEGER NOT NULL,"
        " n_examples INTEGER NOT NULL, n_steps INTEGER NOT NULL, learn_ms INTEGER NOT NULL,"
        " loss REAL NOT NULL, accuracy REAL NOT NULL, peak_bytes INTEGER NOT NULL,"
        " sent_bytes INTEGER NOT NULL, received_bytes INTEGER NOT NULL, assignment BLOB)"
        " WITHOUT ROWID;"
        "INSERT INTO clients VALUES ('one', 'device-77', zeroblob(32), 'challenge-5', -4, 11, 12,"
        " 'boot-x', 13, 14, 15, 16, 17, 7, 18, 19, 'boot-y', 'session-1', 'offer-1',"
        " '0123456789abcdef0123456789abcdef', 20, 21, 22, 23, 24, 0.1, 0.2, 25, 26, 27, x'5A');"
        "PRAGMA user_version = 1";
    char folder[64];
    uint8_t sealed[8];
    size_t n_bytes = 0;
    bool is_known = false;
    dunlin__journal journal;
    dunlin__journal loaded;
    fake_folder_make(folder);
    dunlin__store_close(open_store(folder));
    storage_run_sql(folder, "dunlin.db", FIRST);
    dunlin__store *store = open_store(folder);
    test_journal_fill(&journal, 0);
    journal.checkpoint = 0;
    journal.kept_pending = journal.kept = 0;
    journal.kept_epoch = 0;
    journal.kept_task[0] = '\0';
    journal.n_failures = journal.n_refusals = 0;
    journal.failing_since = (dunlin__moment){0};
    journal.refused_phase = DUNLIN_PHASE_IDLE;
    journal.kept_round = 0;
    journal.within_clip = 0;
    journal.evaluated = 0;
    journal.loss_before = journal.accuracy_before = 0;
    journal.loss_after = journal.accuracy_after = 0;
    cr_assert_eq(dunlin__store_load(store, "one", &loaded, &is_known, NULL), DUNLIN_OK);
    cr_assert(is_known);
    test_journal_expect_same(&journal, &loaded);
    cr_assert_eq(dunlin__store_load_assignment(store, "one", sealed, sizeof sealed, &n_bytes, NULL),
                 DUNLIN_OK);
    cr_expect(n_bytes == 1 && sealed[0] == 0x5A);
    journal.checkpoint = 2;
    cr_assert_eq(dunlin__store_save(store, "one", &journal, NULL), DUNLIN_OK);
    dunlin__store_close(store);
    store = open_store(folder); /* and is not brought up twice */
    cr_assert_eq(dunlin__store_load(store, "one", &loaded, &is_known, NULL), DUNLIN_OK);
    test_journal_expect_same(&journal, &loaded);
    dunlin__store_close(store);
    fake_folder_remove(folder);
}

/* A client that waits in a database of schema 4 goes on waiting, and its rows of failures begin at
 * nothing. */
Test(store, schema_4_is_brought_up)
{
    static const char FOURTH[] = "ALTER TABLE clients DROP COLUMN n_failures;"
                                 "ALTER TABLE clients DROP COLUMN failing_wall_ms;"
                                 "ALTER TABLE clients DROP COLUMN failing_boot_ms;"
                                 "ALTER TABLE clients DROP COLUMN failing_boot_id;"
                                 "ALTER TABLE clients DROP COLUMN n_refusals;"
                                 "ALTER TABLE clients DROP COLUMN refused_phase;"
                                 "ALTER TABLE clients DROP COLUMN kept_round;"
                                 "ALTER TABLE clients DROP COLUMN within_clip;"
                                 "PRAGMA user_version = 4";
    char folder[64];
    bool is_known = false;
    dunlin__journal journal;
    dunlin__journal loaded;
    fake_folder_make(folder);
    dunlin__store *store = open_store(folder);
    test_journal_fill(&journal, 9);
    cr_assert_eq(dunlin__store_save(store, "one", &journal, NULL), DUNLIN_OK);
    dunlin__store_close(store);
    storage_run_sql(folder, "dunlin.db", FOURTH);
    store = open_store(folder);
    cr_assert_eq(dunlin__store_load(store, "one", &loaded, &is_known, NULL), DUNLIN_OK);
    cr_assert(is_known);
    journal.n_failures = journal.n_refusals = 0;
    journal.failing_since = (dunlin__moment){0};
    journal.refused_phase = DUNLIN_PHASE_IDLE;
    journal.kept_round = 0;
    journal.within_clip = 0;
    test_journal_expect_same(&journal, &loaded);
    dunlin__store_close(store);
    fake_folder_remove(folder);
}

Test(store, a_file_that_is_no_database_is_left_alone)
{
    char folder[64];
    fake_folder_make(folder);
    dunlin__store_close(open_store(folder));
    storage_overwrite(folder, "dunlin.db", 0, 100);
    expect_refused(folder, DUNLIN_DATA);
    fake_folder_remove(folder);
}

Test(store, a_damaged_page_is_told)
{
    char folder[64];
    dunlin__journal journal;
    bool is_known = false;
    dunlin_error error = {0};
    dunlin__store *store = NULL;
    dunlin_alloc alloc = alloc_of();
    fake_folder_make(folder);
    store = open_store(folder);
    test_journal_fill(&journal, 1);
    cr_assert_eq(dunlin__store_save(store, "one", &journal, NULL), DUNLIN_OK);
    dunlin__store_close(store);
    storage_overwrite(folder, "dunlin.db", 4096, 2048);
    dunlin_status status = dunlin__store_open(folder, &alloc, &store, &error);
    if (status == DUNLIN_OK) {
        status = dunlin__store_load(store, "one", &journal, &is_known, &error);
        dunlin__store_close(store);
    }
    cr_expect_eq(status, DUNLIN_DATA, "%s: %s", dunlin_status_name(status), error.text);
    fake_folder_remove(folder);
}

Test(store, rows_that_no_client_wrote_are_told)
{
    static const char *const EDITS[] = {
        "UPDATE clients SET phase = 50",
        "UPDATE clients SET phase = -1",
        "UPDATE clients SET checkpoint = 3",
        "UPDATE clients SET evaluated = 4",
        "UPDATE clients SET kept = 3",
        "UPDATE clients SET kept_pending = -1",
        "UPDATE clients SET installation = x'00'",
        "UPDATE clients SET private_key = x'00'",
        "UPDATE clients SET private_key = zeroblob(33)",
        "UPDATE clients SET device_id = printf('%.*c', 65, 'x')",
        "UPDATE clients SET key = printf('%.*c', 33, 'x')",
        "UPDATE clients SET wait_boot_id = printf('%.*c', 40, 'x')"};
    for (size_t i = 0; i < sizeof EDITS / sizeof EDITS[0]; i++) {
        char folder[64];
        dunlin__journal journal;
        dunlin_error error = {0};
        bool is_known = true;
        fake_folder_make(folder);
        dunlin__store *store = open_store(folder);
        test_journal_fill(&journal, 1);
        cr_assert_eq(dunlin__store_save(store, "one", &journal, NULL), DUNLIN_OK);
        dunlin__store_close(store);
        storage_run_sql(folder, "dunlin.db", EDITS[i]);
        store = open_store(folder);
        cr_expect_eq(dunlin__store_load(store, "one", &journal, &is_known, &error), DUNLIN_DATA,
                     "%s", EDITS[i]);
        cr_expect_not(is_known);
        cr_expect_eq(journal.counter, 0);
        dunlin__store_close(store);
        fake_folder_remove(folder);
    }
}

/* Another process holds the database; the busy wait is 5 s, so the test takes that long once. */
Test(store, held_by_another_process_is_locked)
{
    char folder[64];
    int ready[2];
    int done[2];
    char byte = 0;
    fake_folder_make(folder);
    dunlin__store_close(open_store(folder));
    cr_assert_eq(pipe(ready), 0);
    cr_assert_eq(pipe(done), 0);
    pid_t child = fork();
    if (child == 0) {
        char path[128];
        sqlite3 *db = NULL;
        (void)snprintf(path, sizeof path, "%s/dunlin.db", folder);
        bool is_held = sqlite3_open(path, &db) == SQLITE_OK &&
                       sqlite3_exec(db, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE", NULL,
                                    NULL, NULL) == SQLITE_OK;
        byte = is_held ? 'y' : 'n';
        (void)!write(ready[1], &byte, 1);
        (void)!read(done[0], &byte, 1);
        _exit(0);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    cr_assert_eq(byte, 'y');
    expect_refused(folder, DUNLIN_LOCKED);
    cr_assert_eq(write(done[1], &byte, 1), 1);
    (void)waitpid(child, NULL, 0);
    dunlin__store_close(open_store(folder)); /* later it is there again */
    fake_folder_remove(folder);
}

/* In a child, since the limit on file sizes is the process's. */
static int save_without_room(const char *folder)
{
    struct rlimit limit = {.rlim_cur = 8192, .rlim_max = 8192};
    dunlin__journal journal;
    dunlin_error error = {0};
    (void)signal(SIGXFSZ, SIG_IGN);
    dunlin__store *store = open_store(folder);
    test_journal_fill(&journal, 1);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 1;
    }
    for (int i = 0; i < 100; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "client-%d", i);
        dunlin_status status = dunlin__store_save(store, name, &journal, &error);
        if (status != DUNLIN_OK) {
            return status == DUNLIN_SPACE && error.status == DUNLIN_SPACE ? 42 : 2;
        }
    }
    return 3;
}

Test(store, no_room_is_told_and_what_was_there_stays)
{
    char folder[64];
    dunlin__journal journal;
    dunlin__journal loaded;
    bool is_known = false;
    int status = 0;
    fake_folder_make(folder);
    dunlin__store *store = open_store(folder);
    test_journal_fill(&journal, 9);
    cr_assert_eq(dunlin__store_save(store, "before", &journal, NULL), DUNLIN_OK);
    dunlin__store_close(store);
    pid_t child = fork();
    if (child == 0) {
        _exit(save_without_room(folder));
    }
    (void)waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status));
    cr_expect_eq(WEXITSTATUS(status), 42, "%d", WEXITSTATUS(status));
    store = open_store(folder);
    cr_assert_eq(dunlin__store_load(store, "before", &loaded, &is_known, NULL), DUNLIN_OK);
    cr_expect(is_known);
    test_journal_expect_same(&journal, &loaded);
    dunlin__store_close(store);
    fake_folder_remove(folder);
}

Test(store, a_folder_that_cannot_be_made_is_named)
{
    dunlin__store *store = NULL;
    dunlin_error error = {0};
    dunlin_alloc alloc = alloc_of();
    cr_expect_eq(dunlin__store_open("/proc/nothing/here", &alloc, &store, &error), DUNLIN_IO);
    cr_expect_not_null(strstr(error.text, "/proc/nothing/here"));
    char path[1100];
    memset(path, 'x', sizeof path);
    path[0] = '/';
    path[sizeof path - 1] = '\0';
    cr_expect_neq(dunlin__store_open(path, &alloc, &store, &error), DUNLIN_OK);
}
