/*
 * idx.c - reads IDX headers and numbers.
 *
 * Invariant: a header that comes back OK fits the file, so its sizes may be used for allocations.
 * Source: the format's description in the MNIST distribution.
 */
#include "idx.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>

static uint32_t big_endian(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

dunlin_status dunlin__idx_read_header(dunlin_bytes *bytes, dunlin_idx_type type, int32_t n_dims,
                                      dunlin_idx_header *out_header, dunlin_error *error)
{
    uint8_t magic[4];
    DUNLIN_TRY(dunlin__bytes_read(bytes, magic, sizeof magic, error));
    if (magic[0] != 0 || magic[1] != 0) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: not an IDX file: it begins with %02x %02x, not 00 00", bytes->name,
                            magic[0], magic[1]);
    }
    if (magic[2] != (uint8_t)type || magic[3] != n_dims) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: element type 0x%02x in %d dimensions; expected 0x%02x in %d",
                            bytes->name, magic[2], magic[3], (unsigned)type, (int)n_dims);
    }
    out_header->n_dims = n_dims;
    out_header->n_elements = 1;
    for (int32_t i = 0; i < n_dims; i++) {
        uint8_t number[4];
        DUNLIN_TRY(dunlin__bytes_read(bytes, number, sizeof number, error));
        uint32_t dim = big_endian(number);
        if (dim == 0 || dim > INT32_MAX ||
            !dunlin__mul_u64(out_header->n_elements, dim, &out_header->n_elements)) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: dimension %d is %" PRIu32 "; the limits are 1 and %d",
                                bytes->name, (int)i, dim, INT32_MAX);
        }
        out_header->dims[i] = dim;
    }
    uint64_t n_bytes = 0;
    uint64_t left_bytes =
        bytes->limit_bytes > bytes->position ? bytes->limit_bytes - bytes->position : 0;
    if (!dunlin__mul_u64(out_header->n_elements, type == DUNLIN_IDX_I32 ? 4 : 1, &n_bytes) ||
        n_bytes > left_bytes) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: the header announces %" PRIu64
                            " elements; a file of this size holds at most %" PRIu64 " bytes",
                            bytes->name, out_header->n_elements, left_bytes);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__idx_read_i32(dunlin_bytes *bytes, int32_t *out, size_t n, dunlin_error *error)
{
    for (size_t i = 0; i < n; i++) {
        uint8_t number[4];
        DUNLIN_TRY(dunlin__bytes_read(bytes, number, sizeof number, error));
        out[i] = (int32_t)big_endian(number);
    }
    return DUNLIN_OK;
}
