/*
 * test_planes.c - images for a file whose input is (N, H, W, C): as the file has them, or in planes
 * as data sets give them.
 */
#include "net_support.h"

#include <dunlin/several.h>

#include <criterion/criterion.h>

#include <string.h>

enum { HEIGHT = 9, WIDTH = 7, CHANNELS = 3, PIXELS = HEIGHT * WIDTH, N = 5, CLASSES = 3 };

static const float MEAN[CHANNELS] = {1.0F, 2.0F, 3.0F};
static const float DEVIATION[CHANNELS] = {2.0F, 4.0F, 8.0F};

static float element(int64_t example, int64_t channel, int64_t pixel)
{
    return (float)((example * 31 + channel * 7 + pixel * 5) % 17);
}

static dunlin_status read_planes(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                 int32_t *out_y)
{
    float *out = out_x;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        out_y[i] = (int32_t)(indices[i] % CLASSES);
        for (int64_t c = 0; c < CHANNELS; c++) {
            for (int64_t p = 0; p < PIXELS; p++) {
                *out++ = element(indices[i], c, p);
            }
        }
    }
    return DUNLIN_OK;
}

/* Normalised already: halves, quarters and eighths of small whole numbers are exact. */
static dunlin_status read_rows(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                               int32_t *out_y)
{
    float *out = out_x;
    (void)ctx;
    for (int64_t i = 0; i < n; i++) {
        out_y[i] = (int32_t)(indices[i] % CLASSES);
        for (int64_t p = 0; p < PIXELS; p++) {
            for (int64_t c = 0; c < CHANNELS; c++) {
                *out++ = (element(indices[i], c, p) - MEAN[c]) / DEVIATION[c];
            }
        }
    }
    return DUNLIN_OK;
}

static void train(const dunlin_model *model, const dunlin_source *source, float logits[N * CLASSES])
{
    const int64_t indices[N] = {0, 1, 2, 3, 4};
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    dunlin_trainer *trainer = NULL;
    dunlin_metrics metrics;
    dunlin_error error = {0};
    options.batch = N;
    cr_assert_eq(dunlin_trainer_create(model, &options, &trainer, &error), DUNLIN_OK, "%s",
                 error.text);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(dunlin_trainer_step(trainer, source, indices, N, &metrics), DUNLIN_OK);
    }
    cr_assert_eq(dunlin_trainer_predict(trainer, source, 0, N, logits), DUNLIN_OK);
    dunlin_trainer_destroy(trainer);
}

Test(planes, rows_and_planes_train_alike)
{
    char path[512];
    dunlin_model *model = NULL;
    dunlin_model_input input = DUNLIN_MODEL_INPUT_INIT;
    float of_rows[N * CLASSES];
    float of_planes[N * CLASSES];
    float unmarked[N * CLASSES];
    dunlin_source source = DUNLIN_SOURCE_INIT;
    cr_assert_eq(dunlin_model_open(net_onnx_path("tensorflow.onnx", path), NULL, &model, NULL),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_model_get_input(model, 0, &input), DUNLIN_OK);
    cr_expect(input.is_channels_last);
    cr_expect_eq(input.shape.dims[2], CHANNELS);
    source.read_fn = read_rows;
    source.n_examples = N;
    source.dtype = DUNLIN_F32;
    train(model, &source, of_rows);
    source.read_fn = read_planes;
    source.flags = DUNLIN_SOURCE_PLANES;
    source.mean = MEAN;
    source.std = DEVIATION;
    train(model, &source, of_planes);
    cr_expect_eq(memcmp(of_rows, of_planes, sizeof of_rows), 0);
    source.flags = 0;
    train(model, &source, unmarked);
    cr_expect_neq(memcmp(of_rows, unmarked, sizeof of_rows), 0);
    dunlin_model_destroy(model);
}

/* To an input (C, H, W) the mark says what is so anyway. */
Test(planes, images_with_channels_first_do_not_look_at_it)
{
    char path[512];
    dunlin_model *model = NULL;
    dunlin_model_input input = DUNLIN_MODEL_INPUT_INIT;
    cr_assert_eq(dunlin_model_open(net_onnx_path("train17.onnx", path), NULL, &model, NULL),
                 DUNLIN_OK);
    cr_assert_eq(dunlin_model_get_input(model, 0, &input), DUNLIN_OK);
    cr_expect(!input.is_channels_last);
    dunlin_model_destroy(model);
}
