/*
 * test_sets.c - data sets from files: MNIST-like pairs, writers, CIFAR; sources, resizing, errors.
 */
#include "data_files.h"

#include <dunlin/tools.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The files of a small set under each name. */
static void write_all(const test_folder *folder, uint32_t n)
{
    test_bytes images = test_idx_images(n);
    test_bytes labels = test_idx_labels(n);
    test_bytes writers = test_qmnist(n, 4);
    test_bytes longer = test_qmnist(n + 9, 4);
    test_bytes records = test_cifar(n);
    test_folder_write(folder, "fashion-mnist/train-images-idx3-ubyte.gz", &images);
    test_folder_write(folder, "fashion-mnist/train-labels-idx1-ubyte.gz", &labels);
    test_folder_write(folder, "mnist/train-images-idx3-ubyte.gz", &images);
    test_folder_write(folder, "mnist/train-labels-idx1-ubyte", &labels); /* plain will do */
    test_folder_write(folder, "mnist/t10k-images-idx3-ubyte.gz", &images);
    test_folder_write(folder, "mnist/t10k-labels-idx1-ubyte.gz", &labels);
    test_folder_write(folder, "mnist-writers/qmnist-train-labels-idx2-int.gz", &writers);
    test_folder_write(folder, "mnist-writers/qmnist-test-labels-idx2-int.gz", &longer);
    test_folder_write(folder, "cifar10/cifar10-jpeg5k-train.bin.gz", &records);
    test_folder_write(folder, "cifar10/cifar10-jpeg1k-test.bin.gz", &records);
    test_bytes_free(&images);
    test_bytes_free(&labels);
    test_bytes_free(&writers);
    test_bytes_free(&longer);
    test_bytes_free(&records);
}

static test_folder files;

static void setup(void)
{
    test_folder_begin(&files);
    write_all(&files, 12);
}

static void teardown(void)
{
    test_folder_end(&files);
}

TestSuite(sets, .init = setup, .fini = teardown);

static dunlin_dataset *open_set(const char *name, dunlin_split split,
                                const dunlin_dataset_options *options,
                                dunlin_alloc_counter *counter)
{
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_alloc_counter_init(counter, NULL);
    dunlin_status status =
        dunlin_tools_dataset_open(name, files.path, split, options, &counter->hooks, &set, &error);
    cr_assert_eq(status, DUNLIN_OK, "%s: %s", name, error.text);
    return set;
}

/* Opening must fail with this status and a text that holds `word`; nothing may be kept. */
static void expect_failure(const char *name, dunlin_split split, dunlin_status expected,
                           const char *word)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_status status =
        dunlin_dataset_open(name, files.path, split, NULL, &counter.hooks, &set, &error);
    cr_assert_eq(status, expected, "%s instead of %s: %s", dunlin_status_name(status),
                 dunlin_status_name(expected), error.text);
    cr_assert_not_null(strstr(error.text, word), "\"%s\" is not in: %s", word, error.text);
    cr_assert_null(strchr(error.text, '\n'));
    cr_assert_null(set);
    cr_assert_eq(counter.now_bytes, 0U);
}

Test(sets, pair_is_read)
{
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("fashion_mnist", DUNLIN_SPLIT_TRAIN, NULL, &counter);
    cr_assert_eq(dunlin_dataset_n_examples(set), 12);
    cr_assert_eq(dunlin_dataset_n_classes(set), 10);
    cr_assert_eq(dunlin_dataset_n_natural_clients(set), 0);
    cr_assert_eq(dunlin_dataset_client_of(set, 0), -1);
    cr_assert_not(dunlin_dataset_is_synthetic(set));
    dunlin_shape shape = dunlin_dataset_shape(set);
    cr_assert(shape.n_dims == 3 && shape.dims[0] == 1 && shape.dims[1] == 28 &&
              shape.dims[2] == 28);
    cr_assert_eq(dunlin_dataset_label(set, 11), 1);
    cr_assert_eq(dunlin_dataset_label(set, 12), -1);
    cr_assert_eq(dunlin_dataset_label(set, -1), -1);
    cr_assert_eq(counter.now_bytes, dunlin_dataset_bytes(set), "bytes held are those told");
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.n_examples, 12);
    cr_assert_eq(source.dtype, DUNLIN_U8);
    cr_assert_float_eq(source.scale, 1.0F / 255.0F, 1e-9);
    uint8_t x[2 * 784];
    int32_t y[2];
    const int64_t wanted[2] = {11, 0};
    cr_assert_eq(source.read_fn(source.ctx, wanted, 2, x, y), DUNLIN_OK);
    cr_assert_eq(y[0], 1);
    cr_assert_eq(y[1], 0);
    cr_assert_eq(x[5], (uint8_t)(11 * 7 + 5));
    cr_assert_eq(x[784 + 300], (uint8_t)300);
    const int64_t outside[2] = {12, -1};
    cr_assert_neq(source.read_fn(source.ctx, outside, 1, x, y), DUNLIN_OK);
    cr_assert_neq(source.read_fn(source.ctx, outside + 1, 1, x, y), DUNLIN_OK);
    dunlin_dataset_close(set);
    cr_assert_eq(counter.now_bytes, 0U);
}

Test(sets, writers_are_numbered_in_order)
{
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("mnist_writers", DUNLIN_SPLIT_TRAIN, NULL, &counter);
    cr_assert_eq(dunlin_dataset_n_natural_clients(set), 4);
    for (int64_t i = 0; i < 12; i++) {
        cr_assert_eq(dunlin_dataset_client_of(set, i), 3 - i % 4);
    }
    cr_assert_eq(dunlin_dataset_client_of(set, 12), -1);
    dunlin_dataset_close(set);
    set = open_set("mnist_writers", DUNLIN_SPLIT_TEST, NULL, &counter); /* nine rows more */
    cr_assert_eq(dunlin_dataset_n_examples(set), 12);
    dunlin_dataset_close(set);
    cr_assert_eq(counter.now_bytes, 0U);
}

Test(sets, cifar_is_read)
{
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("cifar10", DUNLIN_SPLIT_TRAIN, NULL, &counter);
    cr_assert_not_null(strstr(dunlin_dataset_title(set), "JPEG"));
    cr_assert_eq(dunlin_dataset_n_examples(set), 12);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    uint8_t x[3072];
    int32_t y = 0;
    int64_t wanted = 11;
    cr_assert_eq(source.read_fn(source.ctx, &wanted, 1, x, &y), DUNLIN_OK);
    cr_assert_eq(y, 1);
    cr_assert_eq(x[0], 11);
    cr_assert_eq(x[3071], (uint8_t)(11 + 3071));
    dunlin_dataset_close(set);
    test_bytes records = test_cifar(3);
    for (int i = 1; i <= 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "cifar10/data_batch_%d.bin", i);
        test_folder_write(&files, name, &records);
    }
    test_bytes_free(&records);
    set = open_set("cifar10", DUNLIN_SPLIT_TRAIN, NULL, &counter);
    cr_assert_str_eq(dunlin_dataset_title(set), "CIFAR-10");
    cr_assert_eq(dunlin_dataset_n_examples(set), 15);
    cr_assert_eq(dunlin_dataset_label(set, 4), 1, "the second file follows the first");
    dunlin_dataset_close(set);
    cr_assert_eq(counter.now_bytes, 0U);
}

Test(sets, limit_keeps_the_first)
{
    static const char *const names[] = {"fashion_mnist", "mnist_writers", "cifar10", "synthetic"};
    for (size_t i = 0; i < 4; i++) {
        dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
        options.max_examples = 5;
        dunlin_alloc_counter counter;
        dunlin_dataset *set = open_set(names[i], DUNLIN_SPLIT_TRAIN, &options, &counter);
        cr_assert_eq(dunlin_dataset_n_examples(set), 5, "%s", names[i]);
        options.max_examples = 0;
        dunlin_alloc_counter whole_counter;
        dunlin_dataset *whole = open_set(names[i], DUNLIN_SPLIT_TRAIN, &options, &whole_counter);
        for (int64_t k = 0; k < 5; k++) {
            cr_assert_eq(dunlin_dataset_label(set, k), dunlin_dataset_label(whole, k));
        }
        dunlin_dataset_close(set);
        dunlin_dataset_close(whole);
        cr_assert_eq(counter.now_bytes, 0U);
    }
}

Test(sets, subset_reads_through_its_list)
{
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("mnist", DUNLIN_SPLIT_TRAIN, NULL, &counter);
    const int64_t list[3] = {9, 2, 2};
    dunlin_dataset_view view;
    dunlin_source source;
    uint64_t before = counter.n_allocs;
    cr_assert_eq(dunlin_dataset_subset(set, list, 3, &view, &source), DUNLIN_OK);
    cr_assert_eq(counter.n_allocs, before, "a view allocates nothing");
    cr_assert_eq(source.n_examples, 3);
    uint8_t x[3 * 784];
    int32_t y[3];
    const int64_t all[3] = {0, 1, 2};
    cr_assert_eq(source.read_fn(source.ctx, all, 3, x, y), DUNLIN_OK);
    cr_assert(y[0] == 9 && y[1] == 2 && y[2] == 2);
    cr_assert_eq(x[0], 63);
    cr_assert_eq(memcmp(x + 784, x + 2 * 784, 784), 0);
    const int64_t outside = 3;
    cr_assert_neq(source.read_fn(source.ctx, &outside, 1, x, y), DUNLIN_OK);
    const int64_t bad[2] = {0, 12};
    cr_assert_eq(dunlin_dataset_subset(set, bad, 2, &view, &source), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin_dataset_subset(set, NULL, 0, &view, &source), DUNLIN_OK);
    cr_assert_eq(source.n_examples, 0);
    dunlin_dataset_close(set);
}

Test(sets, images_are_delivered_in_another_size)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.image = 56;
    options.channels = 3;
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("mnist", DUNLIN_SPLIT_TRAIN, &options, &counter);
    dunlin_shape shape = dunlin_dataset_shape(set);
    cr_assert(shape.dims[0] == 3 && shape.dims[1] == 56 && shape.dims[2] == 56);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    cr_assert_eq(source.mean[2], source.mean[0]);
    cr_assert_eq(source.std[1], source.std[0]);
    uint8_t *x = calloc(3, 56 * 56);
    int32_t y = 0;
    const int64_t first = 0;
    cr_assert_eq(source.read_fn(source.ctx, &first, 1, x, &y), DUNLIN_OK);
    cr_assert_eq(memcmp(x, x + 56 * 56, 56 * 56), 0);
    cr_assert_eq(memcmp(x, x + 2 * 56 * 56, 56 * 56), 0);
    /* Row 0 is 0, 1, ..., 27: twice as wide it goes up by halves, from a quarter below. */
    cr_assert_eq(x[0], 0);
    for (int i = 1; i < 55; i++) {
        double exact = (i + 0.5) / 2 - 0.5;
        cr_assert(x[i] >= exact - 0.51 && x[i] <= exact + 0.51, "%d: %d", i, x[i]);
    }
    cr_assert_eq(x[55], 27);
    free(x);
    dunlin_dataset_close(set);
    options.channels = 1;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_dataset_open("cifar10", files.path, DUNLIN_SPLIT_TRAIN, &options, NULL,
                                     &set, &error),
                 DUNLIN_UNSUPPORTED);
    cr_assert_null(set);
}

Test(sets, a_uniform_image_stays_uniform_in_any_size)
{
    test_bytes images = test_idx_images(12);
    memset(images.bytes + 16, 201, images.n - 16);
    test_folder_write(&files, "mnist/train-images-idx3-ubyte.gz", &images);
    test_bytes_free(&images);
    for (int32_t size = 1; size < 100; size += 7) {
        dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
        options.image = size;
        dunlin_alloc_counter counter;
        dunlin_dataset *set = open_set("mnist", DUNLIN_SPLIT_TRAIN, &options, &counter);
        dunlin_source source;
        dunlin_dataset_source(set, &source);
        uint8_t *x = malloc((size_t)size * (size_t)size);
        int32_t y = 0;
        const int64_t first = 0;
        cr_assert_eq(source.read_fn(source.ctx, &first, 1, x, &y), DUNLIN_OK);
        for (int32_t i = 0; i < size * size; i++) {
            cr_assert_eq(x[i], 201, "size %d", size);
        }
        free(x);
        dunlin_dataset_close(set);
    }
}

Test(sets, names_and_folders_are_checked)
{
    expect_failure("no_such", DUNLIN_SPLIT_TRAIN, DUNLIN_UNSUPPORTED, "mnist_writers");
    expect_failure("fashion_mnist", DUNLIN_SPLIT_TEST, DUNLIN_IO, "t10k-images-idx3-ubyte.gz");
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    cr_assert_eq(dunlin_dataset_open("mnist", NULL, DUNLIN_SPLIT_TRAIN, NULL, NULL, &set, &error),
                 DUNLIN_IO);
    cr_assert_not_null(strstr(error.text, "DUNLIN_DATA"), "%s", error.text);
    cr_assert_eq(dunlin_dataset_open("mnist", "", DUNLIN_SPLIT_TRAIN, NULL, NULL, &set, &error),
                 DUNLIN_IO);
    cr_assert_eq(dunlin_dataset_open(NULL, "", DUNLIN_SPLIT_TRAIN, NULL, NULL, &set, NULL),
                 DUNLIN_ARGUMENT);
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    options.image = 4097;
    cr_assert_eq(
        dunlin_dataset_open("mnist", files.path, DUNLIN_SPLIT_TRAIN, &options, NULL, &set, &error),
        DUNLIN_ARGUMENT);
    options.image = 0;
    options.max_examples = -1;
    cr_assert_eq(
        dunlin_dataset_open("mnist", files.path, DUNLIN_SPLIT_TRAIN, &options, NULL, &set, &error),
        DUNLIN_ARGUMENT);
    int32_t n_known = 0;
    while (dunlin_dataset_known(n_known) != NULL) {
        n_known++;
    }
    cr_assert_eq(n_known, 19);
    cr_assert_null(dunlin_dataset_known(-1));
}

/* Plain files, so that every cut is a cut of the format and not of gzip. */
static void expect_cuts_refused(const char *name, const char *file, const test_bytes *bytes,
                                size_t step)
{
    for (size_t n = 0; n < bytes->n; n += n < 64 || n + 64 > bytes->n ? 1 : step) {
        test_folder_write_raw(&files, file, bytes->bytes, n);
        dunlin_alloc_counter counter;
        dunlin_alloc_counter_init(&counter, NULL);
        dunlin_dataset *set = NULL;
        dunlin_error error = {0};
        dunlin_status status = dunlin_dataset_open(name, files.path, DUNLIN_SPLIT_TRAIN, NULL,
                                                   &counter.hooks, &set, &error);
        cr_assert_eq(status, DUNLIN_DATA, "%s: %zu of %zu bytes: %s: %s", file, n, bytes->n,
                     dunlin_status_name(status), error.text);
        cr_assert_not_null(strstr(error.text, strrchr(file, '/')), "names the file: %s",
                           error.text);
        cr_assert_eq(counter.now_bytes, 0U);
    }
}

Test(sets, files_cut_at_every_byte_are_refused)
{
    char path[512];
    snprintf(path, sizeof path, "%s/mnist/train-images-idx3-ubyte.gz", files.path);
    cr_assert_eq(remove(path), 0);
    snprintf(path, sizeof path, "%s/mnist-writers/qmnist-train-labels-idx2-int.gz", files.path);
    cr_assert_eq(remove(path), 0);
    test_bytes images = test_idx_images(12);
    expect_cuts_refused("mnist", "mnist/train-images-idx3-ubyte", &images, 17);
    test_folder_write(&files, "mnist/train-images-idx3-ubyte", &images);
    test_bytes labels = test_idx_labels(12);
    expect_cuts_refused("mnist", "mnist/train-labels-idx1-ubyte", &labels, 1);
    test_folder_write(&files, "mnist/train-labels-idx1-ubyte", &labels);
    test_bytes writers = test_qmnist(12, 4);
    expect_cuts_refused("mnist_writers", "mnist-writers/qmnist-train-labels-idx2-int", &writers, 1);
    test_bytes_free(&images);
    test_bytes_free(&labels);
    test_bytes_free(&writers);
}

Test(sets, cut_records_are_refused)
{
    test_bytes records = test_cifar(2);
    for (size_t n = 0; n < records.n; n += n == 3072 ? 2 : 1) { /* 3073 bytes are one record */
        if (n > 8 && n % 101 != 0 && n + 8 < records.n && (n < 3060 || n > 3090)) {
            continue;
        }
        test_folder_write_raw(&files, "cifar10/cifar10-jpeg5k-train.bin.gz", records.bytes, n);
        expect_failure("cifar10", DUNLIN_SPLIT_TRAIN, DUNLIN_DATA, "cifar10-jpeg5k-train.bin.gz");
    }
    records.bytes[3073] = 10;
    test_folder_write_raw(&files, "cifar10/cifar10-jpeg5k-train.bin.gz", records.bytes, records.n);
    expect_failure("cifar10", DUNLIN_SPLIT_TRAIN, DUNLIN_DATA, "label 10 in record 1");
    test_bytes_free(&records);
}

Test(sets, disagreeing_files_are_refused)
{
    test_bytes labels = test_idx_labels(11);
    test_folder_write(&files, "fashion-mnist/train-labels-idx1-ubyte.gz", &labels);
    expect_failure("fashion_mnist", DUNLIN_SPLIT_TRAIN, DUNLIN_MISMATCH, "11 labels for 12 images");
    test_bytes_free(&labels);
    labels = test_idx_labels(12);
    labels.bytes[8 + 3] = 10;
    test_folder_write(&files, "fashion-mnist/train-labels-idx1-ubyte.gz", &labels);
    expect_failure("fashion_mnist", DUNLIN_SPLIT_TRAIN, DUNLIN_DATA, "label 10 of example 3");
    test_bytes_free(&labels);
    test_bytes writers = test_qmnist(12, 4);
    writers.bytes[12 + 32 * 7 + 3] = 8; /* row 7 is a seven */
    test_folder_write(&files, "mnist-writers/qmnist-train-labels-idx2-int.gz", &writers);
    expect_failure("mnist_writers", DUNLIN_SPLIT_TRAIN, DUNLIN_MISMATCH, "row 7 says class 8");
    writers.bytes[12 + 32 * 7 + 3] = 7;
    writers.bytes[12 + 32 * 7 + 8] = 0x80; /* a negative writer */
    test_folder_write(&files, "mnist-writers/qmnist-train-labels-idx2-int.gz", &writers);
    expect_failure("mnist_writers", DUNLIN_SPLIT_TRAIN, DUNLIN_DATA, "row 7: writer");
    test_bytes_free(&writers);
    writers = test_qmnist(11, 4);
    test_folder_write(&files, "mnist-writers/qmnist-train-labels-idx2-int.gz", &writers);
    expect_failure("mnist_writers", DUNLIN_SPLIT_TRAIN, DUNLIN_MISMATCH, "11 rows");
    test_bytes_free(&writers);
}

Test(sets, files_with_more_than_they_announce_are_refused)
{
    test_bytes images = test_idx_images(12);
    test_put_u8(&images, 0);
    test_folder_write(&files, "fashion-mnist/train-images-idx3-ubyte.gz", &images);
    expect_failure("fashion_mnist", DUNLIN_SPLIT_TRAIN, DUNLIN_DATA, "too long");
    test_bytes_free(&images);
}

Test(sets, images_of_another_size_are_refused)
{
    test_bytes images = test_idx_images(12);
    images.bytes[11] = 14;
    images.bytes[15] = 56;
    test_folder_write(&files, "fashion-mnist/train-images-idx3-ubyte.gz", &images);
    expect_failure("fashion_mnist", DUNLIN_SPLIT_TRAIN, DUNLIN_DATA, "14 x 56");
    test_bytes_free(&images);
}

/* Fails the n-th allocation until opening works: MEMORY each time, and nothing is kept. */
typedef struct failing {
    int64_t left;
    dunlin_alloc_counter counter;
} failing;

static void *failing_alloc(void *ctx, size_t bytes, size_t align)
{
    failing *state = ctx;
    if (state->left == 0) {
        return NULL;
    }
    state->left--;
    return state->counter.hooks.alloc_fn(state->counter.hooks.ctx, bytes, align);
}

static void failing_free(void *ctx, void *memory, size_t bytes)
{
    failing *state = ctx;
    state->counter.hooks.free_fn(state->counter.hooks.ctx, memory, bytes);
}

/* What is hashed of a data set: each pixel, in order. */
Test(sets, stored_examples)
{
    dunlin_alloc_counter counter;
    dunlin_dataset *set = open_set("mnist", DUNLIN_SPLIT_TRAIN, NULL, &counter);
    uint64_t n_bytes = 0;
    const uint8_t *pixels = dunlin_dataset_stored(set, &n_bytes);
    cr_assert_eq(n_bytes, 12U * 784U);
    for (uint64_t i = 0; i < n_bytes; i++) {
        cr_assert_eq(pixels[i], (i / 784U * 7U + i % 784U) & 255U, "%d", (int)i);
    }
    dunlin_dataset_close(set);
    set = open_set("cifar10", DUNLIN_SPLIT_TRAIN, NULL, &counter);
    cr_assert_not_null(dunlin_dataset_stored(set, &n_bytes));
    cr_assert_eq(n_bytes, 12U * 3072U);
    dunlin_dataset_close(set);
}

Test(sets, every_failing_allocation_is_clean)
{
    static const char *const names[] = {"fashion_mnist", "mnist_writers", "cifar10", "synthetic"};
    for (size_t i = 0; i < 4; i++) {
        dunlin_dataset *set = NULL;
        int64_t n = 0;
        for (;; n++) {
            failing state = {.left = n};
            dunlin_alloc_counter_init(&state.counter, NULL);
            const dunlin_alloc hooks = {&state, failing_alloc, failing_free};
            dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
            options.n_writers = 2;
            dunlin_error error = {0};
            dunlin_status status = dunlin_tools_dataset_open(
                names[i], files.path, DUNLIN_SPLIT_TRAIN, &options, &hooks, &set, &error);
            if (status == DUNLIN_OK) {
                state.left = -1;
                dunlin_dataset_close(set);
            }
            cr_assert_eq(state.counter.now_bytes, 0U, "%s, allocation %d", names[i], (int)n);
            if (status == DUNLIN_OK) {
                break;
            }
            cr_assert_eq(status, DUNLIN_MEMORY, "%s, allocation %d: %s", names[i], (int)n,
                         error.text);
        }
        cr_assert_geq(n, 4);
    }
}
