/*
 * spool_packed.h - from a packed update's chunks to one file of float32.
 */
#ifndef DUNLIN_SERVER_SPOOL_PACKED_H
#define DUNLIN_SERVER_SPOOL_PACKED_H

#include "spool.h"
#include "spool_chunks.h"

#include <wire/compress.h>

/* Decodes the update of a manifest that has been checked, block by block, into the open file; the
 * report gets the square of the norm. A value or size that breaks a rule of the packing is
 * PROTOCOL, NUMERIC or MISMATCH and names itself; IO when a chunk is missing. */
DUNLIN_NODISCARD dunlin_status dunlin__spool_packed(const dunlin__spool_files *files,
                                                    const uint8_t *manifest, size_t n_manifest,
                                                    const dunlin_alloc *alloc,
                                                    dunlin__spool_report *report,
                                                    dunlin_error *error);

#endif
