/*
 * models.h - the global model: its tensor table, its files, what clients fetch of it.
 */
#ifndef DUNLIN_SERVER_MODELS_H
#define DUNLIN_SERVER_MODELS_H

#include "base/files.h"

#include <dunlin/alloc.h>
#include <wire/manifest.h>

/* The tensors in the order of the stream, all F32. */
typedef struct dunlin__layout {
    dunlin__tensor_entry *tensors;
    uint32_t n_tensors;
    uint64_t n_values;
    uint32_t chunk_bytes;    /* of the streams */
    bool has_control;        /* SCAFFOLD: a control variate goes with the weights */
    bool is_int8;            /* what comes back is INT8_SCALE */
    const bool *is_variance; /* of each tensor: its values are never below 0; NULL: not known */
    /* Filled in by dunlin__layout_check(): what comes back of the weights, which is all but LOCAL
     * tensors, and what has variates, which are the averaged ones. */
    uint32_t n_shared_tensors;
    uint64_t n_shared_values;
    uint32_t n_averaged_tensors;
    uint64_t n_averaged_values;
} dunlin__layout;

/* The streams of a layout: of a base "weights" and "control", of an update "update" and
 * "control_delta". */
typedef enum dunlin__layout_part {
    DUNLIN_LAYOUT_ALL = 0,  /* every tensor */
    DUNLIN_LAYOUT_SHARED,   /* all but LOCAL ones */
    DUNLIN_LAYOUT_AVERAGED, /* those with variates */
} dunlin__layout_part;
bool dunlin__layout_has(const dunlin__layout *layout, uint32_t tensor, dunlin__layout_part part);

/* Bytes of the stream "update" that comes back, unless it is packed. */
uint64_t dunlin__layout_update_bytes(const dunlin__layout *layout);

/* Makes the tensors whose names begin with one of `prefixes` (separated by commas) LOCAL. DATA
 * names a prefix that no tensor has. */
DUNLIN_NODISCARD dunlin_status dunlin__layout_make_local(dunlin__layout *layout,
                                                         const char *prefixes, dunlin_error *error);

/* Sums up and checks a table: LIMIT, OVERFLOW, MODEL (no values, or none that are shared). */
DUNLIN_NODISCARD dunlin_status dunlin__layout_check(dunlin__layout *layout, dunlin_error *error);

/* The values of a model, whoever has them: values_fn writes [first, first + n). */
typedef struct dunlin__values {
    void *ctx;
    dunlin_status (*values_fn)(void *ctx, uint64_t first, size_t n, float *out_values,
                               dunlin_error *error);
} dunlin__values;

/* The base of a round, ready to be fetched: ROUND.weights, ROUND.control and ROUND.manifest in a
 * folder. */
typedef struct dunlin__published {
    uint64_t round;   /* 0: none */
    uint64_t n_bytes; /* of the weights */
    uint64_t n_control_bytes;
    uint32_t chunk_bytes;
    uint32_t n_chunks;
    uint32_t n_weight_chunks; /* the first so many; the others are of the control variate */
    uint8_t (*chunk_sha256)[DUNLIN_SHA256_BYTES];
    uint32_t n_manifest_bytes;
    uint8_t manifest_sha256[DUNLIN_SHA256_BYTES];
    struct dunlin__down *down; /* what devices fetch instead, if it goes down packed; down.h */
} dunlin__published;

/* What devices begin from: the base itself, or what its packed form decodes to. */
const dunlin__published *dunlin__published_base(const dunlin__published *published);

/*
 * Writes the base of a round from its values, block by block, and its manifest. `values` has one
 * for each stream: weights, and the control variate if the layout has it. The files are complete or
 * absent. `out_published` is freed by dunlin__published_free().
 */
DUNLIN_NODISCARD dunlin_status dunlin__model_publish(
    const char *folder, uint64_t round, const dunlin__layout *layout, const dunlin__values *values,
    const dunlin_alloc *alloc, dunlin__published *out_published, dunlin_error *error);

/* Takes up a base that was published before; MISMATCH if it is not of this layout. */
DUNLIN_NODISCARD dunlin_status dunlin__model_load(const char *folder, uint64_t round,
                                                  const dunlin__layout *layout,
                                                  const dunlin_alloc *alloc,
                                                  dunlin__published *out_published,
                                                  dunlin_error *error);
void dunlin__published_free(dunlin__published *published, const dunlin_alloc *alloc);

/* A file of float32, and its values. */
typedef struct dunlin__weights_file {
    int fd;
    dunlin__server_path path;
} dunlin__weights_file;
/* MISMATCH if the file does not have exactly so many values. */
DUNLIN_NODISCARD dunlin_status dunlin__weights_file_open(const char *path, uint64_t n_values,
                                                         dunlin__weights_file *out_file,
                                                         dunlin_error *error);
/* `file` must stay. */
dunlin__values dunlin__weights_file_values(dunlin__weights_file *file);
void dunlin__weights_file_close(dunlin__weights_file *file);

/* The file of a round's base. */
DUNLIN_NODISCARD dunlin_status dunlin__model_path(const char *folder, uint64_t round,
                                                  const char *ending, dunlin__server_path *out_path,
                                                  dunlin_error *error);

#endif
