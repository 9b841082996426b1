/*
 * tensor.c - sizes of types and shapes, checked.
 */
#include <dunlin/tensor.h>
#include <mem/checked.h>

size_t dunlin_dtype_bytes(dunlin_dtype dtype)
{
    switch (dtype) {
    case DUNLIN_F32:
    case DUNLIN_I32:
        return 4;
    case DUNLIN_U8:
    case DUNLIN_I8:
        return 1;
    case DUNLIN_I64:
    case DUNLIN_F64:
        return 8;
    case DUNLIN_F16:
    case DUNLIN_BF16:
        return 2;
    default:
        return 0;
    }
}

dunlin_status dunlin_shape_count(const dunlin_shape *shape, int64_t *out_n_elements)
{
    *out_n_elements = 0;
    if (shape->n_dims < 0 || shape->n_dims > DUNLIN_MAX_DIMS) {
        return DUNLIN_ARGUMENT;
    }
    int64_t count = 1;
    for (int32_t i = 0; i < shape->n_dims; i++) {
        if (shape->dims[i] < 0) {
            return DUNLIN_ARGUMENT;
        }
        if (!dunlin__mul_i64(count, shape->dims[i], &count)) {
            return DUNLIN_OVERFLOW;
        }
    }
    *out_n_elements = count;
    return DUNLIN_OK;
}
