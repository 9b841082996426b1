/*
 * 07_model_in_memory.c - a model given as bytes: its last layer learns from 200 images in an array,
 * it predicts, is saved to bytes, and these predict the same. No file is touched. Expected output
 * of sample-07_model_in_memory < LENET5.onnx: accuracy 98 %; saved to bytes, read: the same outputs
 */
#include <dunlin/arrays.h>
#include <dunlin/bytes.h>
#include <dunlin/predictor.h>

#include <stdio.h>
#include <string.h>

#define TRY(call) status = status == DUNLIN_OK ? (call) : status
static float x[200 * 784], y[2][200 * 10];
static int32_t labels[200];
static unsigned char in[1 << 20]; /* in an app: a resource, or what was downloaded */

int main(void)
{
    dunlin_error error = {0};
    dunlin_status status = DUNLIN_OK;
    dunlin_model *model = NULL, *again = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_predictor *predictor = NULL;
    dunlin_buffer saved = {0};
    dunlin_arrays_view view;
    dunlin_source source;
    dunlin_metrics learnt = {0};
    for (int i = 0; i < 200 * 784; i++) { /* one of four quarters is bright */
        labels[i / 784] = i / 784 % 4;
        x[i] = i % 28 / 14 + i % 784 / 392 * 2 == i / 784 % 4 ? 1.0F : 0.01F * (float)(i % 31);
    }
    dunlin_arrays arrays = DUNLIN_ARRAYS_INIT;
    arrays.x = x;
    arrays.dtype = DUNLIN_F32;
    arrays.shape = (dunlin_shape){3, {1, 28, 28}};
    arrays.n = 200;
    arrays.labels = labels;
    dunlin_trainer_options head = {
        .struct_size = sizeof head, .trained = DUNLIN_TRAINED_HEAD, .lr = 0.05F};
    dunlin_fit_options fit = {.struct_size = sizeof fit, .epochs = 30};
    TRY(dunlin_source_from_arrays(&arrays, &view, &source, &error));
    TRY(dunlin_model_open_memory(in, fread(in, 1, sizeof in, stdin), NULL, NULL, &model, &error));
    TRY(dunlin_trainer_create(model, &head, &trainer, &error));
    TRY(dunlin_trainer_fit(trainer, &source, &fit, NULL, &learnt));
    TRY(dunlin_trainer_predict(trainer, &source, 0, 200, y[0]));
    TRY(dunlin_trainer_write_onnx(trainer, dunlin_buffer_add, &saved));
    TRY(dunlin_model_open_memory(saved.at, saved.n, NULL, NULL, &again, &error));
    TRY(dunlin_predictor_create(again, NULL, &predictor, &error));
    TRY(dunlin_predictor_predict(predictor, &source, 0, 200, y[1], &error));
    const bool same = status == DUNLIN_OK && memcmp((void *)y[0], (void *)y[1], sizeof y[0]) == 0;
    printf("accuracy %.0f %%; saved to bytes, read: %s\n", 100.0 * learnt.accuracy,
           same ? "the same outputs" : dunlin_status_text(status));
    dunlin_predictor_destroy(predictor);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(again);
    dunlin_model_destroy(model);
    dunlin_buffer_free(&saved);
    return same ? 0 : 1;
}
