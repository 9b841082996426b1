/*
 * database.h - one SQLite file of the client: opened privately, migrated to its schema, its
 * failures returned as statuses. The journal and the example store are two of them.
 *
 * Nothing here locks: the owner does. A database is never reset by us: what cannot be read is
 * reported and left as it is.
 */
#ifndef DUNLIN_SDK_DATABASE_H
#define DUNLIN_SDK_DATABASE_H

#include <dunlin/base.h>

#include <sqlite3.h>

typedef struct dunlin__database {
    sqlite3 *db;
    const char *subsystem; /* of errors; a literal */
    const char *name;      /* "store", "example store": in texts; a literal */
} dunlin__database;

typedef struct dunlin__database_plan {
    const char *subsystem;
    const char *name;
    const char *file;    /* in the folder */
    const char *pragmas; /* run before all else */
    /* Migration i brings a database from schema i to i + 1. */
    const char *const *migrations;
    int n_migrations;
} dunlin__database_plan;

/*
 * Opens or makes `folder`/file, folder 0700 if it is made, file 0600; WAL, synchronous=FULL,
 * secure_delete. VERSION: a newer schema; LOCKED: the storage or the database is locked; SPACE: no
 * room; DATA: not a database, or damaged. Whatever came of it, dunlin__database_close() follows.
 */
DUNLIN_NODISCARD dunlin_status dunlin__database_open(dunlin__database *out_database,
                                                     const char *folder,
                                                     const dunlin__database_plan *plan,
                                                     dunlin_error *error);
/* All its statements must be finalized. */
void dunlin__database_close(dunlin__database *database);

/* The status of a result code of SQLite's; errno must be what the call left (0 before it). */
dunlin_status dunlin__database_fail(const dunlin__database *database, const char *what, int code,
                                    dunlin_error *error);

/* Statements that give no rows. */
DUNLIN_NODISCARD dunlin_status dunlin__database_run(const dunlin__database *database,
                                                    const char *what, const char *sql,
                                                    dunlin_error *error);

DUNLIN_NODISCARD dunlin_status dunlin__database_prepare(const dunlin__database *database,
                                                        const char *sql,
                                                        sqlite3_stmt **out_statement,
                                                        dunlin_error *error);

/* What was deleted is still in the log: brings the log into the database and empties it. Best
 * effort: another process that reads keeps it from being done, and the next one does it then. */
void dunlin__database_empty_log(const dunlin__database *database);

#endif
