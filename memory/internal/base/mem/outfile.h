/*
 * outfile.h - a file that appears whole or not at all: written beside its place, synchronised,
 * renamed, its folder synchronised.
 *
 * All that is written to stay goes through here: models, checkpoints, plans, prices, the server's
 * state, the programs' results.
 */
#ifndef DUNLIN_MEM_OUTFILE_H
#define DUNLIN_MEM_OUTFILE_H

#include <dunlin/base.h>

#define DUNLIN_OUTFILE_MAX_PATH 4096

/* Takes bytes in order; a status other than OK ends the writing. */
typedef dunlin_status (*dunlin_outfile_write_fn)(void *ctx, const void *bytes, size_t n);

typedef struct dunlin_outfile {
    const char *path;                 /* the caller's */
    dunlin_outfile_write_fn write_fn; /* NULL: a file */
    void *ctx;
    char part[DUNLIN_OUTFILE_MAX_PATH];
    int fd;
} dunlin_outfile;

/* Starts "PATH.part" beside the target with these permissions, replacing what an interrupted run
 * left there. One writer a path. IO, SPACE, LIMIT. */
DUNLIN_NODISCARD dunlin_status dunlin__outfile_open(dunlin_outfile *file, const char *path,
                                                    unsigned mode, dunlin_error *error);
/* In place of a file a function of the application's; `name` is what errors call it. */
void dunlin__outfile_to(dunlin_outfile *file, const char *name, dunlin_outfile_write_fn write_fn,
                        void *ctx);
/* CALLBACK where the application's function fails. */
DUNLIN_NODISCARD dunlin_status dunlin__outfile_write(dunlin_outfile *file, const void *bytes,
                                                     size_t n, dunlin_error *error);
/* An application's function has no end. With OK: synchronises and renames into place. Else the part
 * is removed. Returns `status`, or the first failure of its own; only where the folder cannot be
 * synchronised the new file is in its place all the same, and may be gone after a power cut. */
DUNLIN_NODISCARD dunlin_status dunlin__outfile_close(dunlin_outfile *file, dunlin_status status,
                                                     dunlin_error *error);

/* The three in one call, for bytes that are there already. */
DUNLIN_NODISCARD dunlin_status dunlin__outfile_put(const char *path, unsigned mode,
                                                   const void *bytes, size_t n,
                                                   dunlin_error *error);

/* The end of each such file, in the order that outlives a power cut: the bytes of `fd` (-1: they
 * are on the storage already), the name `to` in place of `from`, the folder of `to`. 0 or an errno,
 * and in *out_doing what failed, for dunlin__file_fail(). */
DUNLIN_NODISCARD int dunlin__file_settle(int fd, const char *from, const char *to,
                                         const char **out_doing);

/* The names in the folder that this file is in are on the storage: 0 or an errno. A file system
 * that has no such call is taken at its word. */
DUNLIN_NODISCARD int dunlin__file_sync_folder(const char *path);

/* One line about a call of the system's that failed with `code`: SPACE when nothing more fits, else
 * IO. */
dunlin_status dunlin__file_fail(dunlin_error *error, const char *doing, const char *path, int code);

#endif
