/*
 * database.c - opening, migrating and querying one SQLite file.
 *
 * Invariant: a migration and the number of its schema are one transaction.
 */
#include "database.h"

#include <mem/support.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define BUSY_MS 5000
#define PATH_BYTES 1024
#define MIGRATION_BYTES 4096

static bool is_no_room(int os_code)
{
    return os_code == ENOSPC || os_code == EDQUOT || os_code == EFBIG;
}

/* The system keeps the files shut, as iOS does while the device is locked. */
static bool is_shut(int os_code)
{
    return os_code == EACCES || os_code == EPERM;
}

dunlin_status dunlin__database_fail(const dunlin__database *database, const char *what, int code,
                                    dunlin_error *error)
{
    int os_code = errno;
    int its_code = database->db != NULL ? sqlite3_system_errno(database->db) : 0;
    dunlin_status status = DUNLIN_IO;
    switch (code & 0xff) {
    case SQLITE_FULL:
        status = DUNLIN_SPACE;
        break;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        status = DUNLIN_LOCKED;
        break;
    case SQLITE_NOMEM:
        status = DUNLIN_MEMORY;
        break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        status = DUNLIN_DATA;
        break;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
        /* The reason is in SQLite's errno, or where it forgets it, in the thread's. */
        if (is_no_room(its_code) || is_no_room(os_code)) {
            status = DUNLIN_SPACE;
        } else if (is_shut(its_code) || is_shut(os_code)) {
            status = DUNLIN_LOCKED;
        }
        break;
    default:
        break;
    }
    return dunlin__fail(error, status, database->subsystem, code, "the %s's database: %s: %s",
                        database->name, what,
                        database->db != NULL ? sqlite3_errmsg(database->db) : sqlite3_errstr(code));
}

dunlin_status dunlin__database_run(const dunlin__database *database, const char *what,
                                   const char *sql, dunlin_error *error)
{
    errno = 0;
    int code = sqlite3_exec(database->db, sql, NULL, NULL, NULL);
    return code == SQLITE_OK ? DUNLIN_OK : dunlin__database_fail(database, what, code, error);
}

static dunlin_status read_schema(const dunlin__database *database, int *out_schema,
                                 dunlin_error *error)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(database->db, "PRAGMA user_version", -1, &statement, NULL);
    if (code == SQLITE_OK) {
        code = sqlite3_step(statement);
    }
    *out_schema = code == SQLITE_ROW ? sqlite3_column_int(statement, 0) : 0;
    (void)sqlite3_finalize(statement);
    return code == SQLITE_ROW ? DUNLIN_OK
                              : dunlin__database_fail(database, "reading its version", code, error);
}

static dunlin_status migrate(const dunlin__database *database, const dunlin__database_plan *plan,
                             dunlin_error *error)
{
    int schema = 0;
    DUNLIN_TRY(read_schema(database, &schema, error));
    if (schema < 0) {
        return dunlin__fail(error, DUNLIN_DATA, database->subsystem, schema,
                            "the %s's database is damaged: it has schema %d", database->name,
                            schema);
    }
    if (schema > plan->n_migrations) {
        return dunlin__fail(error, DUNLIN_VERSION, database->subsystem, schema,
                            "the %s's database has schema %d; this library knows up to %d",
                            database->name, schema, plan->n_migrations);
    }
    for (; schema < plan->n_migrations; schema++) {
        char sql[MIGRATION_BYTES];
        int length =
            snprintf(sql, sizeof sql, "BEGIN IMMEDIATE; %s PRAGMA user_version = %d; COMMIT;",
                     plan->migrations[schema], schema + 1);
        if (length < 0 || (size_t)length >= sizeof sql) {
            return dunlin__fail(error, DUNLIN_INTERNAL, database->subsystem, schema,
                                "migration %d of the %s is longer than %d bytes", schema,
                                database->name, MIGRATION_BYTES);
        }
        dunlin_status status = dunlin__database_run(database, "making its tables", sql, error);
        if (status != DUNLIN_OK) {
            (void)sqlite3_exec(database->db, "ROLLBACK", NULL, NULL, NULL);
            return status;
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__database_prepare(const dunlin__database *database, const char *sql,
                                       sqlite3_stmt **out_statement, dunlin_error *error)
{
    errno = 0;
    int code =
        sqlite3_prepare_v3(database->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out_statement, NULL);
    return code == SQLITE_OK ? DUNLIN_OK
                             : dunlin__database_fail(database, "preparing", code, error);
}

dunlin_status dunlin__database_open(dunlin__database *out_database, const char *folder,
                                    const dunlin__database_plan *plan, dunlin_error *error)
{
    *out_database = (dunlin__database){.subsystem = plan->subsystem, .name = plan->name};
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        dunlin_status status = errno == ENOSPC   ? DUNLIN_SPACE
                               : errno == EACCES ? DUNLIN_LOCKED
                                                 : DUNLIN_IO;
        return dunlin__fail(error, status, plan->subsystem, errno,
                            "the folder %s cannot be made: %s", folder, strerror(errno));
    }
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s", folder, plan->file);
    if (length < 0 || (size_t)length >= sizeof path) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, plan->subsystem, 0,
                            "the %s's folder has a path longer than %d bytes", plan->name,
                            PATH_BYTES - 2 - (int)strlen(plan->file));
    }
    errno = 0;
    int code =
        sqlite3_open_v2(path, &out_database->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, NULL);
    if (code != SQLITE_OK) {
        return dunlin__database_fail(out_database, path, code, error);
    }
    (void)chmod(path, 0600);
    (void)sqlite3_extended_result_codes(out_database->db, 1);
    (void)sqlite3_busy_timeout(out_database->db, BUSY_MS);
    DUNLIN_TRY(dunlin__database_run(out_database, path, plan->pragmas, error));
    DUNLIN_TRY(dunlin__database_run(
        out_database, path,
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA secure_delete = ON;", error));
    return migrate(out_database, plan, error);
}

void dunlin__database_close(dunlin__database *database)
{
    (void)sqlite3_close(database->db);
    database->db = NULL;
}

void dunlin__database_empty_log(const dunlin__database *database)
{
    (void)sqlite3_wal_checkpoint_v2(database->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
}
