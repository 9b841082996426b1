/*
 * facts.c - what is known of an open data set, and its end.
 */
#include "data/common/data.h"

#include <mem/support.h>

/* What the sources deliver, from what is stored and what was asked for. */
dunlin_status dunlin__data_settle_shape(dunlin_dataset *set, const dunlin_dataset_options *options,
                                        dunlin_error *error)
{
    if (set->own_shape.n_dims > 0 || set->n_features > 0) {
        set->channels = set->stored_channels;
        set->height = set->stored_height;
        set->width = set->stored_width;
    }
    if (set->own_shape.n_dims > 0) {
        return DUNLIN_OK;
    }
    if (set->n_features > 0) {
        if (options->image > 1 ||
            (options->channels != 0 && options->channels != set->n_features)) {
            return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                                "%s: examples of %d features, (%d, 1, 1), cannot be delivered in "
                                "another shape",
                                set->title, (int)set->n_features, (int)set->n_features);
        }
        return DUNLIN_OK;
    }
    set->channels = options->channels == 0 ? set->stored_channels : options->channels;
    set->height = options->image == 0 ? set->stored_height : options->image;
    set->width = options->image == 0 ? set->stored_width : options->image;
    if (set->takes_shape) {
        set->channels = (int32_t)options->shape.dims[0];
        set->height = (int32_t)options->shape.dims[1];
        set->width = (int32_t)options->shape.dims[2];
    }
    if (set->channels != set->stored_channels &&
        !(set->stored_channels == 1 && set->channels == DUNLIN_DATA_COLOURS)) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "%s has %d channels and cannot be delivered with %d", set->title,
                            (int)set->stored_channels, (int)set->channels);
    }
    for (int32_t c = set->stored_channels; c < set->channels; c++) {
        set->mean[c] = set->mean[0];
        set->std[c] = set->std[0];
    }
    return DUNLIN_OK;
}

void dunlin_dataset_close(dunlin_dataset *dataset)
{
    if (dataset == NULL) {
        return;
    }
    if (dataset->maker != NULL && dataset->maker->free_fn != NULL) {
        dataset->maker->free_fn(dataset);
    }
    dunlin_alloc alloc = dataset->alloc;
    size_t n = (size_t)dataset->n;
    dunlin__free_array(&alloc, dataset->pixels, n, dunlin__data_stored_bytes(dataset));
    dunlin__free_array(&alloc, dataset->labels, n, sizeof *dataset->labels);
    dunlin__free_array(&alloc, dataset->clients, n, sizeof *dataset->clients);
    dunlin__free_array(&alloc, dataset->chosen, n, sizeof *dataset->chosen);
    dunlin__free_array(&alloc, dataset, 1, sizeof *dataset);
}

const char *dunlin_dataset_title(const dunlin_dataset *dataset)
{
    return dataset->title;
}

const char *dunlin_dataset_note(const dunlin_dataset *dataset)
{
    return dataset->own_note;
}

bool dunlin_dataset_is_synthetic(const dunlin_dataset *dataset)
{
    return dataset->is_synthetic;
}

dunlin_shape dunlin_dataset_shape(const dunlin_dataset *dataset)
{
    if (dataset->own_shape.n_dims > 0) {
        return dataset->own_shape;
    }
    if (dataset->sequence > 0) {
        return (dunlin_shape){.n_dims = 1, .dims = {dataset->sequence}};
    }
    if (dataset->n_features > 0) {
        return (dunlin_shape){.n_dims = 3, .dims = {dataset->n_features, 1, 1}};
    }
    return (dunlin_shape){.n_dims = 3,
                          .dims = {dataset->channels, dataset->height, dataset->width}};
}

int64_t dunlin_dataset_n_examples(const dunlin_dataset *dataset)
{
    return dataset->n;
}

int64_t dunlin_dataset_n_labels(const dunlin_dataset *dataset)
{
    return dataset->n_labels > 1 ? dataset->n_labels : 1;
}

int32_t dunlin_dataset_n_classes(const dunlin_dataset *dataset)
{
    return dataset->n_classes;
}

uint64_t dunlin_dataset_bytes(const dunlin_dataset *dataset)
{
    const dunlin_data_maker *maker = dataset->maker;
    uint64_t each = sizeof *dataset->labels;
    each += dataset->pixels == NULL ? 0 : dunlin__data_stored_bytes(dataset);
    each += dataset->clients == NULL ? 0 : sizeof *dataset->clients;
    each += dataset->chosen == NULL ? 0 : sizeof *dataset->chosen;
    const uint64_t made = maker != NULL && maker->bytes_fn != NULL ? maker->bytes_fn(dataset) : 0;
    return sizeof *dataset + (uint64_t)dataset->n * each + made;
}

uint64_t dunlin_dataset_index_bytes(const dunlin_dataset *dataset)
{
    return dataset->index_bytes;
}

uint64_t dunlin_dataset_decode_peak(const dunlin_dataset *dataset)
{
    const dunlin_data_maker *maker = dataset->maker;
    return maker != NULL && maker->decode_peak_fn != NULL ? maker->decode_peak_fn(dataset) : 0;
}

const void *dunlin_dataset_stored(const dunlin_dataset *dataset, uint64_t *out_n_bytes)
{
    *out_n_bytes =
        dataset->pixels == NULL ? 0 : (uint64_t)dataset->n * dunlin__data_stored_bytes(dataset);
    return dataset->pixels;
}

int32_t dunlin_dataset_label(const dunlin_dataset *dataset, int64_t example_index)
{
    return example_index >= 0 && example_index < dataset->n ? dataset->labels[example_index] : -1;
}

int64_t dunlin_dataset_n_natural_clients(const dunlin_dataset *dataset)
{
    return dataset->n_clients;
}

int64_t dunlin_dataset_client_of(const dunlin_dataset *dataset, int64_t example_index)
{
    if (dataset->clients == NULL || example_index < 0 || example_index >= dataset->n) {
        return -1;
    }
    return dataset->clients[example_index];
}
