/*
 * dataset.c - data sets are opened by name.
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
    {"shakespeare_roles", "tinyshakespeare", dunlin__data_load_shakespeare_roles},
    {"made_roles", NULL, dunlin__data_load_made_roles},
};
#define N_KNOWN ((int32_t)(sizeof known_sets / sizeof known_sets[0]))

const char *dunlin_dataset_known(int32_t index)
{
    return index >= 0 && index < N_KNOWN ? known_sets[index].name : NULL;
}

/* Lists as many names as the text of an error has room for. */
static dunlin_status fail_unknown(const char *name, dunlin_error *error)
{
    char names[160] = "";
    size_t at = 0;
    int32_t n_left = 0;
    for (int32_t i = 0; i < N_KNOWN; i++) {
        const size_t length = strlen(known_sets[i].name) + 2;
        if (at + length >= sizeof names) {
            n_left++;
            continue;
        }
        at += (size_t)snprintf(names + at, sizeof names - at, "%s, ", known_sets[i].name);
    }
    return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                        "no data set is called \"%.40s\"; known: %snpy:, csv:, folder:, and "
                        "%" PRId32 " more",
                        name, names, n_left);
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
