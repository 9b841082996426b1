/*
 * cifar.c - CIFAR-10's binary layout: records of one label byte and 3 x 32 x 32 bytes, planar.
 *
 * Invariant: a file is counted to its end before memory is taken for it, since its layout has no
 * header that could be believed. Source: Krizhevsky's description of the binary version.
 */
#include "data/common/data.h"

#include <mem/support.h>

#include <inttypes.h>

#define IMAGE 32
#define CHANNELS 3
#define RECORD (1 + CHANNELS * IMAGE * IMAGE)
#define CLASSES 10
#define MAX_EXAMPLES 1000000

/* Calls for each record; with `set` memory the first set->n are kept from `first` on. */
static dunlin_status read_records(dunlin_dataset *set, dunlin_bytes *bytes, bool is_kept,
                                  int64_t first, int64_t *out_n, dunlin_error *error)
{
    uint8_t record[RECORD];
    for (int64_t i = 0;; i++) {
        size_t n = 0;
        DUNLIN_TRY(dunlin__bytes_read_some(bytes, record, sizeof record, &n, error));
        if (n == 0) {
            *out_n = i;
            return DUNLIN_OK;
        }
        if (n < sizeof record) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: cut off: record %" PRId64 " has %zu of %d bytes", bytes->name,
                                i, n, RECORD);
        }
        if (record[0] >= CLASSES || first + i >= MAX_EXAMPLES) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: label %d in record %" PRId64
                                "; the limits are label %d and %d records",
                                bytes->name, record[0], i, CLASSES - 1, MAX_EXAMPLES);
        }
        if (is_kept && first + i < set->n) {
            set->labels[first + i] = record[0];
            uint8_t *to = set->pixels + (size_t)(first + i) * (RECORD - 1);
            for (size_t k = 0; k + 1 < RECORD; k++) {
                to[k] = record[k + 1];
            }
        }
    }
}

static dunlin_status read_files(dunlin_dataset *set, const dunlin_data_request *request,
                                const char *const *files, bool is_kept, int64_t *out_n,
                                dunlin_error *error)
{
    int64_t total = 0;
    for (; *files != NULL; files++) {
        char path[DUNLIN_DATA_PATH_BYTES];
        dunlin_bytes bytes;
        DUNLIN_TRY(dunlin__data_open_file(set, request, *files, path, &bytes, error));
        int64_t n = 0;
        dunlin_status status = read_records(set, &bytes, is_kept, total, &n, error);
        if (status == DUNLIN_OK && n == 0) {
            status = dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s: empty: it has no record",
                                  bytes.name);
        }
        dunlin__bytes_close(&bytes);
        DUNLIN_TRY(status);
        total += n;
    }
    *out_n = total;
    return DUNLIN_OK;
}

dunlin_status dunlin__data_load_cifar10(dunlin_dataset *set, const dunlin_data_request *request,
                                        dunlin_error *error)
{
    static const char *const train[] = {"cifar10/data_batch_1.bin", "cifar10/data_batch_2.bin",
                                        "cifar10/data_batch_3.bin", "cifar10/data_batch_4.bin",
                                        "cifar10/data_batch_5.bin", NULL};
    static const char *const test[] = {"cifar10/test_batch.bin", NULL};
    static const char *const jpeg_train[] = {"cifar10/cifar10-jpeg5k-train.bin.gz", NULL};
    static const char *const jpeg_test[] = {"cifar10/cifar10-jpeg1k-test.bin.gz", NULL};
    bool is_train = request->split == DUNLIN_SPLIT_TRAIN;
    bool is_original = dunlin__data_has_file(request, is_train ? train[0] : test[0]);
    const char *const *files = is_train ? jpeg_train : jpeg_test;
    if (is_original) {
        files = is_train ? train : test;
    }
    set->title = is_original ? "CIFAR-10" : "CIFAR-10 (JPEG copy)";
    set->n_classes = CLASSES;
    /* Over the pixels of the JPEG copy's 5,000 training images. */
    static const float mean[CHANNELS] = {0.491112F, 0.480801F, 0.444388F};
    static const float deviation[CHANNELS] = {0.246269F, 0.244429F, 0.262191F};
    for (size_t c = 0; c < CHANNELS; c++) {
        set->mean[c] = mean[c];
        set->std[c] = deviation[c];
    }
    int64_t n = 0;
    DUNLIN_TRY(read_files(set, request, files, false, &n, error));
    dunlin__data_set_shape(set, CHANNELS, IMAGE, IMAGE);
    DUNLIN_TRY(dunlin__data_alloc(set, dunlin__data_limit(request, n), false, error));
    int64_t n_again = 0;
    DUNLIN_TRY(read_files(set, request, files, true, &n_again, error));
    if (n_again < set->n) {
        return dunlin__fail(error, DUNLIN_IO, "data", 0,
                            "the files of %s changed while they were read", set->title);
    }
    return DUNLIN_OK;
}
