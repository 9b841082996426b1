/*
 * tensor.h - a tensor as an argument of the library's calls: a type, a shape, borrowed bytes.
 *
 * Example: how many bytes an image takes.
 *
 * @code
 * const dunlin_shape shape = {.n_dims = 3, .dims = {3, 224, 224}};
 * int64_t n_elements = 0;
 * if (dunlin_shape_count(&shape, &n_elements) == DUNLIN_OK) {
 *     printf("%.0f bytes\n", (double)n_elements * (double)dunlin_dtype_bytes(DUNLIN_F32));
 * }
 * @endcode
 */
#ifndef DUNLIN_TENSOR_H
#define DUNLIN_TENSOR_H

#include <dunlin/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DUNLIN_MAX_DIMS 8

typedef enum dunlin_dtype {
    DUNLIN_F32 = 1,
    DUNLIN_U8 = 2,
    DUNLIN_I32 = 3,
    DUNLIN_I64 = 4,
    DUNLIN_F64 = 5,
    DUNLIN_F16 = 6,
    DUNLIN_I8 = 7,
    DUNLIN_BF16 = 8 /* the upper half of a DUNLIN_F32: 8 bits of exponent, 7 of fraction */
} dunlin_dtype;

/** @return bytes of one element; 0 for an unknown type. */
DUNLIN_API size_t dunlin_dtype_bytes(dunlin_dtype dtype);

/** A shape, outermost dimension first. `n_dims` 0 is a scalar. This struct is frozen. */
typedef struct dunlin_shape {
    int32_t n_dims;
    int64_t dims[DUNLIN_MAX_DIMS];
} dunlin_shape;

/** The number of elements of a shape.
 *
 * @return OK; OVERFLOW if the product passes INT64_MAX, ARGUMENT if a dimension is negative. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_shape_count(const dunlin_shape *shape,
                                                             int64_t *out_n_elements);

/** A borrowed tensor: row-major, contiguous, little-endian; `name` and `data` belong to the caller.
 * This struct is frozen. */
typedef struct dunlin_tensor_view {
    const char *name;
    dunlin_dtype dtype;
    dunlin_shape shape;
    const void *data;
    size_t data_bytes;
} dunlin_tensor_view;

#ifdef __cplusplus
}
#endif

#endif
