/*
 * files.h - paths, whole files and folders of the server's state.
 *
 * Whole files are written by <mem/outfile.h>, with DUNLIN_SERVER_FILE_MODE. Any thread.
 */
#ifndef DUNLIN_SERVER_FILES_H
#define DUNLIN_SERVER_FILES_H

#include <dunlin/alloc.h>
#include <mem/outfile.h>

#define DUNLIN_SERVER_PATH_BYTES 1024u
#define DUNLIN_SERVER_FILE_MODE 0600u

typedef struct dunlin__server_path {
    char text[DUNLIN_SERVER_PATH_BYTES];
} dunlin__server_path;

/* Formats a path; LIMIT if it is too long. */
DUNLIN_NODISCARD dunlin_status dunlin__server_path_make(dunlin__server_path *out_path,
                                                        dunlin_error *error, const char *format,
                                                        ...) DUNLIN_PRINTF(3, 4);

/* Makes a folder (mode 0700) unless it is there; parents must exist. */
DUNLIN_NODISCARD dunlin_status dunlin__server_folder_make(const char *path, dunlin_error *error);

/* The bytes of `fd` (-1: synced already), the name `to` in place of `from`, its folder's entry. */
DUNLIN_NODISCARD dunlin_status dunlin__server_file_settle(int fd, const char *from, const char *to,
                                                          dunlin_error *error);

/* Removes a folder and the plain files in it; what is not there is fine. */
void dunlin__server_folder_remove(const char *path);

/* Reads a whole file of at most `max_bytes`; a 0 follows the bytes. Give it back with
 * dunlin__free_array(alloc, bytes, n_bytes + 1, 1). LIMIT, IO. */
DUNLIN_NODISCARD dunlin_status dunlin__server_file_read(const dunlin_alloc *alloc, const char *path,
                                                        size_t max_bytes, uint8_t **out_bytes,
                                                        size_t *out_n_bytes, dunlin_error *error);

/* Bytes of a plain file, -1 if there is none. */
int64_t dunlin__server_file_size(const char *path);

/* All bytes at an offset, or the failure: IO when the file is shorter, SPACE when the disk is full.
 * `path` is for the text. */
DUNLIN_NODISCARD dunlin_status dunlin__server_read_at(int fd, const char *path, uint64_t offset,
                                                      void *buffer, size_t n_bytes,
                                                      dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__server_write_at(int fd, const char *path, uint64_t offset,
                                                       const void *bytes, size_t n_bytes,
                                                       dunlin_error *error);

#endif
