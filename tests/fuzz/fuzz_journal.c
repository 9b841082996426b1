/*
 * fuzz_journal.c - any bytes as the client's database (first byte even), or any values in a row of
 * a sound one (odd): refused in one line, or a journal within its bounds that is written and read
 * again to the same. A row is given as column, kind, length and bytes, repeatedly.
 */
#include "store/store.h"

#include <mem/support.h>

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CLIENT "default"
#define PATH_BYTES 128

static char folder[PATH_BYTES / 4]; /* of the database that the input is */
static char row_folder[PATH_BYTES / 2];
static dunlin__store *row_store; /* the sound one, and another handle on it */
static sqlite3 *row_database;
static dunlin__journal journal;
static dunlin__journal again;

/* Those whose values the client takes a second look at, and some that it does not. */
static const char *const COLUMNS[] = {"device_id",
                                      "private_key",
                                      "challenge",
                                      "counter",
                                      "wait_wall_ms",
                                      "wait_boot_ms",
                                      "wait_boot_id",
                                      "wait_ms",
                                      "seen_epoch",
                                      "seen_round",
                                      "phase",
                                      "begun_boot_id",
                                      "session",
                                      "offer_id",
                                      "key",
                                      "accepted_wait_ms",
                                      "n_examples",
                                      "learn_ms",
                                      "loss",
                                      "accuracy",
                                      "sent_bytes",
                                      "checkpoint",
                                      "installation",
                                      "evaluated",
                                      "loss_before",
                                      "kept_pending",
                                      "kept",
                                      "kept_epoch",
                                      "kept_task",
                                      "assignment",
                                      "rejected_wait_ms",
                                      "peak_bytes",
                                      "n_failures",
                                      "failing_wall_ms",
                                      "failing_boot_id",
                                      "n_refusals",
                                      "refused_phase"};
#define N_COLUMNS (sizeof COLUMNS / sizeof COLUMNS[0])

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

static void require_told(dunlin_status status, const dunlin_error *error)
{
    require(error->status == status && error->text[0] != '\0');
}

static void remove_files(const char *from)
{
    static const char *const NAMES[] = {"dunlin.db", "dunlin.db-wal", "dunlin.db-shm",
                                        "dunlin.db-journal"};
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", from, NAMES[i]);
        (void)unlink(path);
    }
}

static void remove_folders(void)
{
    (void)sqlite3_close(row_database);
    dunlin__store_close(row_store);
    remove_files(folder);
    remove_files(row_folder);
    (void)rmdir(folder);
    (void)rmdir(row_folder);
}

/* In memory where the system has such a place: every input opens a database. */
static void prepare(void)
{
    char path[PATH_BYTES];
    dunlin_error error = {0};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    if (row_store != NULL) {
        return;
    }
    (void)snprintf(folder, sizeof folder, "%s/dunlin-fuzz-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    require(mkdtemp(folder) != NULL && atexit(remove_folders) == 0);
    (void)snprintf(row_folder, sizeof row_folder, "%s-row", folder);
    require(dunlin__store_open(row_folder, &alloc, &row_store, &error) == DUNLIN_OK);
    (void)snprintf(path, sizeof path, "%s/dunlin.db", row_folder);
    require(sqlite3_open(path, &row_database) == SQLITE_OK);
}

static bool is_text(const char *text, size_t capacity)
{
    return memchr(text, '\0', capacity) != NULL;
}

/* What the client relies on without a further look. */
static void require_bounds(const dunlin__journal *of)
{
    require(is_text(of->device_id, sizeof of->device_id) &&
            is_text(of->challenge, sizeof of->challenge) &&
            is_text(of->session, sizeof of->session) &&
            is_text(of->offer_id, sizeof of->offer_id) && is_text(of->key, sizeof of->key) &&
            is_text(of->kept_task, sizeof of->kept_task) &&
            is_text(of->wait_from.boot_id, sizeof of->wait_from.boot_id) &&
            is_text(of->failing_since.boot_id, sizeof of->failing_since.boot_id) &&
            is_text(of->begun.boot_id, sizeof of->begun.boot_id));
    require(of->phase >= DUNLIN_PHASE_IDLE && of->phase <= DUNLIN_PHASE_ABORT);
    require(of->checkpoint >= 0 && of->checkpoint <= 2 && of->kept >= 0 && of->kept <= 2 &&
            of->kept_pending >= 0 && of->kept_pending <= 2);
    require(of->refused_phase >= DUNLIN_PHASE_IDLE && of->refused_phase <= DUNLIN_PHASE_ABORT &&
            of->n_failures >= 0 && of->n_refusals >= 0);
    require(of->evaluated >= 0 && of->evaluated <= DUNLIN_EVALUATED_BOTH);
}

/* Reads; what is sound goes back and comes again the same. A damaged file may refuse the writing.
 */
static void try_store(dunlin__store *store, bool must_save)
{
    static uint8_t sealed[1 << 16];
    bool is_known = false;
    size_t n_bytes = 0;
    dunlin_error error = {0};
    dunlin_status status =
        dunlin__store_load_assignment(store, CLIENT, sealed, sizeof sealed, &n_bytes, &error);
    require(status != DUNLIN_OK || n_bytes <= sizeof sealed);
    status = dunlin__store_load(store, CLIENT, &journal, &is_known, &error);
    if (status != DUNLIN_OK) {
        require_told(status, &error);
        return;
    }
    require_bounds(&journal);
    status = dunlin__store_save(store, CLIENT, &journal, &error);
    require(status == DUNLIN_OK || !must_save);
    if (status == DUNLIN_OK && must_save) {
        require(dunlin__store_load(store, CLIENT, &again, &is_known, &error) == DUNLIN_OK);
        /* A number that is none is kept as no number; all else to the byte. */
        require(is_known && strcmp(journal.device_id, again.device_id) == 0 &&
                journal.counter == again.counter && journal.phase == again.phase &&
                journal.wait_ms == again.wait_ms && journal.n_examples == again.n_examples &&
                strcmp(journal.key, again.key) == 0 &&
                memcmp(journal.private_key, again.private_key, sizeof again.private_key) == 0);
    }
}

static void try_file(const uint8_t *data, size_t size)
{
    char path[PATH_BYTES];
    dunlin__store *store = NULL;
    dunlin_error error = {0};
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    remove_files(folder);
    (void)snprintf(path, sizeof path, "%s/dunlin.db", folder);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    require(fd >= 0 && write(fd, data, size) == (ssize_t)size && close(fd) == 0);
    dunlin_status status = dunlin__store_open(folder, &alloc, &store, &error);
    if (status != DUNLIN_OK) {
        require_told(status, &error);
        return;
    }
    try_store(store, false);
    dunlin__store_close(store);
}

/* One value of the input into a column; false at the input's end. */
static bool put_value(sqlite3 *db, const uint8_t **data, size_t *size)
{
    sqlite3_stmt *statement = NULL;
    char sql[PATH_BYTES];
    if (*size < 3) {
        return false;
    }
    size_t column = (*data)[0] % N_COLUMNS;
    int kind = (*data)[1] % 4;
    size_t n = (*data)[2];
    *data += 3;
    *size -= 3;
    n = n < *size ? n : *size;
    (void)snprintf(sql, sizeof sql, "UPDATE clients SET %s = ?1", COLUMNS[column]);
    require(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK);
    int64_t number = 0;
    double real = 0.0;
    memcpy(&number, *data, n < sizeof number ? n : sizeof number);
    memcpy(&real, &number, sizeof real);
    if (kind == 0) {
        (void)sqlite3_bind_int64(statement, 1, number);
    } else if (kind == 1) {
        (void)sqlite3_bind_double(statement, 1, real);
    } else if (kind == 2) {
        (void)sqlite3_bind_text(statement, 1, (const char *)*data, (int)n, SQLITE_STATIC);
    } else {
        (void)sqlite3_bind_blob(statement, 1, n > 0 ? (const void *)*data : "", (int)n,
                                SQLITE_STATIC);
    }
    (void)sqlite3_step(statement); /* a number that is none is refused as a missing value */
    (void)sqlite3_finalize(statement);
    *data += n;
    *size -= n;
    return true;
}

static void try_row(const uint8_t *data, size_t size)
{
    dunlin_error error = {0};
    const dunlin__journal sound = {.device_id = "device"};
    require(dunlin__store_save(row_store, CLIENT, &sound, &error) == DUNLIN_OK);
    while (put_value(row_database, &data, &size)) {
    }
    try_store(row_store, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    prepare();
    if (size > 0 && data[0] % 2 == 0) {
        try_file(data + 1, size - 1);
    } else if (size > 0) {
        try_row(data + 1, size - 1);
    }
    return 0;
}
