/*
 * mnist.c - MNIST and Fashion-MNIST (IDX files), and MNIST by writer (QMNIST's label files).
 *
 * Invariant: a set is handed on only if its files agree in length and, with writers, row by row in
 * their labels: the writers are then those of these very images.
 * Sources: the IDX format; Yadav, Bottou, "Cold case: the lost MNIST digits", 2019 (columns of the
 * label files: 0 class, 1 NIST series, 2 writer).
 */
#include "data/common/data.h"
#include "data/files/idx.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define IMAGE 28
#define CLASSES 10
#define QMNIST_COLUMNS 8

static dunlin_status read_images(dunlin_dataset *set, const dunlin_data_request *request,
                                 const char *file, bool has_clients, int64_t *out_n,
                                 dunlin_error *error)
{
    char path[DUNLIN_DATA_PATH_BYTES];
    dunlin_bytes bytes;
    DUNLIN_TRY(dunlin__data_open_file(set, request, file, path, &bytes, error));
    dunlin_idx_header header = {0};
    dunlin_status status = dunlin__idx_read_header(&bytes, DUNLIN_IDX_U8, 3, &header, error);
    if (status == DUNLIN_OK && (header.dims[1] != IMAGE || header.dims[2] != IMAGE)) {
        status = dunlin__fail(error, DUNLIN_DATA, "data", 0,
                              "%s: images of %" PRId64 " x %" PRId64 "; expected %d x %d",
                              bytes.name, header.dims[1], header.dims[2], IMAGE, IMAGE);
    }
    if (status == DUNLIN_OK) {
        *out_n = header.dims[0];
        dunlin__data_set_shape(set, 1, IMAGE, IMAGE);
        status = dunlin__data_alloc(set, dunlin__data_limit(request, header.dims[0]), has_clients,
                                    error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__bytes_read(&bytes, set->pixels, (size_t)set->n * IMAGE * IMAGE, error);
    }
    /* The rest is read too: only the end of a gzip file holds its checksum. */
    uint8_t skipped[IMAGE * IMAGE];
    for (int64_t i = set->n; status == DUNLIN_OK && i < header.dims[0]; i++) {
        status = dunlin__bytes_read(&bytes, skipped, sizeof skipped, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__bytes_expect_end(&bytes, error);
    }
    dunlin__bytes_close(&bytes);
    return status;
}

static dunlin_status read_label_rows(dunlin_dataset *set, dunlin_bytes *bytes, int64_t n_images,
                                     dunlin_error *error)
{
    dunlin_idx_header header = {0};
    DUNLIN_TRY(dunlin__idx_read_header(bytes, DUNLIN_IDX_U8, 1, &header, error));
    if (header.dims[0] != n_images) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "data", 0,
                            "%s: %" PRId64 " labels for %" PRId64 " images", bytes->name,
                            header.dims[0], n_images);
    }
    for (int64_t i = 0; i < n_images; i++) {
        uint8_t label = 0;
        DUNLIN_TRY(dunlin__bytes_read(bytes, &label, 1, error));
        if (label >= CLASSES) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: label %d of example %" PRId64 "; the limit is %d", bytes->name,
                                label, i, CLASSES - 1);
        }
        if (i < set->n) {
            set->labels[i] = label;
        }
    }
    return dunlin__bytes_expect_end(bytes, error);
}

static dunlin_status read_labels(dunlin_dataset *set, const dunlin_data_request *request,
                                 const char *file, int64_t n_images, dunlin_error *error)
{
    char path[DUNLIN_DATA_PATH_BYTES];
    dunlin_bytes bytes;
    DUNLIN_TRY(dunlin__data_open_file(set, request, file, path, &bytes, error));
    dunlin_status status = read_label_rows(set, &bytes, n_images, error);
    dunlin__bytes_close(&bytes);
    return status;
}

static dunlin_status load_idx_pair(dunlin_dataset *set, const dunlin_data_request *request,
                                   const char *const files[4], bool has_clients,
                                   dunlin_error *error)
{
    bool is_train = request->split == DUNLIN_SPLIT_TRAIN;
    int64_t n_images = 0;
    set->n_classes = CLASSES;
    DUNLIN_TRY(read_images(set, request, files[is_train ? 0 : 2], has_clients, &n_images, error));
    return read_labels(set, request, files[is_train ? 1 : 3], n_images, error);
}

dunlin_status dunlin__data_load_fashion(dunlin_dataset *set, const dunlin_data_request *request,
                                        dunlin_error *error)
{
    static const char *const files[4] = {
        "fashion-mnist/train-images-idx3-ubyte.gz", "fashion-mnist/train-labels-idx1-ubyte.gz",
        "fashion-mnist/t10k-images-idx3-ubyte.gz", "fashion-mnist/t10k-labels-idx1-ubyte.gz"};
    set->title = "Fashion-MNIST";
    /* Over the pixels of the 60,000 training images. */
    set->mean[0] = 0.286041F;
    set->std[0] = 0.353024F;
    return load_idx_pair(set, request, files, false, error);
}

static dunlin_status load_mnist(dunlin_dataset *set, const dunlin_data_request *request,
                                bool has_clients, dunlin_error *error)
{
    static const char *const files[4] = {
        "mnist/train-images-idx3-ubyte.gz", "mnist/train-labels-idx1-ubyte.gz",
        "mnist/t10k-images-idx3-ubyte.gz", "mnist/t10k-labels-idx1-ubyte.gz"};
    /* Over the pixels of the 60,000 training images. */
    set->mean[0] = 0.130660F;
    set->std[0] = 0.308108F;
    return load_idx_pair(set, request, files, has_clients, error);
}

dunlin_status dunlin__data_load_mnist(dunlin_dataset *set, const dunlin_data_request *request,
                                      dunlin_error *error)
{
    set->title = "MNIST";
    return load_mnist(set, request, false, error);
}

/* Reads the writer of each example as it stands in the file and checks the label beside it. */
static dunlin_status read_writer_rows(dunlin_dataset *set, dunlin_bytes *bytes, dunlin_error *error)
{
    dunlin_idx_header header = {0};
    DUNLIN_TRY(dunlin__idx_read_header(bytes, DUNLIN_IDX_I32, 2, &header, error));
    if (header.dims[1] != QMNIST_COLUMNS || header.dims[0] < set->n) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "data", 0,
                            "%s: %" PRId64 " rows of %" PRId64
                            " columns; expected at least %" PRId64 " of %d",
                            bytes->name, header.dims[0], header.dims[1], set->n, QMNIST_COLUMNS);
    }
    for (int64_t i = 0; i < header.dims[0]; i++) {
        int32_t row[QMNIST_COLUMNS];
        DUNLIN_TRY(dunlin__idx_read_i32(bytes, row, QMNIST_COLUMNS, error));
        if (i >= set->n) {
            continue; /* the test file goes on beyond MNIST's 10,000 */
        }
        if (row[0] != set->labels[i]) {
            return dunlin__fail(error, DUNLIN_MISMATCH, "data", 0,
                                "%s: row %" PRId64 " says class %" PRId32
                                ", the labels of the images say %d",
                                bytes->name, i, row[0], set->labels[i]);
        }
        if (row[2] < 0 || row[2] > DUNLIN_DATA_MAX_CLIENT) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: row %" PRId64 ": writer %" PRId32 "; the limits are 0 and %d",
                                bytes->name, i, row[2], DUNLIN_DATA_MAX_CLIENT);
        }
        set->clients[i] = row[2];
    }
    return dunlin__bytes_expect_end(bytes, error);
}

dunlin_status dunlin__data_load_writers(dunlin_dataset *set, const dunlin_data_request *request,
                                        dunlin_error *error)
{
    set->title = "MNIST by writer";
    DUNLIN_TRY(load_mnist(set, request, true, error));
    const char *file = request->split == DUNLIN_SPLIT_TRAIN
                           ? "mnist-writers/qmnist-train-labels-idx2-int.gz"
                           : "mnist-writers/qmnist-test-labels-idx2-int.gz";
    char path[DUNLIN_DATA_PATH_BYTES];
    dunlin_bytes bytes;
    DUNLIN_TRY(dunlin__data_open_file(set, request, file, path, &bytes, error));
    dunlin_status status = read_writer_rows(set, &bytes, error);
    dunlin__bytes_close(&bytes);
    return status == DUNLIN_OK ? dunlin__data_number_clients(set, error) : status;
}
