/*
 * cifar.c - the binary layouts of CIFAR-10 and CIFAR-100: records of one label byte, or of a coarse
 * and a fine one, and 3 x 32 x 32 bytes, planar.
 *
 * Invariant: a file is counted to its end before memory is taken for it, since its layout has no
 * header that could be believed. Source: Krizhevsky's description of the binary versions.
 */
#include "data/common/data.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define IMAGE 32
#define CHANNELS 3
#define PIXELS (CHANNELS * IMAGE * IMAGE)
#define MOST_LABELS 2
#define MAX_EXAMPLES 1000000

/* What comes before the pixels of a record: labels below n_classes each, of which one is taken. */
typedef struct cifar_layout {
    int32_t n_labels, taken;
    int32_t n_classes[MOST_LABELS];
} cifar_layout;

static const cifar_layout ten = {1, 0, {10, 0}};
static const cifar_layout hundred_coarse = {2, 0, {20, 100}};
static const cifar_layout hundred_fine = {2, 1, {20, 100}};

static dunlin_status check_labels(const cifar_layout *layout, const uint8_t *record,
                                  const char *name, int64_t i, dunlin_error *error)
{
    for (int32_t k = 0; k < layout->n_labels; k++) {
        if (record[k] >= layout->n_classes[k]) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: label %d in record %" PRId64
                                "; the limits are label %d and %d records",
                                name, record[k], i, (int)layout->n_classes[k] - 1, MAX_EXAMPLES);
        }
    }
    return DUNLIN_OK;
}

/* Calls for each record; with `set` memory the first set->n are kept from `first` on. */
static dunlin_status read_records(dunlin_dataset *set, const cifar_layout *layout,
                                  dunlin_bytes *bytes, bool is_kept, int64_t first, int64_t *out_n,
                                  dunlin_error *error)
{
    uint8_t record[MOST_LABELS + PIXELS];
    const size_t record_bytes = (size_t)layout->n_labels + PIXELS;
    for (int64_t i = 0;; i++) {
        size_t n = 0;
        DUNLIN_TRY(dunlin__bytes_read_some(bytes, record, record_bytes, &n, error));
        if (n == 0) {
            *out_n = i;
            return DUNLIN_OK;
        }
        if (n < record_bytes) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: cut off: record %" PRId64 " has %zu of %zu bytes", bytes->name,
                                i, n, record_bytes);
        }
        DUNLIN_TRY(check_labels(layout, record, bytes->name, i, error));
        if (first + i >= MAX_EXAMPLES) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: record %" PRId64 "; the limit is %d records", bytes->name, i,
                                MAX_EXAMPLES);
        }
        if (is_kept && first + i < set->n) {
            set->labels[first + i] = record[layout->taken];
            memcpy(set->pixels + (size_t)(first + i) * PIXELS, record + layout->n_labels, PIXELS);
        }
    }
}

static dunlin_status read_files(dunlin_dataset *set, const cifar_layout *layout,
                                const dunlin_data_request *request, const char *const *files,
                                bool is_kept, int64_t *out_n, dunlin_error *error)
{
    int64_t total = 0;
    for (; *files != NULL; files++) {
        char path[DUNLIN_DATA_PATH_BYTES];
        dunlin_bytes bytes;
        DUNLIN_TRY(dunlin__data_open_file(set, request, *files, path, &bytes, error));
        int64_t n = 0;
        dunlin_status status = read_records(set, layout, &bytes, is_kept, total, &n, error);
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

/* Counts, takes memory, reads. */
static dunlin_status load_files(dunlin_dataset *set, const cifar_layout *layout,
                                const dunlin_data_request *request, const char *const *files,
                                dunlin_error *error)
{
    int64_t n = 0;
    set->n_classes = layout->n_classes[layout->taken];
    DUNLIN_TRY(read_files(set, layout, request, files, false, &n, error));
    dunlin__data_set_shape(set, CHANNELS, IMAGE, IMAGE);
    DUNLIN_TRY(dunlin__data_alloc(set, dunlin__data_limit(request, n), false, error));
    int64_t n_again = 0;
    DUNLIN_TRY(read_files(set, layout, request, files, true, &n_again, error));
    if (n_again < set->n) {
        return dunlin__fail(error, DUNLIN_IO, "data", 0,
                            "the files of %s changed while they were read", set->title);
    }
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
    dunlin__data_set_cifar10_moments(set);
    return load_files(set, &ten, request, files, error);
}

void dunlin__data_set_cifar10_moments(dunlin_dataset *set)
{
    /* Over the pixels of the JPEG copy's first 500 training images of each class. */
    static const float mean[CHANNELS] = {0.491112F, 0.480801F, 0.444388F};
    static const float deviation[CHANNELS] = {0.246269F, 0.244429F, 0.262191F};
    for (size_t c = 0; c < CHANNELS; c++) {
        set->mean[c] = mean[c];
        set->std[c] = deviation[c];
    }
}

/* Of the training images of CIFAR-100, as published with it and used everywhere. */
static dunlin_status load_hundred(dunlin_dataset *set, const cifar_layout *layout,
                                  const dunlin_data_request *request, dunlin_error *error)
{
    static const float mean[CHANNELS] = {0.507076F, 0.486550F, 0.440919F};
    static const float deviation[CHANNELS] = {0.267334F, 0.256438F, 0.276151F};
    static const char *const files[2][2] = {
        {"cifar100/train.bin.gz", "cifar100/test.bin.gz"},
        {"cifar-100-binary/train.bin.gz", "cifar-100-binary/test.bin.gz"}};
    const size_t split = request->split == DUNLIN_SPLIT_TRAIN ? 0 : 1;
    const bool is_unpacked = !dunlin__data_has_file(request, files[0][split]) &&
                             dunlin__data_has_file(request, files[1][split]);
    const char *const list[] = {files[is_unpacked ? 1 : 0][split], NULL};
    for (size_t c = 0; c < CHANNELS; c++) {
        set->mean[c] = mean[c];
        set->std[c] = deviation[c];
    }
    return load_files(set, layout, request, list, error);
}

dunlin_status dunlin__data_load_cifar100(dunlin_dataset *set, const dunlin_data_request *request,
                                         dunlin_error *error)
{
    set->title = "CIFAR-100";
    return load_hundred(set, &hundred_fine, request, error);
}

dunlin_status dunlin__data_load_cifar100_coarse(dunlin_dataset *set,
                                                const dunlin_data_request *request,
                                                dunlin_error *error)
{
    set->title = "CIFAR-100, coarse classes";
    return load_hundred(set, &hundred_coarse, request, error);
}
