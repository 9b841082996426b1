/*
 * own_form.c - the form of examples from a user's files: bytes, floats or tokens, and their shape.
 */
#include "own_form.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_ELEMENTS (1 << 28)
#define TEXT_BYTES 64

static void write_shape(const dunlin_shape *shape, char out[TEXT_BYTES])
{
    size_t at = (size_t)snprintf(out, TEXT_BYTES, "(");
    for (int32_t i = 0; i < shape->n_dims && at < TEXT_BYTES; i++) {
        at += (size_t)snprintf(out + at, TEXT_BYTES - at, "%s%" PRId64, i == 0 ? "" : ", ",
                               shape->dims[i]);
    }
    if (at < TEXT_BYTES) {
        (void)snprintf(out + at, TEXT_BYTES - at, ")");
    }
}

/* Without its dimensions of 1. */
static dunlin_shape squeeze(const dunlin_shape *shape)
{
    dunlin_shape squeezed = {.n_dims = 0};
    for (int32_t i = 0; i < shape->n_dims; i++) {
        if (shape->dims[i] != 1) {
            squeezed.dims[squeezed.n_dims++] = shape->dims[i];
        }
    }
    return squeezed;
}

static bool are_equal(const dunlin_shape *a, const dunlin_shape *b)
{
    const dunlin_shape left = squeeze(a);
    const dunlin_shape right = squeeze(b);
    return left.n_dims == right.n_dims &&
           memcmp(left.dims, right.dims, (size_t)left.n_dims * sizeof left.dims[0]) == 0;
}

static bool is_colours(int64_t dim)
{
    return dim == 1 || dim == 3 || dim == 4;
}

/* An image (C, H, W) of what is stored as (H, W), (C, H, W) or (H, W, C); false: it is none. */
static bool as_image(const dunlin_shape *stored, int64_t wanted_channels, dunlin_shape *out_image,
                     bool *out_is_transposed)
{
    *out_is_transposed = false;
    *out_image = *stored;
    if (stored->n_dims == 2) {
        *out_image = (dunlin_shape){.n_dims = 3, .dims = {1, stored->dims[0], stored->dims[1]}};
        return true;
    }
    if (stored->n_dims != 3) {
        return false;
    }
    const bool is_first =
        wanted_channels > 0 ? stored->dims[0] == wanted_channels : is_colours(stored->dims[0]);
    const bool is_last =
        wanted_channels > 0 ? stored->dims[2] == wanted_channels : is_colours(stored->dims[2]);
    if (!is_first && is_last) {
        *out_is_transposed = true;
        *out_image = (dunlin_shape){.n_dims = 3,
                                    .dims = {stored->dims[2], stored->dims[0], stored->dims[1]}};
    }
    return true;
}

static void turn(dunlin_own_form *form, const dunlin_shape *stored)
{
    form->height = stored->dims[0];
    form->width = stored->dims[1];
    form->transposed_channels = stored->dims[2];
}

/* The shape of examples that keep their size; *out_fits is false where they cannot. */
static dunlin_shape find_shape(const dunlin_shape *stored, const dunlin_shape *wanted,
                               dunlin_own_form *form, bool *out_fits)
{
    dunlin_shape image;
    bool is_transposed = false;
    *out_fits = true;
    if (wanted->n_dims == 0 && stored->n_dims == 1) {
        return (dunlin_shape){.n_dims = 3, .dims = {stored->dims[0], 1, 1}};
    }
    if (wanted->n_dims == 0) {
        const bool is_image = as_image(stored, 0, &image, &is_transposed);
        if (is_transposed) {
            turn(form, stored);
        }
        return is_image ? image : *stored;
    }
    int64_t n_stored = 0;
    int64_t n_wanted = 0;
    const bool is_counted = dunlin_shape_count(stored, &n_stored) == DUNLIN_OK &&
                            dunlin_shape_count(wanted, &n_wanted) == DUNLIN_OK;
    if (are_equal(stored, wanted) ||
        (is_counted && n_stored == n_wanted && (stored->n_dims == 1 || wanted->n_dims == 1))) {
        return *wanted;
    }
    if (wanted->n_dims == 3 && as_image(stored, wanted->dims[0], &image, &is_transposed) &&
        is_transposed && are_equal(&image, wanted)) {
        turn(form, stored);
        return *wanted;
    }
    *out_fits = false;
    return *wanted;
}

static dunlin_status fail_shape(const dunlin_dataset *set, const dunlin_shape *stored,
                                const dunlin_shape *wanted, dunlin_error *error)
{
    char from[TEXT_BYTES];
    char to[TEXT_BYTES];
    write_shape(stored, from);
    write_shape(wanted, to);
    return dunlin__fail(error, DUNLIN_MISMATCH, "data", 0,
                        "%s: examples of shape %s do not fit the model's input %s", set->title,
                        from, to);
}

/* Images of bytes of another size: kept as they are stored, resized when they are delivered. */
static dunlin_status keep_image(dunlin_dataset *set, const dunlin_dataset_options *options,
                                const dunlin_shape *stored, dunlin_own_form *form,
                                dunlin_error *error)
{
    const dunlin_shape *wanted = &options->shape;
    dunlin_shape image;
    bool is_transposed = false;
    const int64_t n_channels = wanted->n_dims == 3 ? wanted->dims[0] : 0;
    bool is_image = as_image(stored, n_channels, &image, &is_transposed);
    if (image.dims[0] != n_channels) {
        is_image = as_image(stored, 0, &image, &is_transposed);
    }
    const bool has_channels =
        wanted->n_dims == 0 ||
        (wanted->n_dims == 3 && (image.dims[0] == wanted->dims[0] ||
                                 (image.dims[0] == 1 && wanted->dims[0] == DUNLIN_DATA_COLOURS)));
    if (!is_image || !has_channels || image.dims[0] > DUNLIN_DATA_MAX_CHANNELS) {
        return fail_shape(set, stored, wanted, error);
    }
    if (is_transposed) {
        turn(form, stored);
    }
    form->n_channels = (int32_t)image.dims[0];
    dunlin__data_set_shape(set, (int32_t)image.dims[0], (int32_t)image.dims[1],
                           (int32_t)image.dims[2]);
    set->takes_shape = wanted->n_dims == 3;
    return DUNLIN_OK;
}

dunlin_status dunlin__own_form_find(dunlin_dataset *set, const dunlin_dataset_options *options,
                                    const dunlin_shape *stored, bool are_pixels,
                                    dunlin_own_form *out_form, dunlin_error *error)
{
    bool is_fitting = false;
    int64_t n = 0;
    *out_form = (dunlin_own_form){.dtype = DUNLIN_F32};
    if (dunlin_shape_count(stored, &n) != DUNLIN_OK || n > MAX_ELEMENTS) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%s: an example of more than %d numbers", set->title, MAX_ELEMENTS);
    }
    const dunlin_shape shape = find_shape(stored, &options->shape, out_form, &is_fitting);
    const bool is_plane = shape.n_dims == 3 && shape.dims[1] * shape.dims[2] > 1;
    if (options->vocabulary > 0) {
        out_form->dtype = DUNLIN_I32;
    } else if (are_pixels && (is_plane || stored->n_dims > 1)) {
        out_form->dtype = DUNLIN_U8;
    }
    if (out_form->dtype == DUNLIN_U8 && stored->n_dims > 1 && (!is_fitting || is_plane)) {
        *out_form = (dunlin_own_form){.dtype = DUNLIN_U8};
        return keep_image(set, options, stored, out_form, error);
    }
    if (!is_fitting) {
        return fail_shape(set, stored, &options->shape, error);
    }
    set->own_shape = shape;
    set->own_dtype = out_form->dtype;
    set->vocabulary = options->vocabulary;
    out_form->n_channels = (int32_t)n;
    if (out_form->dtype == DUNLIN_U8) {
        out_form->n_channels = is_plane ? (int32_t)shape.dims[0] : 1;
    } else if (shape.n_dims > 1 && n > shape.dims[0]) {
        out_form->n_channels = (int32_t)shape.dims[0];
    }
    if (out_form->dtype == DUNLIN_U8 && out_form->n_channels > DUNLIN_DATA_MAX_CHANNELS) {
        return fail_shape(set, stored, &options->shape, error);
    }
    /* Stored as one row of bytes: nothing resizes it. */
    dunlin__data_set_shape(set, 1, 1, (int32_t)((size_t)n * dunlin_dtype_bytes(set->own_dtype)));
    return DUNLIN_OK;
}
