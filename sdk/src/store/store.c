/*
 * store.c - the journal in SQLite: one row a client.
 *
 * Invariant: every statement of the three that write is one transaction, so a row is always a state
 * the client was in. The database is never reset by us: what cannot be read is reported and left as
 * it is.
 */
#include "store.h"

#include "database.h"

#include <mem/support.h>
#include <wire/messages.h>

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <string.h>

#define FAILURES_MOST 64 /* more of them in a row are not counted */

struct dunlin__store {
    dunlin_alloc alloc;
    pthread_mutex_t lock;
    dunlin__database database;
    sqlite3_stmt *load;
    sqlite3_stmt *save;
    sqlite3_stmt *save_assignment;
    sqlite3_stmt *load_assignment;
    sqlite3_stmt *forget;
};

/* Migration i brings a database from schema i to i + 1. */
static const char *const MIGRATIONS[DUNLIN_STORE_SCHEMA] = {
    "CREATE TABLE clients ("
    " name TEXT PRIMARY KEY NOT NULL, device_id TEXT NOT NULL, private_key BLOB NOT NULL,"
    " challenge TEXT NOT NULL, counter INTEGER NOT NULL,"
    " wait_wall_ms INTEGER NOT NULL, wait_boot_ms INTEGER NOT NULL, wait_boot_id TEXT NOT NULL,"
    " wait_ms INTEGER NOT NULL, seen_epoch INTEGER NOT NULL, seen_round INTEGER NOT NULL,"
    " contributed_wall_ms INTEGER NOT NULL, contributed_round INTEGER NOT NULL,"
    " phase INTEGER NOT NULL, begun_wall_ms INTEGER NOT NULL, begun_boot_ms INTEGER NOT NULL,"
    " begun_boot_id TEXT NOT NULL, session TEXT NOT NULL, offer_id TEXT NOT NULL, key TEXT NOT "
    "NULL,"
    " accepted_wait_ms INTEGER NOT NULL, rejected_wait_ms INTEGER NOT NULL,"
    " n_examples INTEGER NOT NULL, n_steps INTEGER NOT NULL, learn_ms INTEGER NOT NULL,"
    " loss REAL NOT NULL, accuracy REAL NOT NULL, peak_bytes INTEGER NOT NULL,"
    " sent_bytes INTEGER NOT NULL, received_bytes INTEGER NOT NULL, assignment BLOB) WITHOUT "
    "ROWID;",
    "ALTER TABLE clients ADD COLUMN checkpoint INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN installation BLOB NOT NULL DEFAULT"
    " x'0000000000000000000000000000000000000000000000000000000000000000';",
    "ALTER TABLE clients ADD COLUMN evaluated INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN loss_before REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN accuracy_before REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN loss_after REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN accuracy_after REAL NOT NULL DEFAULT 0;",
    "ALTER TABLE clients ADD COLUMN kept_pending INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN kept_epoch INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN kept_task TEXT NOT NULL DEFAULT '';",
    "ALTER TABLE clients ADD COLUMN n_failures INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN failing_wall_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN failing_boot_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN failing_boot_id TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE clients ADD COLUMN n_refusals INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE clients ADD COLUMN refused_phase INTEGER NOT NULL DEFAULT 0;",
    ("ALTER TABLE clients ADD COLUMN kept_round INTEGER NOT NULL DEFAULT 0;"
     "ALTER TABLE clients ADD COLUMN within_clip INTEGER NOT NULL DEFAULT 0;")};

#define COLUMNS                                                                                    \
    "name, device_id, private_key, challenge, counter, wait_wall_ms, wait_boot_ms, wait_boot_id,"  \
    " wait_ms, seen_epoch, seen_round, contributed_wall_ms, contributed_round, phase,"             \
    " begun_wall_ms, begun_boot_ms, begun_boot_id, session, offer_id, key, accepted_wait_ms,"      \
    " rejected_wait_ms, n_examples, n_steps, learn_ms, loss, accuracy, peak_bytes, sent_bytes,"    \
    " received_bytes, checkpoint, installation, evaluated, loss_before, accuracy_before,"          \
    " loss_after, accuracy_after, kept_pending, kept, kept_epoch, kept_task,"                      \
    " n_failures, failing_wall_ms, failing_boot_ms, failing_boot_id, n_refusals, refused_phase,"   \
    " kept_round, within_clip"
#define N_COLUMNS 49
#define PLACES                                                                                     \
    "?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24,?25,"  \
    "?26,?27,?28,?29,?30,?31,?32,?33,?34,?35,?36,?37,?38,?39,?40,?41,?42,?43,?44,?45,?46,?47,"     \
    "?48,?49"

static const char SAVE_SQL[] = "INSERT INTO clients (" COLUMNS ") VALUES (" PLACES ")"
                               " ON CONFLICT (name) DO UPDATE SET (" COLUMNS ") = (" PLACES ")";
static const char SAVE_ASSIGNMENT_SQL[] =
    "INSERT INTO clients (" COLUMNS ", assignment) VALUES (" PLACES ",?50)"
    " ON CONFLICT (name) DO UPDATE SET (" COLUMNS ", assignment) = (" PLACES ",?50)";

static dunlin_status prepare_all(dunlin__store *store, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__database_prepare(
        &store->database, "SELECT " COLUMNS " FROM clients WHERE name = ?1", &store->load, error));
    DUNLIN_TRY(dunlin__database_prepare(&store->database, SAVE_SQL, &store->save, error));
    DUNLIN_TRY(dunlin__database_prepare(&store->database, SAVE_ASSIGNMENT_SQL,
                                        &store->save_assignment, error));
    DUNLIN_TRY(dunlin__database_prepare(&store->database,
                                        "SELECT assignment FROM clients WHERE name = ?1",
                                        &store->load_assignment, error));
    return dunlin__database_prepare(&store->database, "DELETE FROM clients WHERE name = ?1",
                                    &store->forget, error);
}

static const dunlin__database_plan PLAN = {.subsystem = "store",
                                           .name = "store",
                                           .file = "dunlin.db",
                                           .pragmas = "",
                                           .migrations = MIGRATIONS,
                                           .n_migrations = DUNLIN_STORE_SCHEMA};

dunlin_status dunlin__store_open(const char *folder, const dunlin_alloc *alloc,
                                 dunlin__store **out_store, dunlin_error *error)
{
    *out_store = NULL;
    dunlin__store *store = dunlin__alloc_zeroed(alloc, 1, sizeof *store);
    if (store == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "store", 0, "no memory for the store");
    }
    store->alloc = *alloc;
    (void)pthread_mutex_init(&store->lock, NULL);
    dunlin_status status = dunlin__database_open(&store->database, folder, &PLAN, error);
    if (status == DUNLIN_OK) {
        status = prepare_all(store, error);
    }
    if (status != DUNLIN_OK) {
        dunlin__store_close(store);
        return status;
    }
    *out_store = store;
    return DUNLIN_OK;
}

dunlin_status dunlin__store_relax(dunlin__store *store, bool has_moments, dunlin_error *error)
{
    (void)pthread_mutex_lock(&store->lock);
    const dunlin_status status =
        dunlin__database_run(&store->database, "giving up syncs",
                             "PRAGMA synchronous = OFF; PRAGMA secure_delete = OFF;", error);
    (void)pthread_mutex_unlock(&store->lock);
    return status == DUNLIN_OK && has_moments ? dunlin__store_keep_log(store, error) : status;
}

dunlin_status dunlin__store_keep_log(dunlin__store *store, dunlin_error *error)
{
    (void)pthread_mutex_lock(&store->lock);
    (void)sqlite3_db_config(store->database.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    const dunlin_status status = dunlin__database_run(&store->database, "keeping the log",
                                                      "PRAGMA wal_autocheckpoint = 0;", error);
    (void)pthread_mutex_unlock(&store->lock);
    return status;
}

void dunlin__store_settle(dunlin__store *store)
{
    (void)pthread_mutex_lock(&store->lock);
    dunlin__database_empty_log(&store->database);
    (void)pthread_mutex_unlock(&store->lock);
}

void dunlin__store_close(dunlin__store *store)
{
    if (store == NULL) {
        return;
    }
    (void)sqlite3_finalize(store->load);
    (void)sqlite3_finalize(store->save);
    (void)sqlite3_finalize(store->save_assignment);
    (void)sqlite3_finalize(store->load_assignment);
    (void)sqlite3_finalize(store->forget);
    dunlin__database_close(&store->database);
    (void)pthread_mutex_destroy(&store->lock);
    dunlin_alloc alloc = store->alloc;
    dunlin__free_array(&alloc, store, 1, sizeof *store);
}

static void bind_text(sqlite3_stmt *statement, int index, const char *text)
{
    (void)sqlite3_bind_text(statement, index, text, -1, SQLITE_STATIC);
}

static void bind_int(sqlite3_stmt *statement, int index, int64_t value)
{
    (void)sqlite3_bind_int64(statement, index, value);
}

static void bind_journal(sqlite3_stmt *statement, const char *client,
                         const dunlin__journal *journal)
{
    bind_text(statement, 1, client);
    bind_text(statement, 2, journal->device_id);
    (void)sqlite3_bind_blob(statement, 3, journal->private_key, sizeof journal->private_key,
                            SQLITE_STATIC);
    bind_text(statement, 4, journal->challenge);
    bind_int(statement, 5, (int64_t)journal->counter);
    bind_int(statement, 6, journal->wait_from.wall_ms);
    bind_int(statement, 7, journal->wait_from.boot_ms);
    bind_text(statement, 8, journal->wait_from.boot_id);
    bind_int(statement, 9, journal->wait_ms);
    bind_int(statement, 10, (int64_t)journal->seen_epoch);
    bind_int(statement, 11, (int64_t)journal->seen_round);
    bind_int(statement, 12, journal->contributed_wall_ms);
    bind_int(statement, 13, (int64_t)journal->contributed_round);
    bind_int(statement, 14, (int64_t)journal->phase);
    bind_int(statement, 15, journal->begun.wall_ms);
    bind_int(statement, 16, journal->begun.boot_ms);
    bind_text(statement, 17, journal->begun.boot_id);
    bind_text(statement, 18, journal->session);
    bind_text(statement, 19, journal->offer_id);
    bind_text(statement, 20, journal->key);
    bind_int(statement, 21, journal->accepted_wait_ms);
    bind_int(statement, 22, journal->rejected_wait_ms);
    bind_int(statement, 23, journal->n_examples);
    bind_int(statement, 24, journal->n_steps);
    bind_int(statement, 25, journal->learn_ms);
    (void)sqlite3_bind_double(statement, 26, journal->loss);
    (void)sqlite3_bind_double(statement, 27, journal->accuracy);
    bind_int(statement, 28, (int64_t)journal->peak_bytes);
    bind_int(statement, 29, (int64_t)journal->sent_bytes);
    bind_int(statement, 30, (int64_t)journal->received_bytes);
    bind_int(statement, 31, journal->checkpoint);
    (void)sqlite3_bind_blob(statement, 32, journal->installation, sizeof journal->installation,
                            SQLITE_STATIC);
    bind_int(statement, 33, journal->evaluated);
    (void)sqlite3_bind_double(statement, 34, journal->loss_before);
    (void)sqlite3_bind_double(statement, 35, journal->accuracy_before);
    (void)sqlite3_bind_double(statement, 36, journal->loss_after);
    (void)sqlite3_bind_double(statement, 37, journal->accuracy_after);
    bind_int(statement, 38, journal->kept_pending);
    bind_int(statement, 39, journal->kept);
    bind_int(statement, 40, (int64_t)journal->kept_epoch);
    bind_text(statement, 41, journal->kept_task);
    bind_int(statement, 42, journal->n_failures);
    bind_int(statement, 43, journal->failing_since.wall_ms);
    bind_int(statement, 44, journal->failing_since.boot_ms);
    bind_text(statement, 45, journal->failing_since.boot_id);
    bind_int(statement, 46, journal->n_refusals);
    bind_int(statement, 47, (int64_t)journal->refused_phase);
    bind_int(statement, 48, (int64_t)journal->kept_round);
    bind_int(statement, 49, journal->within_clip);
}

/* A text column into a field of fixed size; what does not fit is a damaged row. */
static bool take_text(sqlite3_stmt *statement, int column, char *out, size_t capacity)
{
    const unsigned char *text = sqlite3_column_text(statement, column);
    int length = sqlite3_column_bytes(statement, column);
    if (text == NULL || length < 0 || (size_t)length >= capacity) {
        return false;
    }
    memcpy(out, text, (size_t)length);
    out[length] = '\0';
    return true;
}

static bool take_bytes(sqlite3_stmt *statement, int column, uint8_t *out, size_t n_bytes)
{
    const void *bytes = sqlite3_column_blob(statement, column);
    if (bytes == NULL || sqlite3_column_bytes(statement, column) != (int)n_bytes) {
        return false;
    }
    memcpy(out, bytes, n_bytes);
    return true;
}

/* A small number that must be within [0, most]. */
static bool take_small(sqlite3_stmt *row, int column, int64_t most, int32_t *out)
{
    int64_t value = sqlite3_column_int64(row, column);
    *out = (int32_t)value;
    return value >= 0 && value <= most;
}

static bool take_journal(sqlite3_stmt *row, dunlin__journal *out)
{
    int32_t phase = 0;
    int32_t refused_phase = 0;
    bool is_ok = take_text(row, 1, out->device_id, sizeof out->device_id) &&
                 take_text(row, 3, out->challenge, sizeof out->challenge) &&
                 take_text(row, 7, out->wait_from.boot_id, sizeof out->wait_from.boot_id) &&
                 take_text(row, 16, out->begun.boot_id, sizeof out->begun.boot_id) &&
                 take_text(row, 17, out->session, sizeof out->session) &&
                 take_text(row, 18, out->offer_id, sizeof out->offer_id) &&
                 take_text(row, 19, out->key, sizeof out->key) &&
                 take_text(row, 40, out->kept_task, sizeof out->kept_task) &&
                 take_text(row, 44, out->failing_since.boot_id, sizeof out->failing_since.boot_id);
    is_ok = is_ok && take_bytes(row, 2, out->private_key, sizeof out->private_key) &&
            take_bytes(row, 31, out->installation, sizeof out->installation);
    is_ok = is_ok && take_small(row, 13, DUNLIN_PHASE_ABORT, &phase) &&
            take_small(row, 30, 2, &out->checkpoint) &&
            take_small(row, 32, DUNLIN_EVALUATED_BOTH, &out->evaluated) &&
            take_small(row, 37, 2, &out->kept_pending) && take_small(row, 38, 2, &out->kept) &&
            take_small(row, 41, FAILURES_MOST, &out->n_failures) &&
            take_small(row, 45, FAILURES_MOST, &out->n_refusals) &&
            take_small(row, 46, DUNLIN_PHASE_ABORT, &refused_phase) &&
            take_small(row, 48, DUNLIN_V1_WITHIN_CLIP_NO, &out->within_clip);
    if (!is_ok) {
        return false;
    }
    out->counter = (uint64_t)sqlite3_column_int64(row, 4);
    out->wait_from.wall_ms = sqlite3_column_int64(row, 5);
    out->wait_from.boot_ms = sqlite3_column_int64(row, 6);
    out->wait_ms = sqlite3_column_int64(row, 8);
    out->seen_epoch = (uint64_t)sqlite3_column_int64(row, 9);
    out->seen_round = (uint64_t)sqlite3_column_int64(row, 10);
    out->contributed_wall_ms = sqlite3_column_int64(row, 11);
    out->contributed_round = (uint64_t)sqlite3_column_int64(row, 12);
    out->phase = (dunlin_phase)phase;
    out->failing_since.wall_ms = sqlite3_column_int64(row, 42);
    out->failing_since.boot_ms = sqlite3_column_int64(row, 43);
    out->refused_phase = (dunlin_phase)refused_phase;
    out->begun.wall_ms = sqlite3_column_int64(row, 14);
    out->begun.boot_ms = sqlite3_column_int64(row, 15);
    out->accepted_wait_ms = sqlite3_column_int64(row, 20);
    out->rejected_wait_ms = sqlite3_column_int64(row, 21);
    out->n_examples = sqlite3_column_int64(row, 22);
    out->n_steps = sqlite3_column_int64(row, 23);
    out->learn_ms = sqlite3_column_int64(row, 24);
    out->loss = sqlite3_column_double(row, 25);
    out->accuracy = sqlite3_column_double(row, 26);
    out->peak_bytes = (uint64_t)sqlite3_column_int64(row, 27);
    out->sent_bytes = (uint64_t)sqlite3_column_int64(row, 28);
    out->received_bytes = (uint64_t)sqlite3_column_int64(row, 29);
    out->kept_round = (uint64_t)sqlite3_column_int64(row, 47);
    out->kept_epoch = (uint64_t)sqlite3_column_int64(row, 39);
    out->loss_before = sqlite3_column_double(row, 33);
    out->accuracy_before = sqlite3_column_double(row, 34);
    out->loss_after = sqlite3_column_double(row, 35);
    out->accuracy_after = sqlite3_column_double(row, 36);
    return out->n_examples >= 0 && out->n_steps >= 0 && out->learn_ms >= 0 && out->wait_ms >= 0 &&
           out->accepted_wait_ms >= 0 && out->rejected_wait_ms >= 0;
}

/* Leaves a statement ready for its next use and releases the lock. */
static void leave(dunlin__store *store, sqlite3_stmt *statement)
{
    (void)sqlite3_reset(statement);
    (void)sqlite3_clear_bindings(statement);
    (void)pthread_mutex_unlock(&store->lock);
}

dunlin_status dunlin__store_load(dunlin__store *store, const char *client,
                                 dunlin__journal *out_journal, bool *out_is_known,
                                 dunlin_error *error)
{
    memset(out_journal, 0, sizeof *out_journal);
    *out_is_known = false;
    (void)pthread_mutex_lock(&store->lock);
    bind_text(store->load, 1, client);
    errno = 0;
    int code = sqlite3_step(store->load);
    dunlin_status status = DUNLIN_OK;
    if (code == SQLITE_ROW) {
        *out_is_known = take_journal(store->load, out_journal);
        if (!*out_is_known) {
            memset(out_journal, 0, sizeof *out_journal);
            status = dunlin__fail(error, DUNLIN_DATA, "store", 0,
                                  "the journal of client %.64s is damaged", client);
        }
    } else if (code != SQLITE_DONE) {
        status = dunlin__database_fail(&store->database, "reading a journal", code, error);
    }
    leave(store, store->load);
    return status;
}

/* Runs a statement that gives no rows; called with the lock held. */
static dunlin_status finish(dunlin__store *store, sqlite3_stmt *statement, const char *what,
                            dunlin_error *error)
{
    errno = 0;
    int code = sqlite3_step(statement);
    dunlin_status status = code == SQLITE_DONE
                               ? DUNLIN_OK
                               : dunlin__database_fail(&store->database, what, code, error);
    leave(store, statement);
    return status;
}

dunlin_status dunlin__store_save(dunlin__store *store, const char *client,
                                 const dunlin__journal *journal, dunlin_error *error)
{
    (void)pthread_mutex_lock(&store->lock);
    bind_journal(store->save, client, journal);
    return finish(store, store->save, "writing a journal", error);
}

dunlin_status dunlin__store_save_assignment(dunlin__store *store, const char *client,
                                            const dunlin__journal *journal, const uint8_t *sealed,
                                            size_t n_bytes, dunlin_error *error)
{
    (void)pthread_mutex_lock(&store->lock);
    bind_journal(store->save_assignment, client, journal);
    if (n_bytes > 0) {
        (void)sqlite3_bind_blob(store->save_assignment, N_COLUMNS + 1, sealed, (int)n_bytes,
                                SQLITE_STATIC);
    }
    return finish(store, store->save_assignment, "writing an assignment", error);
}

dunlin_status dunlin__store_load_assignment(dunlin__store *store, const char *client,
                                            uint8_t *out_sealed, size_t capacity,
                                            size_t *out_n_bytes, dunlin_error *error)
{
    *out_n_bytes = 0;
    (void)pthread_mutex_lock(&store->lock);
    bind_text(store->load_assignment, 1, client);
    errno = 0;
    int code = sqlite3_step(store->load_assignment);
    dunlin_status status = DUNLIN_OK;
    if (code == SQLITE_ROW) {
        int n_bytes = sqlite3_column_bytes(store->load_assignment, 0);
        const void *bytes = sqlite3_column_blob(store->load_assignment, 0);
        if (n_bytes < 0 || (size_t)n_bytes > capacity) {
            status = dunlin__fail(error, DUNLIN_DATA, "store", 0,
                                  "the assignment of client %.64s is damaged", client);
        } else if (n_bytes > 0) {
            memcpy(out_sealed, bytes, (size_t)n_bytes);
            *out_n_bytes = (size_t)n_bytes;
        }
    } else if (code != SQLITE_DONE) {
        status = dunlin__database_fail(&store->database, "reading an assignment", code, error);
    }
    leave(store, store->load_assignment);
    return status;
}

dunlin_status dunlin__store_forget(dunlin__store *store, const char *client, dunlin_error *error)
{
    (void)pthread_mutex_lock(&store->lock);
    bind_text(store->forget, 1, client);
    dunlin_status status = finish(store, store->forget, "removing a client", error);
    if (status == DUNLIN_OK) {
        /* The log still holds the key; best effort, the next checkpoint does it otherwise. */
        dunlin__database_empty_log(&store->database);
    }
    return status;
}
