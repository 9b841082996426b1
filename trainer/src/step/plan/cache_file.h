/*
 * cache_file.h - what the files of a cache_dir have in common.
 */
#ifndef DUNLIN_STEP_CACHE_FILE_H
#define DUNLIN_STEP_CACHE_FILE_H

#include "step/context/context.h"

#include <mem/outfile.h>

/* <cache_dir>/<key>.<suffix>; false: the name is too long. */
bool dunlin__cache_path(const dunlin_trainer *trainer, uint64_t key, const char *suffix,
                        char path[DUNLIN_OUTFILE_MAX_PATH]);

/* Numbers of n_bytes, little-endian. */
void dunlin__cache_put(unsigned char *to, uint64_t number, size_t n_bytes);
uint64_t dunlin__cache_get(const unsigned char *from, size_t n_bytes);

/* The whole file, from `alloc`, at least so many bytes; a missing one is IO without a text. DIGEST,
 * MEMORY. */
DUNLIN_NODISCARD dunlin_status dunlin__cache_read(const char *path, size_t least_bytes,
                                                  const dunlin_alloc *alloc,
                                                  unsigned char **out_bytes, size_t *out_n,
                                                  dunlin_error *error);

#endif
