/*
 * dataset.c - the public calls of data sets: opening by name, facts, sources.
 *
 * Invariant: an open set is never written to, so sources and threads share it without locks.
 */
#include "data/common/data.h"

#include <mem/sized.h>
#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_IMAGE 4096
#define MAX_ELEMENTS (1 << 29) /* of an example of a shape that was asked for */

static const struct {
    const char *name;
    const char *folder;       /* where its files are; NULL: it needs none */
    dunlin_data_load_fn load; /* NULL: of the library of tools */
} known_sets[] = {
    {"synthetic", NULL, NULL},
    {"synthetic_tokens", NULL, dunlin__data_load_tokens},
    {"fashion_mnist", "fashion-mnist", dunlin__data_load_fashion},
    {"mnist", "mnist", dunlin__data_load_mnist},
    {"mnist_writers", "mnist and mnist-writers", dunlin__data_load_writers},
    {"cifar10", "cifar10", dunlin__data_load_cifar10},
    {"cifar10_jpeg", "cifar10-jpeg", dunlin__data_load_cifar10_jpeg},
    {"cifar100", "cifar100", dunlin__data_load_cifar100},
    {"cifar100_coarse", "cifar100", dunlin__data_load_cifar100_coarse},
    {"wisdm", "wisdm", dunlin__data_load_wisdm},
    {"spsw_har", "spsw-har", dunlin__data_load_spsw},
    {"random", NULL, dunlin__data_load_random},
    {"shapes", NULL, dunlin__data_load_shapes},
    {"pairs", NULL, dunlin__data_load_pairs},
    {"shakespeare", "tinyshakespeare", dunlin__data_load_shakespeare},
    {"shakespeare_bpe", "tinyshakespeare", dunlin__data_load_shakespeare_pairs},
    {"made_text", NULL, dunlin__data_load_made_text},
};
#define N_KNOWN ((int32_t)(sizeof known_sets / sizeof known_sets[0]))

const char *dunlin_dataset_known(int32_t index)
{
    return index >= 0 && index < N_KNOWN ? known_sets[index].name : NULL;
}

static dunlin_status fail_unknown(const char *name, dunlin_error *error)
{
    char names[224] = "";
    size_t at = 0;
    for (int32_t i = 0; i < N_KNOWN && at < sizeof names; i++) {
        at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i == 0 ? "" : ", ",
                               known_sets[i].name);
    }
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                        "no data set is called \"%.40s\"; known: %s, npy:, csv:, folder:", name,
                        names);
}

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

static dunlin_status check_options(const dunlin_dataset_options *options, dunlin_error *error)
{
    const struct {
        const char *name;
        int64_t value;
    } counts[] = {{"max_examples", options->max_examples}, {"n_writers", options->n_writers},
                  {"n_per_writer", options->n_per_writer}, {"channels", options->channels},
                  {"classes", options->classes},           {"vocabulary", options->vocabulary}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        if (counts[i].value < 0) {
            return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                                "option %s is %" PRId64 "; it must not be negative", counts[i].name,
                                counts[i].value);
        }
    }
    if (options->image < 0 || options->image > MAX_IMAGE) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "image size %d: the limits are 1 and %d", (int)options->image,
                            MAX_IMAGE);
    }
    return DUNLIN_OK;
}

static dunlin_status check_shape(const dunlin_dataset_options *options, dunlin_error *error)
{
    int64_t n_elements = 0;
    if (options->shape.n_dims < 0 || options->shape.n_dims > DUNLIN_MAX_DIMS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "a shape of %d dimensions: the limits are 0 and %d",
                            (int)options->shape.n_dims, DUNLIN_MAX_DIMS);
    }
    if (dunlin_shape_count(&options->shape, &n_elements) != DUNLIN_OK || n_elements < 1 ||
        n_elements > MAX_ELEMENTS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "a shape whose elements are not from 1 to %d", MAX_ELEMENTS);
    }
    return DUNLIN_OK;
}

static dunlin_status load(dunlin_dataset *set, int32_t index, const dunlin_data_request *request,
                          dunlin_error *error)
{
    if (known_sets[index].folder != NULL &&
        (request->folder == NULL || request->folder[0] == '\0')) {
        return dunlin__fail(error, DUNLIN_IO, "data", 0,
                            "%s is read from files: name the folder that holds %s "
                            "(--data, or DUNLIN_DATA in the environment)",
                            known_sets[index].name, known_sets[index].folder);
    }
    const dunlin_data_load_fn load_fn =
        known_sets[index].load == NULL ? request->load_glyphs : known_sets[index].load;
    if (load_fn == NULL) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "data set %s is of the library dunlin_tools; link it, and open it with "
                            "dunlin_tools_dataset_open()",
                            known_sets[index].name);
    }
    DUNLIN_TRY(load_fn(set, request, error));
    return dunlin__data_settle_shape(set, &request->options, error);
}

/* A validation split is loaded as the training split that it is of. */
static dunlin_status take_split(dunlin_data_request *request, bool *out_is_validation,
                                dunlin_error *error)
{
    const dunlin_validation *validation = request->options.validation;
    *out_is_validation = request->split == DUNLIN_SPLIT_VALIDATION;
    if (request->split < DUNLIN_SPLIT_TRAIN || request->split > DUNLIN_SPLIT_VALIDATION) {
        return dunlin__fail(
            error, DUNLIN_ARGUMENT, "data", 0,
            "split is %d; the limits are DUNLIN_SPLIT_TRAIN and DUNLIN_SPLIT_VALIDATION",
            (int)request->split);
    }
    if (*out_is_validation && validation == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "split is DUNLIN_SPLIT_VALIDATION, and options.validation is NULL");
    }
    request->split = *out_is_validation ? DUNLIN_SPLIT_TRAIN : request->split;
    request->has_validation = validation != NULL && request->split == DUNLIN_SPLIT_TRAIN;
    if (request->has_validation) {
        DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_validation, validation, &request->validation, error));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__dataset_open(const char *name, dunlin_data_request *request,
                                   const dunlin_dataset_options *options, const dunlin_alloc *hooks,
                                   dunlin_dataset **out_dataset, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (out_dataset == NULL || name == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "data", 0, "%s is NULL",
                            name == NULL ? "name" : "out_dataset");
    }
    *out_dataset = NULL;
    if (options != NULL) {
        DUNLIN_TRY(
            DUNLIN_STRUCT_TAKE(dunlin_dataset_options, options, &request->options, out_error));
    }
    DUNLIN_TRY(check_options(&request->options, out_error));
    DUNLIN_TRY(check_shape(&request->options, out_error));
    bool is_validation = false;
    DUNLIN_TRY(take_split(request, &is_validation, out_error));
    int32_t index = 0;
    const bool is_own = dunlin__data_is_own(name);
    while (!is_own && index < N_KNOWN && strcmp(known_sets[index].name, name) != 0) {
        index++;
    }
    if (index == N_KNOWN) {
        return fail_unknown(name, out_error);
    }
    dunlin_alloc alloc = dunlin__alloc_or_default(hooks);
    dunlin_dataset *set = dunlin__alloc_zeroed(&alloc, 1, sizeof *set);
    if (set == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "data", 0, "no memory for a data set");
    }
    set->alloc = alloc;
    dunlin_status status = DUNLIN_OK;
    if (is_own) {
        status = dunlin__data_load_own(set, name, request, out_error);
        status = status == DUNLIN_OK ? dunlin__data_settle_shape(set, &request->options, out_error)
                                     : status;
    } else {
        status = load(set, index, request, out_error);
    }
    if (status == DUNLIN_OK && request->has_validation) {
        status = dunlin__data_hold_out(set, request, is_validation, out_error);
    }
    if (status != DUNLIN_OK) {
        dunlin_dataset_close(set);
        return status;
    }
    *out_dataset = set;
    return DUNLIN_OK;
}

dunlin_status dunlin_dataset_open(const char *name, const char *folder, dunlin_split split,
                                  const dunlin_dataset_options *options, const dunlin_alloc *hooks,
                                  dunlin_dataset **out_dataset, dunlin_error *out_error)
{
    dunlin_data_request request = {.folder = folder, .split = split};
    return dunlin__dataset_open(name, &request, options, hooks, out_dataset, out_error);
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
