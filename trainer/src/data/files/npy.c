/*
 * npy.c - .npy headers and elements.
 *
 * Invariant: a header that comes back OK fits the file, so its sizes may be used for allocations.
 * Source: NumPy's documentation, numpy.lib.format.
 */
#include "npy.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define HEADER_MOST 4096
#define BLOCK 512 /* elements at a time */

static dunlin_status fail(const dunlin_npy *npy, const char *what, dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s: %s", npy->bytes->name, what);
}

/* The text after 'KEY': in the header's dictionary; NULL: there is none. */
static const char *find_key(const char *header, const char *key)
{
    const size_t n = strlen(key);
    for (const char *at = header; (at = strstr(at, key)) != NULL; at += n) {
        const char *colon = at + n + 1 + (at[n] == '\0' ? 0 : strspn(at + n + 1, " "));
        if (at > header && (at[-1] == '\'' || at[-1] == '"') && at[n] == at[-1] && *colon == ':') {
            return colon + 1 + strspn(colon + 1, " ");
        }
    }
    return NULL;
}

static dunlin_status read_type(dunlin_npy *npy, const char *at, dunlin_error *error)
{
    static const struct {
        const char *name;
        dunlin_dtype dtype;
    } types[] = {{"|u1", DUNLIN_U8},  {"<u1", DUNLIN_U8},  {"<i4", DUNLIN_I32},
                 {"<i8", DUNLIN_I64}, {"<f4", DUNLIN_F32}, {"<f8", DUNLIN_F64}};
    char name[16] = "";
    for (size_t i = 0; at != NULL && (*at == '\'' || *at == '"') && at[1 + i] != '\0' &&
                       at[1 + i] != *at && i + 1 < sizeof name;
         i++) {
        name[i] = at[1 + i] < ' ' || at[1 + i] > '~' ? '?' : at[1 + i];
    }
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(types[i].name, name) == 0) {
            npy->dtype = types[i].dtype;
            return DUNLIN_OK;
        }
    }
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                        "%s: elements of type %s: u1, i4, i8, f4 and f8 are read, little-endian",
                        npy->bytes->name, name[0] == '\0' ? "(several fields)" : name);
}

static dunlin_status read_shape(dunlin_npy *npy, const char *at, dunlin_error *error)
{
    npy->shape = (dunlin_shape){.n_dims = 0};
    npy->n_elements = 1;
    if (at == NULL || *at != '(') {
        return fail(npy, "its header has no shape", error);
    }
    at++;
    for (;;) {
        at += strspn(at, " ,");
        if (*at == ')') {
            break;
        }
        uint64_t dim = 0;
        const char *from = at;
        for (; *at >= '0' && *at <= '9' && dim <= INT32_MAX; at++) {
            dim = dim * 10 + (uint64_t)(*at - '0');
        }
        at += from != at && *at == 'L' ? 1 : 0; /* written by Python 2 */
        if (from == at || dim == 0 || dim > INT32_MAX || npy->shape.n_dims == DUNLIN_MAX_DIMS ||
            !dunlin__mul_u64(npy->n_elements, dim, &npy->n_elements)) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: dimension %d of its shape: the limits are 1 and %d, and %d "
                                "dimensions",
                                npy->bytes->name, (int)npy->shape.n_dims, INT32_MAX,
                                DUNLIN_MAX_DIMS);
        }
        npy->shape.dims[npy->shape.n_dims++] = (int64_t)dim;
    }
    return npy->shape.n_dims > 0
               ? DUNLIN_OK
               : fail(npy, "it holds a single number, not an array of examples", error);
}

static dunlin_status read_header(dunlin_npy *npy, char header[HEADER_MOST + 1], dunlin_error *error)
{
    uint8_t begin[12];
    DUNLIN_TRY(dunlin__bytes_read(npy->bytes, begin, 10, error));
    if (memcmp(begin, "\x93NUMPY", 6) != 0) {
        return fail(npy, "not a .npy file: it does not begin with NumPy's mark", error);
    }
    if (begin[6] < 1 || begin[6] > 3) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "%s: format %d.%d of .npy: 1.0, 2.0 and 3.0 are read", npy->bytes->name,
                            begin[6], begin[7]);
    }
    uint32_t n = (uint32_t)begin[8] | (uint32_t)begin[9] << 8;
    if (begin[6] > 1) {
        DUNLIN_TRY(dunlin__bytes_read(npy->bytes, begin + 10, 2, error));
        n |= (uint32_t)begin[10] << 16 | (uint32_t)begin[11] << 24;
    }
    if (n > HEADER_MOST) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%s: a header of %" PRIu32 " bytes: the limit is %d", npy->bytes->name,
                            n, HEADER_MOST);
    }
    DUNLIN_TRY(dunlin__bytes_read(npy->bytes, header, n, error));
    header[n] = '\0';
    return DUNLIN_OK;
}

dunlin_status dunlin__npy_begin(dunlin_npy *npy, dunlin_bytes *bytes, dunlin_error *error)
{
    char header[HEADER_MOST + 1];
    npy->bytes = bytes;
    DUNLIN_TRY(read_header(npy, header, error));
    DUNLIN_TRY(read_type(npy, find_key(header, "descr"), error));
    const char *order = find_key(header, "fortran_order");
    if (order == NULL || strncmp(order, "False", 5) != 0) {
        return order != NULL && strncmp(order, "True", 4) == 0
                   ? dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                                  "%s: the array is in Fortran order; save "
                                  "numpy.ascontiguousarray() of it",
                                  bytes->name)
                   : fail(npy, "its header does not say fortran_order", error);
    }
    DUNLIN_TRY(read_shape(npy, find_key(header, "shape"), error));
    uint64_t n_bytes = 0;
    const uint64_t left_bytes =
        bytes->limit_bytes > bytes->position ? bytes->limit_bytes - bytes->position : 0;
    if (!dunlin__mul_u64(npy->n_elements, dunlin_dtype_bytes(npy->dtype), &n_bytes) ||
        n_bytes > left_bytes) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: the header announces %" PRIu64
                            " elements; a file of this size holds at most %" PRIu64 " bytes",
                            bytes->name, npy->n_elements, left_bytes);
    }
    return DUNLIN_OK;
}

static uint64_t load(const uint8_t *at, size_t n)
{
    uint64_t value = 0;
    for (size_t i = n; i > 0; i--) {
        value = value << 8 | at[i - 1];
    }
    return value;
}

static double element(const dunlin_npy *npy, const uint8_t *at)
{
    const uint64_t wide = load(at, dunlin_dtype_bytes(npy->dtype));
    const uint32_t narrow = (uint32_t)wide;
    float single = 0.0F;
    double twice = 0.0;
    switch (npy->dtype) {
    case DUNLIN_U8:
        return (double)narrow;
    case DUNLIN_I32:
        return (double)(int32_t)narrow;
    case DUNLIN_I64:
        return (double)(int64_t)wide;
    case DUNLIN_F32:
        memcpy(&single, &narrow, sizeof single);
        return (double)single;
    case DUNLIN_F64:
    case DUNLIN_F16:
    case DUNLIN_I8:
    case DUNLIN_BF16:
    default:
        memcpy(&twice, &wide, sizeof twice);
        return twice;
    }
}

dunlin_status dunlin__npy_read(dunlin_npy *npy, double *out, size_t n, dunlin_error *error)
{
    uint8_t raw[BLOCK * sizeof(double)];
    const size_t width = dunlin_dtype_bytes(npy->dtype);
    for (size_t first = 0; first < n; first += BLOCK) {
        const size_t here = n - first < BLOCK ? n - first : BLOCK;
        DUNLIN_TRY(dunlin__bytes_read(npy->bytes, raw, here * width, error));
        for (size_t i = 0; i < here; i++) {
            out[first + i] = element(npy, raw + i * width);
        }
    }
    return DUNLIN_OK;
}
