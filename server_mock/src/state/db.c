/*
 * db.c - opens the database, keeps its prepared statements, begins and ends transactions.
 *
 * Invariant: one connection, one statement at a time, all under the server's lock; so SQLite's own
 * mutexes are off.
 */
#include "base/files.h"
#include "db_core.h"

#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA_VERSION 9

/* Migration i brings a database from schema i to i + 1. */
static const char *const migrations[SCHEMA_VERSION] = {
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE devices(row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    " public_key BLOB NOT NULL UNIQUE, client_index INTEGER NOT NULL);"
    "CREATE TABLE sessions(id TEXT PRIMARY KEY, device INTEGER NOT NULL, round INTEGER NOT NULL,"
    " state INTEGER NOT NULL, until_ms INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX sessions_device ON sessions(device);"
    "CREATE TABLE assignments(id TEXT NOT NULL UNIQUE, device INTEGER NOT NULL,"
    " round INTEGER NOT NULL, state INTEGER NOT NULL, token TEXT NOT NULL,"
    " deadline_ms INTEGER NOT NULL, manifest BLOB);"
    "CREATE INDEX assignments_round ON assignments(round, device);"
    "CREATE TABLE contributions(round INTEGER NOT NULL, client_index INTEGER NOT NULL,"
    " device INTEGER NOT NULL, assignment TEXT NOT NULL, weight REAL NOT NULL,"
    " n_steps INTEGER NOT NULL, train_ms INTEGER NOT NULL, loss REAL,"
    " PRIMARY KEY(round, client_index), UNIQUE(round, device)) WITHOUT ROWID;"
    "CREATE TABLE rounds(round INTEGER PRIMARY KEY, state INTEGER NOT NULL,"
    " reason INTEGER NOT NULL, opened_ms INTEGER NOT NULL, deadline_ms INTEGER NOT NULL,"
    " closed_ms INTEGER NOT NULL, n_participants INTEGER NOT NULL, n_dropped INTEGER NOT NULL,"
    " bytes_down INTEGER NOT NULL, bytes_up INTEGER NOT NULL, weight_sum REAL NOT NULL,"
    " train_loss REAL, accuracy REAL, loss REAL, is_failed INTEGER NOT NULL);"
    "CREATE TABLE answers(scope TEXT NOT NULL, key TEXT NOT NULL, request BLOB NOT NULL,"
    " http_code INTEGER NOT NULL, made_ms INTEGER NOT NULL, is_brief INTEGER NOT NULL,"
    " body BLOB NOT NULL, PRIMARY KEY(scope, key)) WITHOUT ROWID;"
    "CREATE INDEX answers_made ON answers(made_ms);"
    "PRAGMA user_version = 1;",
    "ALTER TABLE contributions ADD COLUMN accuracy REAL;"
    "ALTER TABLE contributions ADD COLUMN loss_before REAL;"
    "ALTER TABLE contributions ADD COLUMN accuracy_before REAL;"
    "ALTER TABLE contributions ADD COLUMN loss_after REAL;"
    "ALTER TABLE contributions ADD COLUMN accuracy_after REAL;"
    "ALTER TABLE rounds ADD COLUMN is_evaluation INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE rounds ADD COLUMN device_accuracy REAL;"
    "ALTER TABLE rounds ADD COLUMN loss_before REAL;"
    "ALTER TABLE rounds ADD COLUMN accuracy_before REAL;"
    "ALTER TABLE rounds ADD COLUMN loss_after REAL;"
    "ALTER TABLE rounds ADD COLUMN accuracy_after REAL;"
    "PRAGMA user_version = 2;",
    "CREATE TABLE telemetry(event INTEGER PRIMARY KEY, n INTEGER NOT NULL,"
    " count_sum REAL NOT NULL, value_sum REAL NOT NULL, value_min REAL NOT NULL,"
    " value_max REAL NOT NULL);"
    "PRAGMA user_version = 3;",
    /* A round of before has no base of its own: it began from the model of the round before it. */
    "ALTER TABLE contributions ADD COLUMN norm REAL;"
    "ALTER TABLE rounds ADD COLUMN base INTEGER;"
    "ALTER TABLE rounds ADD COLUMN is_taken_back INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE rounds ADD COLUMN n_scaled INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE rounds ADD COLUMN norm_bound REAL;"
    "ALTER TABLE rounds ADD COLUMN why TEXT NOT NULL DEFAULT '';"
    "PRAGMA user_version = 4;",
    "CREATE TABLE proofs(sha256 BLOB PRIMARY KEY, client_index INTEGER NOT NULL,"
    " public_key BLOB NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE replaced(row INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,"
    " at_ms INTEGER NOT NULL);"
    "PRAGMA user_version = 5;",
    /* The app's own metrics: of the open round by device, of closed ones together. */
    "CREATE TABLE app_metrics(round INTEGER NOT NULL, name TEXT NOT NULL,"
    " client_index INTEGER NOT NULL, value REAL NOT NULL,"
    " PRIMARY KEY(round, name, client_index)) WITHOUT ROWID;"
    "CREATE TABLE round_metrics(round INTEGER NOT NULL, name TEXT NOT NULL, n INTEGER NOT NULL,"
    " mean REAL NOT NULL, least REAL NOT NULL, most REAL NOT NULL,"
    " PRIMARY KEY(round, name)) WITHOUT ROWID;"
    "CREATE TABLE round_metrics_left(round INTEGER PRIMARY KEY, n INTEGER NOT NULL);"
    "PRAGMA user_version = 6;",
    "ALTER TABLE contributions ADD COLUMN within_clip INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE rounds ADD COLUMN clip_norm REAL;"
    "ALTER TABLE rounds ADD COLUMN clip_within REAL;"
    "PRAGMA user_version = 7;",
    /* Devices of before got work only if they could pack what the task wants packed. */
    "ALTER TABLE sessions ADD COLUMN packs INTEGER NOT NULL DEFAULT 1;"
    "ALTER TABLE sessions ADD COLUMN unpacks INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE assignments ADD COLUMN packs INTEGER NOT NULL DEFAULT 1;"
    "PRAGMA user_version = 8;",
    /* Rounds with noise: seeds, until they have been used, and what the run has cost by then. */
    "CREATE TABLE terms(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;"
    "ALTER TABLE rounds ADD COLUMN epsilon REAL;"
    "ALTER TABLE rounds ADD COLUMN draw_seed BLOB;"
    "ALTER TABLE rounds ADD COLUMN noise_seed BLOB;"
    "ALTER TABLE devices ADD COLUMN last_round INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE devices ADD COLUMN n_rounds INTEGER NOT NULL DEFAULT 0;"
    "PRAGMA user_version = 9;",
};

static const char *const sql_texts[] = {
#define DUNLIN_SQL_TEXT(name, text) text,
    DUNLIN_SQL_MAP(DUNLIN_SQL_TEXT)
#undef DUNLIN_SQL_TEXT
};

static dunlin_status fail_sql(dunlin__server_db *db, dunlin_error *error)
{
    int code = sqlite3_errcode(db->connection);
    dunlin_status status = DUNLIN_IO;
    if (code == SQLITE_FULL) {
        status = DUNLIN_SPACE;
    } else if (code == SQLITE_BUSY || code == SQLITE_LOCKED) {
        status = DUNLIN_LOCKED;
    } else if (code == SQLITE_CONSTRAINT) {
        status = DUNLIN_STATE;
    } else if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
        status = DUNLIN_DATA;
    } else if (code == SQLITE_NOMEM) {
        status = DUNLIN_MEMORY;
    }
    return dunlin__fail(error, status, "database", code, "the state's database: %.180s",
                        sqlite3_errmsg(db->connection));
}

sqlite3_stmt *dunlin__server_db_bind(dunlin__server_db *db, dunlin__sql sql, const char *letters,
                                     ...)
{
    sqlite3_stmt *statement = db->statements[sql];
    (void)sqlite3_reset(statement);
    va_list args;
    va_start(args, letters);
    for (int i = 1; letters[i - 1] != 0; i++) {
        switch (letters[i - 1]) {
        case 't':
            (void)sqlite3_bind_text(statement, i, va_arg(args, const char *), -1, SQLITE_TRANSIENT);
            break;
        case 'i':
            (void)sqlite3_bind_int64(statement, i, va_arg(args, int64_t));
            break;
        case 'd':
            (void)sqlite3_bind_double(statement, i, va_arg(args, double));
            break;
        case 'b': {
            const void *bytes = va_arg(args, const void *);
            int n_bytes = va_arg(args, int);
            (void)sqlite3_bind_blob(statement, i, bytes, n_bytes, SQLITE_TRANSIENT);
            break;
        }
        default:
            (void)sqlite3_bind_null(statement, i);
            break;
        }
    }
    va_end(args);
    return statement;
}

dunlin_status dunlin__server_db_row(dunlin__server_db *db, dunlin__sql sql, bool *out_is_row,
                                    dunlin_error *error)
{
    int code = sqlite3_step(db->statements[sql]);
    *out_is_row = code == SQLITE_ROW;
    dunlin_status status = DUNLIN_OK;
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        status = fail_sql(db, error);
    }
    if (code != SQLITE_ROW) {
        dunlin__server_db_reset(db, sql);
    }
    return status;
}

dunlin_status dunlin__server_db_run(dunlin__server_db *db, dunlin__sql sql, dunlin_error *error)
{
    bool is_row = true;
    while (is_row) {
        DUNLIN_TRY(dunlin__server_db_row(db, sql, &is_row, error));
    }
    return DUNLIN_OK;
}

void dunlin__server_db_reset(dunlin__server_db *db, dunlin__sql sql)
{
    (void)sqlite3_reset(db->statements[sql]);
    (void)sqlite3_clear_bindings(db->statements[sql]);
}

static dunlin_status execute(dunlin__server_db *db, const char *text, dunlin_error *error)
{
    return sqlite3_exec(db->connection, text, NULL, NULL, NULL) == SQLITE_OK ? DUNLIN_OK
                                                                             : fail_sql(db, error);
}

static dunlin_status read_version(dunlin__server_db *db, int *out_version, dunlin_error *error)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(db->connection, "PRAGMA user_version", -1, &statement, NULL) !=
        SQLITE_OK) {
        return fail_sql(db, error);
    }
    dunlin_status status = DUNLIN_OK;
    if (sqlite3_step(statement) == SQLITE_ROW) {
        *out_version = sqlite3_column_int(statement, 0);
    } else {
        status = fail_sql(db, error);
    }
    (void)sqlite3_finalize(statement);
    return status;
}

static dunlin_status set_up(dunlin__server_db *db, dunlin_error *error)
{
    DUNLIN_TRY(execute(db,
                       "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                       " PRAGMA secure_delete = ON;",
                       error));
    int version = 0;
    DUNLIN_TRY(read_version(db, &version, error));
    if (version < 0) {
        return dunlin__fail(error, DUNLIN_DATA, "database", version,
                            "the state's database is damaged: it has schema %d", version);
    }
    if (version > SCHEMA_VERSION) {
        return dunlin__fail(error, DUNLIN_VERSION, "database", version,
                            "the state's database has schema %d, this program knows up to %d",
                            version, SCHEMA_VERSION);
    }
    for (int i = version; i < SCHEMA_VERSION; i++) {
        DUNLIN_TRY(execute(db, "BEGIN IMMEDIATE", error));
        DUNLIN_TRY(execute(db, migrations[i], error));
        DUNLIN_TRY(execute(db, "COMMIT", error));
    }
    for (int i = 0; i < DUNLIN_N_SQL; i++) {
        if (sqlite3_prepare_v3(db->connection, sql_texts[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &db->statements[i], NULL) != SQLITE_OK) {
            return fail_sql(db, error);
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__server_db_open(const char *path, const dunlin_alloc *alloc,
                                     dunlin__server_db **out_db, dunlin_error *error)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        return dunlin__file_fail(error, "opening", path, errno);
    }
    (void)close(fd);
    dunlin__server_db *db = dunlin__alloc_zeroed(alloc, 1, sizeof *db);
    if (db == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "database", 0, "%zu bytes", sizeof *db);
    }
    db->alloc = *alloc;
    db->sync.fd = -1;
    (void)pthread_mutex_init(&db->sync.lock, NULL);
    (void)pthread_cond_init(&db->sync.changed, NULL);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    dunlin_status status = DUNLIN_OK;
    if (sqlite3_open_v2(path, &db->connection, flags, NULL) != SQLITE_OK) {
        status = db->connection != NULL
                     ? fail_sql(db, error)
                     : dunlin__fail(error, DUNLIN_MEMORY, "database", 0,
                                    "no memory for a connection to %.160s", path);
    } else {
        (void)sqlite3_busy_timeout(db->connection, 2000);
        status = set_up(db, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__server_db_sync_open(db, path, error);
    }
    if (status != DUNLIN_OK) {
        dunlin__server_db_close(db);
        return status;
    }
    *out_db = db;
    return DUNLIN_OK;
}

void dunlin__server_db_close(dunlin__server_db *db)
{
    if (db == NULL) {
        return;
    }
    for (int i = 0; i < DUNLIN_N_SQL; i++) {
        (void)sqlite3_finalize(db->statements[i]);
    }
    (void)sqlite3_close(db->connection);
    dunlin__server_db_sync_close(db);
    dunlin_alloc alloc = db->alloc;
    dunlin__free_array(&alloc, db, 1, sizeof *db);
}

dunlin_status dunlin__server_db_keep_log(dunlin__server_db *db, dunlin_error *error)
{
    (void)sqlite3_db_config(db->connection, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    return execute(db, "PRAGMA wal_autocheckpoint = 0", error);
}

dunlin_status dunlin__server_db_relax(dunlin__server_db *db, bool has_moments, dunlin_error *error)
{
    DUNLIN_TRY(execute(db, "PRAGMA synchronous = OFF; PRAGMA secure_delete = OFF", error));
    db->is_relaxed = true;
    return has_moments ? dunlin__server_db_keep_log(db, error) : DUNLIN_OK;
}

dunlin_status dunlin__server_db_begin(dunlin__server_db *db, bool is_durable, dunlin_error *error)
{
    if (db->is_durable != is_durable && !db->is_relaxed) {
        /* Not a statement prepared beforehand: this pragma acts when it is compiled. */
        DUNLIN_TRY(execute(
            db, is_durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL", error));
        db->is_durable = is_durable;
    }
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_BEGIN, "");
    return dunlin__server_db_run(db, DUNLIN_SQL_BEGIN, error);
}

dunlin_status dunlin__server_db_commit(dunlin__server_db *db, dunlin_error *error)
{
    (void)dunlin__server_db_bind(db, DUNLIN_SQL_COMMIT, "");
    dunlin_status status = dunlin__server_db_run(db, DUNLIN_SQL_COMMIT, error);
    if (status != DUNLIN_OK) {
        dunlin__server_db_rollback(db);
    } else {
        dunlin__server_db_count(db, db->is_durable);
    }
    return status;
}

void dunlin__server_db_rollback(dunlin__server_db *db)
{
    if (sqlite3_get_autocommit(db->connection) == 0) {
        (void)dunlin__server_db_bind(db, DUNLIN_SQL_ROLLBACK, "");
        /* A rollback that fails has been made by SQLite already. */
        dunlin_status ignored = dunlin__server_db_run(db, DUNLIN_SQL_ROLLBACK, NULL);
        (void)ignored;
    }
}
