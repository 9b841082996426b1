/*
 * test_real.c - the real files, when DUNLIN_DATA names their folder.
 */
#include "data_files.h"

#include <dunlin/tools.h>

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *real_folder(const char *name)
{
    const char *folder = getenv("DUNLIN_DATA");
    if (folder == NULL || folder[0] == '\0') {
        fprintf(stderr, "skipped: DUNLIN_DATA does not name a folder with %s\n", name);
        cr_skip_test();
    }
    return folder;
}

static dunlin_dataset *open_in(const char *name, const char *folder, dunlin_split split)
{
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    dunlin_status status = dunlin_dataset_open(name, folder, split, NULL, NULL, &set, &error);
    if (status == DUNLIN_IO) {
        fprintf(stderr, "skipped: %s\n", error.text);
        cr_skip_test();
    }
    cr_assert_eq(status, DUNLIN_OK, "%s", error.text);
    return set;
}

static dunlin_dataset *open_real(const char *name, dunlin_split split)
{
    return open_in(name, real_folder(name), split);
}

static void check(const char *name, dunlin_split split, int64_t n, int64_t n_clients)
{
    dunlin_dataset *set = open_real(name, split);
    cr_assert_eq(dunlin_dataset_n_examples(set), n);
    cr_assert_eq(dunlin_dataset_n_natural_clients(set), n_clients);
    int64_t counts[10] = {0};
    for (int64_t i = 0; i < n; i++) {
        int32_t label = dunlin_dataset_label(set, i);
        cr_assert(label >= 0 && label <= 9);
        counts[label]++;
        int64_t client = dunlin_dataset_client_of(set, i);
        cr_assert(n_clients == 0 ? client == -1 : client >= 0 && client < n_clients);
    }
    for (size_t c = 0; c < 10; c++) {
        cr_assert_gt(counts[c], n / 15);
    }
    dunlin_dataset_close(set);
}

/* The constants used for normalising are the training images' own. */
static void check_normalisation(const char *name)
{
    dunlin_dataset *set = open_real(name, DUNLIN_SPLIT_TRAIN);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    dunlin_shape shape = dunlin_dataset_shape(set);
    size_t plane = (size_t)(shape.dims[1] * shape.dims[2]);
    uint8_t *x = malloc((size_t)shape.dims[0] * plane);
    double sums[3] = {0};
    double squares[3] = {0};
    for (int64_t i = 0; i < source.n_examples; i++) {
        int32_t y = 0;
        cr_assert_eq(source.read_fn(source.ctx, &i, 1, x, &y), DUNLIN_OK);
        for (size_t k = 0; k < (size_t)shape.dims[0] * plane; k++) {
            sums[k / plane] += x[k] / 255.0;
            squares[k / plane] += (x[k] / 255.0) * (x[k] / 255.0);
        }
    }
    double n = (double)plane * (double)source.n_examples;
    for (size_t c = 0; c < (size_t)shape.dims[0]; c++) {
        double mean = sums[c] / n;
        double deviation = sqrt(squares[c] / n - mean * mean);
        cr_assert_float_eq(mean, (double)source.mean[c], 1e-4, "%s: %g", name, mean);
        cr_assert_float_eq(deviation, (double)source.std[c], 1e-4, "%s: %g", name, deviation);
    }
    free(x);
    dunlin_dataset_close(set);
}

Test(real, fashion_mnist)
{
    check("fashion_mnist", DUNLIN_SPLIT_TRAIN, 60000, 0);
    check("fashion_mnist", DUNLIN_SPLIT_TEST, 10000, 0);
    check_normalisation("fashion_mnist");
}

Test(real, mnist_and_its_writers)
{
    check("mnist", DUNLIN_SPLIT_TRAIN, 60000, 0);
    check("mnist", DUNLIN_SPLIT_TEST, 10000, 0);
    check("mnist_writers", DUNLIN_SPLIT_TRAIN, 60000, 539); /* labels agree, or it would not open */
    check("mnist_writers", DUNLIN_SPLIT_TEST, 10000, 297);
    check_normalisation("mnist");
}

Test(real, cifar10_jpeg_copy)
{
    check("cifar10", DUNLIN_SPLIT_TRAIN, 5000, 0);
    check("cifar10", DUNLIN_SPLIT_TEST, 1000, 0);
    check_normalisation("cifar10");
}

/* Both splits of a set of features: how many, and normalised training features. */
static void check_features(const char *name, const char *folder, const int64_t n[2],
                           const int64_t n_clients[2])
{
    double sums[64] = {0};
    double squares[64] = {0};
    for (int split = 0; split < 2; split++) {
        dunlin_dataset *set = open_in(name, folder, (dunlin_split)split);
        cr_assert_eq(dunlin_dataset_n_examples(set), n[split], "%d",
                     (int)dunlin_dataset_n_examples(set));
        cr_assert_eq(dunlin_dataset_n_natural_clients(set), n_clients[split]);
        dunlin_source source;
        dunlin_dataset_source(set, &source);
        const size_t n_features = (size_t)dunlin_dataset_shape(set).dims[0];
        for (int64_t i = 0; split == 0 && i < n[0]; i++) {
            float x[64];
            int32_t y = 0;
            cr_assert_eq(source.read_fn(source.ctx, &i, 1, x, &y), DUNLIN_OK);
            for (size_t f = 0; f < n_features; f++) {
                const double value =
                    ((double)x[f] - (double)source.mean[f]) / (double)source.std[f];
                sums[f] += value;
                squares[f] += value * value;
            }
        }
        for (size_t f = 0; f < n_features; f++) {
            cr_assert_float_eq(sums[f] / (double)n[0], 0.0, 1e-3, "%s: %d", name, (int)f);
            cr_assert_leq(squares[f] / (double)n[0], 1.001, "%s: %d", name, (int)f);
        }
        dunlin_dataset_close(set);
    }
}

Test(real, wisdm_features)
{
    check_features("wisdm", real_folder("wisdm"), (int64_t[]){4075, 1343}, (int64_t[]){27, 9});
}

/* From the unpacked folder if there is one, else out of the archive. */
Test(real, phone_and_watch_windows)
{
    const char *folder = real_folder("spsw_har");
    char text[1200];
    snprintf(text, sizeof text, "%s/spsw-har/DATA", folder);
    test_folder unpacked = {""};
    if (access(text, F_OK) != 0) {
        test_folder_begin(&unpacked);
        test_folder_write_raw(&unpacked, "spsw-har/x", "", 0);
        snprintf(text, sizeof text, "tar xJf '%s/spsw-har/spsw-har-DATA.tar.xz' -C '%s/spsw-har'",
                 folder, unpacked.path);
        if (system(text) != 0) {
            test_folder_end(&unpacked);
            fprintf(stderr, "skipped: spsw-har-DATA.tar.xz cannot be unpacked\n");
            cr_skip_test();
        }
        folder = unpacked.path;
    }
    check_features("spsw_har", folder, (int64_t[]){4250, 1240}, (int64_t[]){18, 5});
    if (unpacked.path[0] != '\0') {
        test_folder_end(&unpacked);
    }
}

/* Not a file, but a constant of the same kind. */
Test(real, synthetic_normalisation)
{
    dunlin_dataset *set = NULL;
    cr_assert_eq(
        dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TRAIN, NULL, NULL, &set, NULL),
        DUNLIN_OK);
    dunlin_source source;
    dunlin_dataset_source(set, &source);
    uint8_t x[784];
    double sum = 0.0;
    double square = 0.0;
    for (int64_t i = 0; i < source.n_examples; i++) {
        int32_t y = 0;
        cr_assert_eq(source.read_fn(source.ctx, &i, 1, x, &y), DUNLIN_OK);
        for (size_t k = 0; k < sizeof x; k++) {
            sum += x[k] / 255.0;
            square += (x[k] / 255.0) * (x[k] / 255.0);
        }
    }
    double n = 784.0 * (double)source.n_examples;
    double mean = sum / n;
    cr_assert_float_eq(mean, (double)source.mean[0], 1e-4, "%g", mean);
    double deviation = sqrt(square / n - mean * mean);
    cr_assert_float_eq(deviation, (double)source.std[0], 1e-4, "%g", deviation);
    dunlin_dataset_close(set);
}
