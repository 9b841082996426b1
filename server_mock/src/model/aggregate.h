/*
 * aggregate.h - from chunks to one file per update, and from those files to the next model.
 *
 * Streaming: an update is a file of float32; aggregation reads a block of each, one after another.
 * It holds two blocks, whatever the sizes of model and cohort.
 */
#ifndef DUNLIN_SERVER_AGGREGATE_H
#define DUNLIN_SERVER_AGGREGATE_H

#include "models.h"

/* ---- taking an update in ---- */

/* What a spooled update was found to be. */
typedef struct dunlin__spool_report {
    double l2_norm;
    bool is_finite;
    uint64_t bad_value; /* the first that is not finite */
} dunlin__spool_report;

/*
 * Joins the chunks of an update (files named by their hash in `folder`) in the order of its
 * manifest into the file `path`, synced. The manifest must be `layout`'s. IO when a chunk is
 * missing. Whether the values are any good is for the caller to judge by the report.
 */
DUNLIN_NODISCARD dunlin_status dunlin__update_spool(const char *folder,
                                                    const dunlin__layout *layout, const char *path,
                                                    const dunlin_alloc *alloc,
                                                    dunlin__spool_report *out_report,
                                                    dunlin_error *error);

/* Reads an update's manifest and holds it against the table: an F32 stream "update" with all
 * tensors that are not LOCAL, and with SCAFFOLD "control_delta" with those that are averaged.
 * MISMATCH names what differs. */
DUNLIN_NODISCARD dunlin_status dunlin__update_check_manifest(const uint8_t *bytes, size_t n_bytes,
                                                             const dunlin__layout *layout,
                                                             uint32_t *out_n_chunks,
                                                             dunlin_error *error);

/* ---- folding ---- */

typedef struct dunlin__aggregate_input {
    dunlin__server_path path;
    double weight;
    double scale;         /* of the update, before it is weighed; 1: as it is */
    int64_t client_index; /* whose it is */
    double norm;          /* negative: not taken */
} dunlin__aggregate_input;

/*
 * The next model as values: base + sum(w_i * u_i) / sum(w_i), or that quotient alone when whole
 * weights were sent; u_i is scaled first where its `scale` is below 1, whole weights by their
 * difference from the base. Sums are double, element by element in the order of `inputs`, so
 * neither blocks nor arrival change a bit. Without inputs it is the base; LOCAL tensors always
 * stay. The next control variate is folded likewise, from where the updates have its changes, over
 * all devices there are. Variances stay at 0 or above. Plain data: fill in, use.
 */
typedef struct dunlin__aggregate {
    const dunlin__layout *layout;
    dunlin__layout_part part; /* the stream's tensors: ALL, or AVERAGED */
    uint64_t first_in_inputs; /* where the stream begins in an input's file, in values */
    double divisor;           /* 0: the sum of the weights */
    dunlin__weights_file *base;
    const dunlin__aggregate_input *inputs;
    size_t n_inputs;
    bool sends_weights;
    double *sums; /* DUNLIN_AGGREGATE_VALUES each */
    float *block;
} dunlin__aggregate;
#define DUNLIN_AGGREGATE_VALUES (DUNLIN_WIRE_BLOCK_BYTES / sizeof(float))

dunlin__values dunlin__aggregate_values(dunlin__aggregate *aggregate);

#endif
