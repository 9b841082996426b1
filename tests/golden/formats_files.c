/*
 * formats_files.c - the golden files as bytes.
 */
#include "formats.h"
#include "server/must.h"

#include <sqlite3.h>
#include <stdio.h>
#include <unistd.h>

const char *formats_path(const char *folder, const char *name, char out_path[FORMATS_PATH_BYTES])
{
    MUST_HOLD(snprintf(out_path, FORMATS_PATH_BYTES, "%s/%s", folder, name) < FORMATS_PATH_BYTES,
              "%s", folder);
    return out_path;
}

size_t formats_read(const char *folder, const char *name, uint8_t *bytes, size_t capacity)
{
    char path[FORMATS_PATH_BYTES];
    FILE *file = fopen(formats_path(folder, name, path), "rb");
    MUST_HOLD(file != NULL, "%s", path);
    const size_t n_bytes = fread(bytes, 1, capacity, file);
    (void)fclose(file);
    MUST_HOLD(n_bytes > 0 && n_bytes < capacity, "%s: %zu bytes", path, n_bytes);
    return n_bytes;
}

void formats_write(const char *folder, const char *name, const void *bytes, size_t n_bytes)
{
    char path[FORMATS_PATH_BYTES];
    FILE *file = fopen(formats_path(folder, name, path), "wb");
    MUST_HOLD(file != NULL, "%s", path);
    const bool is_written = fwrite(bytes, 1, n_bytes, file) == n_bytes;
    MUST_HOLD(fclose(file) == 0 && is_written, "%s", path);
}

void formats_small_pages(const char *path)
{
    sqlite3 *db = NULL;
    (void)unlink(path);
    MUST_HOLD(sqlite3_open(path, &db) == SQLITE_OK, "%s", path);
    MUST_HOLD(sqlite3_exec(db,
                           "PRAGMA page_size = 1024; PRAGMA auto_vacuum = INCREMENTAL;"
                           "CREATE TABLE t (a); DROP TABLE t; PRAGMA incremental_vacuum;",
                           NULL, NULL, NULL) == SQLITE_OK,
              "%s", sqlite3_errmsg(db));
    MUST_HOLD(sqlite3_close(db) == SQLITE_OK, "%s", path);
}
