/*
 * bytes.h - a run of bytes from a file or from memory, unpacked on the way if it is gzip.
 *
 * Reads give exactly what was asked for or fail with a detail that names the file and the position.
 */
#ifndef DUNLIN_DATA_BYTES_H
#define DUNLIN_DATA_BYTES_H

#include <dunlin/alloc.h>

#include <zlib.h>

#define DUNLIN_BYTES_BUFFER 8192

typedef struct dunlin_bytes {
    dunlin_alloc alloc;
    const char *name; /* for messages: the end of the path */
    int file;         /* -1: from memory */
    const uint8_t *memory;
    size_t memory_bytes;
    uint64_t position;    /* bytes handed out so far */
    uint64_t limit_bytes; /* more than this cannot come out, whatever a header claims */
    uint64_t left_bytes;  /* of the file, to be read yet; of a whole file without end */
    bool is_gzip;         /* or deflate, of a part */
    bool has_crc;         /* of a part: looked at when it ends */
    uint32_t crc, crc_expected;
    bool is_done; /* the gzip stream has ended, its checksum is right */
    z_stream stream;
    size_t n_buffered; /* plain files: unread bytes at `next` */
    uint8_t *next;
    uint8_t buffer[DUNLIN_BYTES_BUFFER];
} dunlin_bytes;

/* Opens a file; `path` must outlive the struct. IO if it cannot be read; nothing is held on
 * failure. */
dunlin_status dunlin__bytes_open(dunlin_bytes *bytes, const char *path, const dunlin_alloc *alloc,
                                 dunlin_error *error);

/* The same over memory. */
dunlin_status dunlin__bytes_open_memory(dunlin_bytes *bytes, const char *name, const void *memory,
                                        size_t memory_bytes, const dunlin_alloc *alloc,
                                        dunlin_error *error);

/* Where the bytes of a part lie, and what comes out of them. */
typedef struct dunlin_bytes_part {
    uint64_t first, n_raw; /* in the file or the memory, which must hold them */
    uint64_t n_bytes;      /* unpacked */
    bool is_deflated;
    uint32_t crc; /* CRC-32 of what is unpacked: another one is DATA at the end */
} dunlin_bytes_part;

/* A part of a file, or with `path` NULL of memory. */
dunlin_status dunlin__bytes_open_part(dunlin_bytes *bytes, const char *path, const void *memory,
                                      const dunlin_bytes_part *part, const dunlin_alloc *alloc,
                                      dunlin_error *error);

void dunlin__bytes_close(dunlin_bytes *bytes);

/* Exactly n bytes; DATA if there are fewer. */
dunlin_status dunlin__bytes_read(dunlin_bytes *bytes, void *out, size_t n, dunlin_error *error);

/* At most n bytes: *out_n is less only at the end. */
dunlin_status dunlin__bytes_read_some(dunlin_bytes *bytes, void *out, size_t n, size_t *out_n,
                                      dunlin_error *error);

/* DATA unless all has been read. */
dunlin_status dunlin__bytes_expect_end(dunlin_bytes *bytes, dunlin_error *error);

#endif
