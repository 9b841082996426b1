/*
 * storage.c - damages a database without the library's knowledge.
 */
#include "storage.h"

#include <criterion/criterion.h>

#include <sqlite3.h>
#include <stdio.h>

void storage_run_sql(const char *folder, const char *file_name, const char *sql)
{
    char path[192];
    sqlite3 *db = NULL;
    (void)snprintf(path, sizeof path, "%s/%s", folder, file_name);
    cr_assert_eq(sqlite3_open(path, &db), SQLITE_OK);
    cr_assert_eq(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
    cr_assert_eq(sqlite3_close(db), SQLITE_OK);
}

void storage_overwrite(const char *folder, const char *file_name, long at, size_t n_bytes)
{
    char path[192];
    (void)snprintf(path, sizeof path, "%s/%s", folder, file_name);
    FILE *file = fopen(path, "r+b");
    cr_assert_not_null(file);
    (void)fseek(file, at, SEEK_SET);
    for (size_t i = 0; i < n_bytes; i++) {
        (void)fputc(0x5A, file);
    }
    (void)fclose(file);
}
