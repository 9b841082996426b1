/*
 * app_model_files.c - the head of the newest federated model, and the names of what it names.
 */
#include "app_model_files.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "DUNLINAM"
#define NAME_HEX 16
#define FLAG_FINAL 1u

enum {
    AT_VERSION = 8,
    AT_FLAGS = 12,
    AT_EPOCH = 16,
    AT_ROUND = 24,
    AT_BYTES = 32,
    AT_MANIFEST_BYTES = 40,
    AT_SHA256 = 44,
    AT_TASK = 76,
    AT_CHECK = DUNLIN_APP_MODEL_HEAD_BYTES - DUNLIN_SHA256_BYTES
};

static void put_number(uint8_t *at, uint64_t number, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        at[i] = (uint8_t)(number >> (8 * i));
    }
}

static uint64_t get_number(const uint8_t *at, size_t n_bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        number |= (uint64_t)at[i] << (8 * i);
    }
    return number;
}

dunlin_status dunlin__app_model_path(const char *folder,
                                     const uint8_t manifest_sha256[DUNLIN_SHA256_BYTES],
                                     const char *ending, char out_path[DUNLIN_FILE_PATH_BYTES],
                                     dunlin_error *error)
{
    char hex[DUNLIN_SHA256_HEX_BYTES];
    char name[NAME_HEX + 16];
    dunlin__hex_encode(manifest_sha256, DUNLIN_SHA256_BYTES, hex);
    (void)snprintf(name, sizeof name, "%.*s%s", NAME_HEX, hex, ending);
    return dunlin__file_path(folder, name, out_path, error);
}

static dunlin_status take_head(const uint8_t *bytes, dunlin__app_model_head *out,
                               dunlin_error *error)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    DUNLIN_TRY(dunlin__sha256_of(bytes, AT_CHECK, sha256, error));
    if (memcmp(sha256, bytes + AT_CHECK, sizeof sha256) != 0) {
        return dunlin__fail(error, DUNLIN_DIGEST, "app model", 0,
                            "%s does not match the hash at its end", DUNLIN_APP_MODEL_HEAD);
    }
    *out = (dunlin__app_model_head){.run_epoch = get_number(bytes + AT_EPOCH, 8),
                                    .round = get_number(bytes + AT_ROUND, 8),
                                    .is_final = (get_number(bytes + AT_FLAGS, 4) & FLAG_FINAL) != 0,
                                    .manifest_bytes =
                                        (uint32_t)get_number(bytes + AT_MANIFEST_BYTES, 4),
                                    .n_bytes = get_number(bytes + AT_BYTES, 8)};
    memcpy(out->manifest_sha256, bytes + AT_SHA256, sizeof out->manifest_sha256);
    memcpy(out->task, bytes + AT_TASK, sizeof out->task - 1);
    return DUNLIN_OK;
}

dunlin_status dunlin__app_model_head_read(const char *folder, dunlin__app_model_head *out_head,
                                          dunlin_error *error)
{
    uint8_t bytes[DUNLIN_APP_MODEL_HEAD_BYTES] = {0};
    char path[DUNLIN_FILE_PATH_BYTES];
    struct stat about = {0};
    DUNLIN_TRY(dunlin__file_path(folder, DUNLIN_APP_MODEL_HEAD, path, error));
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        return dunlin__fail(error, DUNLIN_STATE, "app model", 0,
                            "%s has no federated model yet: no base was downloaded and kept",
                            folder);
    }
    int fd = -1;
    DUNLIN_TRY(dunlin__file_open_there(path, &fd, error));
    dunlin_status status = DUNLIN_OK;
    if (fstat(fd, &about) != 0 || about.st_size < AT_FLAGS) {
        status =
            dunlin__fail(error, DUNLIN_DATA, "app model", 0, "%s has %lld bytes, a head has %d",
                         path, (long long)about.st_size, DUNLIN_APP_MODEL_HEAD_BYTES);
    } else {
        status = dunlin__file_read(fd, bytes, AT_FLAGS, 0, error);
    }
    if (status == DUNLIN_OK && memcmp(bytes, MAGIC, AT_VERSION) != 0) {
        status = dunlin__fail(error, DUNLIN_DATA, "app model", 0, "%s is no head of a model", path);
    } else if (status == DUNLIN_OK && get_number(bytes + AT_VERSION, 4) != 1) {
        status = dunlin__fail(
            error, DUNLIN_VERSION, "app model", 0, "%s has version %llu, this library knows %d",
            path, (unsigned long long)get_number(bytes + AT_VERSION, 4), DUNLIN_APP_MODEL_VERSION);
    } else if (status == DUNLIN_OK && about.st_size != DUNLIN_APP_MODEL_HEAD_BYTES) {
        status =
            dunlin__fail(error, DUNLIN_DATA, "app model", 0, "%s has %lld bytes, a head has %d",
                         path, (long long)about.st_size, DUNLIN_APP_MODEL_HEAD_BYTES);
    } else if (status == DUNLIN_OK) {
        status = dunlin__file_read(fd, bytes, sizeof bytes, 0, error);
    }
    (void)close(fd);
    return status == DUNLIN_OK ? take_head(bytes, out_head, error) : status;
}

dunlin_status dunlin__app_model_head_write(const char *folder, const dunlin__app_model_head *head,
                                           dunlin_error *error)
{
    uint8_t bytes[DUNLIN_APP_MODEL_HEAD_BYTES] = {0};
    char path[DUNLIN_FILE_PATH_BYTES];
    char part[DUNLIN_FILE_PATH_BYTES];
    int fd = -1;
    memcpy(bytes, MAGIC, AT_VERSION);
    put_number(bytes + AT_VERSION, DUNLIN_APP_MODEL_VERSION, 4);
    put_number(bytes + AT_FLAGS, head->is_final ? FLAG_FINAL : 0, 4);
    put_number(bytes + AT_EPOCH, head->run_epoch, 8);
    put_number(bytes + AT_ROUND, head->round, 8);
    put_number(bytes + AT_BYTES, head->n_bytes, 8);
    put_number(bytes + AT_MANIFEST_BYTES, head->manifest_bytes, 4);
    memcpy(bytes + AT_SHA256, head->manifest_sha256, DUNLIN_SHA256_BYTES);
    memcpy(bytes + AT_TASK, head->task, strnlen(head->task, sizeof head->task - 1));
    DUNLIN_TRY(dunlin__sha256_of(bytes, AT_CHECK, bytes + AT_CHECK, error));
    DUNLIN_TRY(dunlin__file_path(folder, DUNLIN_APP_MODEL_HEAD, path, error));
    DUNLIN_TRY(dunlin__file_path(folder, DUNLIN_APP_MODEL_HEAD ".part", part, error));
    DUNLIN_TRY(dunlin__file_open(part, &fd, error));
    dunlin_status status = dunlin__file_write(fd, bytes, sizeof bytes, 0, error);
    if (status == DUNLIN_OK && ftruncate(fd, sizeof bytes) != 0) {
        status = dunlin__fail(error, DUNLIN_IO, "app model", errno, "%s cannot be cut", part);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__file_rename(fd, part, path, error);
    }
    (void)close(fd);
    return status;
}

void dunlin__app_model_sweep(const char *folder, const uint8_t *manifest_sha256)
{
    char hex[DUNLIN_SHA256_HEX_BYTES] = "";
    char path[DUNLIN_FILE_PATH_BYTES];
    DIR *entries = opendir(folder);
    if (entries == NULL) {
        return;
    }
    if (manifest_sha256 != NULL) {
        dunlin__hex_encode(manifest_sha256, DUNLIN_SHA256_BYTES, hex);
    }
    struct dirent *entry = readdir(entries);          /* NOLINT(concurrency-mt-unsafe) */
    for (; entry != NULL; entry = readdir(entries)) { /* NOLINT(concurrency-mt-unsafe) */
        const char *name = entry->d_name;
        const bool is_ours = manifest_sha256 != NULL && (strncmp(name, hex, NAME_HEX) == 0 ||
                                                         strcmp(name, DUNLIN_APP_MODEL_HEAD) == 0);
        if (name[0] != '.' && !is_ours &&
            dunlin__file_path(folder, name, path, NULL) == DUNLIN_OK) {
            (void)unlink(path);
        }
    }
    (void)closedir(entries);
    if (manifest_sha256 == NULL) {
        (void)rmdir(folder);
    }
}
