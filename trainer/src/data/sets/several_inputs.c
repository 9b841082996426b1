/*
 * several_inputs.c - arrays with several inputs an example: each is a data set of its own with the
 * labels of all, and an example is what they deliver, one after another.
 *
 * Invariant: the parts have as many examples, in one order, held out by one draw. Floats of a part
 * are made where they go: what is narrower is read behind them first, and nothing is allocated.
 */
#include "several_inputs.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

typedef struct several {
    int32_t n;
    dunlin_dataset *parts[DUNLIN_OWN_MAX_INPUTS];
    dunlin_source sources[DUNLIN_OWN_MAX_INPUTS];
    int64_t n_elements[DUNLIN_OWN_MAX_INPUTS];
} several;

/* Bytes at the end of the room for n floats become floats from its beginning on. */
static void widen(const dunlin_source *source, int32_t n_channels, int64_t n, uint8_t *room)
{
    const uint8_t *raw = room + (size_t)n * (sizeof(float) - dunlin_dtype_bytes(source->dtype));
    for (int64_t i = 0; i < n; i++) {
        float value = 0.0F;
        if (source->dtype == DUNLIN_U8) {
            const int64_t c = i / (n / n_channels);
            value = (float)raw[i] * source->scale;
            value = (value - source->mean[c]) / source->std[c];
        } else if (source->dtype == DUNLIN_I32) {
            int32_t whole = 0;
            memcpy(&whole, raw + (size_t)i * sizeof whole, sizeof whole);
            value = (float)whole;
        } else {
            memcpy(&value, raw + (size_t)i * sizeof value, sizeof value);
        }
        memcpy(room + (size_t)i * sizeof value, &value, sizeof value);
    }
}

static dunlin_status make_example(const dunlin_dataset *set, int64_t index, void *out,
                                  char *out_text)
{
    const several *all = set->maker_ctx;
    uint8_t *to = out;
    (void)out_text;
    for (int32_t k = 0; k < all->n; k++) {
        const dunlin_source *source = &all->sources[k];
        const int64_t n = all->n_elements[k];
        int32_t label = 0;
        DUNLIN_TRY(source->read_fn(
            source->ctx, &index, 1,
            to + (size_t)n * (sizeof(float) - dunlin_dtype_bytes(source->dtype)), &label));
        widen(source, all->parts[k]->channels, n, to);
        to += (size_t)n * sizeof(float);
    }
    return DUNLIN_OK;
}

static void free_parts(dunlin_dataset *set)
{
    several *all = set->maker_ctx;
    for (int32_t k = 0; k < all->n; k++) {
        dunlin_dataset_close(all->parts[k]);
    }
    dunlin__free_array(&set->alloc, all, 1, sizeof *all);
}

static uint64_t bytes_of_parts(const dunlin_dataset *set)
{
    const several *all = set->maker_ctx;
    uint64_t bytes = sizeof *all;
    for (int32_t k = 0; k < all->n; k++) {
        bytes += dunlin_dataset_bytes(all->parts[k]);
    }
    return bytes;
}

static const dunlin_data_maker maker = {
    .make_fn = make_example, .free_fn = free_parts, .bytes_fn = bytes_of_parts};

static dunlin_status check_files(const dunlin_data_request *request, const dunlin_own_spec *spec,
                                 dunlin_error *error)
{
    const int32_t n = spec->n_inputs;
    if (spec->n_files != n + 1 && spec->n_files != 2 * (n + 1)) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "npy: inputs=%" PRId32 " takes %" PRId32 " files, or %" PRId32
                            " with those to test on; there are %" PRId32,
                            n, n + 1, 2 * (n + 1), spec->n_files);
    }
    if (request->options.n_inputs > 0 && request->options.n_inputs != n) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "data", 0,
                            "npy: inputs=%" PRId32 "; the model has %" PRId32 " inputs", n,
                            request->options.n_inputs);
    }
    return DUNLIN_OK;
}

static dunlin_status load_part(several *all, const dunlin_dataset *set,
                               const dunlin_data_request *request, const dunlin_own_spec *spec,
                               int32_t k, dunlin_error *error)
{
    dunlin_dataset *part = dunlin__alloc_zeroed(&set->alloc, 1, sizeof *part);
    if (part == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for a data set");
    }
    part->alloc = set->alloc;
    part->title = set->title;
    all->parts[all->n++] = part;
    const int32_t n = spec->n_inputs;
    dunlin_own_spec own = *spec;
    own.n_files = spec->n_files == n + 1 ? 2 : 4;
    own.files[0] = spec->files[k];
    own.files[1] = spec->files[n];
    own.files[2] = own.n_files == 4 ? spec->files[n + 1 + k] : NULL;
    own.files[3] = own.n_files == 4 ? spec->files[2 * n + 1] : NULL;
    dunlin_data_request of_part = *request;
    dunlin_dataset_options *options = &of_part.options;
    options->shape = options->n_inputs > 0 ? options->input_shapes[k] : (dunlin_shape){.n_dims = 0};
    options->vocabulary = options->n_inputs > 0 && options->input_vocabularies != NULL
                              ? (int32_t)options->input_vocabularies[k]
                              : 0;
    DUNLIN_TRY(dunlin__own_npy_find_test(&own, error));
    DUNLIN_TRY(dunlin__own_load(part, &of_part, &own, dunlin__own_read_npy, error));
    DUNLIN_TRY(dunlin__data_settle_shape(part, options, error));
    dunlin_dataset_source(part, &all->sources[k]);
    const dunlin_shape shape = dunlin_dataset_shape(part);
    return dunlin_shape_count(&shape, &all->n_elements[k]);
}

dunlin_status dunlin__several_load(dunlin_dataset *set, const dunlin_data_request *request,
                                   const dunlin_own_spec *spec, dunlin_error *error)
{
    DUNLIN_TRY(check_files(request, spec, error));
    several *all = dunlin__alloc_zeroed(&set->alloc, 1, sizeof *all);
    if (all == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for a data set");
    }
    set->maker = &maker;
    set->maker_ctx = all;
    int64_t total = 0;
    for (int32_t k = 0; k < spec->n_inputs; k++) {
        DUNLIN_TRY(load_part(all, set, request, spec, k, error));
        total += all->n_elements[k];
    }
    const dunlin_dataset *first = all->parts[0];
    set->own_shape = (dunlin_shape){1, {total}};
    set->own_dtype = DUNLIN_F32;
    set->n_classes = first->n_classes;
    memcpy(set->own_note, first->own_note, sizeof set->own_note);
    DUNLIN_TRY(dunlin__data_alloc_labels(set, first->n, error));
    memcpy(set->labels, first->labels, (size_t)first->n * sizeof *set->labels);
    return DUNLIN_OK;
}
