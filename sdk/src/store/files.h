/*
 * files.h - the files of a round: written whole, synced in the order data, name, folder.
 */
#ifndef DUNLIN_SDK_FILES_H
#define DUNLIN_SDK_FILES_H

#include <dunlin/alloc.h>
#include <wire/digest.h>

#define DUNLIN_FILE_PATH_BYTES 1024

/* "<folder>/<name>" into out; LIMIT if it does not fit. */
dunlin_status dunlin__file_path(const char *folder, const char *name,
                                char out_path[DUNLIN_FILE_PATH_BYTES], dunlin_error *error);
/* Opens for reading and writing, made if missing, 0600. */
dunlin_status dunlin__file_open(const char *path, int *out_fd, dunlin_error *error);
/* The same of a file that must be there, for reading. */
dunlin_status dunlin__file_open_there(const char *path, int *out_fd, dunlin_error *error);
dunlin_status dunlin__file_write(int fd, const void *data, size_t n_bytes, uint64_t offset,
                                 dunlin_error *error);
/* Exactly n_bytes, or IO. */
dunlin_status dunlin__file_read(int fd, void *data, size_t n_bytes, uint64_t offset,
                                dunlin_error *error);
/* Data to the storage, then the folder's entry. */
dunlin_status dunlin__file_sync(int fd, const char *folder, dunlin_error *error);
/* Data to the storage, then a new name in place of an old file, then the folder's entry. */
dunlin_status dunlin__file_rename(int fd, const char *from, const char *to, dunlin_error *error);
/* A folder's entries to the storage: what was moved out of it is there no more. */
dunlin_status dunlin__folder_sync(const char *folder, dunlin_error *error);
dunlin_status dunlin__folder_make(const char *folder, dunlin_error *error);
void dunlin__folder_remove(const char *folder);
/* Does a piece of a file have this hash? False also for a piece that cannot be read. */
bool dunlin__file_matches(int fd, uint64_t offset, uint64_t n_bytes,
                          const uint8_t sha256[DUNLIN_SHA256_BYTES]);
/* Room on the file system of a folder. */
dunlin_status dunlin__folder_room(const char *folder, uint64_t *out_bytes, dunlin_error *error);

#endif
