/*
 * files.c - the files of a round: written whole, synced in the order data, name, folder.
 */
#include "files.h"

#include <mem/outfile.h>
#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Every file that a round may leave in its folder. */
static const char *const ROUND_FILES[] = {"base.manifest",
                                          "base.manifest.part",
                                          "base.bin",
                                          "update.bin",
                                          "update.manifest.part",
                                          "update.manifest",
                                          "learner.checkpoint.1",
                                          "learner.checkpoint.1.part",
                                          "learner.checkpoint.2",
                                          "learner.checkpoint.2.part",
                                          "metrics",
                                          "metrics.part"};

/* A folder that the system keeps shut for a while is no fault of the storage. */
static dunlin_status fail_file(dunlin_error *error, const char *path, const char *doing)
{
    const int code = errno;
    const dunlin_status status = dunlin__file_fail(error, doing, path, code);
    if (code != EACCES && code != EPERM) {
        return status;
    }
    if (error != NULL) {
        error->status = DUNLIN_LOCKED;
    }
    return DUNLIN_LOCKED;
}

dunlin_status dunlin__file_path(const char *folder, const char *name,
                                char out_path[DUNLIN_FILE_PATH_BYTES], dunlin_error *error)
{
    int length = snprintf(out_path, DUNLIN_FILE_PATH_BYTES, "%s/%s", folder, name);
    if (length < 0 || length >= DUNLIN_FILE_PATH_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "files", 0,
                            "a path is longer than %d bytes: %.80s", DUNLIN_FILE_PATH_BYTES - 1,
                            folder);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__file_open(const char *path, int *out_fd, dunlin_error *error)
{
    *out_fd = dunlin__sys_open(path, O_RDWR | O_CREAT, 0600);
    return *out_fd < 0 ? fail_file(error, path, "opening") : DUNLIN_OK;
}

dunlin_status dunlin__file_open_there(const char *path, int *out_fd, dunlin_error *error)
{
    *out_fd = dunlin__sys_open(path, O_RDONLY, 0);
    return *out_fd < 0 ? fail_file(error, path, "opening") : DUNLIN_OK;
}

dunlin_status dunlin__file_write(int fd, const void *data, size_t n_bytes, uint64_t offset,
                                 dunlin_error *error)
{
    const char *from = data;
    while (n_bytes > 0) {
        ssize_t n_written = pwrite(fd, from, n_bytes, (off_t)offset);
        if (n_written < 0 && errno == EINTR) {
            continue;
        }
        if (n_written <= 0) {
            return fail_file(error, "a file of the round", "writing");
        }
        from += n_written;
        offset += (uint64_t)n_written;
        n_bytes -= (size_t)n_written;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__file_read(int fd, void *data, size_t n_bytes, uint64_t offset,
                                dunlin_error *error)
{
    char *to = data;
    while (n_bytes > 0) {
        ssize_t n_read = pread(fd, to, n_bytes, (off_t)offset);
        if (n_read < 0 && errno == EINTR) {
            continue;
        }
        if (n_read == 0) {
            return dunlin__fail(error, DUNLIN_IO, "files", 0,
                                "a file of the round ends at byte %llu, too early",
                                (unsigned long long)offset);
        }
        if (n_read < 0) {
            return fail_file(error, "a file of the round", "reading");
        }
        to += n_read;
        offset += (uint64_t)n_read;
        n_bytes -= (size_t)n_read;
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__folder_sync(const char *folder, dunlin_error *error)
{
    const int code = dunlin__sys_sync_folder(folder);
    errno = code;
    return code == 0 ? DUNLIN_OK : fail_file(error, folder, "synchronising");
}

dunlin_status dunlin__file_sync(int fd, const char *folder, dunlin_error *error)
{
    errno = dunlin__sys_sync(fd);
    if (errno != 0) {
        return fail_file(error, folder, "synchronising a file in");
    }
    return dunlin__folder_sync(folder, error);
}

dunlin_status dunlin__file_rename(int fd, const char *from, const char *to, dunlin_error *error)
{
    const char *doing = NULL;
    errno = dunlin__file_settle(fd, from, to, &doing);
    return errno == 0 ? DUNLIN_OK : fail_file(error, to, doing);
}

dunlin_status dunlin__folder_make(const char *folder, dunlin_error *error)
{
    char above[DUNLIN_FILE_PATH_BYTES];
    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return fail_file(error, folder, "making the folder");
    }
    /* A file that is synced in a folder whose own name is lost is lost as well. Also of a folder
     * that is there: the call before may have been cut short here. */
    int length = snprintf(above, sizeof above, "%s/..", folder);
    if (length < 0 || (size_t)length >= sizeof above) {
        return dunlin__fail(error, DUNLIN_LIMIT, "files", 0,
                            "a path is longer than %d bytes: %.80s", DUNLIN_FILE_PATH_BYTES - 4,
                            folder);
    }
    return dunlin__folder_sync(above, error);
}

void dunlin__folder_remove(const char *folder)
{
    char path[DUNLIN_FILE_PATH_BYTES];
    for (size_t i = 0; i < sizeof ROUND_FILES / sizeof ROUND_FILES[0]; i++) {
        if (dunlin__file_path(folder, ROUND_FILES[i], path, NULL) == DUNLIN_OK) {
            (void)unlink(path);
        }
    }
    (void)rmdir(folder);
}

dunlin_status dunlin__folder_room(const char *folder, uint64_t *out_bytes, dunlin_error *error)
{
    struct statvfs room = {0};
    if (statvfs(folder, &room) != 0) {
        return fail_file(error, folder, "asking for the room at");
    }
    *out_bytes = (uint64_t)room.f_bavail * (uint64_t)room.f_frsize;
    return DUNLIN_OK;
}

static dunlin_status hash_file(int fd, uint64_t offset, uint64_t n_bytes,
                               uint8_t out_sha256[DUNLIN_SHA256_BYTES], dunlin_error *error)
{
    uint8_t block[4096];
    dunlin__sha256 hash;
    DUNLIN_TRY(dunlin__sha256_begin(&hash, error));
    while (n_bytes > 0) {
        size_t n = n_bytes < sizeof block ? (size_t)n_bytes : sizeof block;
        dunlin_status status = dunlin__file_read(fd, block, n, offset, error);
        if (status != DUNLIN_OK) {
            dunlin__sha256_abort(&hash);
            return status;
        }
        DUNLIN_TRY(dunlin__sha256_update(&hash, block, n, error));
        offset += n;
        n_bytes -= n;
    }
    return dunlin__sha256_end(&hash, out_sha256, error);
}

bool dunlin__file_matches(int fd, uint64_t offset, uint64_t n_bytes,
                          const uint8_t sha256[DUNLIN_SHA256_BYTES])
{
    uint8_t found[DUNLIN_SHA256_BYTES];
    return hash_file(fd, offset, n_bytes, found, NULL) == DUNLIN_OK &&
           memcmp(found, sha256, DUNLIN_SHA256_BYTES) == 0;
}
