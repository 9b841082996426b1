/*
 * crash_model.h - a model of the storage: which files and names of a folder are on it, and which a
 * power loss would leave.
 */
#ifndef DUNLIN_TESTS_CRASH_MODEL_H
#define DUNLIN_TESTS_CRASH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRASH_PATH_BYTES 1024
#define CRASH_LOSING ".losing" /* after the folder's name: a file that is there during a loss */

/* Of what was not synced. */
typedef enum crash_loss {
    CRASH_DROP = 0,   /* all is lost */
    CRASH_KEEP_NAMES, /* names (made, renamed, removed) came through, data did not */
    CRASH_KEEP_DATA,  /* data came through, names did not */
    CRASH_TEAR        /* each write and each name by a coin; writes torn at sectors */
} crash_loss;

/* What lies in the folder now is on the storage. Without this call the others do nothing. */
void crash_model_begin(const char *root, uint64_t seed);

void crash_model_create(const char *path, uint64_t ino);
void crash_model_make_folder(const char *path);
void crash_model_write(uint64_t ino, int64_t offset, const void *data, size_t n);
void crash_model_cut(uint64_t ino, int64_t length);
void crash_model_rename(const char *from, const char *to);
void crash_model_unlink(const char *path);
void crash_model_sync(uint64_t ino);
void crash_model_sync_folder(const char *path);

/* Brings the folder into the state after the loss. */
void crash_model_lose(const char *root, crash_loss loss);

#endif
