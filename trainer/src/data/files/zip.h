/*
 * zip.h - the members of a ZIP archive, as NumPy's .npz is one: stored or deflated, with sizes of
 * 64 bits where they are written so. No encryption, no archive in several files.
 */
#ifndef DUNLIN_DATA_ZIP_H
#define DUNLIN_DATA_ZIP_H

#include "bytes.h"

#define DUNLIN_ZIP_NAME_BYTES 256

typedef struct dunlin_zip {
    const char *name; /* for messages: the end of the path */
    int file;         /* -1: memory */
    const uint8_t *memory;
    uint64_t n_bytes;
    uint64_t n_members;
    uint64_t first, end; /* of the central directory */
    uint64_t at;         /* the next entry */
} dunlin_zip;

typedef struct dunlin_zip_member {
    char name[DUNLIN_ZIP_NAME_BYTES];
    dunlin_bytes_part part;
} dunlin_zip_member;

/* Finds the central directory of a file, or with `path` NULL of memory. Nothing is held on failure.
 */
dunlin_status dunlin__zip_open(dunlin_zip *zip, const char *path, const void *memory,
                               size_t n_bytes, dunlin_error *error);
void dunlin__zip_close(dunlin_zip *zip);

/* The next member; *out_has is false after the last. A member lies within the file, and what it
 * says to hold can come out of it. */
dunlin_status dunlin__zip_next(dunlin_zip *zip, dunlin_zip_member *out_member, bool *out_has,
                               dunlin_error *error);

#endif
