/*
 * sources.c - data sets as sources: all of one, or the examples of a client.
 *
 * Invariant: an open set is never written to, so sources and threads share it without locks.
 */
#include "data/common/data.h"

#include <mem/sized.h>
#include <mem/support.h>

#include <string.h>

/* Writes one example as it is to be delivered. */
static void deliver_stored(const dunlin_dataset *set, int64_t example_index, uint8_t *out)
{
    const uint8_t *stored = set->pixels + (size_t)example_index * dunlin__data_stored_bytes(set);
    bool is_resized = set->height != set->stored_height || set->width != set->stored_width;
    if (!is_resized && set->channels == set->stored_channels) {
        memcpy(out, stored, dunlin__data_stored_bytes(set));
        return;
    }
    size_t stored_plane = (size_t)set->stored_height * (size_t)set->stored_width;
    size_t plane = (size_t)set->height * (size_t)set->width;
    for (int32_t c = 0; c < set->channels; c++) {
        uint8_t *to = out + (size_t)c * plane;
        if (c >= set->stored_channels) {
            memcpy(to, out, plane);
        } else if (is_resized) {
            dunlin__data_resize(stored + (size_t)c * stored_plane, set->stored_height,
                                set->stored_width, to, set->height, set->width);
        } else {
            memcpy(to, stored + (size_t)c * stored_plane, plane);
        }
    }
}

static dunlin_status deliver(const dunlin_dataset *set, int64_t example_index, uint8_t *out)
{
    if (set->maker != NULL) {
        char text[DUNLIN_ERROR_TEXT_BYTES];
        const int64_t made = set->chosen != NULL ? set->chosen[example_index] : example_index;
        return set->maker->make_fn(set, made, out, text);
    }
    deliver_stored(set, example_index, out);
    return DUNLIN_OK;
}

/* Bytes of an example as it is delivered. */
static size_t delivered_bytes(const dunlin_dataset *set)
{
    int64_t n_elements = 0;
    if (set->own_shape.n_dims > 0) {
        return dunlin_shape_count(&set->own_shape, &n_elements) == DUNLIN_OK
                   ? (size_t)n_elements * dunlin_dtype_bytes(set->own_dtype)
                   : 0;
    }
    return (size_t)set->channels * (size_t)set->height * (size_t)set->width;
}

static void give_labels(const dunlin_dataset *set, int64_t example_index, int64_t at,
                        int32_t *out_y)
{
    const bool has_several = set->maker != NULL && set->maker->labels_fn != NULL;
    if (!has_several) {
        out_y[at] = set->labels[example_index];
        return;
    }
    const int64_t made = set->chosen != NULL ? set->chosen[example_index] : example_index;
    set->maker->labels_fn(set, made, out_y + at * set->n_labels);
}

static dunlin_status read_whole(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                int32_t *out_y)
{
    const dunlin_dataset *set = ctx;
    const size_t bytes = delivered_bytes(set);
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= set->n) {
            return DUNLIN_ARGUMENT;
        }
        DUNLIN_TRY(deliver(set, indices[i], (uint8_t *)out_x + (size_t)i * bytes));
        give_labels(set, indices[i], i, out_y);
    }
    return DUNLIN_OK;
}

static dunlin_status read_view(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                               int32_t *out_y)
{
    const dunlin_dataset_view *view = ctx;
    const dunlin_dataset *set = view->dataset;
    const size_t bytes = delivered_bytes(set);
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= view->n) {
            return DUNLIN_ARGUMENT;
        }
        int64_t example_index = view->indices[indices[i]];
        DUNLIN_TRY(deliver(set, example_index, (uint8_t *)out_x + (size_t)i * bytes));
        give_labels(set, example_index, i, out_y);
    }
    return DUNLIN_OK;
}

static const char *whole_error(void *ctx)
{
    const dunlin_dataset *set = ctx;
    return set->maker->last_error_fn(set);
}

static const char *view_error(void *ctx)
{
    const dunlin_dataset_view *view = ctx;
    return view->dataset->maker->last_error_fn(view->dataset);
}

static bool can_fail(const dunlin_dataset *set)
{
    return set->maker != NULL && set->maker->last_error_fn != NULL;
}

/* All examples as a source. */
static dunlin_source source_of(const dunlin_dataset *dataset)
{
    /* The context of a source is not const; the functions above only read it. */
    union {
        const void *in;
        void *out;
    } ctx = {.in = dataset};
    dunlin_source source = {
        .struct_size = sizeof source,
        .ctx = ctx.out,
        .read_fn = read_whole,
        .n_examples = dataset->n,
        .dtype = DUNLIN_U8,
        .scale = 1.0F / 255.0F,
        .mean = dataset->mean,
        .std = dataset->std,
        .n_labels = dunlin_dataset_n_labels(dataset),
    };
    source.error_fn = can_fail(dataset) ? whole_error : NULL;
    if (dataset->own_shape.n_dims > 0) {
        const bool is_scaled = dataset->own_dtype == DUNLIN_U8;
        source.dtype = dataset->own_dtype;
        source.scale = is_scaled ? source.scale : 1.0F;
        source.mean = is_scaled ? source.mean : NULL;
        source.std = is_scaled ? source.std : NULL;
    } else if (dataset->sequence > 0) {
        source.dtype = DUNLIN_I32;
        source.scale = 1.0F;
        source.mean = NULL;
        source.std = NULL;
    } else if (dataset->n_features > 0) {
        source.dtype = DUNLIN_F32;
        source.scale = 1.0F;
    } else {
        source.flags = DUNLIN_SOURCE_PLANES;
    }
    return source;
}

void dunlin_dataset_fill_source(const dunlin_dataset *dataset, dunlin_source *out_source,
                                size_t source_bytes)
{
    const dunlin_source source = source_of(dataset);
    dunlin__struct_fill(&source, sizeof source, out_source, source_bytes);
}

dunlin_status dunlin_dataset_fill_subset(const dunlin_dataset *dataset, const int64_t *indices,
                                         int64_t n, dunlin_dataset_view *view,
                                         dunlin_source *out_source, size_t source_bytes)
{
    if (dataset == NULL || view == NULL || out_source == NULL || n < 0 ||
        (n > 0 && indices == NULL)) {
        return DUNLIN_ARGUMENT;
    }
    for (int64_t i = 0; i < n; i++) {
        if (indices[i] < 0 || indices[i] >= dataset->n) {
            return DUNLIN_ARGUMENT;
        }
    }
    *view = (dunlin_dataset_view){.dataset = dataset, .indices = indices, .n = n};
    dunlin_source source = source_of(dataset);
    source.ctx = view;
    source.read_fn = read_view;
    source.error_fn = can_fail(dataset) ? view_error : NULL;
    source.n_examples = n;
    dunlin__struct_fill(&source, sizeof source, out_source, source_bytes);
    return DUNLIN_OK;
}
