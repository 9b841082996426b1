/*
 * swap_file.h - a file that tensors of a step are written out to and read back from.
 *
 * The page cache is bypassed: what is swapped is not in memory. Where the file system allows that,
 * by direct I/O; else what was written is flushed, and dropped from the cache.
 */
#ifndef DUNLIN_STEP_SWAP_FILE_H
#define DUNLIN_STEP_SWAP_FILE_H

#include <dunlin/base.h>

#define DUNLIN_SWAP_BLOCK 4096 /* offsets are multiples of it */

typedef struct dunlin_swap_file {
    int fd;
    bool is_direct;
    bool has_lost;                /* something could not be read back */
    uint64_t out_bytes, in_bytes; /* since it was opened */
    double out_ms, in_ms;
} dunlin_swap_file;

/* Bytes and the buffer through which they go. */
typedef struct dunlin_swap_piece {
    uint64_t offset; /* in the file */
    unsigned char *bytes;
    uint64_t n;
    unsigned char *buffer; /* of buffer_bytes: two blocks at least */
    uint64_t buffer_bytes;
} dunlin_swap_piece;

/*
 * Makes a file of so many bytes in a folder, without a name: it is gone with the process, however
 * that ends. SPACE if there is no room, IO, UNSUPPORTED for a file system in memory.
 */
DUNLIN_NODISCARD dunlin_status dunlin__swap_open(const char *folder, uint64_t bytes,
                                                 dunlin_swap_file *out_file, dunlin_error *error);
void dunlin__swap_close(dunlin_swap_file *file);

/* SPACE, IO. */
DUNLIN_NODISCARD dunlin_status dunlin__swap_write(dunlin_swap_file *file,
                                                  const dunlin_swap_piece *piece,
                                                  dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__swap_read(dunlin_swap_file *file,
                                                 const dunlin_swap_piece *piece,
                                                 dunlin_error *error);

/* The folder if there is one, else TMPDIR of the environment, else /var/tmp. */
const char *dunlin__swap_folder(const char *folder);

/* "direct", "flushed"; "" for a file that is not open. */
const char *dunlin__swap_way(const dunlin_swap_file *file);

#endif
