/*
 * own_npy.c - a user's NumPy arrays: examples and labels in two .npy files, or in one .npz.
 *
 * Invariant: both arrays have as many rows, and are read side by side, an example at a time.
 */
#include "data/files/npy.h"
#include "data/files/zip.h"
#include "own_rows.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* How the arrays of an .npz may be called, what is taken first to the left. */
static const char *const member_names[4][6] = {
    {"x_train", "X_train", "x", "X", "images", "arr_0"},
    {"y_train", "Y_train", "y", "Y", "labels", "arr_1"},
    {"x_test", "X_test", "test_images", NULL},
    {"y_test", "Y_test", "test_labels", NULL},
};

static dunlin_status check_labels(const dunlin_npy *x, const dunlin_npy *y, dunlin_error *error)
{
    if (x->shape.dims[0] != y->shape.dims[0] || x->shape.n_dims < 2) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "data", 0,
                            "%s: %" PRId64 " examples of %d dimensions, %s: %" PRId64
                            " labels; as many are needed, and 1 dimension or more",
                            x->bytes->name, x->shape.dims[0], (int)(x->shape.n_dims - 1),
                            y->bytes->name, y->shape.dims[0]);
    }
    return y->n_elements == (uint64_t)y->shape.dims[0]
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                              "%s: %" PRIu64 " labels an example: one whole number is read",
                              y->bytes->name, y->n_elements / (uint64_t)y->shape.dims[0]);
}

static dunlin_status read_rows(dunlin_npy *x, dunlin_npy *y, double *values, size_t n_values,
                               const dunlin_own_visitor *visitor, dunlin_error *error)
{
    for (int64_t i = 0; i < x->shape.dims[0]; i++) {
        char where[160];
        dunlin_own_row row = {.values = values};
        DUNLIN_TRY(dunlin__npy_read(x, values, n_values, error));
        DUNLIN_TRY(dunlin__npy_read(y, &row.label, 1, error));
        for (size_t k = 0; k < n_values; k++) {
            if (!isfinite(values[k])) {
                return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                    "%s: row %" PRId64 ", column %zu is %s", x->bytes->name, i, k,
                                    isnan(values[k]) ? "not a number (NaN)" : "infinite");
            }
        }
        (void)snprintf(where, sizeof where, "%.120s: row %" PRId64, x->bytes->name, i);
        if (!isfinite(row.label)) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s: row %" PRId64 " is not finite",
                                y->bytes->name, i);
        }
        if (row.label != floor(row.label) || row.label < 0.0 ||
            row.label >= DUNLIN_DATA_MAX_CLASSES) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: row %" PRId64
                                ": label %g: expected a whole number from 0 to %d",
                                y->bytes->name, i, row.label, DUNLIN_DATA_MAX_CLASSES - 1);
        }
        DUNLIN_TRY(visitor->row_fn(visitor->ctx, &row, where, error));
    }
    DUNLIN_TRY(dunlin__bytes_expect_end(x->bytes, error));
    return dunlin__bytes_expect_end(y->bytes, error);
}

dunlin_status dunlin__own_read_npy_rows(const dunlin_alloc *alloc, dunlin_bytes *x_bytes,
                                        dunlin_bytes *y_bytes, const dunlin_own_visitor *visitor,
                                        dunlin_error *error)
{
    dunlin_npy x;
    dunlin_npy y;
    DUNLIN_TRY(dunlin__npy_begin(&x, x_bytes, error));
    DUNLIN_TRY(dunlin__npy_begin(&y, y_bytes, error));
    DUNLIN_TRY(check_labels(&x, &y, error));
    dunlin_shape shape = {.n_dims = x.shape.n_dims - 1};
    for (int32_t i = 0; i < shape.n_dims; i++) {
        shape.dims[i] = x.shape.dims[i + 1];
    }
    DUNLIN_TRY(visitor->begin_fn(visitor->ctx, x_bytes->name, &shape, error));
    const size_t n_values = (size_t)(x.n_elements / (uint64_t)x.shape.dims[0]);
    double *values = dunlin__alloc_array(alloc, n_values, sizeof *values);
    if (values == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                            "%s: no memory for an example of %zu numbers", x_bytes->name, n_values);
    }
    const dunlin_status status = read_rows(&x, &y, values, n_values, visitor, error);
    dunlin__free_array(alloc, values, n_values, sizeof *values);
    return status;
}

/* Whether a member is called so, with ".npy" after it. */
static bool is_called(const char *member, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(member, name, n) == 0 && strcmp(member + n, ".npy") == 0;
}

/* The best of the members for a role (a row of member_names); *out_has is false without any. */
static dunlin_status find_member(const char *path, int role, dunlin_bytes_part *out_part,
                                 bool *out_has, dunlin_error *error)
{
    dunlin_zip zip;
    int best = 6;
    dunlin_zip_member member;
    DUNLIN_TRY(dunlin__zip_open(&zip, path, NULL, 0, error));
    bool has_member = false;
    dunlin_status status = dunlin__zip_next(&zip, &member, &has_member, error);
    while (status == DUNLIN_OK && has_member) {
        for (int i = 0; i < best && member_names[role][i] != NULL; i++) {
            if (is_called(member.name, member_names[role][i])) {
                *out_part = member.part;
                best = i;
            }
        }
        status = dunlin__zip_next(&zip, &member, &has_member, error);
    }
    dunlin__zip_close(&zip);
    *out_has = best < 6;
    return status;
}

static bool is_npz(const dunlin_own_spec *spec)
{
    return spec->n_files == 1;
}

dunlin_status dunlin__own_npy_find_test(dunlin_own_spec *spec, dunlin_error *error)
{
    bool has_test = spec->n_files == 4;
    if (spec->test != NULL || spec->label != NULL || spec->client != NULL || spec->n_files == 3 ||
        spec->n_files > 4) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "npy: expected X,Y or X,Y,X_TEST,Y_TEST or one .npz file, and of the "
                            "keys test=N%% and seed=N");
    }
    if (is_npz(spec)) {
        dunlin_bytes_part part;
        DUNLIN_TRY(find_member(spec->files[0], 2, &part, &has_test, error));
    }
    spec->test = has_test ? spec->files[0] : NULL;
    return DUNLIN_OK;
}

static dunlin_status open_array(const dunlin_alloc *alloc, const dunlin_own_spec *spec, int role,
                                dunlin_bytes *bytes, dunlin_error *error)
{
    if (!is_npz(spec)) {
        return dunlin__bytes_open(bytes, spec->files[role], alloc, error);
    }
    dunlin_bytes_part part;
    bool has_member = false;
    DUNLIN_TRY(find_member(spec->files[0], role, &part, &has_member, error));
    return has_member
               ? dunlin__bytes_open_part(bytes, spec->files[0], NULL, &part, alloc, error)
               : dunlin__fail(error, DUNLIN_DATA, "data", 0,
                              "%.120s: no array is called %s, %s or %s", spec->files[0],
                              member_names[role][0], member_names[role][1], member_names[role][2]);
}

dunlin_status dunlin__own_read_npy(const dunlin_alloc *alloc, const dunlin_own_spec *spec,
                                   bool is_test, const dunlin_own_visitor *visitor,
                                   dunlin_error *error)
{
    /* Their buffers are too large for the stack of a small thread. */
    dunlin_bytes *x = dunlin__alloc_array(alloc, 2, sizeof *x);
    if (x == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory to read two files");
    }
    dunlin_bytes *y = x + 1;
    dunlin_status status = open_array(alloc, spec, is_test ? 2 : 0, x, error);
    if (status == DUNLIN_OK) {
        status = open_array(alloc, spec, is_test ? 3 : 1, y, error);
        if (status == DUNLIN_OK) {
            status = dunlin__own_read_npy_rows(alloc, x, y, visitor, error);
            dunlin__bytes_close(y);
        }
        dunlin__bytes_close(x);
    }
    dunlin__free_array(alloc, x, 2, sizeof *x);
    return status;
}
