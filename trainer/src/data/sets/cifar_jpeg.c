/*
 * cifar_jpeg.c - the whole of CIFAR-10 as a folder of JPEG files, decoded once when it is opened.
 *
 * Invariant: the order is one picture of each class after the other, so that the first N examples
 * are as many of each class, or one more.
 */
#include "data/readers/folder.h"

#include <mem/support.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define IMAGE 32
#define CHANNELS 3
#define CLASSES 10

/* Of the examples of a folder, class after class: which one comes `nth` of class `label`. */
typedef struct deal {
    int64_t begins[CLASSES + 1];
} deal;

static dunlin_status find_classes(const dunlin_dataset *folder, deal *out, dunlin_error *error)
{
    memset(out, 0, sizeof *out);
    if (folder->n_classes != CLASSES) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "cifar10-jpeg: %d folders of classes; expected %d",
                            (int)folder->n_classes, CLASSES);
    }
    for (int64_t i = 0; i < folder->n; i++) {
        out->begins[folder->labels[i] + 1]++;
    }
    for (int32_t c = 0; c < CLASSES; c++) {
        out->begins[c + 1] += out->begins[c];
    }
    return DUNLIN_OK;
}

/* Decodes picture after picture into the set, whose memory it takes. */
static dunlin_status decode_all(dunlin_dataset *set, const dunlin_dataset *folder,
                                const dunlin_data_request *request, dunlin_error *error)
{
    deal from;
    DUNLIN_TRY(find_classes(folder, &from, error));
    DUNLIN_TRY(dunlin__data_alloc(set, dunlin__data_limit(request, folder->n), false, error));
    const size_t bytes = dunlin__data_stored_bytes(set);
    int64_t n = 0;
    for (int64_t nth = 0; n < set->n; nth++) {
        for (int32_t c = 0; c < CLASSES && n < set->n; c++) {
            char text[DUNLIN_ERROR_TEXT_BYTES] = "";
            const int64_t at = from.begins[c] + nth;
            if (at >= from.begins[c + 1]) {
                continue;
            }
            const dunlin_status status =
                folder->maker->make_fn(folder, at, set->pixels + (size_t)n * bytes, text);
            if (status != DUNLIN_OK) {
                return dunlin__fail(error, status, "data", 0, "%s", text);
            }
            set->labels[n++] = (uint16_t)c;
        }
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__data_load_cifar10_jpeg(dunlin_dataset *set,
                                             const dunlin_data_request *request,
                                             dunlin_error *error)
{
    char root[DUNLIN_DATA_PATH_BYTES];
    const int length = snprintf(root, sizeof root, "%s/cifar10-jpeg", request->folder);
    if (length < 0 || (size_t)length + 16 >= sizeof root) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "the data folder's name is too long: the limit is %d bytes",
                            DUNLIN_DATA_PATH_BYTES);
    }
    set->title = "CIFAR-10 (JPEG copy, in full)";
    set->n_classes = CLASSES;
    dunlin__data_set_cifar10_moments(set);
    dunlin__data_set_shape(set, CHANNELS, IMAGE, IMAGE);
    char train[DUNLIN_DATA_PATH_BYTES + sizeof "/train"];
    (void)snprintf(train, sizeof train, "%s/train", root);
    if (!dunlin__folder_is_there(train)) {
        return dunlin__fail(error, DUNLIN_IO, "data", 0,
                            "%s: no such folder (unpack cifar10-jpeg.tar.xz)", train);
    }
    dunlin_dataset *folder = dunlin__alloc_zeroed(&set->alloc, 1, sizeof *folder);
    if (folder == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for a folder");
    }
    folder->alloc = set->alloc;
    folder->title = set->title;
    dunlin_data_request whole = *request;
    whole.options.max_examples = 0;
    whole.options.shape = (dunlin_shape){.n_dims = 3, .dims = {CHANNELS, IMAGE, IMAGE}};
    const dunlin_own_spec spec = {.files = {root}, .n_files = 1};
    dunlin_status status = dunlin__folder_load(folder, &whole, &spec, error);
    if (status == DUNLIN_OK) {
        status = decode_all(set, folder, request, error);
    }
    dunlin_dataset_close(folder);
    return status;
}
