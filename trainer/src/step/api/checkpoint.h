/*
 * checkpoint.h - what a checkpoint begins with, for the file that writes them and the one that
 * reads them.
 */
#ifndef DUNLIN_STEP_CHECKPOINT_H
#define DUNLIN_STEP_CHECKPOINT_H

#include "step/context/context.h"

#define DUNLIN_CHECKPOINT_MAGIC "DUNLINCK"
#define DUNLIN_CHECKPOINT_VERSION 2         /* of a trainer in float32 */
#define DUNLIN_CHECKPOINT_INTEGER_VERSION 3 /* with exponents */
#define DUNLIN_CHECKPOINT_STORAGE_VERSION 4 /* of one that stores less than float32 in a step */
#define DUNLIN_CHECKPOINT_RANGES_VERSION 5  /* with ranges of products */
#define DUNLIN_CHECKPOINT_SITE_BYTES 24
#define DUNLIN_CHECKPOINT_RANGE_BYTES 28
#define DUNLIN_CHECKPOINT_HEAD_BYTES 60
#define DUNLIN_CHECKPOINT_CRC_BYTES 4
#define DUNLIN_CHECKPOINT_BLOCK_FLOATS 1024
#define DUNLIN_CHECKPOINT_MAX_TENSORS (3 + DUNLIN_STEP_MAX_SLOTS)

typedef struct dunlin_checkpoint_head {
    uint32_t version;
    uint32_t n_params;
    uint32_t n_properties;
    uint64_t file_bytes;
    uint64_t model;     /* names, shapes, roles */
    uint64_t optimizer; /* which one, and which parameters have its state and slots */
    uint64_t step;
    uint64_t seed;
} dunlin_checkpoint_head;

/* Everything of the head but the number and the bytes of the properties. */
dunlin_checkpoint_head dunlin__checkpoint_head(const dunlin_trainer *trainer);
/* Its `optimizer` for a trainer that were of another storage. */
uint64_t dunlin__checkpoint_print(const dunlin_trainer *trainer, dunlin_storage storage);
/* The version of a checkpoint that the trainer writes. */
uint32_t dunlin__checkpoint_version(const dunlin_trainer *trainer);
/* The tensors of one parameter that a checkpoint holds. */
size_t dunlin__checkpoint_tensors(const dunlin_trainer *trainer, size_t param,
                                  uint32_t *out_tensors);

#endif
