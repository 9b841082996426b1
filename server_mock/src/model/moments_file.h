/*
 * moments_file.h - what a strategy keeps from round to round: a file beside the base it goes with.
 *
 * NUMBER.moments in the folder of models: 32 bytes of head (8 of text "dunmom01", the strategy and
 * 0 as u32, the number of values as u64, 0 as u64) and m and v of each averaged value in the order
 * of the stream, as float64; all little-endian. It follows from that of the base
 * before and the round's updates, so a close that is repeated writes the same bytes; a model that
 * is taken back takes it along, for the next base is made from an older one with its own moments.
 */
#ifndef DUNLIN_SERVER_MOMENTS_FILE_H
#define DUNLIN_SERVER_MOMENTS_FILE_H

#include "base/files.h"
#include "server_step.h"

#include <dunlin/alloc.h>

typedef struct dunlin__moments_file {
    const dunlin__strategy *strategy;
    dunlin__server_path from_path;
    dunlin__server_path to_path;
    int from;         /* -1: there were none, and all begin anew */
    bool is_left_out; /* there is a file, but of another strategy or model */
    bool is_open;
    dunlin_outfile to;
    uint64_t n_values;
    uint64_t n_done;
    dunlin__moments *block;  /* DUNLIN_MOMENTS_VALUES */
    dunlin__moments *memory; /* all of them, to be changed in place; NULL: they are in files */
} dunlin__moments_file;
#define DUNLIN_MOMENTS_VALUES 2048u

/* Of which strategy and how many values a file of moments is. */
typedef struct dunlin__moments_kind {
    const dunlin__strategy *strategy;
    uint64_t n_values;
} dunlin__moments_kind;

/* Begins the file of base `number` from that of base `from`. IO, SPACE, MEMORY. Follow by
 * dunlin__moments_file_close(), also after a failure. */
DUNLIN_NODISCARD dunlin_status dunlin__moments_file_open(
    const char *folder, uint64_t from, uint64_t number, const dunlin__moments_kind *kind,
    const dunlin_alloc *alloc, dunlin__moments_file *out_file, dunlin_error *error);

/* The strategy's step for the next n averaged values, in the order of the stream. */
DUNLIN_NODISCARD dunlin_status dunlin__moments_file_step(dunlin__moments_file *file, size_t n,
                                                         const double *changes, float *values,
                                                         dunlin_error *error);

/* With OK the file is in its place, else there is none of this number. Returns `status`, or a
 * failure of its own. */
DUNLIN_NODISCARD dunlin_status dunlin__moments_file_close(dunlin__moments_file *file,
                                                          const dunlin_alloc *alloc,
                                                          dunlin_status status,
                                                          dunlin_error *error);

/* There are no moments of base `number`, as a strategy without them wants it. IO. */
DUNLIN_NODISCARD dunlin_status dunlin__moments_file_remove(const char *folder, uint64_t number,
                                                           dunlin_error *error);

/* The moments of base `number` are those of base `from`: a copy, or none where there are none. */
DUNLIN_NODISCARD dunlin_status dunlin__moments_file_keep(const char *folder, uint64_t from,
                                                         uint64_t number, const dunlin_alloc *alloc,
                                                         dunlin_error *error);

#endif
