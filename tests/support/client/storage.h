/*
 * storage.h - damages a database without the library's knowledge.
 */
#ifndef DUNLIN_TESTS_STORAGE_H
#define DUNLIN_TESTS_STORAGE_H

#include <stddef.h>

/* Runs statements on a database file. */
void storage_run_sql(const char *folder, const char *file_name, const char *sql);
/* Writes n_bytes bytes 0x5A over a file's own. */
void storage_overwrite(const char *folder, const char *file_name, long at, size_t n_bytes);

#endif
