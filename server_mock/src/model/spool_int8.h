/*
 * spool_int8.h - from the chunks of whole weights in int8 to one file of float32.
 */
#ifndef DUNLIN_SERVER_SPOOL_INT8_H
#define DUNLIN_SERVER_SPOOL_INT8_H

#include "spool_chunks.h"

/* Decodes the INT8_SCALE update of a manifest that has been checked into the open file, through
 * `block`, which has DUNLIN_WIRE_BLOCK_BYTES. A scale or a byte that breaks a rule is PROTOCOL and
 * names its tensor; IO when a chunk is missing. */
DUNLIN_NODISCARD dunlin_status dunlin__spool_int8(const dunlin__spool_files *files,
                                                  const uint8_t *manifest, size_t n_manifest,
                                                  float *block, dunlin_error *error);

#endif
