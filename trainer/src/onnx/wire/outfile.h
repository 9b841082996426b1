/*
 * outfile.h - a file that appears whole or not at all.
 */
#ifndef DUNLIN_ONNX_OUTFILE_H
#define DUNLIN_ONNX_OUTFILE_H

#include <dunlin/base.h>

#define DUNLIN_OUTFILE_MAX_PATH 4096

typedef struct dunlin_outfile {
    const char *path; /* the caller's */
    char part[DUNLIN_OUTFILE_MAX_PATH];
    int fd;
} dunlin_outfile;

/* Starts "PATH.part" beside the target, replacing what an interrupted run left there. One writer a
 * path. IO, SPACE, LIMIT. */
DUNLIN_NODISCARD dunlin_status dunlin__outfile_open(dunlin_outfile *file, const char *path,
                                                    dunlin_error *error);
DUNLIN_NODISCARD dunlin_status dunlin__outfile_write(dunlin_outfile *file, const void *bytes,
                                                     size_t n, dunlin_error *error);
/* With OK: synchronises and renames into place. Else the part is removed. Returns `status`, or the
 * first failure of its own. */
DUNLIN_NODISCARD dunlin_status dunlin__outfile_close(dunlin_outfile *file, dunlin_status status,
                                                     dunlin_error *error);

#endif
