/*
 * npy.h - NumPy's .npy, formats 1.0, 2.0 and 3.0: a header with type, order and shape, then the
 * elements. Types u1, i4, i8, f4 and f8, little-endian, in C order.
 */
#ifndef DUNLIN_DATA_NPY_H
#define DUNLIN_DATA_NPY_H

#include "bytes.h"

#include <dunlin/tensor.h>

typedef struct dunlin_npy {
    dunlin_bytes *bytes;
    dunlin_dtype dtype; /* U8, I32, I64, F32, F64 */
    dunlin_shape shape; /* all of it, the number of examples first */
    uint64_t n_elements;
} dunlin_npy;

/* Reads and checks the header: a shape whose elements the file can hold. */
dunlin_status dunlin__npy_begin(dunlin_npy *npy, dunlin_bytes *bytes, dunlin_error *error);

/* The next n elements as numbers; a whole number beyond 2^53 is rounded. */
dunlin_status dunlin__npy_read(dunlin_npy *npy, double *out, size_t n, dunlin_error *error);

#endif
