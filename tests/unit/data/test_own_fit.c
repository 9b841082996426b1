/*
 * test_own_fit.c - the same pixels as pictures in folders, as NumPy arrays and as a table train to
 * the same weights, to the bit.
 */
#include "own_support.h"
#include "picture_files.h"

#if defined(DUNLIN_HAS_JPEG) && defined(DUNLIN_HAS_PNG)

#include <dunlin/pipeline.h>
#include <dunlin/trainer.h>

#include <criterion/criterion.h>

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIT_N 48
#define FIT_SIDE 28
#define FIT_PIXELS (FIT_SIDE * FIT_SIDE)
#define FIT_WEIGHTS 512

TestSuite(own_fit, .init = own_setup, .fini = own_teardown);

/* Two epochs of LeNet-5 over the training part of a name, with so many threads that read ahead. */
static void fit(const char *name, int32_t n_threads, float out[FIT_WEIGHTS])
{
    dunlin_pipeline *pipeline = NULL;
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_source source;
    dunlin_alloc_counter counter;
    dunlin_dataset_options data_options = DUNLIN_DATASET_OPTIONS_INIT;
    data_options.shape = (dunlin_shape){.n_dims = 3, .dims = {1, FIT_SIDE, FIT_SIDE}};
    data_options.decode_bytes = 100000; /* room for one picture */
    dunlin_dataset *set = own_open_set(name, DUNLIN_SPLIT_TRAIN, &data_options, &counter);
    dunlin_dataset_source(set, &source);
    if (n_threads > 0) {
        dunlin_pipeline_options drawn = DUNLIN_PIPELINE_OPTIONS_INIT;
        const dunlin_source stored = source;
        drawn.prefetch_bytes = 40000;
        drawn.prefetch_threads = n_threads;
        drawn.prefetch_examples = 16;
        cr_assert_eq(
            dunlin_pipeline_create(&stored, &data_options.shape, &drawn, NULL, &pipeline, NULL),
            DUNLIN_OK);
        dunlin_pipeline_source(pipeline, &source);
    }
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 8;
    options.momentum = 0.9F;
    dunlin_fit_options fit_options = DUNLIN_FIT_OPTIONS_INIT;
    fit_options.epochs = 2;
    dunlin_fit_cursor cursor = {0};
    dunlin_metrics metrics = {0};
    cr_assert_eq(dunlin_model_from_zoo("lenet5", NULL, NULL, &model, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, NULL), DUNLIN_OK);
    cr_assert_eq(dunlin_trainer_fit(trainer, &source, &fit_options, &cursor, &metrics), DUNLIN_OK,
                 "%s", dunlin_trainer_last_error(trainer)->text);
    cr_assert_eq(dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, 0, FIT_WEIGHTS, out),
                 DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
    dunlin_pipeline_destroy(pipeline);
    cr_expect_leq(dunlin_dataset_decode_peak(set), data_options.decode_bytes);
    dunlin_dataset_close(set);
}

Test(own_fit, the_same_pixels_give_the_same_weights)
{
    static uint8_t x[FIT_N][FIT_PIXELS];
    static char text[FIT_N * (FIT_PIXELS + 1) * 4];
    int32_t y[FIT_N];
    size_t at = 0;
    for (int i = 0; i < FIT_N; i++) {
        char file[64];
        y[i] = i * 3 / FIT_N; /* in the order of the classes, as folders are */
        at += (size_t)snprintf(text + at, sizeof text - at, "%d", (int)y[i]);
        for (int k = 0; k < FIT_PIXELS; k++) {
            x[i][k] = (uint8_t)(i * 13 + k * (y[i] + 2) + k / FIT_SIDE * 5);
            at += (size_t)snprintf(text + at, sizeof text - at, ",%d", x[i][k]);
        }
        at += (size_t)snprintf(text + at, sizeof text - at, "\n");
        (void)snprintf(file, sizeof file, "fit/c%d/%02d.png", (int)y[i], i);
        own_write_bytes(file,
                        test_png(FIT_SIDE, FIT_SIDE, PNG_COLOR_TYPE_GRAY, 8, i % 2 == 1, x[i]));
    }
    own_write_bytes("fx.npy", test_npy("|u1", "(48, 28, 28)", x, sizeof x));
    own_write_bytes("fy.npy", test_npy("<i4", "(48,)", y, sizeof y));
    char *table = malloc(at + FIT_PIXELS * 8 + 16);
    cr_assert_not_null(table);
    size_t n = (size_t)sprintf(table, "label");
    for (int k = 0; k < FIT_PIXELS; k++) {
        n += (size_t)sprintf(table + n, ",p%d", k);
    }
    (void)sprintf(table + n, "\n%s", text);
    own_write_text("fit.csv", table);
    free(table);
    NAME(pictures, "folder:", "fit");
    NAME(arrays, "npy:", "fx.npy", "fy.npy");
    NAME(rows, "csv:", "fit.csv", "label=label");
    NAME(other, "npy:", "fx.npy", "fy.npy", "seed=1");
    static float weights[6][FIT_WEIGHTS];
    fit(pictures, 0, weights[0]);
    fit(arrays, 0, weights[1]);
    fit(rows, 0, weights[2]);
    fit(other, 0, weights[3]);
    fit(pictures, 3, weights[4]);
    fit(arrays, 2, weights[5]);
    cr_expect_eq(memcmp(weights[0], weights[1], sizeof weights[0]), 0);
    cr_expect_eq(memcmp(weights[0], weights[2], sizeof weights[0]), 0);
    cr_expect_neq(memcmp(weights[0], weights[3], sizeof weights[0]), 0,
                  "other examples are held out");
    cr_expect_eq(memcmp(weights[0], weights[4], sizeof weights[0]), 0, "pictures, three threads");
    cr_expect_eq(memcmp(weights[0], weights[5], sizeof weights[0]), 0, "arrays, two threads");
}

#endif
