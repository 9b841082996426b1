/*
 * spool.h - from an update's chunks to one file of float32, which aggregation reads.
 */
#ifndef DUNLIN_SERVER_SPOOL_H
#define DUNLIN_SERVER_SPOOL_H

#include "models.h"

#include <wire/compress.h>

/* What a spooled update was found to be. */
typedef struct dunlin__spool_report {
    bool is_finite;
    uint64_t bad_value; /* the first that is not finite */
    bool is_packed;
    double square; /* of the decoded norm, of a packed update */
} dunlin__spool_report;

/*
 * Joins the chunks of an update (files named by their hash in `folder`) in the order of its
 * manifest into the file `path`, synced. The manifest must be `layout`'s. IO when a chunk is
 * missing. Whether the values are any good is for the caller to judge by the report.
 */
DUNLIN_NODISCARD dunlin_status dunlin__update_spool(const char *folder,
                                                    const dunlin__layout *layout,
                                                    const dunlin__packing *packing,
                                                    const char *path, const dunlin_alloc *alloc,
                                                    dunlin__spool_report *out_report,
                                                    dunlin_error *error);

/* Reads an update's manifest and holds it against the table: an F32 stream "update", or an
 * INT8_SCALE one where the layout says so, with all tensors that are not LOCAL, and with SCAFFOLD
 * "control_delta" with those that are averaged. With a packing, which is what the device was told,
 * it is the one PACKED stream "update". MISMATCH names what differs. */
DUNLIN_NODISCARD dunlin_status dunlin__update_check_manifest(const uint8_t *bytes, size_t n_bytes,
                                                             const dunlin__layout *layout,
                                                             const dunlin__packing *packing,
                                                             uint32_t *out_n_chunks,
                                                             dunlin_error *error);

#endif
