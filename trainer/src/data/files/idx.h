/*
 * idx.h - the IDX format of MNIST and its relatives: two zero bytes, a type, the number of
 * dimensions, the dimensions as big-endian 32-bit numbers, then the elements.
 */
#ifndef DUNLIN_DATA_IDX_H
#define DUNLIN_DATA_IDX_H

#include "bytes.h"

#define DUNLIN_IDX_MAX_DIMS 3

typedef enum dunlin_idx_type { DUNLIN_IDX_U8 = 0x08, DUNLIN_IDX_I32 = 0x0C } dunlin_idx_type;

typedef struct dunlin_idx_header {
    int32_t n_dims;
    int64_t dims[DUNLIN_IDX_MAX_DIMS];
    uint64_t n_elements; /* the file can hold them: checked against what can come out of it */
} dunlin_idx_header;

/*
 * Reads and checks a header: magic, exactly this type and number of dimensions, at least one
 * example, a size that does not overflow and that the file can hold.
 */
dunlin_status dunlin__idx_read_header(dunlin_bytes *bytes, dunlin_idx_type type, int32_t n_dims,
                                      dunlin_idx_header *out_header, dunlin_error *error);

/* Reads n big-endian 32-bit numbers. */
dunlin_status dunlin__idx_read_i32(dunlin_bytes *bytes, int32_t *out, size_t n,
                                   dunlin_error *error);

#endif
